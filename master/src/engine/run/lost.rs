//! Nodes that are lost: they are given another daemon, and their jobs go back to snapshots.
//!
//! ```text
//!   Lost ─▶ Restart ─┬─▶ Back
//!              ▲     └─▶ NotBack ─pause, longer each time─┐
//!              └─────────────────────────────────────────┘   a run gives up after some attempts
//! ```

use std::time::Duration;

use coswitch_dispatcher::protocol::Order;
use coswitch_policies::{JobId, NodeId, Residence, SchedulerEvent, SimTime};
use coswitch_report::journal::{Event, RunOutcome};

use super::{Output, Run};

/// A run without users ends where only lost nodes could go on with it, after so many attempts for each.
const ATTEMPTS_MAX: u32 = 6;
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// A node that is down.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Down {
    /// How often another daemon was tried.
    failed: u32,
    /// When the next attempt is due; `None` while one is under way, or where there will be none.
    again: Option<SimTime>,
    given_up: bool,
}

impl Down {
    /// Whether the first attempt to give it another daemon has failed.
    pub(super) const fn stays_away(self) -> bool {
        self.failed > 0
    }
}

impl Run {
    pub(super) fn on_node_lost(&mut self, node: NodeId, reason: String) {
        self.tell(Event::NodeLost { node, reason });
        self.down.insert(node, Down::default());
        self.unanswered.remove(&node);
        self.outputs.push(Output::Restart(node));
        self.schedule(SchedulerEvent::NodeDown { node });
        self.forget_load(node);
        self.stop_waiting_for(node);
    }

    pub(super) fn on_node_back(&mut self, node: NodeId) {
        self.tell(Event::NodeBack { node });
        self.down.remove(&node);
        // Its guard knows no allowance.
        if self.allowances.contains_key(&node) {
            self.tell_allowance(node);
        }
        self.schedule(SchedulerEvent::NodeUp { node });
    }

    pub(super) fn on_node_not_back(&mut self, node: NodeId, reason: &str) {
        let (now, standing) = (self.now, self.settings.standing);
        let Some(down) = self.down.get_mut(&node) else { return };
        down.failed += 1;
        let stays_down = down.failed == ATTEMPTS_MAX;
        down.given_up = down.failed >= ATTEMPTS_MAX && !standing;
        let pause = PAUSE_FIRST.saturating_mul(1 << (down.failed - 1).min(10)).min(PAUSE_MAX);
        down.again = (!down.given_up).then(|| now.after(pause));
        if down.failed == 1 || stays_down {
            let stays = if stays_down { "; it stays down" } else { "" };
            self.warn(format!("{node} could not be given another daemon: {reason}{stays}"));
        }
        self.move_parts_of(node);
    }

    /// When the next daemon is to be tried.
    pub(super) fn restart_due(&self) -> Option<SimTime> {
        self.down.values().filter_map(|down| down.again).min()
    }

    pub(super) fn restart_due_nodes(&mut self) {
        let now = self.now;
        for (node, down) in &mut self.down {
            if down.again.take_if(|again| *again <= now).is_some() {
                self.outputs.push(Output::Restart(*node));
            }
        }
    }

    /// The job is in memory nowhere, because a node was lost.
    pub(super) fn on_displaced(&mut self, job: JobId, at: Residence) {
        self.running.remove(&job);
        self.resting.remove(&job);
        self.on_stopped_running(job);
        self.communication.pause(job);
        self.parking.forget(job);
        self.tell(Event::JobDisplaced { job, residence: at });
        let record = self.records.entry(job).or_default();
        let ending = record.ending.filter(|_| at == Residence::Unlaunched);
        if at == Residence::Unlaunched {
            self.launched.remove(&job);
            self.moving.remove(&job);
            self.memory.on_ended(job);
            self.tell_repeated(job, None);
            self.tell_limits(vec![job]);
        }
        if let Some(ending) = ending {
            // Its dispatcher has ended before it heard of that.
            return self.end(job, ending.outcome(), String::new());
        }
        // Where a switch moves it, the scheduler takes it from the outcome of that, and plans none before.
        let moves = self.switch.as_ref().is_some_and(|switch| switch.switching().plan().names(job));
        self.schedule(SchedulerEvent::Displaced { job, at });
        let now = self.now;
        let switch = self.switch.as_mut().filter(|_| moves);
        if let Some(action) = switch.and_then(|switch| switch.on_displaced(now, job, at)) {
            self.act(action);
        }
        if self.records[&job].ending.is_some() {
            self.order(job, Order::End);
        }
        let away = self.down.iter().filter(|(_, down)| down.stays_away());
        let away: Vec<NodeId> = away.map(|(node, _)| *node).collect();
        away.into_iter().for_each(|node| self.move_parts_of(node));
    }

    /// The job has gone back to the snapshot of this epoch, or begins again.
    pub(super) fn tell_repeated(&mut self, job: JobId, epoch: Option<u64>) {
        let now = self.now;
        let work = self.records.entry(job).or_default().repeats(now, epoch);
        self.tell(Event::JobRepeats { job, work });
    }

    /// A run ends where its jobs wait for nodes that stay down.
    pub(super) fn end_without_nodes(&mut self) {
        let stay_down = !self.down.is_empty() && self.down.values().all(|down| down.given_up);
        let is_stuck = stay_down
            && self.adoption.is_none()
            && self.switch.is_none()
            && self.arrivals.is_empty()
            && self.scheduler.only_waits_for_nodes();
        if self.settings.standing || !is_stuck {
            return;
        }
        let living = self.records.iter().filter(|(_, record)| record.ended.is_none());
        let names: Vec<String> = living.map(|(job, _)| self.jobs[job].name.clone()).collect();
        let nodes: Vec<String> = self.down.keys().map(ToString::to_string).collect();
        let (names, nodes) = (names.join(", "), nodes.join(", "));
        self.warn(format!("{nodes} cannot be started again; not done: {names}"));
        self.outputs.push(Output::Over(RunOutcome::Aborted));
    }
}
