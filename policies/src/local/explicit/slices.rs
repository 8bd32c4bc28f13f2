//! The parallel and the local slice, and how the load sets their lengths (thesis Table 2.1).

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// *PS* and *LS*; together the iteration period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slices {
    /// *PS*: for distributed tasks.
    pub parallel: Duration,
    /// *LS*: for local tasks.
    pub local: Duration,
}

/// Slices that begin together on all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommonSlices {
    pub slices: Slices,
    /// When the first parallel one begins, by the clock of whoever holds this, as nanoseconds.
    pub begin: i64,
}

/// The nodes begin their common slices anew after so many periods (the synchronisation interval).
const SYNCHRONISED: u32 = 10;

impl CommonSlices {
    /// Beginning and end of the synchronisation interval that holds `now`, as nanoseconds of the same clock.
    /// All nodes begin a parallel slice at the beginning of each.
    #[must_use]
    pub fn interval(&self, now: i64) -> (i64, i64) {
        let length = (self.slices.parallel + self.slices.local) * SYNCHRONISED;
        let length = i64::try_from(length.as_nanos()).unwrap_or(i64::MAX).max(1);
        let number = now.saturating_sub(self.begin).div_euclid(length);
        let begin = number.saturating_mul(length).saturating_add(self.begin);
        (begin, begin.saturating_add(length))
    }
}

impl Slices {
    /// Table 2.1: `load` is the relative load average or, in distributed mode, the node's own load index. A
    /// step of half a task moves a tenth of the period, from 10 % for local tasks (up to 0.5) to 90 % (above
    /// 4).
    #[must_use]
    pub fn for_load(load: f64, period: Duration) -> Self {
        let tenths = (load * 2.0).ceil().clamp(1.0, 9.0) as u32;
        let local = period * tenths / 10;
        Self { parallel: period - local, local }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slices_follow_table_2_1_of_the_thesis() {
        let table = [(0.5, 10), (1.0, 20), (1.5, 30), (2.0, 40), (2.5, 50), (3.0, 60), (3.5, 70), (4.0, 80)];
        let second = Duration::from_secs(1);
        let mut below = 0.0;
        for (upper, percent) in table {
            for load in [below + 1e-6, upper - 0.1, upper] {
                let slices = Slices::for_load(load, second);
                assert_eq!(slices.local, Duration::from_millis(10 * percent), "load {load}");
                assert_eq!(slices.parallel + slices.local, second);
            }
            below = upper;
        }
        assert_eq!(Slices::for_load(0.0, second).local, Duration::from_millis(100));
        for load in [4.001, 9.0, 1e9] {
            assert_eq!(Slices::for_load(load, second).local, Duration::from_millis(900));
        }
    }

    #[test]
    fn all_nodes_find_the_same_interval_before_and_after_its_beginning() {
        let slices = Slices { parallel: Duration::from_nanos(3), local: Duration::from_nanos(2) };
        let common = CommonSlices { slices, begin: 120 };
        let intervals = [119, 120, 169, 170].map(|now| common.interval(now));
        assert_eq!(intervals, [(70, 120), (120, 170), (120, 170), (170, 220)]);
    }

    #[test]
    fn the_examples_of_the_text_hold() {
        let slices = Slices::for_load(0.75, Duration::from_millis(100));
        assert_eq!((slices.local, slices.parallel), (Duration::from_millis(20), Duration::from_millis(80)));
    }
}
