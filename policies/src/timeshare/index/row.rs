//! Index of one row: finds its emptiest nodes and its largest movable jobs without scanning all of them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    ops::Bound::{Excluded, Included, Unbounded},
};

use crate::{
    Assignment, Bytes, Cluster, JobId, JobSpec, Limits, NodeId, Placement, RejectionCause,
    placement::{FreeCapacity, Shape, ranks_that_fit, spread},
    timeshare::matrix::SizeOrder,
};

/// A node in the order in which a job takes nodes: the fewest jobs first, then the most memory left.
type Emptiest = (u32, Reverse<Bytes>, NodeId);

/// What the cells of a row have left, and its movable jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowIndex {
    limits: Limits,
    /// By node.
    cells: Vec<Cell>,
    /// The nodes whose cells take one more job: in the order in which jobs take them, and by the memory they
    /// have left.
    emptiest: BTreeSet<Emptiest>,
    by_free: BTreeSet<(Bytes, NodeId)>,
    movable: BTreeMap<Shape, BTreeSet<SizeOrder>>,
    /// Memory and cells that the jobs of the row take in all.
    used: (u128, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    /// Memory; below zero where a policy ignores memory.
    left: i128,
    jobs: u32,
    /// The node is down: the cell takes no job.
    is_down: bool,
}

impl Cell {
    fn free(self) -> Bytes {
        Bytes(u64::try_from(self.left).unwrap_or(0))
    }
}

impl RowIndex {
    /// Of a row without jobs. The nodes that are `down` take none.
    pub(crate) fn new(cluster: &Cluster, limits: Limits, down: &BTreeSet<NodeId>) -> Self {
        let cell = |(node, capacity): (NodeId, Bytes)| Cell {
            left: capacity.0.into(),
            jobs: 0,
            is_down: down.contains(&node),
        };
        let cells = cluster.nodes().map(cell).collect();
        let open = || cluster.nodes().filter(|(node, _)| limits.opens(0) && !down.contains(node));
        let emptiest = open().map(|(node, capacity)| (0, Reverse(capacity), node)).collect();
        let by_free = open().map(|(node, capacity)| (capacity, node)).collect();
        Self { limits, cells, emptiest, by_free, movable: BTreeMap::new(), used: (0, 0) }
    }

    pub(crate) fn add(&mut self, assignment: &Assignment) {
        for block in assignment.placement.blocks() {
            let taken = assignment.spec.memory_of(block.ranks).0;
            self.change(block.node, |cell| Cell {
                left: cell.left - i128::from(taken),
                jobs: cell.jobs + 1,
                ..cell
            });
        }
        let (memory, cells) = wanted(assignment);
        self.used = (self.used.0 + memory, self.used.1 + cells);
    }

    pub(crate) fn remove(&mut self, assignment: &Assignment) {
        for block in assignment.placement.blocks() {
            let taken = assignment.spec.memory_of(block.ranks).0;
            self.change(block.node, |cell| Cell {
                left: cell.left + i128::from(taken),
                jobs: cell.jobs - 1,
                ..cell
            });
        }
        let (memory, cells) = wanted(assignment);
        self.used = (self.used.0 - memory, self.used.1 - cells);
    }

    fn change(&mut self, node: NodeId, change: impl FnOnce(Cell) -> Cell) {
        let before = self.cells[node.0 as usize];
        let after = change(before);
        self.cells[node.0 as usize] = after;
        if before.is_down {
            return;
        }
        if self.limits.opens(before.jobs) {
            self.emptiest.remove(&(before.jobs, Reverse(before.free()), node));
            self.by_free.remove(&(before.free(), node));
        }
        if self.limits.opens(after.jobs) {
            self.emptiest.insert((after.jobs, Reverse(after.free()), node));
            self.by_free.insert((after.free(), node));
        }
    }

    /// A job of the row may be placed anew, for it never ran.
    pub(crate) fn add_movable(&mut self, shape: Shape, job: SizeOrder) {
        self.movable.entry(shape).or_default().insert(job);
    }

    pub(crate) fn remove_movable(&mut self, shape: Shape, job: SizeOrder) {
        if let Some(jobs) = self.movable.get_mut(&shape) {
            jobs.remove(&job);
            if jobs.is_empty() {
                self.movable.remove(&shape);
            }
        }
    }

    /// Memory and cells that the jobs of the row take in all.
    pub(crate) const fn used(&self) -> (u128, u64) {
        self.used
    }

    /// What the cell of `node` has left.
    pub(crate) fn free_capacity(&self, node: NodeId) -> FreeCapacity {
        let cell = self.cells[node.0 as usize];
        let open = !cell.is_down && self.limits.opens(cell.jobs);
        FreeCapacity { open, jobs: cell.jobs, free: cell.free() }
    }

    /// As [`plan_placement`](crate::placement::plan_placement) places the job.
    pub(crate) fn placement(&self, job: &JobSpec, shape: Shape) -> Option<Placement> {
        let nodes = self.classes().flat_map(|class| {
            let fit = |&(_, Reverse(free), node)| (node, ranks_that_fit(job, free, self.limits.memory));
            class.map(fit).take_while(|(_, ranks)| *ranks > 0)
        });
        spread(job, shape, nodes.take(shape.width as usize).collect())
    }

    /// Why [`Self::placement`] finds none.
    pub(crate) fn rejection_cause(&self, job: &JobSpec, shape: Shape) -> RejectionCause {
        let open = u32::try_from(self.emptiest.len()).unwrap_or(u32::MAX);
        if open < shape.width {
            return RejectionCause::Cells { needs: shape.width, open };
        }
        let (free, node) = *self.by_free.first().expect("a gang spans a node");
        RejectionCause::Memory { node, needs: job.memory_of(job.ranks.div_ceil(shape.width)), free }
    }

    /// The memory left on the `nodes` open nodes that have most of it, the most first.
    pub(crate) fn freest(&self, nodes: u32) -> Vec<Bytes> {
        self.by_free.iter().rev().take(nodes as usize).map(|(free, _)| *free).collect()
    }

    /// The open nodes with equally many jobs each, by how many these are; each class from the emptiest node
    /// on.
    fn classes(&self) -> impl Iterator<Item = impl Iterator<Item = &Emptiest>> {
        let end = |jobs| (jobs, Reverse(Bytes(0)), NodeId(u32::MAX));
        let mut from = Unbounded;
        std::iter::from_fn(move || {
            let (jobs, ..) = *self.emptiest.range((from, Unbounded)).next()?;
            let class = self.emptiest.range((from, Included(end(jobs))));
            from = Excluded(end(jobs));
            Some(class)
        })
    }

    /// The number of nodes of the widest movable job.
    pub(crate) fn widest_movable(&self) -> Option<u32> {
        Some(self.movable.last_key_value()?.0.width)
    }

    /// The first movable job behind `after` that has as many nodes as it spans, each with memory for one of
    /// its ranks, among nodes of which the [`freest`](Self::freest) are given.
    pub(crate) fn next_movable(&self, freest: &[Bytes], after: Option<SizeOrder>) -> Option<SizeOrder> {
        let next = |(shape, jobs): (&Shape, &BTreeSet<SizeOrder>)| {
            let free = freest.get((shape.width as usize).checked_sub(1)?)?;
            let largest = SizeOrder::new((free.times(shape.most), Bytes(u64::MAX)), JobId(0));
            // Most often none fits, not even the smallest.
            jobs.last().filter(|smallest| **smallest >= largest)?;
            let from = after.filter(|after| *after >= largest).map_or(Included(largest), Excluded);
            jobs.range((from, Unbounded)).next().copied()
        };
        self.movable.iter().filter_map(next).min()
    }
}

/// Memory and cells of a job.
fn wanted(assignment: &Assignment) -> (u128, u64) {
    let memory = u128::from(assignment.spec.memory_per_rank.0) * u128::from(assignment.spec.ranks);
    (memory, assignment.placement.width() as u64)
}
