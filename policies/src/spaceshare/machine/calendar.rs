//! Prime and non-prime time (paper 002 §2.2): the hours of the day in which node groups use other sets.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::SimTime;

const HOUR: u64 = 3_600_000_000_000;
const DAY: u64 = 24 * HOUR;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Period {
    /// Working hours.
    Prime,
    NonPrime,
}

/// The prime hours of each day; simulated time starts at a given time of a given weekday. There is no summer
/// time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calendar {
    /// Nanoseconds of the day at `SimTime(0)`, below one day.
    midnight: u64,
    /// Day of the week at `SimTime(0)`: 0 is Monday.
    weekday: u8,
    /// Nanoseconds of the day at which prime time begins.
    from: u64,
    /// Nanoseconds of the day at which it ends; not after the end of the day.
    to: u64,
    /// Whether Saturday and Sunday have prime hours too.
    weekends: bool,
}

impl Calendar {
    #[must_use]
    pub const fn never_prime() -> Self {
        Self { midnight: 0, weekday: 0, from: 0, to: 0, weekends: true }
    }

    /// Prime from 9:00 to 17:00 on each day (paper 002 §3.0); time 0 is a Monday's midnight.
    #[must_use]
    pub const fn nine_to_five() -> Self {
        Self::between(9, 17)
    }

    /// Prime between two hours of each day.
    ///
    /// # Panics
    /// Unless both are hours of one day, in this order.
    #[must_use]
    pub const fn between(from: u8, to: u8) -> Self {
        assert!(from <= to && to <= 24, "prime time begins before it ends, on the same day");
        Self { midnight: 0, weekday: 0, from: from as u64 * HOUR, to: to as u64 * HOUR, weekends: true }
    }

    /// The same hours, where time 0 lies `since_midnight` into the day `weekday` (0 is Monday).
    #[must_use]
    pub fn starting(mut self, since_midnight: Duration, weekday: u8) -> Self {
        self.midnight = u64::try_from(since_midnight.as_nanos()).unwrap_or(0) % DAY;
        self.weekday = weekday % 7;
        self
    }

    /// The same hours, but none on Saturday and Sunday.
    #[must_use]
    pub const fn on_workdays(mut self) -> Self {
        self.weekends = false;
        self
    }

    /// The time of the day at `now`, since midnight.
    #[must_use]
    pub const fn time_of_day(&self, now: SimTime) -> Duration {
        Duration::from_nanos(now.0.saturating_add(self.midnight) % DAY)
    }

    /// The period at `now`.
    #[must_use]
    pub const fn period(&self, now: SimTime) -> Period {
        let shifted = now.0.saturating_add(self.midnight);
        let (day, time) = (shifted / DAY, shifted % DAY);
        let weekend = (day + self.weekday as u64) % 7 >= 5;
        if (weekend && !self.weekends) || time < self.from || time >= self.to {
            Period::NonPrime
        } else {
            Period::Prime
        }
    }

    /// When the period changes next; `None` where it never does.
    #[must_use]
    pub fn next_change(&self, now: SimTime) -> Option<SimTime> {
        let period = self.period(now);
        let today = (now.0 + self.midnight) / DAY * DAY;
        // Except for weekends the hours repeat each day, so the next change comes within eight days or never.
        let borders = (0..8).flat_map(|day| [self.from, self.to].map(|time| today + day * DAY + time));
        borders
            .filter_map(|border| border.checked_sub(self.midnight).map(SimTime))
            .find(|border| *border > now && self.period(*border) != period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prime_time_runs_from_nine_to_five() {
        let calendar = Calendar::nine_to_five();
        let at = |hour: u64| SimTime(hour * HOUR);
        assert_eq!([8, 9, 16, 17].map(|hour| calendar.period(at(hour))), {
            use Period::{NonPrime, Prime};
            [NonPrime, Prime, Prime, NonPrime]
        });
        assert_eq!(calendar.next_change(at(8)), Some(at(9)));
        assert_eq!(calendar.next_change(at(9)), Some(at(17)));
        assert_eq!(calendar.next_change(at(17)), Some(at(33)));
        assert_eq!(Calendar::never_prime().next_change(at(1)), None);
    }

    #[test]
    fn a_weekend_without_prime_time_is_skipped_and_the_day_may_begin_anywhere() {
        let noon = Duration::from_secs(12 * 3600);
        let calendar = Calendar::nine_to_five().on_workdays().starting(noon, 4);
        let at = |hour: u64| SimTime(hour * HOUR);
        assert_eq!(calendar.period(at(0)), Period::Prime);
        assert_eq!(calendar.next_change(at(0)), Some(at(5)));
        assert_eq!(calendar.period(at(24)), Period::NonPrime);
        assert_eq!(calendar.next_change(at(5)), Some(at(24 * 3 - 3)));
    }
}
