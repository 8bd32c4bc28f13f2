//! A row of the matrix, its seats, and why a job finds none.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Bytes, JobId, JobSpec, NodeId, Placement, SlotId};

/// A job in a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Seat {
    /// What the job asks for.
    pub spec: JobSpec,
    /// Where its ranks run.
    pub placement: Placement,
}

impl Seat {
    /// The working set of the job on `node`.
    #[must_use]
    pub fn memory_on(&self, node: NodeId) -> Bytes {
        self.spec.memory_of(self.placement.count_on(node))
    }
}

/// A time slot: the jobs that run together. It keeps its number while it moves in the order of turns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The number of the slot; never used again.
    pub slot: SlotId,
    /// Its jobs, out of line: a tree of single words is a few lines of the cache to change.
    pub(crate) seats: BTreeMap<JobId, Box<Seat>>,
}

impl Row {
    /// The working sets in the cell of `node`.
    #[must_use]
    pub fn memory_on(&self, node: NodeId) -> Bytes {
        self.seats().map(|seat| seat.memory_on(node)).sum()
    }

    /// The jobs in the cell of `node`.
    pub fn jobs_on(&self, node: NodeId) -> impl Iterator<Item = &Seat> + '_ {
        self.seats().filter(move |seat| seat.placement.count_on(node) > 0)
    }

    /// Its jobs, by their numbers.
    pub fn seats(&self) -> impl Iterator<Item = &Seat> + Clone + '_ {
        self.seats.values().map(Box::as_ref)
    }

    /// A job, where it is in this row.
    #[must_use]
    pub fn seat(&self, job: JobId) -> Option<&Seat> {
        self.seats.get(&job).map(Box::as_ref)
    }

    /// The jobs of the row.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.seats.keys().copied()
    }
}

/// Why a job does not fit in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "lacks", rename_all = "kebab-case")]
pub enum Misfit {
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
