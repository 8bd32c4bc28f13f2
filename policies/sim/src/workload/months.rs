//! Calendar of a log: its header gives the date of time zero, so a run divides into months, as in paper 002,
//! Table 2.

use coswitch_policies::{SimTime, metrics::Span};
use serde::{Deserialize, Serialize};

use super::swf::Log;

const DAY: u64 = 86_400;
const NANOS: u64 = 1_000_000_000;

/// The local time at a log's time zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogStart {
    /// Days since 1970-01-01.
    pub day: i64,
    /// Seconds since midnight.
    pub second: u64,
}

/// The first and the last month of a run may be parts of months.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Month {
    pub year: i64,
    pub month: u8,
    /// Jobs submitted in it.
    pub jobs: u64,
    /// Node time used ÷ node time available between the run's first submission and its last end.
    pub utilisation: f64,
}

impl LogStart {
    /// From `; StartTime: Wed Dec 27 10:53:57 PST 1995` (local time), else from `; UnixStartTime` (UTC).
    #[must_use]
    pub fn of(log: &Log) -> Option<Self> {
        log.header("StartTime").and_then(Self::parse).or_else(|| {
            let seconds: i64 = log.header("UnixStartTime")?.parse().ok()?;
            let day = seconds.div_euclid(DAY.cast_signed());
            Some(Self { day, second: seconds.rem_euclid(DAY.cast_signed()).cast_unsigned() })
        })
    }

    fn parse(text: &str) -> Option<Self> {
        const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
        let words: Vec<&str> = text.split_whitespace().collect();
        let [_, month, day, time, .., year] = words[..] else { return None };
        let month = MONTHS.find(month.get(..3)?)? / 3 + 1;
        let mut clock = time.split(':').map(str::parse::<u64>);
        let mut next = || clock.next()?.ok();
        let second = next()? * 3600 + next()? * 60 + next()?;
        let day = days(year.parse().ok()?, i64::try_from(month).ok()?, day.parse().ok()?);
        (second < DAY).then_some(Self { day, second })
    }

    /// The day of the week: 0 is Monday.
    #[must_use]
    pub fn weekday(self) -> u8 {
        u8::try_from((self.day + 3).rem_euclid(7)).expect("below seven")
    }

    /// The year and month at `at`.
    #[must_use]
    pub fn month(self, at: SimTime) -> (i64, u8) {
        let (year, month, _) = date(self.day + ((at.0 / NANOS + self.second) / DAY).cast_signed());
        (year, month)
    }

    /// The months from `first` to `last`, each with its part of that time.
    pub(crate) fn months(self, first: SimTime, last: SimTime) -> Vec<(Month, Span)> {
        let (mut months, mut from) = (Vec::new(), first);
        while from < last {
            let ((year, month), to) = (self.month(from), self.next_month(from).min(last));
            months.push((Month { year, month, jobs: 0, utilisation: 0.0 }, Span { from, to }));
            from = to;
        }
        months
    }

    /// When the month that follows `at` begins.
    fn next_month(self, at: SimTime) -> SimTime {
        let (year, month) = self.month(at);
        let (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
        let begin = (days(year, i64::from(month), 1) - self.day).cast_unsigned() * DAY - self.second;
        SimTime(begin * NANOS)
    }
}

/// Days from 1970-01-01 to a date of the Gregorian calendar (Hinnant, *chrono-compatible low-level date
/// algorithms*).
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The date this many days after 1970-01-01; the inverse of `days`.
fn date(days: i64) -> (i64, u8, u8) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, u8::try_from(month).expect("1 to 12"), u8::try_from(day).expect("1 to 31"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_days_are_inverse_over_leap_years_and_centuries() {
        assert_eq!((days(1970, 1, 1), days(2000, 3, 1), date(-1)), (0, 11_017, (1969, 12, 31)));
        for day in (-200_000..200_000).step_by(17) {
            let (year, month, of_month) = date(day);
            assert_eq!(days(year, month.into(), of_month.into()), day);
        }
    }

    #[test]
    fn the_header_says_when_time_zero_was() {
        let log: Log =
            "; UnixStartTime: 820090437\n; StartTime: Wed Dec 27 10:53:57 PST 1995\n".parse().unwrap();
        let start = LogStart::of(&log).unwrap();
        assert_eq!((start.weekday(), start.second), (2, 10 * 3600 + 53 * 60 + 57));
        assert_eq!(start.month(SimTime(0)), (1995, 12));
        assert_eq!(start.month(SimTime(5 * DAY * NANOS)), (1996, 1));
        let end_of_year = start.next_month(SimTime(0));
        assert_eq!(start.month(end_of_year), (1996, 1));
        assert_eq!(start.month(SimTime(end_of_year.0 - 1)), (1995, 12));
        let unix: Log = "; UnixStartTime: 820090437\n".parse().unwrap();
        assert_eq!(LogStart::of(&unix).unwrap().second, 18 * 3600 + 53 * 60 + 57);
        assert_eq!(LogStart::of(&Log::default()), None);
    }
}
