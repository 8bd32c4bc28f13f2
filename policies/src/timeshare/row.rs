//! A row of the matrix, its assignments, and why a job finds none.

use serde::{Deserialize, Serialize};

use crate::{Bytes, JobId, JobMap, JobSpec, NodeId, Placement, SlotId, timeshare::index::job_map::JobSet};

/// A job in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// What the job asks for.
    pub spec: JobSpec,
    /// Where its ranks run.
    pub placement: Placement,
}

impl Assignment {
    /// The working set of the job on `node`.
    #[must_use]
    pub fn memory_on(&self, node: NodeId) -> Bytes {
        self.spec.memory_of(self.placement.count_on(node))
    }
}

/// A assignment, and the row it is in: a line of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub(crate) struct RowAssignment {
    pub(crate) slot: SlotId,
    pub(crate) assignment: Assignment,
}

const _: () = assert!(size_of::<RowAssignment>() == 64);

/// A time slot: the jobs that run together. It keeps its number while it moves in the order of turns.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The number of the slot; never used again.
    pub slot: SlotId,
    /// Who has one of them here.
    pub(crate) jobs: &'a JobSet,
    /// Of all rows.
    pub(crate) assignments: &'a JobMap<RowAssignment>,
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
        self.jobs.iter().map(move |job| &self.assignments[job].assignment)
    }

    /// A job, where it is in this row.
    #[must_use]
    pub fn assignment(self, job: JobId) -> Option<&'a Assignment> {
        self.contains(job).then(|| &self.assignments[job].assignment)
    }

    /// Whether the job is in this row.
    #[must_use]
    pub fn contains(self, job: JobId) -> bool {
        self.jobs.contains(job)
    }

    /// The jobs of the row.
    pub fn jobs(self) -> impl Iterator<Item = JobId> + Clone + 'a {
        self.jobs.iter()
    }
}

/// Why a job does not fit in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "lacks", rename_all = "kebab-case")]
pub enum RejectionCause {
    /// Too few cells may take one more job.
    Cells {
        /// Nodes the job spans.
        needs: u32,
        /// Cells with a place.
        open: u32,
    },
    /// Too little memory is left.
    Memory {
        /// The fullest node that could take a job.
        node: NodeId,
        /// What the job would put there.
        needs: Bytes,
        /// What is left there.
        free: Bytes,
    },
}
