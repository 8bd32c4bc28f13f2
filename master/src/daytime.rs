//! The time of the day by the clock of this machine, for hours of the day that the pure core reckons with.

use std::time::Duration;

use coswitch_policies::spaceshare::layout::Daytime;
use jiff::{SignedDuration, Zoned, civil::DateTime};

/// The time of the day so long ago, if no clock was changed since.
pub(crate) fn before(age: Duration) -> Daytime {
    of(Zoned::now().datetime(), age)
}

fn of(now: DateTime, age: Duration) -> Daytime {
    let age = SignedDuration::try_from(age).unwrap_or_default();
    let then = now.checked_sub(age).unwrap_or(now);
    let since_midnight = then.time().duration_since(jiff::civil::Time::midnight());
    let weekday = u8::try_from(then.weekday().to_monday_zero_offset()).unwrap_or_default();
    Daytime { since_midnight: since_midnight.unsigned_abs(), weekday }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_a_cluster_is_on_the_day_on_which_it_was() {
        let monday = jiff::civil::date(2026, 11, 23).at(1, 30, 0, 0);
        let hours = |hours: u64| Duration::from_secs(3600 * hours);
        let half = Duration::from_secs(1800);
        assert_eq!(of(monday, Duration::ZERO), Daytime { since_midnight: hours(1) + half, weekday: 0 });
        assert_eq!(of(monday, hours(2)), Daytime { since_midnight: hours(23) + half, weekday: 6 });
    }
}
