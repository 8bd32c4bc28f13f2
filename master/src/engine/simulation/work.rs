//! The ranks of a job on one node, as a program that checks itself: units of work, and after each one a
//! message to every other node of the job, and one from each. Nothing can be done twice or skipped unseen.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use coswitch_daemon::protocol::PartState;
use coswitch_policies::NodeId;

use super::{
    context::{Context, Event},
    machine::Machine,
    part::Part,
};

/// Memory of the ranks on one node, with their rings: what a dump saves and a restore brings back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ranks {
    units: u64,
    done: u64,
    /// The first fence of the PMI exchange: reached, and told; and passed.
    pub(super) has_asked: bool,
    pub(super) has_begun: bool,
    /// Messages sent into the network and taken from it, by node.
    pub(super) sent: BTreeMap<NodeId, u64>,
    pub(super) received: BTreeMap<NodeId, u64>,
    /// In the rings, on their way out.
    pub(super) ring: VecDeque<NodeId>,
}

impl Ranks {
    pub(super) fn new(units: u64, peers: &BTreeSet<NodeId>) -> Self {
        let zero = || peers.iter().map(|peer| (*peer, 0)).collect();
        Self {
            units,
            done: 0,
            has_asked: false,
            has_begun: false,
            sent: zero(),
            received: zero(),
            ring: VecDeque::new(),
        }
    }

    /// They have all messages that the next unit needs, and there is one.
    pub(super) fn can_work(&self) -> bool {
        self.has_begun && self.done < self.units && self.received.values().all(|count| *count >= self.done)
    }

    /// One unit is done.
    pub(super) fn work(&mut self) {
        assert!(self.can_work(), "ranks work when they have what they need: {self:?}");
        self.done += 1;
        self.ring.extend(self.sent.keys());
    }

    /// All of their work is done, and the last messages are here.
    pub(super) fn are_done(&self) -> bool {
        self.done == self.units && self.received.values().all(|count| *count == self.units)
    }

    /// The next message for a node leaves its ring; returns its number.
    pub(super) fn send(&mut self, to: NodeId) -> u64 {
        let sent = self.sent.get_mut(&to).expect("messages go to nodes of the job");
        *sent += 1;
        *sent
    }

    pub(super) fn receive(&mut self, from: NodeId, number: u64) {
        let received = self.received.get_mut(&from).expect("messages come from nodes of the job");
        *received += 1;
        assert_eq!(number, *received, "messages from {from} arrive once and in order");
    }

    pub(super) const fn done(&self) -> u64 {
        self.done
    }
}

impl Part {
    pub(super) fn stop_working(&mut self) {
        (self.work, self.is_working) = (0, false);
    }

    pub(super) fn computes(&self) -> bool {
        self.state == PartState::Running && !self.stands_still && !self.is_released
    }

    /// Begins the next unit of work, where the ranks can.
    pub(super) fn start_working(&mut self, ctx: &mut Context) {
        if self.computes() && !self.is_working && self.ranks.can_work() {
            (self.is_working, self.work) = (true, ctx.audit.number());
            ctx.after(self.unit, Event::Worked(self.node, self.job, self.work));
        }
    }

    pub(super) fn on_worked(&mut self, ctx: &mut Context, machine: &mut Machine, work: u64) {
        if self.work != work || !self.computes() {
            return;
        }
        self.is_working = false;
        self.ranks.work();
        self.pump(ctx, machine);
    }
}
