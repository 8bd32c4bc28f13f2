//! Settings of the scheduler.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{correct::Estimate, oracle::AutoQuantum, oracle::Oracle, residency::Residency, rotate::Rotation};
use crate::{
    Alternate, Cluster, Limits, Packing, Policy, SwitchOrder,
    spaceshare::{layout::LayoutError, sharing::SpaceSharing},
};

/// What a switch does where memory does not hold what its order needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShortOfMemory {
    /// It is sequential.
    #[default]
    Sequential,
    /// It keeps its order, and the kernel swaps meanwhile (paper 003, §5.2).
    Swap,
}

/// The settings of a [`Scheduler`](crate::Scheduler).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerConfig {
    /// Sets the limits of the matrix.
    pub policy: Policy,
    /// How long a row keeps its turn while others wait, from the moment its jobs run.
    pub quantum: Duration,
    /// Jobs that may share a node in one row (`hybrid` and `paired` only); `None`: as many as fit.
    pub max_per_cell: Option<u32>,
    /// How jobs that arrive together are packed into rows.
    #[serde(default)]
    pub packing: Packing,
    /// What is exchanged at the end of a turn.
    #[serde(default)]
    pub rotation: Rotation,
    /// Which jobs run on in the turns of other rows, on nodes that are idle there.
    #[serde(default)]
    pub alternate: Alternate,
    /// The order of the steps of a switch, where memory allows it.
    pub switching: SwitchOrder,
    /// What a switch does where it does not.
    #[serde(default)]
    pub short_of_memory: ShortOfMemory,
    /// How early a prefetch begins.
    #[serde(default)]
    pub oracle: Oracle,
    #[serde(default)]
    pub residency: Residency,
    #[serde(default)]
    #[serde(rename = "needs")]
    pub estimate: Estimate,
    /// Chooses the slice by the cost of switching; `quantum` is then the shortest.
    #[serde(default)]
    pub auto: Option<AutoQuantum>,
    /// The queue and the allocator that give jobs nodes of their own (`batch` only); `None`: the lowest free
    /// nodes, in the order of arrival.
    #[serde(default)]
    pub space: Option<SpaceSharing>,
    /// How long a node runs on average until it is lost: a running job is checkpointed as often as that and
    /// the cost of its checkpoints make worth while. `None`: no job is.
    #[serde(default)]
    pub mean_time_between_failures: Option<Duration>,
    /// Consecutive failed switches after which the job that caused them is given up.
    pub switch_failures_max: u32,
}

impl SchedulerConfig {
    /// First fit, no backfilled jobs, no checkpoints, sequential switching that leaves no job in memory, any
    /// number of jobs in a cell, a job given up at its third failed switch.
    #[must_use]
    pub const fn new(policy: Policy, quantum: Duration) -> Self {
        Self {
            policy,
            quantum,
            max_per_cell: None,
            packing: Packing::FirstFit,
            rotation: Rotation::Set,
            alternate: Alternate::None,
            switching: SwitchOrder::Sequential,
            short_of_memory: ShortOfMemory::Sequential,
            oracle: Oracle::Greedy,
            residency: Residency::None,
            estimate: Estimate::Measured,
            auto: None,
            space: None,
            mean_time_between_failures: None,
            switch_failures_max: 3,
        }
    }

    /// The limits of the matrix.
    #[must_use]
    pub const fn limits(&self) -> Limits {
        Limits::of(self.policy, self.max_per_cell)
    }

    pub(super) fn check(&self, cluster: &Cluster) -> Result<(), ConfigError> {
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
        if self.mean_time_between_failures.is_some_and(|time| time.is_zero()) {
            return Err(ConfigError::AlwaysFailing);
        }
        if matches!(self.max_per_cell, Some(0)) {
            return Err(ConfigError::ZeroPerCell);
        }
        if matches!(self.alternate, Alternate::Partial) {
            return Err(ConfigError::SplitGang);
        }
        if matches!(self.short_of_memory, ShortOfMemory::Swap) && matches!(self.estimate, Estimate::Measured)
        {
            return Err(ConfigError::GuardedSwap);
        }
        if let Some(space) = &self.space {
            if self.policy != Policy::Batch {
                return Err(ConfigError::SharedNodes);
            }
            if !cluster.is_uniform() {
                return Err(ConfigError::UnequalNodes);
            }
            space.check(cluster)?;
        }
        if matches!(self.rotation, Rotation::Job) {
            if !matches!(self.policy, Policy::Hybrid) {
                return Err(ConfigError::NoRing);
            }
            if self.auto.is_some() {
                return Err(ConfigError::AutoRing);
            }
        }
        Ok(())
    }
}

/// Why settings make no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    #[error("the cluster has no nodes")]
    NoNodes,
    /// Rows would take turns without running.
    #[error("the quantum is zero; give a length of time such as `10s`")]
    ZeroQuantum,
    /// No slice would be long enough.
    #[error("`quantum: auto` needs an `overhead` above zero and a longest slice not below the shortest")]
    NoOverhead,
    /// All time would go into checkpoints.
    #[error("the mean time between failures of a node is zero; give a length of time such as `7d`")]
    AlwaysFailing,
    /// No job could enter a row.
    #[error("`max_per_cell` is zero; a node must take at least one job")]
    ZeroPerCell,
    /// A gang runs on all of its nodes or on none.
    #[error("`alternate: partial` would run a gang on some of its nodes only; use `whole`")]
    SplitGang,
    /// Jobs that are measured to exceed their node are stopped and split.
    #[error(
        "`short_of_memory: swap` lets jobs exceed their nodes, and `needs: measured` stops those that do"
    )]
    GuardedSwap,
    /// Under the other policies jobs share nodes, and take turns.
    #[error(
        "a queue and an allocator are for jobs that have nodes of their own, as `policy: batch` gives them"
    )]
    SharedNodes,
    /// Queues count nodes, and take one for another.
    #[error("the nodes of a queue have to offer the same memory each")]
    UnequalNodes,
    #[error(transparent)]
    Sets(#[from] LayoutError),
    /// Only the sets of `hybrid` have jobs to exchange one by one.
    #[error(
        "`rotation: job` exchanges the jobs of a set one by one, which only `policy: hybrid` does; use `set`"
    )]
    NoRing,
    /// The oracle of the slice knows what an exchange of sets costs.
    #[error("`rotation: job` needs a `quantum` of its own: `auto` reckons with the exchange of whole sets")]
    AutoRing,
}
