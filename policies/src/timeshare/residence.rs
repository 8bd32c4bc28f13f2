//! The residence of a job: one word for where it is, from the dispatcher's report to the scheduler's plan.
//!
//! ```text
//!   Unlaunched ──launch──▶ Running ──suspend──▶ Suspended ──dump──▶ Parked       any ──▶ Finished, Failed
//!                            ▲  └────────────────── dump ──────────▲  │
//!                            └─────resume────────┘   ◀──prefetch───│──┤
//!                            └──────────────────── restore ───────────┘
//! ```

use serde::{Deserialize, Serialize};

/// Where a job is. A step that fails leaves the job where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Residence {
    /// Never launched.
    Unlaunched,
    /// In memory and computing.
    #[serde(rename = "active")]
    Running,
    /// In memory, frozen, and the network holds nothing of it.
    Suspended,
    /// Out of memory, with a snapshot.
    Parked,
    /// All ranks ended well.
    Finished,
    /// Ended badly, or was ended.
    Failed,
}

impl Residence {
    #[must_use]
    pub const fn is_ended(self) -> bool {
        matches!(self, Self::Finished | Self::Failed)
    }

    #[must_use]
    pub const fn is_in_memory(self) -> bool {
        matches!(self, Self::Running | Self::Suspended)
    }
}
