//! Allowances: what the jobs of a node may hold where they declare more than it has.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Scheduler, residency::reserve};
use crate::{Bytes, JobId, NodeId, Purpose, Residence, Residency, SwitchOrder, SwitchPlan, Switching};

/// What all jobs of a node may hold together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowance {
    pub total: Bytes,
    /// Jobs on their way in, and what they come with: so much of the total is theirs already.
    pub arriving: BTreeMap<JobId, Bytes>,
}

/// Where a job of a plan is once incoming jobs come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Gone,
    Stopped,
    Runs,
}

/// A node while its jobs are counted.
#[derive(Default)]
struct Count {
    declared: Bytes,
    arriving: BTreeMap<JobId, Bytes>,
}

impl Scheduler {
    /// The allowance of each overcommitted node. The executor, which carries out this switch, lets no job
    /// in where the jobs of a node would exceed it (`Cause::NoRoom`); stops the running ones where they do,
    /// answers [`RunningStopped`](crate::SchedulerEvent::RunningStopped), and lets them go on when they hold
    /// no more than the allowance of the moment.
    #[must_use]
    pub fn allowances(&self, switching: Option<&Switching>) -> BTreeMap<NodeId, Allowance> {
        let memory = self.presence.memory();
        if !memory.knows_any() || self.config.residency == Residency::Always {
            return BTreeMap::new();
        }
        let mut jobs = switching.filter(|switching| switching.brings_in()).map(after).unwrap_or_default();
        for (job, runs) in memory.present() {
            jobs.entry(job).or_insert(if runs { Then::Runs } else { Then::Stopped });
        }
        let mut nodes: BTreeMap<NodeId, Count> = BTreeMap::new();
        for (job, then) in jobs.into_iter().filter(|(_, then)| *then != Then::Gone) {
            let Some(assignment) = self.assignment(job) else { continue };
            let arrives = switching.is_some_and(|switching| switching.is_arriving(job));
            let stopped = memory.loads_of(assignment, false);
            for ((node, load), (_, stopped)) in memory.loads_of(assignment, then == Then::Runs).zip(stopped) {
                let count = nodes.entry(node).or_default();
                count.declared = count.declared.saturating_add(load.declared());
                count.arriving.extend(arrives.then_some((job, stopped.expected())));
            }
        }
        let cluster = self.matrix.cluster();
        let allowance = |(node, Count { declared, arriving }): (NodeId, Count)| {
            let capacity = cluster.capacity(node);
            let total = Bytes(capacity.0.saturating_sub(reserve(capacity).0));
            (declared > capacity).then_some((node, Allowance { total, arriving }))
        };
        nodes.into_iter().filter_map(allowance).collect()
    }
}

/// The jobs of a switch that brings others in: those that went first have gone.
fn after(switching: &Switching) -> BTreeMap<JobId, Then> {
    let SwitchPlan { outgoing, incoming, order, purpose, .. } = switching.plan();
    let out = outgoing.iter().map(|outgoing| {
        let overlaps = *order == SwitchOrder::Overlapped && outgoing.running;
        let gone = outgoing.to == Residence::Parked && !overlaps;
        (outgoing.job, if gone { Then::Gone } else { Then::Stopped })
    });
    let comes_to = if *purpose == Purpose::Turn { Then::Runs } else { Then::Stopped };
    out.chain(incoming.iter().map(|incoming| (incoming.job, comes_to))).collect()
}
