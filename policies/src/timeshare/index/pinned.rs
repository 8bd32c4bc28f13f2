//! Index of pinned jobs: finds candidates for freed nodes without scanning every job.

use std::collections::BTreeSet;

use crate::{Assignment, Bytes, JobId, NodeId};

/// The jobs that must keep their nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PinnedIndex {
    jobs: BTreeSet<JobId>,
    /// Those with ranks on each node, in whatever row, by what they take there.
    by_node: Vec<BTreeSet<(Bytes, JobId)>>,
}

impl PinnedIndex {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { jobs: BTreeSet::new(), by_node: vec![BTreeSet::new(); nodes] }
    }

    pub(crate) fn contains(&self, job: JobId) -> bool {
        self.jobs.contains(&job)
    }

    /// Pins or unpins a job; returns whether that changes anything.
    pub(crate) fn set(&mut self, job: JobId, pinned: bool) -> bool {
        if pinned { self.jobs.insert(job) } else { self.jobs.remove(&job) }
    }

    /// A pinned job enters a row.
    pub(crate) fn add(&mut self, assignment: &Assignment) {
        for (node, part) in parts(assignment) {
            self.by_node[node.0 as usize].insert(part);
        }
    }

    /// A pinned job leaves its row.
    pub(crate) fn remove(&mut self, assignment: &Assignment) {
        for (node, part) in parts(assignment) {
            self.by_node[node.0 as usize].remove(&part);
        }
    }

    /// The jobs with ranks on any of `nodes` that take no more there than what it has free.
    pub(crate) fn fitting(&self, nodes: impl Iterator<Item = (NodeId, Bytes)>) -> BTreeSet<JobId> {
        let fitting = |(node, free): (NodeId, Bytes)| {
            self.by_node[node.0 as usize].iter().take_while(move |(memory, _)| *memory <= free)
        };
        nodes.flat_map(fitting).map(|(_, job)| *job).collect()
    }
}

fn parts(assignment: &Assignment) -> impl Iterator<Item = (NodeId, (Bytes, JobId))> + '_ {
    let spec = &assignment.spec;
    assignment.placement.blocks().map(|block| (block.node, (spec.memory_of(block.ranks), spec.id)))
}
