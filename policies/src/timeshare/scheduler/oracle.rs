//! Cost oracle: learns what switching costs, and says when a prefetch begins and how long a slice must be.
//!
//! Means and deviations are smoothed as a round-trip time is in TCP (RFC 6298, §2): integers, the same on
//! every machine.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How early a prefetch begins (paper 003, §3.3.2.2 and §5.2: "better to use a greedy prefetch than an exact
/// one").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Oracle {
    /// By the mean of the measured restores.
    Exact,
    /// By the mean and four deviations.
    #[default]
    Greedy,
}

/// Bounds of a slice that is chosen so that switching costs at most a share of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoQuantum {
    /// The share, in millionths of the time computed.
    pub overhead: u32,
    /// No slice is longer; where even that is too short, fewer rows take turns.
    pub longest: Duration,
}

impl AutoQuantum {
    /// The shortest slice that keeps the share where a switch costs this much; not bounded.
    #[must_use]
    pub fn slice(self, cost: Duration) -> Duration {
        let slice = cost.as_nanos() * 1_000_000 / u128::from(self.overhead.max(1));
        Duration::from_nanos(u64::try_from(slice).unwrap_or(u64::MAX))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Smoothed {
    mean: u64,
    deviation: u64,
    known: bool,
}

impl Smoothed {
    fn learn(&mut self, value: u64) {
        if !self.known {
            *self = Self { mean: value, deviation: value / 2, known: true };
            return;
        }
        self.deviation = (3 * self.deviation + self.mean.abs_diff(value)) / 4;
        self.mean = (7 * self.mean + value) / 8;
    }
}

/// Before the first measurement: a second for a GiB, as with a slow disk.
const PER_MIB_AT_FIRST: u64 = 1_000_000;

/// Measured costs.
#[derive(Clone, Debug, Default)]
pub(super) struct Costs {
    /// Nanoseconds to restore a MiB, on the node that restores most.
    restore: Smoothed,
    /// Exposed nanoseconds of a switch: where jobs left memory or came back to it, and where all stayed in
    /// it.
    moving: Smoothed,
    staying: Smoothed,
    /// The cheapest switch that moved jobs, and how many there were. The first one is often much longer than
    /// those that follow.
    cheapest: Option<u64>,
    moved: u32,
}

/// Rows are not left out by fewer measurements.
const MOVED_MIN: u32 = 2;

impl Costs {
    /// The node that restored most took this long for these bytes.
    pub(super) fn restored(&mut self, bytes: u64, took: Duration) {
        self.restore.learn(nanos(took) / mib(bytes));
    }

    /// A switch between rows was exposed this long.
    pub(super) fn exposed(&mut self, moved: bool, time: Duration) {
        let costs = if moved { &mut self.moving } else { &mut self.staying };
        costs.learn(nanos(time));
        if moved {
            self.moved = self.moved.saturating_add(1);
            self.cheapest = Some(self.cheapest.map_or(nanos(time), |least| least.min(nanos(time))));
        }
    }

    /// Whether switches that move jobs surely need longer slices than the longest.
    pub(super) fn exceed(&self, auto: AutoQuantum) -> bool {
        let is_longer = |cost: u64| auto.slice(Duration::from_nanos(cost)) > auto.longest;
        self.moved >= MOVED_MIN
            && self.moving.known
            && is_longer(self.moving.mean)
            && self.cheapest.is_some_and(is_longer)
    }

    /// Other jobs move at other costs: what switches that move jobs cost is measured anew.
    pub(super) fn forget_moving(&mut self) {
        (self.moving, self.cheapest, self.moved) = (Smoothed::default(), None, 0);
    }

    /// How long before a turn its restore should begin.
    pub(super) fn lead(&self, oracle: Oracle, bytes: u64) -> Duration {
        let Smoothed { mean, deviation, known } = self.restore;
        let mean = if known { mean } else { PER_MIB_AT_FIRST };
        let margin = if oracle == Oracle::Greedy { 4 * deviation } else { 0 };
        Duration::from_nanos((mean + margin).saturating_mul(mib(bytes)))
    }

    /// How long a switch is exposed that does or does not move jobs; `None` before any was measured.
    pub(super) fn of_switch(&self, moving: bool) -> Option<Duration> {
        let costs = if moving { self.moving } else { self.staying };
        costs.known.then(|| Duration::from_nanos(costs.mean))
    }

    /// The shortest slice that keeps the share, when switches do or do not move jobs; `None` before any was
    /// measured.
    pub(super) fn slice(&self, auto: AutoQuantum, moving: bool) -> Option<Duration> {
        self.of_switch(moving).map(|cost| auto.slice(cost))
    }
}

const fn mib(bytes: u64) -> u64 {
    let mib = bytes >> 20;
    if mib == 0 { 1 } else { mib }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_prefetch_begins_by_the_mean_or_earlier_by_deviations() {
        let mut costs = Costs::default();
        assert_eq!(costs.lead(Oracle::Exact, GIB).as_millis(), 1024);
        (0..40).for_each(|_| costs.restored(GIB, Duration::from_millis(512)));
        assert_eq!(costs.lead(Oracle::Exact, 2 * GIB).as_millis(), 1024);
        assert!(costs.lead(Oracle::Greedy, GIB).as_millis() < 520, "all restores took the same");
        (0..20).for_each(|i| costs.restored(GIB, Duration::from_millis(if i % 2 == 0 { 256 } else { 768 })));
        assert!(costs.lead(Oracle::Exact, GIB) < costs.lead(Oracle::Greedy, GIB) / 2);
    }

    #[test]
    fn one_long_switch_exceeds_no_bound_and_costs_of_other_jobs_are_forgotten() {
        let auto = AutoQuantum { overhead: 20_000, longest: Duration::from_secs(100) };
        let mut costs = Costs::default();
        costs.exposed(true, Duration::from_secs(20));
        assert!(!costs.exceed(auto), "it may be the first alone");
        costs.exposed(true, Duration::from_secs(1));
        assert!(!costs.exceed(auto));
        costs.forget_moving();
        assert_eq!(costs.slice(auto, true), None);
        (0..2).for_each(|_| costs.exposed(true, Duration::from_secs(3)));
        assert!(costs.exceed(auto));
    }

    #[test]
    fn a_slice_is_as_long_as_the_share_demands() {
        let auto = AutoQuantum { overhead: 20_000, longest: Duration::from_secs(100) };
        let mut costs = Costs::default();
        assert_eq!(costs.slice(auto, true), None);
        costs.exposed(true, Duration::from_millis(200));
        costs.exposed(false, Duration::from_millis(2));
        assert_eq!(costs.slice(auto, true), Some(Duration::from_secs(10)));
        assert_eq!(costs.slice(auto, false), Some(Duration::from_millis(100)));
    }
}
