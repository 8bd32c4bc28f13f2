//! Faults of the simulated cluster, drawn by seed.

use std::time::Duration;

use coswitch_policies::Order;
use serde::{Deserialize, Serialize};

use crate::Seed;

/// Probabilities of faults, each in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults {
    pub seed: u64,
    /// A dump is aborted and its job thawed.
    pub dump: u32,
    /// A restore or launch fails; the snapshot stays good.
    pub restore: u32,
    /// A failed dump, restore or launch also loses the job.
    pub lost: u32,
    /// A job dies half-way.
    pub crash: u32,
    /// The user of a job holds it at some time, and releases it later.
    #[serde(default)]
    pub hold: u32,
}

/// Draws faults from a seed.
pub(crate) struct Misfortune {
    faults: Faults,
    seed: Seed,
}

impl Misfortune {
    pub(crate) const fn new(faults: Faults) -> Self {
        Self { faults, seed: Seed::new(faults.seed) }
    }

    pub(crate) const fn crashes(&mut self) -> bool {
        self.seed.chance(self.faults.crash)
    }

    /// How long after its arrival a job is held, if it is, and how long after that it is released.
    pub(crate) fn holds(&mut self) -> Option<(Duration, Duration)> {
        if self.faults.hold == 0 || !self.seed.chance(self.faults.hold) {
            return None;
        }
        let (after, until) = (self.seed.between(0, 20_000), self.seed.between(0, 10_000));
        Some((Duration::from_millis(after), Duration::from_millis(until)))
    }

    /// The mishap of an order, if any.
    pub(crate) const fn mishap(&mut self, order: Order) -> Option<Mishap> {
        let chance = match order {
            Order::Park => self.faults.dump,
            Order::Launch | Order::Restore | Order::Prefetch => self.faults.restore,
            Order::Suspend | Order::Resume | Order::Checkpoint | Order::End => return None,
        };
        if !self.seed.chance(chance) {
            return None;
        }
        Some(if self.seed.chance(self.faults.lost) { Mishap::Lost } else { Mishap::Aborted })
    }
}

/// How an order failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mishap {
    /// The job is where it was.
    Aborted,
    /// The job is gone.
    Lost,
}
