//! Simulation of some jobs beside each other, and of local tasks, under a node scheduler that a live node may
//! have: the counterpart of `cargo xtask bench mixes` and `cargo xtask bench tables`.
//!
//! Each job has ranks on each node. In each step a rank computes for a grain, longer or shorter by chance,
//! and then exchanges messages by its pattern. A message takes [`Mix::latency`], or under BCS until the
//! beginning of the slot after the next one; its receiver needs no processor for it, but takes it when it has
//! one. Local tasks come at random (Poisson) and need an exponential processor time, as in the thesis; when
//! they come and what they need depends on the seed alone, so that two techniques have the same.
//!
//! ```text
//!             Run                  message missing, may spin
//!   ready ──────────▶ computing ◀─────────────────────────────▶ spinning
//!     ▲                  │ message missing                         │ in vain
//!     └──── message ── blocked ◀────────────────────────────────────┘
//! ```

mod world;

use std::time::Duration;

use coswitch_policies::local::{Technique, Used};

use self::world::World;

/// What a rank does after each grain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    None,
    /// A message to the next rank, and one from the one before.
    Neighbour,
    /// A message to each other rank, and one from each.
    All,
}

/// A job with ranks on each node, which are dealt out node by node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MixJob {
    /// Processor time of a step.
    pub grain: Duration,
    /// A grain is longer or shorter by up to this part of it, in 0..=1.
    pub imbalance: f64,
    pub pattern: Pattern,
    pub steps: u64,
    /// Ranks on each node.
    pub on_each: u32,
}

impl MixJob {
    /// For [`steps`](Self::steps): until [`Mix::limit`].
    pub const ENDLESS: u64 = u64::MAX;
}

/// The local tasks of each node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalLoad {
    /// Mean time between two.
    pub every: Duration,
    /// Mean processor time of one.
    pub work: Duration,
    /// None comes later.
    pub lasts: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    pub nodes: u32,
    /// Perhaps none: then local tasks are alone.
    pub jobs: Vec<MixJob>,
    pub local: Option<LocalLoad>,
    /// Local tasks of each node that compute all the time.
    pub hogs: u32,
    /// When it is over at the latest; jobs without an end need one.
    pub limit: Option<Duration>,
    /// Of a message between two nodes.
    pub latency: Duration,
    pub context_switch: Duration,
}

/// Of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MixedJob {
    /// 0 where it has not.
    pub ended: Duration,
    /// For which a rank lacked a message, on average; 0 where the job has not ended.
    pub waited: Duration,
    /// What the schedulers have counted of its ranks, up to their last decisions.
    pub used: Used,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct MixReport {
    pub jobs: Vec<MixedJob>,
    pub local_tasks: u64,
    /// From arrival to end, on average.
    pub local_response: Duration,
    /// How often the console of DTS has set other slices.
    pub slices_set: u64,
}

/// Runs the mix on nodes of one processor until all jobs and local tasks have ended; without a technique
/// under round robin. The same arguments give the same report.
///
/// # Panics
/// Where simulation and scheduler disagree about a task, which is an error in either.
#[must_use]
pub fn simulate_mix(mix: &Mix, technique: Option<Technique>, seed: u64) -> MixReport {
    World::new(mix, technique, seed).run()
}

#[cfg(test)]
mod tests;
