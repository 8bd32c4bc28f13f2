//! Admission: a job comes into memory where its nodes have room by what their jobs hold at that moment.
//!
//! The scheduler plans with what jobs were last seen to hold. Where that is less than the jobs declare, a
//! node gets an allowance. The node answers whether its jobs hold more already; from then on its guard
//! stops jobs that would. A node that does not answer is silent, or lost, as for every other request.

use std::collections::BTreeSet;

use coswitch_dispatcher::protocol::Order;
use coswitch_policies::{Cause, JobId, NodeId, Residence};

use super::{Output, Run, switches::SwitchUnderWay};

/// Orders that wait until nodes have answered.
pub(super) struct Admission {
    orders: Vec<(JobId, Order)>,
    waiting: BTreeSet<NodeId>,
    full: BTreeSet<NodeId>,
}

impl Run {
    /// Gives the orders of a switch. A job that enters memory gets its order when its nodes have room.
    pub(super) fn admit(&mut self, orders: Vec<(JobId, Order)>) {
        let Some(switching) = self.switch.as_ref().map(SwitchUnderWay::switching) else { return };
        let (enter, others): (Vec<_>, Vec<_>) =
            orders.into_iter().partition(|(job, _)| switching.is_arriving(*job));
        let placements = enter.iter().filter_map(|(job, _)| switching.placement_of(*job));
        let nodes: BTreeSet<NodeId> = placements.flat_map(|placement| placement.nodes()).collect();
        self.allow();
        let waiting: BTreeSet<NodeId> = nodes
            .into_iter()
            .filter(|node| self.allowances.contains_key(node) && !self.down.contains_key(node))
            .collect();
        self.give(others);
        if waiting.is_empty() {
            return self.give(enter);
        }
        for node in &waiting {
            if self.unanswered.get(node).is_none_or(|times| *times == 0) {
                self.tell_allowance(*node);
            }
        }
        self.admission = Some(Admission { orders: enter, waiting, full: BTreeSet::new() });
    }

    /// Tells the nodes what their jobs may hold together, where that has changed.
    pub(super) fn allow(&mut self) {
        let switching = self.switch.as_ref().map(SwitchUnderWay::switching);
        let allowances = self.scheduler.allowances(switching);
        let before = std::mem::replace(&mut self.allowances, allowances);
        let nodes: BTreeSet<NodeId> = before.keys().chain(self.allowances.keys()).copied().collect();
        for node in nodes {
            if self.allowances.get(&node) != before.get(&node) {
                self.tell_allowance(node);
            }
        }
    }

    pub(super) fn tell_allowance(&mut self, node: NodeId) {
        // It is told when it is back.
        if self.down.contains_key(&node) {
            return;
        }
        *self.unanswered.entry(node).or_default() += 1;
        self.outputs.push(Output::Allow(node, self.allowances.get(&node).cloned()));
    }

    /// A node goes by its new allowance. Where several were sent, the answer to the last one counts.
    pub(super) fn on_allowed(&mut self, node: NodeId, exceeded: bool) {
        let unanswered = self.unanswered.entry(node).or_default();
        *unanswered = unanswered.saturating_sub(1);
        let Some(admission) = self.admission.as_mut().filter(|_| *unanswered == 0) else { return };
        if admission.waiting.remove(&node) && exceeded {
            admission.full.insert(node);
        }
        if admission.waiting.is_empty() {
            self.decide_admission();
        }
    }

    /// The node was lost, and does not answer.
    pub(super) fn stop_waiting_for(&mut self, node: NodeId) {
        let Some(admission) = &mut self.admission else { return };
        if admission.waiting.remove(&node) && admission.waiting.is_empty() {
            self.decide_admission();
        }
    }

    fn decide_admission(&mut self) {
        let Some(Admission { orders, full, .. }) = self.admission.take() else { return };
        let Some(switching) = self.switch.as_ref().map(SwitchUnderWay::switching) else { return };
        // A job may have been ended meanwhile.
        let orders = orders.into_iter().filter(|(job, _)| switching.is_arriving(*job));
        let is_full = |(job, _): &(JobId, Order)| {
            let placement = switching.placement_of(*job);
            placement.is_some_and(|placement| placement.nodes().any(|node| full.contains(&node)))
        };
        let (refused, admitted): (Vec<_>, Vec<_>) = orders.partition(is_full);
        self.give(admitted);
        for (job, order) in refused {
            let at = if order == Order::Launch { Residence::Unlaunched } else { Residence::Parked };
            self.on_residence(job, at, Cause::NoRoom);
        }
    }
}
