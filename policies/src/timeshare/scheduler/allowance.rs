//! Allowances of running jobs: where suspended jobs hold memory that the running ones have declared.

use std::collections::BTreeMap;

use super::{Scheduler, residency::Allowances};
use crate::{Bytes, JobId, NodeId, Purpose, Residence, Start, SwitchOrder, SwitchPlan, Switching};

/// Where a job of a plan is once incoming jobs come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Gone,
    Stopped,
    Runs,
}

impl Scheduler {
    /// The memory that the running jobs of each overcommitted node may hold together. The executor, which
    /// carries out this switch, stops them where they hold more, answers
    /// [`RunningStopped`](crate::SchedulerEvent::RunningStopped), and lets them go on when they hold no more
    /// than the allowance of the moment.
    #[must_use]
    pub fn allowances(&self, switching: Option<&Switching>) -> BTreeMap<NodeId, Bytes> {
        let memory = self.presence.memory();
        if !memory.knows_any() {
            return BTreeMap::new();
        }
        let then = switching.filter(|switching| switching.brings_in()).map(after).unwrap_or_default();
        let mut allowances = Allowances::default();
        memory.count_present(|job| then.get(&job).copied(), &mut allowances);
        let entering = then.iter().filter(|(job, then)| **then != Then::Gone && !memory.holds(**job));
        for (assignment, then) in entering.filter_map(|(job, then)| Some((self.assignment(*job)?, *then))) {
            memory.count_entering(assignment, then, &mut allowances);
        }
        allowances.of(self.matrix.cluster())
    }
}

/// The jobs of a switch that brings others in: those that went first have gone, and memory is set aside for
/// those that are still to arrive.
fn after(switching: &Switching) -> BTreeMap<JobId, Then> {
    let SwitchPlan { outgoing, incoming, order, purpose, .. } = switching.plan();
    let out = outgoing.iter().map(|outgoing| {
        let overlaps = *order == SwitchOrder::Overlapped && outgoing.running;
        let gone = outgoing.to == Residence::Parked && !overlaps;
        (outgoing.job, if gone { Then::Gone } else { Then::Stopped })
    });
    let into = incoming.iter().map(|incoming| {
        // One that resumes is there already.
        let is_there = incoming.start == Start::Resume || !switching.is_coming(incoming.job);
        let runs = *purpose == Purpose::Turn && is_there;
        (incoming.job, if runs { Then::Runs } else { Then::Stopped })
    });
    out.chain(into).collect()
}
