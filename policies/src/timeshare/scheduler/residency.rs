//! Residency planning: which jobs out of their turn stay in memory, and which are evicted when a turn needs
//! the room.
//!
//! Rows take turns in a fixed cycle, so the job whose next turn is farthest away is known: evicting that one
//! moves the fewest bytes possible where jobs are of one size (Belady's rule). Where they are not, a job that
//! fits after all stays.
//!
//! A job that does not run cannot grow: once measured, it counts with what it holds, down to the page. A job
//! that runs may grow, and counts twice. *Declared*, it counts with its estimate, which it should never
//! exceed. *Expected*, it counts with its [`reach`]: what it may hold before suspended jobs could have left.
//! A job that has stopped and was not measured since counts with its estimate as declared, and with the
//! last measurement as expected. A node has room where one of the two sums fits; beside the expected sum
//! a [`reserve`] has to stay free, for growth above expectation. A node with room by expectation only is
//! *overcommitted* and has an [allowance](crate::Scheduler::allowances): where its jobs exceed it, none
//! comes in, and the running ones are stopped until suspended ones have left.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{Assignment, Bytes, Cluster, JobId, NodeId, Placement};

/// Where jobs wait for their turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Residency {
    /// All in the store (paper 003, §3.3.2.2).
    #[default]
    None,
    /// In memory, while they fit.
    Planned,
    /// All in memory, whether they fit or not: the kernel swaps (the baseline of paper 003, gang scheduling
    /// by signals).
    Always,
}

/// The part of an overcommitted node that stays free: what jobs may take before they are stopped.
#[must_use]
pub fn reserve(capacity: Bytes) -> Bytes {
    Bytes((capacity.0 / 8).clamp(16 << 20, 1 << 30))
}

/// What a job that runs may hold before suspended jobs could have left, which takes `lead`: what it holds, an
/// eighth, and what it grows meanwhile.
pub(super) fn reach(resident: Bytes, growth: Bytes, lead: Duration) -> Bytes {
    let grown = u128::from(growth.0) * lead.as_millis() / 1000;
    let grown = Bytes(u64::try_from(grown).unwrap_or(u64::MAX));
    resident.saturating_add(Bytes(resident.0 / 8)).saturating_add(grown)
}

/// What was measured of a job on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// Held while it does not run.
    pub(super) resident: Bytes,
    /// Whether that was measured since it last ran.
    pub(super) exact: bool,
    /// Held at most while it runs; `None` where that is not known yet.
    pub(super) reach: Option<Bytes>,
}

/// Memory on a node, by estimates and by measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    declared: i64,
    expected: i64,
}

impl Load {
    fn of(declared: Bytes, expected: Bytes) -> Self {
        let signed = |bytes: Bytes| i64::try_from(bytes.0).unwrap_or(i64::MAX);
        Self { declared: signed(declared), expected: signed(expected) }
    }

    const fn plus(self, other: Self) -> Self {
        Self {
            declared: self.declared.saturating_add(other.declared),
            expected: self.expected.saturating_add(other.expected),
        }
    }

    const fn minus(self, other: Self) -> Self {
        Self {
            declared: self.declared.saturating_sub(other.declared),
            expected: self.expected.saturating_sub(other.expected),
        }
    }

    /// How much it exceeds a node; negative where there is room.
    fn excess(self, capacity: Bytes) -> Self {
        let has_room = Self::of(capacity, Bytes(capacity.0.saturating_sub(reserve(capacity).0)));
        self.minus(has_room)
    }

    /// By estimates alone.
    pub(super) fn declared(self) -> Bytes {
        Bytes(u64::try_from(self.declared).unwrap_or(0))
    }

    pub(super) fn expected(self) -> Bytes {
        Bytes(u64::try_from(self.expected).unwrap_or(0))
    }

    const fn is_over(self) -> bool {
        self.declared > 0 && self.expected > 0
    }
}

/// Memory by node, in the order of nodes.
pub(super) type Need = Vec<(NodeId, Load)>;

type ByNode = BTreeMap<NodeId, Known>;

/// A job in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Footprint {
    placement: Placement,
    rank: Bytes,
    runs: bool,
}

impl Footprint {
    fn new(assignment: &Assignment, runs: bool) -> Self {
        Self { placement: assignment.placement.clone(), rank: assignment.spec.memory_per_rank, runs }
    }

    fn loads<'a>(&'a self, known: Option<&'a ByNode>) -> impl Iterator<Item = (NodeId, Load)> + 'a {
        self.loads_if(self.runs, known)
    }

    fn loads_if<'a>(
        &'a self,
        runs: bool,
        known: Option<&'a ByNode>,
    ) -> impl Iterator<Item = (NodeId, Load)> + 'a {
        loads(&self.placement, self.rank, runs, known)
    }
}

fn loads<'a>(
    placement: &'a Placement,
    rank: Bytes,
    runs: bool,
    known: Option<&'a ByNode>,
) -> impl Iterator<Item = (NodeId, Load)> + 'a {
    placement.blocks().map(move |block| {
        let estimate = rank.times(block.ranks);
        let known = known.and_then(|known| known.get(&block.node));
        let load = match known {
            Some(known) if runs => {
                Load::of(estimate, known.reach.map_or(estimate, |reach| reach.min(estimate)))
            }
            Some(known) if known.exact => Load::of(known.resident, known.resident),
            Some(known) => Load::of(estimate.max(known.resident), known.resident),
            None => Load::of(estimate, estimate),
        };
        (block.node, load)
    })
}

/// Memory in use, by node and by job, and what is known of jobs in memory and out of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// By node; nodes that never held a job may be missing.
    used: Vec<Load>,
    footprints: BTreeMap<JobId, Footprint>,
    known: BTreeMap<JobId, ByNode>,
}

impl Memory {
    pub(super) fn enter(&mut self, assignment: &Assignment, runs: bool) {
        let job = assignment.spec.id;
        self.leave(job);
        self.may_have_changed(job, runs);
        self.add(job, Footprint::new(assignment, runs));
    }

    /// What is known of a job that runs is out of date when it stops.
    fn may_have_changed(&mut self, job: JobId, runs: bool) {
        let known = self.known.get_mut(&job).filter(|_| runs);
        known.into_iter().flat_map(BTreeMap::values_mut).for_each(|known| known.exact = false);
    }

    pub(super) fn leave(&mut self, job: JobId) {
        self.take(job);
    }

    fn add(&mut self, job: JobId, footprint: Footprint) {
        for (node, load) in footprint.loads(self.known.get(&job)) {
            let node = node.0 as usize;
            if node >= self.used.len() {
                self.used.resize(node + 1, Load::default());
            }
            self.used[node] = self.used[node].plus(load);
        }
        self.footprints.insert(job, footprint);
    }

    fn take(&mut self, job: JobId) -> Option<Footprint> {
        let footprint = self.footprints.remove(&job)?;
        for (node, load) in footprint.loads(self.known.get(&job)) {
            let used = &mut self.used[node.0 as usize];
            *used = used.minus(load);
        }
        Some(footprint)
    }

    /// A job was measured on a node.
    pub(super) fn learn(&mut self, job: JobId, node: NodeId, known: Known) {
        let footprint = self.take(job);
        self.known.entry(job).or_default().insert(node, known);
        footprint.into_iter().for_each(|footprint| self.add(job, footprint));
    }

    /// What was measured of a job is of processes that are gone.
    pub(super) fn unlearn(&mut self, job: JobId) {
        let footprint = self.take(job);
        self.known.remove(&job);
        footprint.into_iter().for_each(|footprint| self.add(job, footprint));
    }

    /// A job is over.
    pub(super) fn forget(&mut self, job: JobId) {
        self.leave(job);
        self.known.remove(&job);
    }

    /// Takes over a new estimate, if the job is in memory.
    pub(super) fn resize(&mut self, assignment: &Assignment) {
        if let Some(footprint) = self.take(assignment.spec.id) {
            self.add(assignment.spec.id, Footprint::new(assignment, footprint.runs));
        }
    }

    /// Whether the job runs or is stopped, where it is in memory.
    pub(super) fn set_running(&mut self, job: JobId, runs: bool) {
        if let Some(footprint) = self.take(job) {
            self.may_have_changed(job, runs);
            self.add(job, Footprint { runs, ..footprint });
        }
    }

    /// Nodes whose jobs exceed their capacity, each with no further need: evictions make room there as well.
    pub(super) fn overfull(&self, cluster: &Cluster) -> Need {
        let over =
            cluster.nodes().zip(&self.used).filter(|((_, capacity), used)| used.excess(*capacity).is_over());
        over.map(|((node, _), _)| (node, Load::default())).collect()
    }

    pub(super) fn holds(&self, job: JobId) -> bool {
        self.footprints.contains_key(&job)
    }

    /// What these assignments need in their turn.
    pub(super) fn need_of<'a>(&self, assignments: impl Iterator<Item = &'a Assignment> + Clone) -> Need {
        self.sum_of(assignments, true)
    }

    fn sum_of<'a>(&self, assignments: impl Iterator<Item = &'a Assignment> + Clone, runs: bool) -> Need {
        let mut need =
            Vec::with_capacity(assignments.clone().map(|assignment| assignment.placement.width()).sum());
        need.extend(assignments.flat_map(|Assignment { spec, placement }| {
            loads(placement, spec.memory_per_rank, runs, self.known.get(&spec.id))
        }));
        summed(need)
    }

    /// What suspended jobs need more when they run.
    pub(super) fn growth_of(&self, jobs: impl Iterator<Item = JobId>) -> Need {
        let growth = jobs.filter_map(|job| {
            let (footprint, known) = (self.footprints.get(&job)?, self.known.get(&job)?);
            let more = footprint.loads_if(true, Some(known)).zip(footprint.loads(Some(known)));
            Some(more.map(|((node, then), (_, now))| (node, then.minus(now))))
        });
        summed(growth.flatten().collect())
    }

    /// How many of these rows, from the first on, fit into memory together while the first one runs.
    pub(super) fn fit_together<'a, R>(&self, cluster: &Cluster, rows: impl Iterator<Item = R>) -> usize
    where
        R: Iterator<Item = &'a Assignment> + Clone,
    {
        let mut used = vec![Load::default(); cluster.len()];
        let mut fits = |(row, assignments): &(usize, R)| {
            self.sum_of(assignments.clone(), *row == 0).into_iter().all(|(node, load)| {
                let used = &mut used[node.0 as usize];
                *used = used.plus(load);
                !used.excess(cluster.capacity(node)).is_over()
            })
        };
        rows.enumerate().take_while(|row| fits(row)).count()
    }

    /// What moves to bring these assignments back, on the node where most does.
    pub(super) fn moved<'a>(&self, assignments: impl Iterator<Item = &'a Assignment> + Clone) -> u64 {
        most_of(&self.sum_of(assignments, false))
    }

    /// What these jobs leave memory with, on the node where they hold most.
    pub(super) fn most(&self, jobs: impl IntoIterator<Item = JobId>) -> u64 {
        let stopped = jobs.into_iter().filter_map(|job| Some(self.stopped(job, self.footprints.get(&job)?)));
        most_of(&summed(stopped.flatten().collect()))
    }

    fn stopped<'a>(
        &'a self,
        job: JobId,
        footprint: &'a Footprint,
    ) -> impl Iterator<Item = (NodeId, Load)> + 'a {
        footprint.loads_if(false, self.known.get(&job))
    }

    pub(super) fn knows_any(&self) -> bool {
        !self.known.is_empty()
    }

    /// The jobs in memory, and whether they run.
    pub(super) fn present(&self) -> impl Iterator<Item = (JobId, bool)> + '_ {
        self.footprints.iter().map(|(job, footprint)| (*job, footprint.runs))
    }

    /// What a job declares and holds on each node while it runs, or stopped.
    pub(super) fn loads_of<'a>(
        &'a self,
        Assignment { spec, placement }: &'a Assignment,
        runs: bool,
    ) -> impl Iterator<Item = (NodeId, Load)> + 'a {
        loads(placement, spec.memory_per_rank, runs, self.known.get(&spec.id))
    }

    /// Which candidates leave, those farthest from their turn first, so that `need` fits beside the others
    /// once the jobs that `stop` have stopped, and those of them that `go` have gone; `None` where it does
    /// not fit even so. On `strict` nodes what is declared has to fit.
    pub(super) fn evictions(&self, cluster: &Cluster, change: &Change<'_>) -> Option<BTreeSet<JobId>> {
        let over = |(node, load): &(NodeId, Load)| {
            let used = self.used.get(node.0 as usize).copied().unwrap_or_default();
            let excess = used.plus(*load).excess(cluster.capacity(*node));
            let strict = change.strict.contains(node);
            (*node, if strict { Load { expected: excess.declared, ..excess } } else { excess })
        };
        let mut excess = Excess(change.need.iter().map(over).collect());
        for job in change.stop {
            let (footprint, known) = (&self.footprints[job], self.known.get(job));
            excess.shift(footprint.loads(known), Load::minus);
            excess.shift(footprint.loads_if(false, known), Load::plus);
        }
        for job in change.go {
            excess.shift(self.stopped(*job, &self.footprints[job]), Load::minus);
        }
        let mut leaving = Vec::new();
        for job in change.candidates {
            let footprint = &self.footprints[job];
            if self
                .stopped(*job, footprint)
                .any(|(node, _)| excess.of(node).is_some_and(|load| load.is_over()))
            {
                excess.shift(self.stopped(*job, footprint), Load::minus);
                leaving.push(*job);
            }
        }
        if excess.0.iter().any(|(_, excess)| excess.is_over()) {
            return None;
        }
        // A larger job that was chosen later may have made room for a smaller one that was chosen before.
        let mut stay = BTreeSet::new();
        for job in leaving.iter().rev() {
            let footprint = &self.footprints[job];
            let room = |(node, load): (NodeId, Load)| {
                excess.of(node).is_none_or(|excess| !excess.plus(load).is_over())
            };
            if self.stopped(*job, footprint).all(room) {
                excess.shift(self.stopped(*job, footprint), Load::plus);
                stay.insert(*job);
            }
        }
        leaving.retain(|job| !stay.contains(job));
        Some(leaving.into_iter().collect())
    }
}

/// A change of the jobs in memory.
#[derive(Debug, Default)]
pub(super) struct Change<'a> {
    /// Of jobs that come, or run again.
    pub(super) need: Need,
    /// Running jobs that stop.
    pub(super) stop: &'a [JobId],
    /// Jobs that leave anyway; those that run also stop.
    pub(super) go: &'a [JobId],
    /// Jobs that may leave, the first first; those that run also stop.
    pub(super) candidates: &'a [JobId],
    /// Nodes whose running jobs were stopped for want of memory.
    pub(super) strict: BTreeSet<NodeId>,
}

/// The need of the node that needs most, by measurements.
pub(super) fn most_of(need: &Need) -> u64 {
    need.iter().map(|(_, load)| load.expected().0).max().unwrap_or_default()
}

/// One sum for each node, of parts in any order.
pub(super) fn summed(mut need: Need) -> Need {
    need.sort_unstable_by_key(|(node, _)| *node);
    need.dedup_by(|(node, load), (kept, sum)| {
        let same = node == kept;
        *sum = if same { sum.plus(*load) } else { *sum };
        same
    });
    need
}

/// Excess of each node over its capacity, negative where there is room; in the order of nodes.
struct Excess(Need);

impl Excess {
    fn of(&mut self, node: NodeId) -> Option<&mut Load> {
        let at = self.0.binary_search_by_key(&node, |(node, _)| *node).ok()?;
        Some(&mut self.0[at].1)
    }

    fn shift(&mut self, loads: impl Iterator<Item = (NodeId, Load)>, by: fn(Load, Load) -> Load) {
        for (node, load) in loads {
            if let Some(excess) = self.of(node) {
                *excess = by(*excess, load);
            }
        }
    }
}
