//! Machine of a batch scheduler: node sets, the node groups made of them, and the hours of the day.
//!
//! Paper 002 §2.2: nodes are divided into disjoint *node sets* of equal nodes, each with its own allocator.
//! *Node groups* combine sets and may overlap; a group may use other sets in prime than in non-prime time.
//! Each queue belongs to one group.
//!
//! A job is placed in two passes, as in the paper: first on the set of its group with the fewest free nodes
//! that grants the whole request; if there is none, divided over the sets of the group in their order, on
//! each as much as it grants. A job with units reserved in some [regions](RegionId) is placed there, by the
//! same passes.
//!
//! | file | what |
//! | --- | --- |
//! | `group` | node sets and node groups |
//! | `place` | the two passes |
//! | `calendar` | prime and non-prime time |
//! | `region` | sets that are interchangeable for every job |

mod calendar;
mod group;
mod place;
mod region;

use std::collections::BTreeMap;

pub use calendar::{Calendar, Period};
pub use group::{GroupId, MachineError, NodeGroup, NodeSet, SetId};
pub use region::RegionId;

use crate::{
    JobId, SimTime,
    spaceshare::allocate::{Allocation, Allocator, Request},
};
use place::{place_among, release_all};
use region::Regions;

#[derive(Clone, Debug)]
pub struct Machine {
    sets: Vec<NodeSet>,
    groups: Vec<NodeGroup>,
    regions: Regions,
    calendar: Calendar,
    /// The node sets in which a job holds nodes: bit `i` for set `i`.
    homes: BTreeMap<JobId, u64>,
}

impl Machine {
    /// A machine of `sets` and `groups`.
    ///
    /// # Errors
    /// Where a group names a set that is unknown, or twice.
    pub fn new(sets: Vec<NodeSet>, groups: Vec<NodeGroup>, calendar: Calendar) -> Result<Self, MachineError> {
        let count = u16::try_from(sets.len()).ok().filter(|count| *count <= 64);
        let count = count.ok_or(MachineError::TooManySets(sets.len()))?;
        for group in &groups {
            for list in [&group.prime, &group.non_prime] {
                group::check_sets(&group.name, list, sets.len())?;
            }
        }
        let regions = Regions::new(count, &groups);
        Ok(Self { sets, groups, regions, calendar, homes: BTreeMap::new() })
    }

    /// A machine of one set and one group, without prime time.
    #[must_use]
    pub fn single(allocator: Box<dyn Allocator>) -> Self {
        let set = NodeSet { name: "all".into(), allocator };
        let all = NodeGroup { name: "all".into(), prime: vec![SetId(0)], non_prime: vec![SetId(0)] };
        Self::new(vec![set], vec![all], Calendar::never_prime()).expect("the group names the only set")
    }

    #[must_use]
    pub fn sets(&self) -> &[NodeSet] {
        &self.sets
    }

    #[must_use]
    pub fn groups(&self) -> &[NodeGroup] {
        &self.groups
    }

    #[must_use]
    pub const fn calendar(&self) -> &Calendar {
        &self.calendar
    }

    /// Units in all sets.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.sets.iter().map(|set| set.allocator.total()).sum()
    }

    /// Free units in all sets.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.sets.iter().map(|set| set.allocator.free()).sum()
    }

    /// Free units in the sets that `group` may use at `now`.
    #[must_use]
    pub fn free_in(&self, now: SimTime, group: GroupId) -> u32 {
        self.free_of(self.sets_of(now, group))
    }

    /// Free units in `sets`.
    #[must_use]
    pub fn free_of(&self, sets: &[SetId]) -> u32 {
        sets.iter().map(|set| self.set(*set).free()).sum()
    }

    /// Whether `group` grants `request` on the empty machine, in some period.
    #[must_use]
    pub fn can_ever_hold(&self, group: GroupId, request: Request) -> bool {
        let Some(group) = self.groups.get(usize::from(group.0)) else { return false };
        [&group.prime, &group.non_prime].into_iter().any(|sets| self.can_hold(sets.iter().copied(), request))
    }

    /// Whether `group` grants `request` on the empty machine, in the period of `now`.
    #[must_use]
    pub fn can_hold_at(&self, now: SimTime, group: GroupId, request: Request) -> bool {
        self.can_hold(self.sets_of(now, group).iter().copied(), request)
    }

    /// Whether the sets of `regions` grant `request` when all of them are free.
    #[must_use]
    pub fn can_hold_in(&self, regions: &[RegionId], request: Request) -> bool {
        self.can_hold(regions.iter().flat_map(|region| self.sets_of_region(*region)), request)
    }

    /// The largest request for nodes that `group` grants on the empty machine, in some period.
    #[must_use]
    pub fn largest_ever(&self, group: GroupId) -> u32 {
        let Some(group) = self.groups.get(usize::from(group.0)) else { return 0 };
        let together = |sets: &Vec<SetId>| sets.iter().map(|set| self.set(*set).largest_ever()).sum();
        [&group.prime, &group.non_prime].into_iter().map(together).max().unwrap_or(0)
    }

    /// The largest request for nodes that `group` grants now, by the better of its periods.
    #[must_use]
    pub fn largest_now(&self, group: GroupId) -> u32 {
        let Some(group) = self.groups.get(usize::from(group.0)) else { return 0 };
        let together = |sets: &Vec<SetId>| sets.iter().map(|set| self.set(*set).largest_request()).sum();
        [&group.prime, &group.non_prime].into_iter().map(together).max().unwrap_or(0)
    }

    /// Whether `group` may use a node, in some period. Nodes are numbered as by [`Machine::claim`].
    #[must_use]
    pub fn may_use(&self, group: GroupId, node: u32) -> bool {
        let (Some((set, _)), Some(group)) = (self.unit_of(node), self.groups.get(usize::from(group.0)))
        else {
            return false;
        };
        group.prime.iter().chain(&group.non_prime).any(|of| usize::from(of.0) == set)
    }

    fn can_hold(&self, sets: impl Iterator<Item = SetId> + Clone, request: Request) -> bool {
        let together = || sets.clone().map(|set| self.set(set).largest_ever()).sum::<u32>();
        sets.clone().any(|set| self.set(set).can_ever_hold(request))
            || (request.cpus == 1
                && sets.clone().nth(1).is_some()
                && (1..=together()).contains(&request.nodes))
    }

    /// Allocates `request` to `job`. Returns false, and changes nothing, where its group cannot grant it now.
    pub fn place(&mut self, now: SimTime, job: JobId, group: GroupId, request: Request) -> bool {
        let period = self.calendar.period(now);
        let Some(sets) = self.groups.get(usize::from(group.0)).map(|group| group.sets(period)) else {
            return false;
        };
        let home = place_among(&mut self.sets, sets, job, request);
        home.inspect(|home| self.record_home(job, *home)).is_some()
    }

    /// Allocates the given units in each of these regions to `job`. Returns false, and changes nothing, where
    /// one region cannot grant its part now.
    pub fn place_in(
        &mut self,
        now: SimTime,
        job: JobId,
        group: GroupId,
        request: Request,
        parts: &[(RegionId, u32)],
    ) -> bool {
        let mut home = 0;
        for (region, units) in parts {
            let of_region = |set: &SetId| self.regions.of_set(*set) == *region;
            let sets: Vec<SetId> = self.sets_of(now, group).iter().copied().filter(of_region).collect();
            let part = if parts.len() == 1 { request } else { Request::nodes(*units) };
            let Some(part) = place_among(&mut self.sets, &sets, job, part) else {
                release_all(&mut self.sets, home, job);
                return false;
            };
            home |= part;
        }
        self.record_home(job, home);
        true
    }

    /// Allocates exactly these nodes to `job`. Nodes are numbered through all sets, in the order of the sets.
    /// Returns false, and changes nothing, where any of them is held or unknown.
    pub fn claim(&mut self, job: JobId, nodes: impl Iterator<Item = u32>) -> bool {
        let mut parts: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for node in nodes {
            let Some((set, unit)) = self.unit_of(node) else { return false };
            parts.entry(set).or_default().push(unit);
        }
        let mut home = 0;
        for (set, units) in parts {
            if !self.sets[set].allocator.claim(job, &units) {
                release_all(&mut self.sets, home, job);
                return false;
            }
            home |= 1 << set;
        }
        self.record_home(job, home);
        true
    }

    /// The set of a node, and its number there.
    fn unit_of(&self, node: u32) -> Option<(usize, u32)> {
        let mut unit = node;
        for (set, of) in self.sets.iter().enumerate() {
            match unit.checked_sub(of.allocator.total()) {
                Some(behind) => unit = behind,
                None => return Some((set, unit)),
            }
        }
        None
    }

    /// The nodes of `job`, in order. Nodes are numbered through all sets, in the order of the sets.
    #[must_use]
    pub fn nodes_of(&self, job: JobId) -> Vec<u32> {
        let mut nodes: Vec<u32> = Vec::new();
        for (set, held) in self.held_by(job) {
            let before = &self.sets[..usize::from(set.0)];
            let first: u32 = before.iter().map(|set| set.allocator.total()).sum();
            let mesh = self.set(set).mesh();
            nodes.extend(held.blocks.iter().flat_map(|block| mesh.numbers(*block)).map(|unit| first + unit));
        }
        nodes.sort_unstable();
        nodes
    }

    fn record_home(&mut self, job: JobId, home: u64) {
        let before = self.homes.insert(job, home);
        assert!(before.is_none(), "{job} holds nothing yet");
    }

    /// Releases the nodes of `job`; false where it has none.
    pub fn release(&mut self, job: JobId) -> bool {
        let Some(home) = self.homes.remove(&job) else { return false };
        release_all(&mut self.sets, home, job);
        true
    }

    /// The allocations of `job`, by set.
    pub fn held_by(&self, job: JobId) -> impl Iterator<Item = (SetId, &Allocation)> + '_ {
        let home = self.homes.get(&job).copied().unwrap_or(0);
        (0u16..).zip(&self.sets).filter(move |(set, _)| home >> set & 1 == 1).filter_map(move |(set, of)| {
            of.allocator.allocation(job).map(|allocation| (SetId(set), allocation))
        })
    }

    /// The units that `job` requested in each set in which it holds nodes.
    pub fn asked_by(&self, job: JobId) -> impl Iterator<Item = (SetId, u32)> + '_ {
        self.held_by(job).map(|(set, allocation)| (set, allocation.request.units()))
    }

    pub fn regions(&self) -> impl Iterator<Item = RegionId> + use<> {
        (0..self.regions.count()).map(RegionId)
    }

    /// The region of a set.
    #[must_use]
    pub fn region_of(&self, set: SetId) -> RegionId {
        self.regions.of_set(set)
    }

    pub fn sets_of_region(&self, region: RegionId) -> impl Iterator<Item = SetId> + Clone + '_ {
        (0..).map(SetId).take(self.sets.len()).filter(move |set| self.regions.of_set(*set) == region)
    }

    /// The regions that `group` may use in this period, in the order of preference.
    #[must_use]
    pub fn regions_of(&self, group: GroupId, period: Period) -> &[RegionId] {
        self.regions.of_group(usize::from(group.0), period)
    }

    /// The periods in which the sets of `group` differ: both, or one that stands for both.
    #[must_use]
    pub fn hours_of(&self, group: GroupId) -> &'static [Period] {
        let differ =
            self.groups.get(usize::from(group.0)).is_some_and(|group| group.prime != group.non_prime);
        if differ { &[Period::Prime, Period::NonPrime] } else { &[Period::NonPrime] }
    }

    /// The first time from `at` on at which `group` may use its sets of this period; `None` if never.
    #[must_use]
    pub fn opens(&self, at: SimTime, group: GroupId, period: Period) -> Option<SimTime> {
        let open = self.sets_of(at, group) == self.sets_in(group, period);
        if open { Some(at) } else { self.calendar.next_change(at) }
    }

    /// The next time at which some group changes its sets, if ever.
    #[must_use]
    pub fn next_change(&self, now: SimTime) -> Option<SimTime> {
        let changes = self.groups.iter().any(|group| group.prime != group.non_prime);
        changes.then(|| self.calendar.next_change(now)).flatten()
    }

    /// Whether two groups may use the same set at `now`.
    #[must_use]
    pub fn share_sets(&self, now: SimTime, a: GroupId, b: GroupId) -> bool {
        a == b || self.sets_of(now, a).iter().any(|set| self.sets_of(now, b).contains(set))
    }

    /// Whether two groups may use the same set, each in any period.
    #[must_use]
    pub fn may_compete(&self, a: GroupId, b: GroupId) -> bool {
        let sets = |group| {
            [Period::Prime, Period::NonPrime].into_iter().flat_map(move |period| self.sets_in(group, period))
        };
        a == b || sets(a).any(|set| sets(b).any(|other| other == set))
    }

    fn sets_of(&self, now: SimTime, group: GroupId) -> &[SetId] {
        self.sets_in(group, self.calendar.period(now))
    }

    /// The sets that `group` may use in this period, in the order of preference.
    #[must_use]
    pub fn sets_in(&self, group: GroupId, period: Period) -> &[SetId] {
        self.groups.get(usize::from(group.0)).map_or(&[], |group| group.sets(period))
    }

    fn set(&self, set: SetId) -> &dyn Allocator {
        &*self.sets[usize::from(set.0)].allocator
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spaceshare::allocate::FirstFit;

    /// The two tables of paper 002 §2.2: 16 fat and 8 thin nodes; group 3 uses both, group 4 excludes group 5
    /// by day.
    fn example() -> Machine {
        let set =
            |name: &str, nodes| NodeSet { name: name.into(), allocator: Box::new(FirstFit::new(nodes)) };
        let group = |prime: &[u16], non_prime: &[u16]| NodeGroup {
            name: "g".into(),
            prime: prime.iter().copied().map(SetId).collect(),
            non_prime: non_prime.iter().copied().map(SetId).collect(),
        };
        let groups = vec![group(&[0], &[0]), group(&[1], &[1]), group(&[0, 1], &[0, 1]), group(&[], &[0])];
        Machine::new(vec![set("fat", 16), set("thin", 8)], groups, Calendar::nine_to_five()).unwrap()
    }

    fn at(hour: u64) -> SimTime {
        SimTime(hour * 3_600_000_000_000)
    }

    fn homes(machine: &Machine, job: u32) -> Vec<(u16, u32)> {
        machine.held_by(JobId(job)).map(|(set, held)| (set.0, held.units())).collect()
    }

    #[test]
    fn a_job_goes_to_the_set_with_the_fewest_nodes_that_suffice_then_to_several() {
        let mut machine = example();
        assert!(machine.place(at(12), JobId(0), GroupId(2), Request::nodes(6)));
        assert!(machine.place(at(12), JobId(1), GroupId(2), Request::nodes(6)));
        assert!(machine.place(at(12), JobId(2), GroupId(2), Request::nodes(12)));
        assert_eq!(homes(&machine, 0), [(1, 6)]);
        assert_eq!(homes(&machine, 1), [(0, 6)]);
        assert_eq!(homes(&machine, 2), [(0, 10), (1, 2)]);
        assert_eq!(machine.free(), 0);
        assert!(machine.release(JobId(2)) && !machine.release(JobId(2)));
        assert!(!machine.place(at(12), JobId(3), GroupId(2), Request::nodes(13)));
        assert_eq!(machine.free(), 12);
    }

    #[test]
    fn nodes_are_numbered_through_all_sets_and_a_claim_is_all_or_nothing() {
        let mut machine = example();
        assert!(machine.claim(JobId(0), [15, 16, 18].into_iter()));
        assert_eq!(
            (homes(&machine, 0), machine.nodes_of(JobId(0))),
            (vec![(0, 1), (1, 2)], vec![15, 16, 18])
        );
        assert!(!machine.claim(JobId(1), [3, 16].into_iter()) && !machine.claim(JobId(1), [24].into_iter()));
        assert_eq!(machine.free(), 24 - 3);
        assert!(machine.place(at(12), JobId(1), GroupId(1), Request::nodes(3)));
        assert_eq!(machine.nodes_of(JobId(1)), [17, 19, 20]);
        assert!(machine.release(JobId(0)) && machine.claim(JobId(2), [3, 16].into_iter()));
    }

    #[test]
    fn a_set_kept_for_short_jobs_by_day_is_open_to_all_by_night() {
        let mut machine = example();
        assert!(machine.can_ever_hold(GroupId(3), Request::nodes(16)));
        assert!(!machine.place(at(12), JobId(0), GroupId(3), Request::nodes(1)));
        assert_eq!(machine.next_change(at(12)), Some(at(17)));
        assert!(machine.place(at(17), JobId(0), GroupId(3), Request::nodes(1)));
    }

    #[test]
    fn a_group_that_names_no_set_or_one_twice_is_refused() {
        let set = || NodeSet { name: "s".into(), allocator: Box::new(FirstFit::new(1)) };
        let group = |sets: Vec<SetId>| NodeGroup { name: "g".into(), prime: sets, non_prime: vec![] };
        let new = |sets| Machine::new(vec![set()], vec![group(sets)], Calendar::never_prime()).map(|_| ());
        let unknown = MachineError::UnknownSet { group: "g".into(), set: 1, sets: 1 };
        assert_eq!(new(vec![SetId(1)]), Err(unknown));
        assert_eq!(new(vec![SetId(0), SetId(0)]), Err(MachineError::SetTwice { group: "g".into(), set: 0 }));
        assert_eq!(new(vec![SetId(0)]), Ok(()));
    }
}
