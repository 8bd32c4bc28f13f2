//! Cost model of the simulated cluster: how long each step takes, from a [file](CostFile) or [fitted](Sample)
//! to measured runs.

mod file;
mod fit;

pub use file::{CostFile, CostFileError, Moving};
pub use fit::{CostStep, Sample};

use std::time::Duration;

use coswitch_policies::{Bytes, Communication};
use serde::{Deserialize, Serialize};

/// The time to move bytes between the memory of a node and its store: `fixed + bytes ÷ rate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// The time for no bytes at all.
    pub fixed: Duration,
    /// Bytes a second beyond that.
    pub per_second: Bytes,
}

impl Transfer {
    /// A rate without a fixed part.
    #[must_use]
    pub const fn at(per_second: Bytes) -> Self {
        Self { fixed: Duration::ZERO, per_second }
    }

    /// The time to move `bytes`; zero for no bytes.
    #[must_use]
    pub fn time(&self, bytes: Bytes) -> Duration {
        if bytes.0 == 0 { Duration::ZERO } else { self.fixed + at_rate(bytes, self.per_second) }
    }
}

/// Rates and times of one node; all nodes are alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostModel {
    pub dump: Transfer,
    pub restore: Transfer,
    /// Time from the request to the last marker; the outgoing jobs still run.
    pub flush: Duration,
    /// Time to start all ranks of a job for the first time.
    pub launch: Duration,
    /// Cores of a node; more ranks than cores share them evenly.
    pub cores: u32,
    /// Slowdown of jobs on a node whose memory is exceeded (`cosched`). Measured: about 35.
    pub swap_slowdown: u32,
    /// Jobs that are in memory together take slices of this length
    /// ([warm gang switching](coswitch_policies::strobe)); none: they compute at the same time.
    pub slice: Option<Duration>,
    /// The part of a slice in which the jobs of the one before stop.
    pub warm_switch: Duration,
}

impl Default for CostModel {
    /// As measured for CRIU with warm memory.
    fn default() -> Self {
        Self {
            dump: Transfer::at(Bytes::mib(1400)),
            restore: Transfer::at(Bytes::mib(1600)),
            flush: Duration::from_millis(20),
            launch: Duration::from_millis(300),
            cores: 1,
            swap_slowdown: 35,
            slice: None,
            warm_switch: Duration::from_micros(100),
        }
    }
}

impl CostModel {
    /// The demand on a node with that load, in thousandths of a core; an overfull node swaps. Jobs overlap
    /// each other's waiting perfectly, so the resource in higher demand, cores or link, sets the pace.
    pub(crate) fn asked(&self, load: Load, is_overfull: bool) -> u64 {
        let cores = u64::from(self.cores.max(1));
        let swap = if is_overfull { self.swap_slowdown.max(1) } else { 1 };
        load.compute.max(load.wire * cores).max(1000 * cores) * u64::from(swap)
    }

    /// The same of a job alone that has one of so many slices.
    pub(crate) fn asked_in_slices(&self, load: Load, is_overfull: bool, rows: u64) -> u64 {
        let useful = self.slice.unwrap_or_default().saturating_sub(self.warm_switch);
        let (whole, useful) = (self.slice.unwrap_or_default().as_nanos(), useful.as_nanos().max(1));
        let asked = u128::from(self.asked(load, is_overfull)) * u128::from(rows.max(1));
        let lost = if rows > 1 { whole.max(useful) } else { useful };
        u64::try_from(asked * lost / useful).unwrap_or(u64::MAX)
    }

    /// How many times slower than alone a rank runs on a node with this demand.
    pub(crate) fn slowdown(&self, asked: u64) -> Slowdown {
        let has = 1000 * u64::from(self.cores.max(1));
        Slowdown { over: asked.max(has), under: has }
    }
}

/// What a rank does while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Habits {
    /// Cores that it keeps busy at a time.
    pub(crate) processors: u32,
    /// The share of its time alone in which it communicates; where that is unknown, it computes throughout.
    pub(crate) communication: Option<Communication>,
}

/// The demand of the ranks that run on a node, in thousandths of a core and of its link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    compute: u64,
    wire: u64,
}

impl Load {
    pub(crate) fn add(&mut self, ranks: u32, habits: Habits) {
        let (compute, wire) = Self::of(ranks, habits);
        self.compute += compute;
        self.wire += wire;
    }

    pub(crate) fn remove(&mut self, ranks: u32, habits: Habits) {
        let (compute, wire) = Self::of(ranks, habits);
        self.compute -= compute;
        self.wire -= wire;
    }

    fn of(ranks: u32, habits: Habits) -> (u64, u64) {
        let share = habits.communication.map_or(0, |share| u64::from(share.get()));
        let (ranks, processors) = (u64::from(ranks), u64::from(habits.processors));
        (ranks * processors * (1000 - share), ranks * share)
    }
}

/// `over / under`, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slowdown {
    over: u64,
    under: u64,
}

impl Slowdown {
    /// The work done in `span`, rounded down.
    pub(crate) fn work_in(self, span: Duration) -> Duration {
        nanos(span.as_nanos() * u128::from(self.under) / u128::from(self.over))
    }

    /// The time that `work` takes, rounded up so that the work is done when that time is over.
    pub(crate) fn time_for(self, work: Duration) -> Duration {
        nanos((work.as_nanos() * u128::from(self.over)).div_ceil(u128::from(self.under)))
    }
}

fn at_rate(bytes: Bytes, per_second: Bytes) -> Duration {
    nanos(u128::from(bytes.0) * 1_000_000_000 / u128::from(per_second.0.max(1)))
}

fn nanos(n: u128) -> Duration {
    Duration::from_nanos(u64::try_from(n).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_cores_and_a_swapping_node_crawls() {
        let cost = CostModel { cores: 2, swap_slowdown: 10, ..CostModel::default() };
        let second = Duration::from_secs(1);
        let load = |ranks| {
            let mut load = Load::default();
            load.add(ranks, Habits { processors: 1, communication: None });
            load
        };
        let pace = |ranks, is_overfull| cost.slowdown(cost.asked(load(ranks), is_overfull));
        let time = |ranks, is_overfull| pace(ranks, is_overfull).time_for(second);
        assert_eq!(time(1, false), second);
        assert_eq!(time(3, false), Duration::from_millis(1500));
        assert_eq!(time(3, true), Duration::from_secs(15));
        assert_eq!(pace(4, false).work_in(second), Duration::from_millis(500));
    }

    #[test]
    fn a_part_of_a_job_takes_as_many_cores_as_it_has_processors() {
        let cost = CostModel { cores: 8, ..CostModel::default() };
        let millis = |parts: &[(u32, u16)]| {
            let mut load = Load::default();
            for (processors, share) in parts {
                let communication = Some(Communication::per_mille(*share));
                load.add(1, Habits { processors: *processors, communication });
            }
            cost.slowdown(cost.asked(load, false)).time_for(Duration::from_secs(1)).as_millis()
        };
        assert_eq!(millis(&[(5, 0), (3, 0)]), 1000);
        assert_eq!(millis(&[(8, 0), (4, 0)]), 1500);
        assert_eq!(millis(&[(8, 900)]), 1000, "alone it is as fast as alone");
        assert_eq!(millis(&[(8, 900), (8, 100)]), 1000, "it computes while the other waits for the link");
    }

    #[test]
    fn moving_bytes_takes_their_number_over_the_rate() {
        let transfer = Transfer { fixed: Duration::from_millis(7), per_second: Bytes::mib(100) };
        assert_eq!(transfer.time(Bytes::mib(250)), Duration::from_millis(2507));
        assert_eq!(transfer.time(Bytes(0)), Duration::ZERO);
    }

    #[test]
    fn a_job_that_waits_for_the_link_leaves_its_core_to_another() {
        let cost = CostModel::default();
        let second = Duration::from_secs(1);
        let together = |shares: &[u16]| {
            let mut load = Load::default();
            let communication = |share: &u16| Some(Communication::per_mille(*share));
            let habits = |share| Habits { processors: 1, communication: communication(share) };
            shares.iter().for_each(|share| load.add(1, habits(share)));
            cost.slowdown(cost.asked(load, false)).time_for(second).as_millis()
        };
        assert_eq!(together(&[100]), 1000);
        assert_eq!(together(&[100, 100]), 1800, "two that compute wait for the core");
        assert_eq!(together(&[900, 900]), 1800, "two that communicate wait for the link");
        assert_eq!(together(&[100, 900]), 1000, "one of each hinders neither");
    }
}
