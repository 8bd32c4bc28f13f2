//! Availability profile: the number of free units as a step function of time, for reservations.

use std::{collections::VecDeque, time::Duration};

use super::steps::{Place, Steps};
use crate::SimTime;

/// Free units from each step until the next.
#[derive(Clone, Debug)]
pub(super) struct Profile {
    free: Steps,
}

/// A search for a stretch of free units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) units: u32,
    pub(super) length: Duration,
    /// No earlier than this.
    pub(super) from: SimTime,
    /// And before this.
    pub(super) before: SimTime,
    /// From here on the units are reserved for the same job already.
    pub(super) own: SimTime,
}

impl Profile {
    pub(super) fn new(units: u32) -> Self {
        Self { free: Steps::new(i64::from(units)) }
    }

    /// Times before `now` are not asked for any more.
    pub(super) fn forget_before(&mut self, now: SimTime) {
        self.free.forget_before(now);
    }

    /// Reserves `units` from `from` to `to`.
    ///
    /// # Panics
    /// Where fewer are free.
    pub(super) fn take(&mut self, from: SimTime, to: SimTime, units: u32) {
        let units = i64::from(units);
        assert!(from >= to || self.free.lowest(from, to) >= units, "only what is free is reserved");
        self.free.add(from, to, -units);
    }

    /// Frees `units` from `from` to `to`.
    pub(super) fn give(&mut self, from: SimTime, to: SimTime, units: u32) {
        self.free.add(from, to, i64::from(units));
    }

    /// The earliest time from `from` on at which `units` are free for `length`; `None` if never.
    pub(super) fn earliest(&self, from: SimTime, units: u32, length: Duration) -> Option<SimTime> {
        let (before, own) = (SimTime(u64::MAX), SimTime(u64::MAX));
        self.earliest_of(Wanted { units, length, from, before, own })
    }

    /// The earliest time that suits `wanted`; `None` if there is none.
    pub(super) fn earliest_of(&self, wanted: Wanted) -> Option<SimTime> {
        let units = i64::from(wanted.units);
        let mut place = self.free.find(wanted.from);
        loop {
            let open = self.free.first_at_least(place, units)?;
            let begin = self.free.at(open).0.max(wanted.from);
            if begin >= wanted.before.min(wanted.own) {
                return None;
            }
            let Some(shut) = self.free.first_below(open, units) else { return Some(begin) };
            if self.free.at(shut).0 >= begin.after(wanted.length).min(wanted.own) {
                return Some(begin);
            }
            place = shut;
        }
    }

    /// A window over stretches of time that begin at `from` or later.
    pub(super) fn window(&self, from: SimTime) -> Window<'_> {
        Window { free: &self.free, ahead: Some(self.free.find(from)), lowest: VecDeque::new() }
    }
}

/// The minimum of free units in a stretch of time that moves forward; visits each step once.
#[derive(Clone, Debug)]
pub(super) struct Window<'a> {
    free: &'a Steps,
    ahead: Option<Place>,
    /// The steps of the stretch with fewer free units than every step behind them, with their ends; the
    /// lowest first.
    lowest: VecDeque<(Option<SimTime>, u32)>,
}

impl Window<'_> {
    /// The fewest free units from `from` to `to`, and when that minimum ends. Neither bound may be earlier
    /// than in the call before.
    pub(super) fn least(&mut self, from: SimTime, to: SimTime) -> (u32, Option<SimTime>) {
        while let Some(place) = self.ahead {
            let (at, free) = self.free.at(place);
            if at >= to && at > from {
                break;
            }
            let free = u32::try_from(free).expect("no more is reserved than is free");
            self.ahead = self.free.next(place);
            while self.lowest.back().is_some_and(|(_, before)| *before >= free) {
                self.lowest.pop_back();
            }
            self.lowest.push_back((self.ahead.map(|place| self.free.at(place).0), free));
        }
        while self.lowest.front().is_some_and(|(end, _)| end.is_some_and(|end| end <= from)) {
            self.lowest.pop_front();
        }
        let (end, free) = *self.lowest.front().expect("the last step has no end");
        (free, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_free_interval_is_found_and_released_units_leave_no_trace() {
        let mut profile = Profile::new(10);
        profile.take(SimTime(0), SimTime(10), 8);
        profile.take(SimTime(20), SimTime(30), 6);
        let nanos = Duration::from_nanos;
        assert_eq!(profile.earliest(SimTime(0), 2, nanos(50)), Some(SimTime(0)));
        assert_eq!(profile.earliest(SimTime(0), 5, nanos(10)), Some(SimTime(10)));
        assert_eq!(profile.earliest(SimTime(0), 5, nanos(11)), Some(SimTime(30)));
        assert_eq!(profile.earliest(SimTime(4), 2, nanos(1)), Some(SimTime(4)));
        assert_eq!(profile.earliest(SimTime(0), 11, nanos(1)), None);
        profile.give(SimTime(0), SimTime(10), 8);
        profile.give(SimTime(20), SimTime(30), 6);
        assert_eq!(profile.earliest(SimTime(0), 10, nanos(99)), Some(SimTime(0)));
    }

    #[test]
    fn a_job_may_move_into_the_gap_in_front_of_its_own_reservation() {
        let mut profile = Profile::new(4);
        profile.take(SimTime(0), SimTime(10), 4);
        profile.take(SimTime(15), SimTime(35), 3);
        let wanted = |own, before| {
            let length = Duration::from_nanos(20);
            let (own, before) = (SimTime(own), SimTime(before));
            profile.earliest_of(Wanted { units: 3, length, from: SimTime(0), before, own })
        };
        assert_eq!(wanted(15, 99), Some(SimTime(10)), "ten units of time in front of its own twenty");
        assert_eq!(wanted(14, 9), None, "too late");
        assert_eq!(wanted(10, 99), None, "it cannot be earlier than it is");
    }
}
