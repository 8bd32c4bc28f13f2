//! A row of the matrix, its assignments, and the cause for which a row rejects a job.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Bytes, JobId, JobSpec, NodeId, Placement, SlotId};

/// A job in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub spec: JobSpec,
    pub placement: Placement,
}

impl Assignment {
    /// The working set of the job on `node`.
    #[must_use]
    pub fn memory_on(&self, node: NodeId) -> Bytes {
        self.spec.memory_of(self.placement.count_on(node))
    }
}

/// A time slot: the jobs that run together. It keeps its number while it moves in the order of turns.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The number of the slot; never used again.
    pub slot: SlotId,
    pub(crate) assignments: &'a BTreeMap<JobId, Assignment>,
}

impl<'a> Row<'a> {
    /// The working sets in the cell of `node`.
    #[must_use]
    pub fn memory_on(self, node: NodeId) -> Bytes {
        self.assignments().map(|assignment| assignment.memory_on(node)).sum()
    }

    /// The jobs in the cell of `node`.
    pub fn jobs_on(self, node: NodeId) -> impl Iterator<Item = &'a Assignment> {
        self.assignments().filter(move |assignment| assignment.placement.count_on(node) > 0)
    }

    /// Its jobs, by their numbers.
    pub fn assignments(self) -> impl Iterator<Item = &'a Assignment> + Clone {
        self.assignments.values()
    }

    /// The job in this row; `None` where it lies in another.
    #[must_use]
    pub fn assignment(self, job: JobId) -> Option<&'a Assignment> {
        self.assignments.get(&job)
    }

    #[must_use]
    pub fn contains(self, job: JobId) -> bool {
        self.assignments.contains_key(&job)
    }

    pub fn jobs(self) -> impl Iterator<Item = JobId> + Clone + 'a {
        self.assignments.keys().copied()
    }
}

/// Why a row rejects a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "lacks", rename_all = "kebab-case")]
pub enum RejectionCause {
    /// Too few cells may take one more job.
    Cells {
        /// Nodes that the job spans.
        needs: u32,
        /// Cells that take one more job.
        open: u32,
    },
    /// Too little memory is left.
    Memory {
        /// The fullest node that could take a job.
        node: NodeId,
        needs: Bytes,
        free: Bytes,
    },
}
