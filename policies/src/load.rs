//! What the cells of one row hold, kept so that the emptiest nodes are found without looking at all of them.
//!
//! A part of [`Matrix`](crate::Matrix), which keeps it in step with the seats of the row. Seating a job costs O(log nodes) for each of its
//! nodes, whatever the cluster and the row hold besides.

use std::{
    cell::{Ref, RefCell},
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use smallvec::SmallVec;

use crate::{
    Bytes, Cluster, JobId, JobSpec, Limits, MemoryRule, Misfit, NodeId, Placement,
    emptiest::{Emptiest, Lagging, Place, bit},
    matrix::Seat,
    placement::{Room, Shape, ranks_that_fit, spread},
};

/// A job among those of its shape: the memory of a rank, its ranks, its number.
type Alike = (Reverse<Bytes>, Reverse<u32>, JobId);

type Jobs = SmallVec<[JobId; 4]>;

/// What the first jobs of a node take there, [roughly](rough): most that cannot go elsewhere are known by that alone. 0 where unknown.
type Sizes = [u16; 4];

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    /// By node.
    on_node: Vec<Jobs>,
    /// In the same order; a table of its own, for only unification asks for it.
    sizes: Vec<Sizes>,
    /// The same of the memory left. A table of its own: whether a job fits where it is asks for nothing else, and most often.
    /// Below zero where declared memory is not looked at; it wraps, so that what was taken can be given back.
    left: Vec<i64>,
    emptiest: RefCell<Lagging>,
    /// The jobs, the largest first.
    by_size: BTreeSet<(Reverse<Size>, JobId)>,
    /// Those that never ran and may be placed anew, by their shape, the largest first.
    fresh: BTreeMap<Shape, BTreeSet<Alike>>,
    /// The width of the widest of these, and the least memory that a rank of theirs takes.
    fresh_bounds: Option<(usize, Bytes)>,
    /// Memory and cells that the jobs take in all.
    taken: (u128, u64),
}

/// What a job needs of the node it fills most, then in all; bytes.
pub(crate) type Size = (u64, u64);

/// A job's place in the order in which jobs are looked at.
pub(crate) type Rank = (Reverse<Size>, JobId);

impl Load {
    /// A row without jobs.
    pub(crate) fn empty(cluster: &Cluster) -> Self {
        let mut emptiest = Emptiest::default();
        for (node, capacity) in cluster.nodes() {
            emptiest.enter(Place::new(0, capacity, node), bit(node));
        }
        Self {
            on_node: vec![SmallVec::new(); cluster.len()],
            sizes: vec![Sizes::default(); cluster.len()],
            left: cluster.nodes().map(|(_, capacity)| signed(capacity)).collect(),
            emptiest: RefCell::new(Lagging::new(emptiest, cluster.len())),
            by_size: BTreeSet::new(),
            fresh: BTreeMap::new(),
            fresh_bounds: None,
            taken: (0, 0),
        }
    }

    /// A job of this size entered the row.
    pub(crate) fn add(&mut self, seat: &Seat, size: Size) {
        self.by_size.insert((Reverse(size), seat.spec.id));
        let (memory, cells) = wants(seat);
        self.taken = (self.taken.0 + memory, self.taken.1 + cells);
        self.change(seat, |jobs, sizes, left, memory| {
            if let Some(size) = sizes.get_mut(jobs.len()) {
                *size = rough(memory.cast_unsigned());
            }
            jobs.push(seat.spec.id);
            *left = left.wrapping_sub(memory);
        });
    }

    /// A job of this size left the row.
    pub(crate) fn remove(&mut self, seat: &Seat, size: Size) {
        self.by_size.remove(&(Reverse(size), seat.spec.id));
        self.set_fresh(seat, size, false);
        let (memory, cells) = wants(seat);
        self.taken = (self.taken.0 - memory, self.taken.1 - cells);
        self.change(seat, |jobs, sizes, left, memory| {
            let at = jobs.iter().position(|job| *job == seat.spec.id).expect("it is there");
            jobs.swap_remove(at);
            let last = sizes.get_mut(jobs.len()).map_or(0, std::mem::take);
            if at < jobs.len()
                && let Some(size) = sizes.get_mut(at)
            {
                *size = last;
            }
            *left = left.wrapping_add(memory);
        });
    }

    /// Whether a job of the row, of this size, never ran.
    pub(crate) fn set_fresh(&mut self, seat: &Seat, size: Size, fresh: bool) {
        let JobSpec { id, ranks, memory_per_rank, .. } = seat.spec;
        let most = size.0.checked_div(memory_per_rank.0).unwrap_or(1);
        let shape = Shape {
            width: wide(seat.placement.blocks().len()),
            most: u32::try_from(most).unwrap_or(u32::MAX),
        };
        let key = (Reverse(memory_per_rank), Reverse(ranks), id);
        if fresh {
            self.fresh.entry(shape).or_default().insert(key);
            let more = (shape.width as usize, memory_per_rank);
            self.fresh_bounds = Some(
                self.fresh_bounds.map_or(more, |(widest, least)| (widest.max(more.0), least.min(more.1))),
            );
        } else if let Some(alike) = self.fresh.get_mut(&shape)
            && alike.remove(&key)
        {
            if alike.is_empty() {
                self.fresh.remove(&shape);
            }
            let sets_bounds = |(widest, least)| widest == shape.width as usize || least == memory_per_rank;
            if self.fresh_bounds.is_some_and(sets_bounds) {
                self.fresh_bounds = self.find_fresh_bounds();
            }
        }
        debug_assert_eq!(self.fresh_bounds, self.find_fresh_bounds(), "kept as jobs come and go");
    }

    /// Of the jobs that never ran and whose ranks fit where so much is free (the most first), the largest of those behind `last`.
    pub(crate) fn next_fresh(&self, free: &[Bytes], last: Option<Rank>) -> Option<Rank> {
        let fits = self.fresh.iter().take_while(|(shape, _)| shape.width as usize <= free.len());
        let next = fits.filter_map(|(shape, jobs)| {
            let most = u64::from(shape.most);
            let room = free[shape.width as usize - 1];
            let from = last.map_or(room, |(Reverse(size), _)| room.min(Bytes(size.0 / most.max(1))));
            let rank = |(Reverse(memory), Reverse(ranks), job): &Alike| {
                let times = |ranks: u64| memory.0.saturating_mul(ranks);
                (Reverse((times(most), times(u64::from(*ranks)))), *job)
            };
            let behind = jobs.range((Reverse(from), Reverse(u32::MAX), JobId(0))..).map(rank);
            behind.into_iter().find(|rank| last.is_none_or(|last| *rank > last))
        });
        next.min()
    }

    /// The width of the widest of the jobs that never ran, and the least memory that a rank of theirs takes.
    pub(crate) const fn fresh_bounds(&self) -> Option<(usize, Bytes)> {
        self.fresh_bounds
    }

    fn find_fresh_bounds(&self) -> Option<(usize, Bytes)> {
        let (widest, _) = self.fresh.last_key_value()?;
        let least =
            self.fresh.values().filter_map(BTreeSet::last).map(|(Reverse(memory), ..)| *memory).min()?;
        Some((widest.width as usize, least))
    }

    /// What is free on the nodes that take one more job, the most first: at most so many, and none below `least`.
    pub(crate) fn most_free(&self, limits: Limits, nodes: usize, least: Bytes) -> Vec<Bytes> {
        let (mut all, emptiest) = (Vec::new(), self.emptiest());
        for jobs in emptiest.open_classes(limits) {
            all.extend(emptiest.class(jobs, least).take(nodes).map(|(_, free)| free));
        }
        all.sort_unstable_by_key(|free| Reverse(*free));
        all.truncate(nodes);
        all
    }

    /// The jobs on these nodes that `to` may have the memory for, as far as their rough sizes tell; each once.
    pub(crate) fn might_go(&self, nodes: &[NodeId], to: &Self, limits: Limits) -> Vec<JobId> {
        let (mut found, mut before): (Vec<JobId>, &[JobId]) = (Vec::new(), &[]);
        for node in nodes {
            let at = node.0 as usize;
            let there: &[JobId] = &self.on_node[at];
            let ignored = limits.memory == MemoryRule::Ignored;
            let free = if ignored { u16::MAX } else { rough(to.free(*node).0) };
            let sizes = self.sizes[at].into_iter().chain(std::iter::repeat(0));
            // A job lies on neighbours most often, and was looked at on the first of them.
            let new = there.iter().zip(sizes).filter(|(job, size)| *size <= free && !before.contains(job));
            found.extend(new.map(|(job, _)| *job));
            before = there;
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The jobs, the largest first, of equals the lowest number.
    pub(crate) fn largest_first(&self) -> impl Iterator<Item = JobId> + '_ {
        self.by_size.iter().map(|(_, job)| *job)
    }

    /// Memory and cells that the jobs take in all.
    pub(crate) const fn taken(&self) -> (u128, u64) {
        self.taken
    }

    fn change(&mut self, seat: &Seat, change: impl Fn(&mut Jobs, &mut Sizes, &mut i64, i64)) {
        for block in seat.placement.blocks() {
            let (node, at) = (block.node, block.node.0 as usize);
            let before = Place::new(self.count(node), self.free(node), node);
            self.emptiest.get_mut().note(node, before);
            let memory = signed(seat.spec.memory_of(block.ranks));
            change(&mut self.on_node[at], &mut self.sizes[at], &mut self.left[at], memory);
        }
    }

    /// The index as it is by now.
    fn emptiest(&self) -> Ref<'_, Emptiest> {
        self.emptiest.borrow_mut().catch_up(|node| Place::new(self.count(node), self.free(node), node));
        Ref::map(self.emptiest.borrow(), Lagging::get)
    }

    fn count(&self, node: NodeId) -> u32 {
        wide(self.on_node[node.0 as usize].len())
    }

    fn free(&self, node: NodeId) -> Bytes {
        Bytes(self.left[node.0 as usize].max(0).cast_unsigned())
    }

    fn is_open(&self, limits: Limits, node: NodeId) -> bool {
        limits.max_per_cell.is_none_or(|max| self.count(node) < max)
    }

    /// The cell of `node` as a job that looks for a place sees it.
    pub(crate) fn room(&self, limits: Limits, node: NodeId) -> Room {
        Room { open: self.is_open(limits, node), jobs: self.count(node), free: self.free(node) }
    }

    /// Spreads `job` over the emptiest nodes that hold one of its ranks.
    pub(crate) fn plan(&self, limits: Limits, job: &JobSpec, shape: Shape) -> Option<Placement> {
        let (mut nodes, emptiest) = (Vec::with_capacity(shape.width as usize), self.emptiest());
        for jobs in emptiest.open_classes(limits) {
            for (node, free) in emptiest.class(jobs, Bytes(0)) {
                let ranks = ranks_that_fit(job, free, limits.memory);
                if ranks == 0 {
                    break;
                }
                nodes.push((node, ranks));
                if nodes.len() == shape.width as usize {
                    return spread(job, shape, nodes);
                }
            }
        }
        None
    }

    /// Why [`Self::plan`] finds no place.
    pub(crate) fn misfit(&self, limits: Limits, job: &JobSpec, shape: Shape) -> Misfit {
        let emptiest = self.emptiest();
        let classes = || emptiest.open_classes(limits);
        let open = classes().map(|jobs| emptiest.count(jobs)).sum();
        if open < shape.width {
            return Misfit::Cells { needs: shape.width, open };
        }
        let fullest = classes().filter_map(|jobs| emptiest.fullest(jobs)).min();
        let (free, node) = fullest.expect("a gang spans a node");
        Misfit::Memory { node, needs: job.memory_of(job.ranks.div_ceil(shape.width)), free }
    }

    /// Whether a job that must stay on its nodes could join.
    pub(crate) fn holds_in_place(&self, limits: Limits, seat: &Seat) -> bool {
        let ignored = limits.memory == MemoryRule::Ignored;
        let holds = |node: NodeId, ranks: u32| {
            let fits = ignored || seat.spec.memory_of(ranks) <= self.free(node);
            fits && self.is_open(limits, node)
        };
        let first = seat.placement.first().is_none_or(|(node, ranks)| holds(node, ranks));
        first && seat.placement.blocks().iter().all(|block| holds(block.node, block.ranks))
    }
}

/// Memory and cells of a job.
fn wants(seat: &Seat) -> (u128, u64) {
    let memory = seat.placement.blocks().iter().map(|block| u128::from(seat.spec.memory_of(block.ranks).0));
    (memory.sum(), seat.placement.blocks().len() as u64)
}

/// No less for more: the place of the highest bit, and the ten bits behind it.
#[allow(clippy::cast_possible_truncation, reason = "six bits and ten")]
const fn rough(bytes: u64) -> u16 {
    let high = (bytes | 1).ilog2();
    let behind = if high < 10 { bytes << (10 - high) } else { bytes >> (high - 10) };
    (high << 10) as u16 | (behind as u16 & 0x3ff)
}

fn signed(memory: Bytes) -> i64 {
    i64::try_from(memory.0).unwrap_or(i64::MAX)
}

fn wide(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{SimTime, placement::plan_placement};

    fn job(id: u32, ranks: u32, mib: u64) -> JobSpec {
        let memory_per_rank = Bytes::mib(mib);
        JobSpec { id: JobId(id), name: "j".into(), ranks, memory_per_rank, arrival: SimTime(0) }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_index_finds_the_place_that_looking_at_every_node_finds(
            capacities in prop::collection::vec(prop_oneof![Just(400u64), Just(900), 100u64..1000], 1..9),
            wishes in prop::collection::vec((1u32..14, 0u64..400, any::<bool>()), 1..20),
            max_per_cell in prop::option::of(1u32..4),
            memory in prop_oneof![Just(MemoryRule::MustFit), Just(MemoryRule::Ignored)],
        ) {
            let cluster = Cluster::new(capacities.into_iter().map(Bytes::mib).collect());
            let limits = Limits { max_rows: None, max_per_cell, memory };
            let mut load = Load::empty(&cluster);
            let mut seats: Vec<Seat> = Vec::new();
            for (id, (ranks, mib, leaves)) in (0..).zip(wishes) {
                let spec = job(id, ranks, mib);
                let Some(shape) = Shape::on_empty(&spec, &cluster, memory) else { continue };
                let rooms: Vec<Room> =
                    cluster.nodes().map(|(node, _)| load.room(limits, node)).collect();
                let placement = load.plan(limits, &spec, shape);
                prop_assert_eq!(&placement, &plan_placement(&spec, shape, &rooms, memory));
                if let Some(placement) = placement {
                    let seat = Seat { spec, placement };
                    prop_assert!(load.holds_in_place(limits, &seat));
                    load.add(&seat, (mib, 0));
                    seats.push(seat);
                } else {
                    let open = u32::try_from(rooms.iter().filter(|room| room.open).count()).unwrap();
                    match load.misfit(limits, &spec, shape) {
                        Misfit::Cells { needs, open: told } => prop_assert!(told == open && open < needs),
                        Misfit::Memory { free, .. } => {
                            let least = rooms.iter().filter(|room| room.open).map(|room| room.free).min();
                            prop_assert_eq!(Some(free), least);
                        }
                    }
                }
                if leaves && !seats.is_empty() {
                    let seat = seats.remove(seats.len() / 2);
                    load.remove(&seat, (seat.spec.memory_per_rank.0 >> 20, 0));
                }
            }
            seats.iter().for_each(|seat| load.remove(seat, (seat.spec.memory_per_rank.0 >> 20, 0)));
            let empty = Load::empty(&cluster);
            prop_assert_eq!(&*load.emptiest(), &*empty.emptiest());
            prop_assert_eq!(&load, &empty);
        }
    }
}
