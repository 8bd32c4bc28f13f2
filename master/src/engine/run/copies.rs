//! Copies of snapshots: what the partners hold, and parts of lost nodes that move there.
//!
//! A node whose next daemon could not be started once may stay away for long: the parts of parked jobs that
//! lie there move to other nodes, if these hold copies and have the memory.

use coswitch_policies::{Bytes, Epoch, JobId, NodeId, Placement, SchedulerEvent, partners};
use coswitch_report::journal::Event;

use super::Run;
use crate::engine::run::{Output, adoption::by_node};

impl Run {
    pub(super) fn on_copied(
        &mut self,
        job: JobId,
        node: NodeId,
        to: Vec<NodeId>,
        bytes: Bytes,
        took: std::time::Duration,
    ) {
        self.partners.insert((job, node), to.clone());
        self.tell(Event::JobCopied { job, node, to, bytes, took });
    }

    pub(super) fn on_not_copied(&mut self, job: JobId, node: NodeId, epoch: Epoch, reason: &str) {
        self.warn(format!("{job}: the copy of {node}'s snapshot {epoch}: {reason}"));
    }

    /// The node stays away for now.
    pub(super) fn move_parts_of(&mut self, from: NodeId) {
        if self.cluster.copies == 0 || self.adoption.is_some() {
            return;
        }
        for job in self.scheduler.parts_on_lost(from) {
            let candidates = self.scheduler.may_take_part(job, from);
            let to = partners::successor(candidates, self.partners.get(&(job, from)).map(Vec::as_slice));
            if let Some(to) = to.filter(|_| self.launched.contains(&job) && self.moving.insert(job)) {
                self.outputs.push(Output::Move(job, from, to));
            }
        }
    }

    pub(super) fn on_moved(&mut self, job: JobId, from: NodeId, to: NodeId, placement: Vec<NodeId>) {
        self.moving.remove(&job);
        let places: Placement = by_node(&placement);
        self.tell(Event::JobMoved { job, from, to, placement });
        self.memory.on_launched(job, &places, self.jobs[&job].memory);
        self.schedule(SchedulerEvent::Moved { job, from, to });
        // Other parts of it may be on other nodes that stay away.
        let away: Vec<NodeId> =
            self.down.iter().filter(|(_, down)| down.stays_away()).map(|(node, _)| *node).collect();
        away.into_iter().for_each(|node| self.move_parts_of(node));
    }

    pub(super) fn on_not_moved(&mut self, job: JobId, from: NodeId, why: &str) {
        self.moving.remove(&job);
        self.warn(format!("{job} waits for {from}: its part there could not move: {why}"));
    }
}
