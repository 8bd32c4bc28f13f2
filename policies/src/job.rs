//! Specification of a job as the scheduler sees it, built by the master from the run file and by the
//! simulator from a workload.

use serde::{Deserialize, Serialize};

use crate::{Bytes, JobId, SimTime};

/// A gang of ranks with a declared working set each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Unique in a run.
    pub id: JobId,
    /// Only shown.
    pub name: Box<str>,
    /// Number of MPI processes. They run together or not at all.
    pub ranks: u32,
    /// The declared working set of one rank.
    pub memory_per_rank: Bytes,
    /// When it was, or will be, submitted.
    pub arrival: SimTime,
}

impl JobSpec {
    /// The working set of `ranks` ranks of this job.
    #[must_use]
    pub const fn memory_of(&self, ranks: u32) -> Bytes {
        self.memory_per_rank.times(ranks)
    }

    /// The working set of the whole gang.
    #[must_use]
    pub const fn memory(&self) -> Bytes {
        self.memory_of(self.ranks)
    }
}
