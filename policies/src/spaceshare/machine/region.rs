//! Regions: node sets that every group uses together.
//!
//! The groups that use one set of a region use all of them, at the same hours. So the units of a region are
//! interchangeable for every job, and a reservation only needs the number of units in each region. A machine
//! of one group is one region.

use serde::{Deserialize, Serialize};

use super::{NodeGroup, Period, SetId};

/// A region; regions are numbered in the order of their first sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RegionId(pub u16);

#[derive(Clone, Debug)]
pub(super) struct Regions {
    count: u16,
    of_set: Vec<RegionId>,
    /// By group: in prime time and otherwise, in the order in which the group first names a set of each.
    of_group: Vec<[Vec<RegionId>; 2]>,
}

impl Regions {
    pub(super) fn new(sets: u16, groups: &[NodeGroup]) -> Self {
        let mut users: Vec<Vec<bool>> = Vec::new();
        let region = |set| {
            let of = groups.iter().flat_map(|group| [&group.prime, &group.non_prime]);
            let of: Vec<bool> = of.map(|sets| sets.contains(&SetId(set))).collect();
            let known = users.iter().position(|known| *known == of);
            let place = known.unwrap_or(users.len());
            if known.is_none() {
                users.push(of);
            }
            RegionId(u16::try_from(place).expect("no more than the sets"))
        };
        let of_set: Vec<RegionId> = (0..sets).map(region).collect();
        let named = |sets: &[SetId]| {
            let mut named: Vec<RegionId> = Vec::new();
            for region in sets.iter().map(|set| of_set[usize::from(set.0)]) {
                if !named.contains(&region) {
                    named.push(region);
                }
            }
            named
        };
        let of_group = groups.iter().map(|group| [named(&group.prime), named(&group.non_prime)]).collect();
        let count = u16::try_from(users.len()).expect("no more than the sets");
        Self { count, of_set, of_group }
    }

    pub(super) const fn count(&self) -> u16 {
        self.count
    }

    pub(super) fn of_set(&self, set: SetId) -> RegionId {
        self.of_set[usize::from(set.0)]
    }

    /// The regions of the group with this index.
    pub(super) fn of_group(&self, group: usize, period: Period) -> &[RegionId] {
        self.of_group.get(group).map_or(&[], |[prime, non_prime]| match period {
            Period::Prime => prime,
            Period::NonPrime => non_prime,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_that_the_same_groups_use_at_the_same_hours_are_one_region() {
        let group = |prime: &[u16], non_prime: &[u16]| NodeGroup {
            name: "g".into(),
            prime: prime.iter().copied().map(SetId).collect(),
            non_prime: non_prime.iter().copied().map(SetId).collect(),
        };
        let all = group(&[2, 0, 1, 3], &[0, 1, 2, 3]);
        let alone = Regions::new(4, std::slice::from_ref(&all));
        assert_eq!((alone.count(), alone.of_group(0, Period::Prime)), (1, &[RegionId(0)][..]));
        // By day the second group has two sets; by night it has one more, of the others.
        let regions = Regions::new(4, &[all, group(&[1, 3], &[1, 2, 3])]);
        assert_eq!([0, 1, 2, 3].map(|set| regions.of_set(SetId(set)).0), [0, 1, 2, 1]);
        let of = |group, period| regions.of_group(group, period).iter().map(|id| id.0).collect::<Vec<_>>();
        assert_eq!([of(0, Period::Prime), of(0, Period::NonPrime)], [vec![2, 0, 1], vec![0, 1, 2]]);
        assert_eq!([of(1, Period::Prime), of(1, Period::NonPrime)], [vec![1], vec![1, 2]]);
        assert_eq!((regions.count(), of(2, Period::Prime)), (3, vec![]));
    }
}
