//! The clock of this machine, and its offset from the clock of another machine.
//!
//! Every heartbeat of the master carries a reading of the master's clock. The difference between the time of
//! arrival here and that reading is the offset of the two clocks plus the time that the message took. The
//! smallest difference of the last few heartbeats is used: its error is the time of the fastest message,
//! which in a cluster is less than a tenth of a millisecond.

use std::{collections::VecDeque, fs};

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Clocks drift apart: readings before these are forgotten.
const READINGS: usize = 8;

/// Which clock: it begins anew when its machine starts. Empty where the kernel does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Boot(String);

impl Boot {
    /// Of this machine.
    #[must_use]
    pub fn own() -> Self {
        Self(fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned())
    }
}

/// The clock of this machine, in nanoseconds.
#[must_use]
pub fn now() -> i64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("each Linux has this clock");
    time.tv_sec() * 1_000_000_000 + time.tv_nsec()
}

/// A clock as it was read, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    pub boot: Boot,
    pub at: i64,
}

impl Reading {
    /// Of this machine's clock, now.
    #[must_use]
    pub fn own(boot: &Boot) -> Self {
        Self { boot: boot.clone(), at: now() }
    }
}

/// The offset of this machine's clock from another machine's.
#[derive(Clone, Debug)]
pub struct OtherClock {
    own: Boot,
    /// Whose it is.
    of: Boot,
    /// Time of arrival by this machine's clock, less the reading.
    differences: VecDeque<i64>,
}

impl OtherClock {
    /// Of which nothing is known yet; this machine's is `own`.
    #[must_use]
    pub const fn unknown(own: Boot) -> Self {
        Self { own, of: Boot(String::new()), differences: VecDeque::new() }
    }

    /// A reading has arrived.
    pub fn on_reading(&mut self, reading: &Reading, arrived: i64) {
        if self.of != reading.boot {
            self.of = reading.boot.clone();
            self.differences.clear();
        }
        if self.differences.len() == READINGS {
            self.differences.pop_front();
        }
        self.differences.push_back(arrived - reading.at);
    }

    /// By how much the own clock is ahead of it, in nanoseconds; `None` before the first reading.
    #[must_use]
    pub fn offset(&self) -> Option<i64> {
        let nearest = self.differences.iter().min().copied()?;
        Some(if self.of == self.own && self.own != Boot::default() { 0 } else { nearest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot(name: &str) -> Boot {
        Boot(name.into())
    }

    fn reading(name: &str, at: i64) -> Reading {
        Reading { boot: boot(name), at }
    }

    #[test]
    fn the_fastest_of_the_last_readings_counts() {
        let mut other = OtherClock::unknown(boot("own"));
        assert_eq!(other.offset(), None);
        // The other clock is 1000 ahead, and messages take 5 to 50.
        for (at, took) in [(2000, 50), (3000, 5), (4000, 30)] {
            other.on_reading(&reading("other", at), at - 1000 + took);
        }
        assert_eq!(other.offset(), Some(-995));
        for at in (10_000..).step_by(1000).take(READINGS) {
            other.on_reading(&reading("other", at), at - 1000 + 20);
        }
        assert_eq!(other.offset(), Some(-980), "the fast one is too old");
        other.on_reading(&reading("third", 10), 700);
        assert_eq!(other.offset(), Some(690), "of a master on another machine nothing else is known");
    }

    #[test]
    fn on_one_machine_it_is_the_same_clock() {
        let mut other = OtherClock::unknown(boot("own"));
        other.on_reading(&reading("own", 100), 900);
        assert_eq!(other.offset(), Some(0));
        let mut nameless = OtherClock::unknown(boot(""));
        nameless.on_reading(&reading("", 100), 900);
        assert_eq!(nameless.offset(), Some(800), "the kernel does not say which machine it is");
    }
}
