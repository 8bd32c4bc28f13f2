//! Availability profiles of all regions of a machine, for jobs that may use several.
//!
//! A reservation states its units in each region, and the job is placed accordingly. So regions do not
//! interfere: the units reserved in one are free when they are due, whatever the groups of the other jobs
//! are.

use std::time::Duration;

use super::profile::{Profile, Window};
use crate::{
    SimTime,
    spaceshare::machine::{Machine, RegionId},
};

/// When a job starts, and with how many units in each region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reservation {
    pub(super) start: SimTime,
    pub(super) parts: Vec<(RegionId, u32)>,
}

#[derive(Clone, Debug)]
pub(super) struct Profiles(Vec<Region>);

#[derive(Clone, Debug)]
struct Region {
    free: Profile,
    /// The sum of the largest requests that its sets grant when all is free.
    most: u32,
}

impl Profiles {
    /// The profiles of the empty machine.
    pub(super) fn new(machine: &Machine) -> Self {
        let region = |region| {
            let sets =
                machine.sets_of_region(region).map(|set| &machine.sets()[usize::from(set.0)].allocator);
            let (total, most) = (sets.clone().map(|set| set.total()), sets.map(|set| set.largest_ever()));
            Region { free: Profile::new(total.sum()), most: most.sum() }
        };
        Self(machine.regions().map(region).collect())
    }

    pub(super) fn forget_before(&mut self, now: SimTime) {
        self.0.iter_mut().for_each(|region| region.free.forget_before(now));
    }

    /// Reserves `parts` from `from` to `to`.
    pub(super) fn take(&mut self, from: SimTime, to: SimTime, parts: &[(RegionId, u32)]) {
        for (region, units) in parts {
            self.0[usize::from(region.0)].free.take(from, to, *units);
        }
    }

    /// Frees `parts` from `from` to `to`.
    pub(super) fn give(&mut self, from: SimTime, to: SimTime, parts: &[(RegionId, u32)]) {
        for (region, units) in parts {
            self.0[usize::from(region.0)].free.give(from, to, *units);
        }
    }

    /// The profile of the only region; `None` where there are several.
    pub(super) fn only(&self) -> Option<&Profile> {
        if let [only] = self.0.as_slice() { Some(&only.free) } else { None }
    }

    /// The earliest time from `from` on at which `units` are free for `length` in `regions` together; `None`
    /// if never.
    pub(super) fn earliest(
        &self,
        from: SimTime,
        regions: &[RegionId],
        units: u32,
        length: Duration,
    ) -> Option<Reservation> {
        if let [only] = regions {
            let start = self.of(*only).free.earliest(from, units, length)?;
            return Some(Reservation { start, parts: vec![(*only, units)] });
        }
        let mut windows: Vec<Window<'_>> =
            regions.iter().map(|region| self.of(*region).free.window(from)).collect();
        let (mut start, mut parts) = (from, Vec::with_capacity(regions.len()));
        loop {
            let mut more: Option<SimTime> = None;
            for (region, window) in regions.iter().zip(&mut windows) {
                let (least, until) = window.least(start, start.after(length));
                parts.push((*region, least.min(self.of(*region).most)));
                more = more.into_iter().chain(until).min();
            }
            if parts.iter().map(|(_, least)| least).sum::<u32>() >= units {
                return Some(Reservation { start, parts: split(&parts, units) });
            }
            // Before one of these minima ends, no later start finds more.
            start = more?;
            parts.clear();
        }
    }

    fn of(&self, region: RegionId) -> &Region {
        &self.0[usize::from(region.0)]
    }
}

/// All of `units` in the region with the least sufficient capacity, as the machine places jobs; else a part
/// in each, in order.
fn split(capacity: &[(RegionId, u32)], units: u32) -> Vec<(RegionId, u32)> {
    let whole =
        capacity.iter().filter(|(_, capacity)| *capacity >= units).min_by_key(|(_, capacity)| *capacity);
    if let Some((region, _)) = whole {
        return vec![(*region, units)];
    }
    let mut left = units;
    let part = |(region, capacity): &(RegionId, u32)| {
        let part = left.min(*capacity);
        left -= part;
        (*region, part)
    };
    capacity.iter().map(part).filter(|(_, part)| *part > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGIONS: [RegionId; 3] = [RegionId(0), RegionId(1), RegionId(2)];

    fn three(totals: [u32; 3]) -> Profiles {
        Profiles(totals.map(|total| Region { free: Profile::new(total), most: total }).into())
    }

    fn nanos(length: u64) -> Duration {
        Duration::from_nanos(length)
    }

    #[test]
    fn a_job_lies_in_the_least_room_that_holds_it_or_is_divided() {
        let mut profiles = three([4, 8, 6]);
        let found = |profiles: &Profiles, units, length| {
            let found = profiles.earliest(SimTime(0), &REGIONS, units, nanos(length)).unwrap();
            (found.start.0, found.parts.iter().map(|(region, part)| (region.0, *part)).collect::<Vec<_>>())
        };
        assert_eq!(found(&profiles, 5, 10), (0, vec![(2, 5)]));
        assert_eq!(found(&profiles, 14, 10), (0, vec![(0, 4), (1, 8), (2, 2)]));
        profiles.take(SimTime(5), SimTime(9), &[(RegionId(1), 8), (RegionId(2), 6)]);
        assert_eq!(found(&profiles, 5, 5), (0, vec![(2, 5)]));
        assert_eq!(found(&profiles, 5, 6), (9, vec![(2, 5)]));
        assert_eq!(profiles.earliest(SimTime(0), &REGIONS, 19, nanos(1)), None);
    }

    /// Compares with a check of every moment.
    #[test]
    fn nothing_earlier_is_overlooked() {
        let mut profiles = three([4, 8, 6]);
        // Steps in a shuffled order: 41 and 83 have no factor in common with 97 or with each other.
        for step in 0..40u64 {
            let (from, region) = (step * 41 % 97, REGIONS[(step % 3) as usize]);
            let capacity = profiles.0[usize::from(region.0)].free.window(SimTime(from));
            let capacity = capacity.clone().least(SimTime(from), SimTime(from + 7)).0;
            profiles.take(
                SimTime(from),
                SimTime(from + 7),
                &[(region, capacity.min((step * 83 % 5) as u32))],
            );
        }
        let least = |region: usize, from: u64, length: u64| {
            let at = |at| profiles.0[region].free.window(SimTime(at)).least(SimTime(at), SimTime(at)).0;
            (from..from + length.max(1)).map(at).min().unwrap()
        };
        let mut late = 0;
        for (units, length) in (1..=18).flat_map(|units| (0..40).map(move |length| (units, length))) {
            let enough = |from: &u64| (0..3).map(|region| least(region, *from, length)).sum::<u32>() >= units;
            let found = profiles.earliest(SimTime(3), &REGIONS, units, nanos(length)).unwrap();
            assert_eq!(Some(found.start.0), (3..).find(enough), "{units} for {length}");
            assert_eq!(found.parts.iter().map(|(_, part)| part).sum::<u32>(), units);
            for (region, part) in found.parts {
                assert!(part <= least(usize::from(region.0), found.start.0, length));
            }
            late += u32::from(found.start > SimTime(3));
        }
        assert!(late > 300, "most of them have to wait: {late}");
    }
}
