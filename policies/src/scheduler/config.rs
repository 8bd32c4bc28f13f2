//! What a scheduler is told once.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Alternate, Cluster, Limits, Packing, Policy, SwitchOrder};

/// The settings of a [`Scheduler`](crate::Scheduler).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerConfig {
    /// Which limits the matrix has.
    pub policy: Policy,
    /// How long a row keeps its turn while others wait; counted from when its jobs run.
    pub quantum: Duration,
    /// Jobs that may share a node in one row (`hybrid` and `paired` only); `None` is as many as fit.
    pub max_per_cell: Option<u32>,
    /// How jobs that come together are given their rows.
    #[serde(default)]
    pub packing: Packing,
    /// Which jobs go on in the slots of other rows where their nodes are idle.
    #[serde(default)]
    pub alternate: Alternate,
    /// In which order a switch proceeds.
    pub switching: SwitchOrder,
    /// Consecutive failed switches after which the job that caused them is given up.
    pub switch_failures_max: u32,
}

impl SchedulerConfig {
    /// First fit, nobody in other rows, sequential switching, no bound on jobs per cell, a job given up at its third failed switch.
    #[must_use]
    pub const fn new(policy: Policy, quantum: Duration) -> Self {
        Self {
            policy,
            quantum,
            max_per_cell: None,
            packing: Packing::FirstFit,
            alternate: Alternate::None,
            switching: SwitchOrder::Sequential,
            switch_failures_max: 3,
        }
    }

    /// The limits that follow.
    #[must_use]
    pub const fn limits(&self) -> Limits {
        Limits::of(self.policy, self.max_per_cell)
    }

    pub(super) const fn check(&self, cluster: &Cluster) -> Result<(), ConfigError> {
        if cluster.is_empty() {
            return Err(ConfigError::NoNodes);
        }
        if self.quantum.is_zero() {
            return Err(ConfigError::ZeroQuantum);
        }
        if matches!(self.max_per_cell, Some(0)) {
            return Err(ConfigError::ZeroPerCell);
        }
        if matches!(self.alternate, Alternate::Partial) {
            return Err(ConfigError::SplitGang);
        }
        Ok(())
    }
}

/// Why settings make no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// There is nothing to schedule on.
    #[error("the cluster has no nodes")]
    NoNodes,
    /// Rows would turn without ever running.
    #[error("the quantum is zero; give a length of time such as `10s`")]
    ZeroQuantum,
    /// No job could ever enter a row.
    #[error("`max_per_cell` is zero; a node must take at least one job")]
    ZeroPerCell,
    /// A gang runs on all of its nodes or on none.
    #[error("`alternate: partial` would run a gang on some of its nodes only; use `whole`")]
    SplitGang,
}
