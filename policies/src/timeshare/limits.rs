//! The policies, each as limits on the same matrix.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The scheduling policies, by the names that a user writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// First come, first served: one row, one job per node, the rest queue.
    Batch,
    /// All jobs at once in one row; the operating system swaps (the baseline of paper 003, §3.1).
    Cosched,
    /// One job per node at a time, a row for each that does not fit beside the others (§3.2).
    Gang,
    /// Co-schedule inside a row while it fits in memory, switch between rows (§3.3).
    Hybrid,
    /// As `Hybrid`, with rows that mix computing and communicating jobs (§3.3.3).
    Paired,
}

impl Policy {
    /// Whether the jobs of a cell have to fit.
    #[must_use]
    pub const fn memory_rule(self) -> MemoryRule {
        Limits::of(self, None).memory
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Batch => "batch",
            Self::Cosched => "cosched",
            Self::Gang => "gang",
            Self::Hybrid => "hybrid",
            Self::Paired => "paired",
        })
    }
}

/// Whether the working sets of a cell must fit the memory of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryRule {
    /// The declared working sets of a cell sum to at most the node's capacity.
    MustFit,
    /// Declared memory is ignored.
    Ignored,
}

/// What a matrix may look like. `None` is "as many as needed".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Rows there may be; jobs that fit in none of them queue.
    pub max_rows: Option<u32>,
    /// Jobs one cell may hold.
    pub max_per_cell: Option<u32>,
    pub memory: MemoryRule,
}

impl Limits {
    /// Whether a cell with `jobs` jobs may take one more.
    pub(crate) const fn opens(self, jobs: u32) -> bool {
        match self.max_per_cell {
            Some(max) => jobs < max,
            None => true,
        }
    }

    /// The limits that make the matrix follow `policy`; `max_per_cell` counts where the policy lets a cell
    /// hold several.
    #[must_use]
    pub const fn of(policy: Policy, max_per_cell: Option<u32>) -> Self {
        match policy {
            Policy::Batch => Self { max_rows: Some(1), max_per_cell: Some(1), memory: MemoryRule::MustFit },
            Policy::Cosched => Self { max_rows: Some(1), max_per_cell: None, memory: MemoryRule::Ignored },
            Policy::Gang => Self { max_rows: None, max_per_cell: Some(1), memory: MemoryRule::MustFit },
            Policy::Hybrid | Policy::Paired => {
                Self { max_rows: None, max_per_cell, memory: MemoryRule::MustFit }
            }
        }
    }
}
