//! What a scheduler is told once.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{correct::Estimate, oracle::AutoQuantum, oracle::Oracle, residency::Residency};
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
    /// In which order a switch proceeds, where memory allows.
    pub switching: SwitchOrder,
    /// How early a prefetch begins.
    #[serde(default)]
    pub oracle: Oracle,
    /// Where jobs wait for their turns.
    #[serde(default)]
    pub residency: Residency,
    /// What is assumed of the jobs' memory.
    #[serde(default)]
    pub needs: Estimate,
    /// The slice follows from what switching costs; `quantum` is the shortest then.
    #[serde(default)]
    pub auto: Option<AutoQuantum>,
    /// Consecutive failed switches after which the job that caused them is given up.
    pub switch_failures_max: u32,
}

impl SchedulerConfig {
    /// First fit, nobody in other rows, sequential switching that leaves nobody in memory, no bound on jobs per cell, a job given up at its third failed switch.
    #[must_use]
    pub const fn new(policy: Policy, quantum: Duration) -> Self {
        Self {
            policy,
            quantum,
            max_per_cell: None,
            packing: Packing::FirstFit,
            alternate: Alternate::None,
            switching: SwitchOrder::Sequential,
            oracle: Oracle::Greedy,
            residency: Residency::None,
            needs: Estimate::Measured,
            auto: None,
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
        if let Some(auto) = &self.auto
            && (auto.overhead == 0 || auto.longest.as_nanos() < self.quantum.as_nanos())
        {
            return Err(ConfigError::NoOverhead);
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
    /// No slice would be long enough.
    #[error("`quantum: auto` needs an `overhead` above zero and a longest slice not below the shortest")]
    NoOverhead,
    /// No job could ever enter a row.
    #[error("`max_per_cell` is zero; a node must take at least one job")]
    ZeroPerCell,
    /// A gang runs on all of its nodes or on none.
    #[error("`alternate: partial` would run a gang on some of its nodes only; use `whole`")]
    SplitGang,
}
