//! Nodes that are drained: their administrator wants them empty, for as long as it takes.
//!
//! ```text
//!   in memory there ─(a switch)─▶ parked ──▶ out of the matrix, until the node takes jobs again
//!   never launched ──────────────────────▶ first in the queue
//! ```
//! A job that cannot leave memory stays where it is; draining the node once more tries it again.

use super::{Scheduler, hold::Held};
use crate::{JobId, NodeId};

impl Scheduler {
    pub(super) fn drain(&mut self, node: NodeId) {
        if (node.0 as usize) < self.matrix.cluster().len() {
            self.drained.insert(node);
            self.matrix.set_down(node, true);
            self.stuck.clear();
        }
    }

    pub(super) fn undrain(&mut self, node: NodeId) {
        if !self.drained.remove(&node) {
            return;
        }
        if !self.lost.contains(&node) {
            self.take_jobs_again(node);
        }
    }

    /// Lets jobs stay that have not left yet, where all their nodes take jobs again.
    pub(super) fn need_not_leave(&mut self) {
        let matrix = &self.matrix;
        let may_stay = |job: &JobId| {
            matrix.assignment_of(*job).is_none_or(|assignment| matrix.is_up(&assignment.placement))
        };
        self.held.retain(|job, held| *held != Held::Evading || !may_stay(job));
    }

    /// Has the jobs leave that are in memory on drained nodes.
    pub(super) fn leave_drained(&mut self) {
        if self.drained.is_empty() || !self.can_hold() {
            return;
        }
        for job in self.jobs_on(|node| self.drained.contains(&node)) {
            let entry = &self.jobs[&job];
            if entry.observed.is_in_memory() && !entry.abandoned && !self.stuck.contains(&job) {
                self.held.entry(job).or_insert(Held::Evading);
            }
        }
    }

    /// The jobs of the matrix on such nodes.
    pub(super) fn jobs_on(&self, is_such: impl Fn(NodeId) -> bool) -> Vec<JobId> {
        let rows = self.matrix.rows().flat_map(|row| row.assignments());
        let on_it = rows.filter(|assignment| assignment.placement.nodes().any(&is_such));
        on_it.map(|assignment| assignment.spec.id).collect()
    }

    /// The nodes that are drained.
    #[must_use]
    pub const fn drained(&self) -> &std::collections::BTreeSet<NodeId> {
        &self.drained
    }

    /// The jobs that are in memory on the node, or on their way there.
    #[must_use]
    pub fn in_memory_on(&self, node: NodeId) -> Vec<JobId> {
        let comes = |job: &JobId| {
            let incoming = self.under_way.iter().flat_map(|plan| &plan.incoming);
            incoming.into_iter().any(|incoming| incoming.job == *job)
        };
        let there = self.jobs_on(|other| other == node);
        there.into_iter().filter(|job| self.jobs[job].observed.is_in_memory() || comes(job)).collect()
    }
}
