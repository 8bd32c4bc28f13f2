//! What the cells of one row hold, kept so that the emptiest nodes are found without looking at all of them.
//!
//! A part of [`Matrix`](crate::Matrix), which keeps it in step with the assignments of the row. Seating a job costs O(log nodes) for each of its
//! nodes, whatever the cluster and the row hold besides.

mod emptiest;
mod levels;
mod movable;

use std::{
    cell::{Ref, RefCell},
    cmp::Reverse,
};

use crate::{
    Bytes, Cluster, JobId, JobSpec, Limits, MemoryRule, NodeId, Placement, RejectionCause,
    placement::{Room, Shape, ranks_that_fit, spread},
    timeshare::index::pinned::size_class,
    timeshare::matrix::Assignment,
};
use emptiest::{Emptiest, LazyIndex, Place};
use levels::Levels;

pub(crate) use movable::{Free, MovableJobs};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    limits: Limits,
    /// By node.
    cells: Vec<Cell>,
    /// What each has left, [size_class](size_class): most questions go no farther, and a row of it is a few lines of the cache.
    size_classes: Vec<u16>,
    levels: Levels,
    emptiest: RefCell<LazyIndex>,
    movable: MovableJobs,
    /// Memory and cells that the jobs take in all.
    taken: (u128, u64),
}

/// A node in a row; without freed, for the cells of a large cluster are more than a near cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
struct Cell {
    /// Memory, below zero where declared memory is not looked at; it wraps, so that what was taken can be given back.
    left: i64,
    jobs: u32,
}

impl Cell {
    const fn free(self) -> Bytes {
        positive(self.left)
    }

    const fn place(self, node: NodeId) -> Place {
        Place::new(self.jobs, self.free(), node)
    }
}

/// What a job needs of the node it fills most, then in all; bytes.
pub(crate) type Size = (u64, u64);

/// A job's place in the order in which jobs are looked at.
pub(crate) type Rank = (Reverse<Size>, JobId);

impl Load {
    /// A row without jobs.
    pub(crate) fn empty(cluster: &Cluster, limits: Limits) -> Self {
        let cells: Vec<Cell> =
            cluster.nodes().map(|(_, capacity)| Cell { left: signed(capacity), jobs: 0 }).collect();
        let size_classes: Vec<u16> = cells.iter().map(|cell| size_class(cell.free())).collect();
        let mut levels = Levels::default();
        size_classes.iter().filter(|_| limits.opens(0)).for_each(|left| levels.enter(*left));
        let place = |node: NodeId| cells[node.0 as usize].place(node);
        let emptiest = LazyIndex::new(wide(cells.len()), place);
        Self {
            limits,
            cells,
            size_classes,
            levels,
            emptiest: RefCell::new(emptiest),
            movable: MovableJobs::default(),
            taken: (0, 0),
        }
    }

    /// A job of this size entered the row; `movable` if it may be placed anew, for it never ran.
    pub(crate) fn add(&mut self, assignment: &Assignment, size: Size, movable: bool) {
        if movable {
            self.movable.insert(&assignment.spec, shape_of(assignment, size));
        }
        let (memory, cells) = wants(assignment);
        self.taken = (self.taken.0 + memory, self.taken.1 + cells);
        self.change(assignment, |Cell { left, jobs }, memory| Cell {
            left: left.wrapping_sub(signed(memory)),
            jobs: jobs + 1,
        });
    }

    /// A job of this size left the row.
    pub(crate) fn remove(&mut self, assignment: &Assignment, size: Size, movable: bool) {
        if movable {
            self.movable.remove(&assignment.spec, shape_of(assignment, size));
        }
        let (memory, cells) = wants(assignment);
        self.taken = (self.taken.0 - memory, self.taken.1 - cells);
        self.change(assignment, |Cell { left, jobs }, memory| Cell {
            left: left.wrapping_add(signed(memory)),
            jobs: jobs - 1,
        });
    }

    /// A job of the row, of this size, may be placed anew from now on, or keeps its nodes; it was the other way before.
    pub(crate) fn set_movable(&mut self, assignment: &Assignment, size: Size, movable: bool) {
        let shape = shape_of(assignment, size);
        if movable {
            self.movable.insert(&assignment.spec, shape);
        } else {
            self.movable.remove(&assignment.spec, shape);
        }
    }

    /// Those that never ran and may be placed anew.
    pub(crate) const fn movable(&self) -> &MovableJobs {
        &self.movable
    }

    /// What is free on the nodes that take one more job, at most: on so many of them, and nothing below `least`.
    pub(crate) fn most_free(&self, nodes: u32, least: Bytes, into: &mut Free) {
        into.fill(self.levels.falling(least), nodes);
    }

    /// What is left of a node for a job that keeps its place, [size_class](size_class); of one that is none, nothing.
    pub(crate) fn left(&self, node: usize) -> u16 {
        match self.size_classes.get(node) {
            Some(left) if self.limits.memory == MemoryRule::MustFit => *left,
            Some(_) => u16::MAX,
            None => 0,
        }
    }

    /// Memory and cells that the jobs take in all.
    pub(crate) const fn taken(&self) -> (u128, u64) {
        self.taken
    }

    /// Changes each node of the job, given what it takes there.
    fn change(&mut self, assignment: &Assignment, change: impl Fn(Cell, Bytes) -> Cell) {
        for block in assignment.placement.blocks() {
            let (node, cell) = (block.node, &mut self.cells[block.node.0 as usize]);
            self.emptiest.get_mut().note(node, cell.place(node));
            let class = &mut self.size_classes[node.0 as usize];
            if self.limits.opens(cell.jobs) {
                self.levels.leave(*class);
            }
            *cell = change(*cell, assignment.spec.memory_of(block.ranks));
            *class = size_class(cell.free());
            if self.limits.opens(cell.jobs) {
                self.levels.enter(*class);
            }
        }
    }

    /// The index as it is by now, of the nodes with so much left at least.
    fn emptiest(&self, least: Bytes) -> Ref<'_, Emptiest> {
        let place = |node| self.cell(node).place(node);
        let mut lazy = self.emptiest.borrow_mut();
        lazy.refresh(self.limits, place);
        lazy.look_down_to(least, wide(self.cells.len()), place);
        drop(lazy);
        Ref::map(self.emptiest.borrow(), LazyIndex::get)
    }

    fn cell(&self, node: NodeId) -> Cell {
        self.cells[node.0 as usize]
    }

    /// The cell of `node` as a job that looks for a place sees it.
    pub(crate) fn room(&self, node: NodeId) -> Room {
        let cell = self.cell(node);
        Room { open: self.limits.opens(cell.jobs), jobs: cell.jobs, free: cell.free() }
    }

    /// Spreads `job` over the emptiest nodes that hold one of its ranks.
    pub(crate) fn plan(&self, job: &JobSpec, shape: Shape) -> Option<Placement> {
        let least = if self.limits.memory == MemoryRule::Ignored { Bytes(0) } else { job.memory_per_rank };
        let (mut nodes, emptiest) = (Vec::with_capacity(shape.width as usize), self.emptiest(least));
        for jobs in emptiest.open_classes(self.limits) {
            for (node, free) in emptiest.class(jobs) {
                let ranks = ranks_that_fit(job, free, self.limits.memory);
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
    pub(crate) fn rejection_cause(&self, job: &JobSpec, shape: Shape) -> RejectionCause {
        let emptiest = self.emptiest(Bytes(u64::MAX));
        let open = emptiest.open_classes(self.limits).map(|jobs| emptiest.count(jobs)).sum();
        drop(emptiest);
        if open < shape.width {
            return RejectionCause::Cells { needs: shape.width, open };
        }
        let nodes = (0..).map(NodeId).zip(&self.cells);
        let nodes = nodes.filter(|(_, cell)| self.limits.opens(cell.jobs));
        let nodes = nodes.map(|(node, cell)| (cell.free(), node));
        let fullest = self.emptiest.borrow_mut().fullest(nodes);
        let (free, node) = fullest.expect("a gang spans a node");
        RejectionCause::Memory { node, needs: job.memory_of(job.ranks.div_ceil(shape.width)), free }
    }

    /// Whether a job that must stay on its nodes could join. Most often what is [size_class](size_class) left tells, and no cell is looked at.
    pub(crate) fn holds_in_place(&self, assignment: &Assignment) -> bool {
        let ignored = self.limits.memory == MemoryRule::Ignored;
        let takes = |ranks: u32| assignment.spec.memory_of(ranks);
        let (mut blocks, mut tells) = (assignment.placement.blocks(), self.limits.max_per_cell.is_none());
        let might = blocks.clone().all(|block| {
            let (takes, left) = (size_class(takes(block.ranks)), self.left(block.node.0 as usize));
            tells &= takes < left;
            takes <= left
        });
        let holds = |node, ranks| {
            let cell = self.cell(node);
            (ignored || takes(ranks) <= cell.free()) && self.limits.opens(cell.jobs)
        };
        might && (tells || blocks.all(|block| holds(block.node, block.ranks)))
    }
}

/// Of a job of this size.
fn shape_of(assignment: &Assignment, size: Size) -> Shape {
    let most = size.0.checked_div(assignment.spec.memory_per_rank.0).unwrap_or(1);
    Shape { width: wide(assignment.placement.width()), most: u32::try_from(most).unwrap_or(u32::MAX) }
}

/// Memory and cells of a job.
fn wants(assignment: &Assignment) -> (u128, u64) {
    let memory = u128::from(assignment.spec.memory_per_rank.0) * u128::from(assignment.spec.ranks);
    (memory, assignment.placement.width() as u64)
}

/// What is there to give.
const fn positive(left: i64) -> Bytes {
    Bytes(if left > 0 { left.cast_unsigned() } else { 0 })
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
        fn the_indices_find_what_looking_at_every_node_finds(
            capacities in prop::collection::vec(prop_oneof![Just(400u64), Just(900), 100u64..1000], 1..9),
            wishes in prop::collection::vec((1u32..14, 0u64..400, any::<bool>()), 1..20),
            max_per_cell in prop::option::of(1u32..4),
            memory in prop_oneof![Just(MemoryRule::MustFit), Just(MemoryRule::Ignored)],
        ) {
            let cluster = Cluster::new(capacities.into_iter().map(Bytes::mib).collect());
            let limits = Limits { max_rows: None, max_per_cell, memory };
            let mut load = Load::empty(&cluster, limits);
            let mut assignments: Vec<Assignment> = Vec::new();
            for (id, (ranks, mib, leaves)) in (0..).zip(wishes) {
                let spec = job(id, ranks, mib);
                let Some(shape) = Shape::on_empty(&spec, &cluster, memory) else { continue };
                let rooms: Vec<Room> =
                    cluster.nodes().map(|(node, _)| load.room(node)).collect();
                let mut free = Free::default();
                load.most_free(u32::MAX, Bytes(0), &mut free);
                let mut told = free.rising();
                let mut open: Vec<u64> = rooms.iter().filter(|room| room.open).map(|room| room.free.0).collect();
                open.sort_unstable_by_key(|free| Reverse(*free));
                for (nodes, free) in (1..).zip(&open) {
                    let told = told.on(nodes).map(|told| told.0);
                    prop_assert!(told.is_some_and(|told| (*free..=free + free / 256 + 1).contains(&told)));
                }
                prop_assert_eq!(told.on(wide(open.len()) + 1), None);
                let placement = load.plan(&spec, shape);
                prop_assert_eq!(&placement, &plan_placement(&spec, shape, &rooms, memory));
                if let Some(placement) = placement {
                    let assignment = Assignment { spec, placement };
                    prop_assert!(load.holds_in_place(&assignment));
                    load.add(&assignment, (mib, 0), false);
                    assignments.push(assignment);
                } else {
                    let open = u32::try_from(rooms.iter().filter(|room| room.open).count()).unwrap();
                    match load.rejection_cause(&spec, shape) {
                        RejectionCause::Cells { needs, open: told } => prop_assert!(told == open && open < needs),
                        RejectionCause::Memory { free, node, .. } => {
                            let open = (0..).map(NodeId).zip(&rooms).filter(|(_, room)| room.open);
                            let fullest = open.map(|(node, room)| (room.free, node)).min();
                            prop_assert_eq!(Some((free, node)), fullest);
                        }
                    }
                }
                if leaves && !assignments.is_empty() {
                    let assignment = assignments.remove(assignments.len() / 2);
                    load.remove(&assignment, (assignment.spec.memory_per_rank.0 >> 20, 0), false);
                }
            }
            assignments.iter().for_each(|assignment| load.remove(assignment, (assignment.spec.memory_per_rank.0 >> 20, 0), false));
            let empty = Load::empty(&cluster, limits);
            prop_assert_eq!(&*load.emptiest(Bytes(0)), &*empty.emptiest(Bytes(0)));
            prop_assert_eq!(&load, &empty);
        }
    }
}
