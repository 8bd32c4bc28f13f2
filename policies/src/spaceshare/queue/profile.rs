//! Availability profile: the number of free units as a step function of time, for reservations.

use std::{
    collections::{BTreeMap, VecDeque, btree_map::Range},
    iter::Peekable,
};

use crate::SimTime;

/// Free units from each step until the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Profile {
    steps: BTreeMap<SimTime, u32>,
}

impl Profile {
    pub(super) fn new(units: u32) -> Self {
        Self { steps: BTreeMap::from([(SimTime(0), units)]) }
    }

    pub(super) fn forget_before(&mut self, now: SimTime) {
        self.split_at(now);
        self.steps = self.steps.split_off(&now);
    }

    /// Reserves `units` from `from` to `to`.
    ///
    /// # Panics
    /// Where fewer are free.
    pub(super) fn take(&mut self, from: SimTime, to: SimTime, units: u32) {
        self.split_at(from);
        self.split_at(to);
        for free in self.steps.range_mut(from..to).map(|(_, free)| free) {
            *free = free.checked_sub(units).expect("only what is free is reserved");
        }
        self.merge_equal(from, to);
    }

    /// Frees `units` from `from` to `to`.
    pub(super) fn give(&mut self, from: SimTime, to: SimTime, units: u32) {
        if from < to {
            self.split_at(from);
            self.split_at(to);
            self.steps.range_mut(from..to).for_each(|(_, free)| *free += units);
            self.merge_equal(from, to);
        }
    }

    /// The earliest time from `from` on at which `units` are free for `length`; `None` if never.
    pub(super) fn earliest(&self, from: SimTime, units: u32, length: std::time::Duration) -> Option<SimTime> {
        let (first, _) = self.steps.range(..=from).next_back()?;
        let mut begin: Option<SimTime> = None;
        for (at, free) in self.steps.range(first..) {
            if let Some(begin) = begin.filter(|begin| *at >= begin.after(length)) {
                return Some(begin);
            }
            begin = if *free >= units { begin.or(Some((*at).max(from))) } else { None };
        }
        begin
    }

    /// A window over stretches of time that begin at `from` or later.
    pub(super) fn window(&self, from: SimTime) -> Window<'_> {
        let first = self.steps.range(..=from).next_back().map_or(from, |(at, _)| *at);
        Window { ahead: self.steps.range(first..).peekable(), lowest: VecDeque::new() }
    }

    /// Makes a step begin at `at`.
    fn split_at(&mut self, at: SimTime) {
        if !self.steps.contains_key(&at)
            && let Some((_, &free)) = self.steps.range(..at).next_back()
        {
            self.steps.insert(at, free);
        }
    }

    /// Removes the steps from `from` to `to` that change nothing.
    fn merge_equal(&mut self, from: SimTime, to: SimTime) {
        let mut before = self.steps.range(..from).next_back().map(|(_, free)| *free);
        let mut flat = Vec::new();
        for (at, free) in self.steps.range(from..=to) {
            if before == Some(*free) {
                flat.push(*at);
            }
            before = Some(*free);
        }
        flat.iter().for_each(|at| {
            self.steps.remove(at);
        });
    }
}

/// The minimum of free units in a stretch of time that moves forward; visits each step once.
#[derive(Clone, Debug)]
pub(super) struct Window<'a> {
    ahead: Peekable<Range<'a, SimTime, u32>>,
    /// The steps of the stretch with fewer free units than every step behind them, with their ends; the
    /// lowest first.
    lowest: VecDeque<(Option<SimTime>, u32)>,
}

impl Window<'_> {
    /// The fewest free units from `from` to `to`, and when that minimum ends. Neither bound may be earlier
    /// than in the call before.
    pub(super) fn least(&mut self, from: SimTime, to: SimTime) -> (u32, Option<SimTime>) {
        while let Some((_, &free)) = self.ahead.next_if(|(at, _)| **at < to || **at <= from) {
            while self.lowest.back().is_some_and(|(_, before)| *before >= free) {
                self.lowest.pop_back();
            }
            self.lowest.push_back((self.ahead.peek().map(|(at, _)| **at), free));
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
    use std::time::Duration;

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
        assert_eq!(profile, Profile::new(10));
    }
}
