//! The Ousterhout matrix: rows are time slots, columns are nodes, a cell may hold several jobs.
//!
//! Rows are kept in the order of their turns: the front row is the active one, a row that had its turn goes to the back,
//! and a new row enters at the back. Nothing overtakes, so a row `k` places from the front runs after `k` turns at most.
//!
//! Invariants, asserted with [`Matrix::check`] after every addition in debug builds: a job is in one row only, whole; each cell
//! keeps the [`Limits`].

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::{
    Bytes, Cluster, JobId, JobSpec, Limits, MemoryRule, NodeId, SlotId,
    placement::{Placement, Room, Shape, plan_placement},
};

/// A job in a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Seat {
    /// What the job asks for.
    pub spec: JobSpec,
    /// Where its ranks run.
    pub placement: Placement,
}

impl Seat {
    /// The working set of the job on `node`.
    #[must_use]
    pub fn memory_on(&self, node: NodeId) -> Bytes {
        self.spec.memory_of(self.placement.count_on(node))
    }
}

/// A time slot: the jobs that run together. It keeps its number while it moves in the order of turns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The number of the slot; never used again.
    pub slot: SlotId,
    /// Its jobs.
    pub seats: BTreeMap<JobId, Seat>,
}

impl Row {
    /// The working sets in the cell of `node`.
    #[must_use]
    pub fn memory_on(&self, node: NodeId) -> Bytes {
        self.seats.values().map(|seat| seat.memory_on(node)).sum()
    }

    /// The jobs in the cell of `node`.
    pub fn jobs_on(&self, node: NodeId) -> impl Iterator<Item = &Seat> + '_ {
        self.seats.values().filter(move |seat| seat.placement.count_on(node) > 0)
    }

    /// The jobs of the row.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.seats.keys().copied()
    }
}

/// Why a job does not fit in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "lacks", rename_all = "kebab-case")]
pub enum Misfit {
    /// Too few cells may take one more job.
    Cells {
        /// Nodes the job spans.
        needs: u32,
        /// Cells with a place.
        open: u32,
    },
    /// Too little memory is left.
    Memory {
        /// The fullest node that could take a job.
        node: NodeId,
        /// What the job would put there.
        needs: Bytes,
        /// What is left there.
        free: Bytes,
    },
}

/// The matrix of one cluster under one set of limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Matrix {
    cluster: Cluster,
    limits: Limits,
    // In the order of turns; the front is the active row.
    rows: VecDeque<Row>,
    next_slot: u32,
}

impl Matrix {
    /// An empty matrix.
    #[must_use]
    pub const fn new(cluster: Cluster, limits: Limits) -> Self {
        Self { cluster, limits, rows: VecDeque::new(), next_slot: 0 }
    }

    /// A matrix with these rows, legal or not: for tests of the check.
    #[cfg(test)]
    pub(crate) fn from_rows(cluster: Cluster, limits: Limits, rows: Vec<Row>) -> Self {
        Self { rows: rows.into(), ..Self::new(cluster, limits) }
    }

    /// A matrix of only the rows at these places, for trials.
    pub(crate) fn with_rows(&self, rows: &[usize]) -> Self {
        let rows = rows.iter().map(|row| self.rows[*row].clone()).collect();
        Self { rows, ..Self::new(self.cluster.clone(), self.limits) }
    }

    /// Its columns.
    #[must_use]
    pub const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// What a row may look like.
    #[must_use]
    pub const fn limits(&self) -> Limits {
        self.limits
    }

    /// The rows in the order of their turns.
    #[must_use]
    pub const fn rows(&self) -> &VecDeque<Row> {
        &self.rows
    }

    /// The row whose turn it is.
    #[must_use]
    pub fn front(&self) -> Option<&Row> {
        self.rows.front()
    }

    /// The row that holds `job`.
    #[must_use]
    pub fn row_of(&self, job: JobId) -> Option<&Row> {
        self.rows.iter().find(|row| row.seats.contains_key(&job))
    }

    /// How `job` would spread, or `None` where even the empty cluster does not hold it.
    #[must_use]
    pub fn shape_of(&self, job: &JobSpec) -> Option<Shape> {
        Shape::on_empty(job, &self.cluster, self.limits.memory)
    }

    /// Where `job` would go in the row `index` places from the front.
    ///
    /// # Errors
    /// What the row lacks.
    pub fn plan_in(&self, index: usize, job: &JobSpec, shape: Shape) -> Result<Placement, Misfit> {
        let rooms = self.rooms(&self.rows[index]);
        plan_placement(job, shape, &rooms, self.limits.memory).ok_or_else(|| {
            let open = || (0..).zip(&rooms).filter(|(_, room)| room.open);
            let count = u32::try_from(open().count()).unwrap_or(u32::MAX);
            if count < shape.width {
                return Misfit::Cells { needs: shape.width, open: count };
            }
            let (node, room) = open().min_by_key(|(_, room)| room.free).expect("a gang spans a node");
            let needs = job.memory_of(job.ranks.div_ceil(shape.width));
            Misfit::Memory { node: NodeId(node), needs, free: room.free }
        })
    }

    /// Whether a job that must stay where it is (its image lies on its nodes) could join the row at `index`.
    #[must_use]
    pub fn holds_in_place(&self, index: usize, seat: &Seat) -> bool {
        let rooms = self.rooms(&self.rows[index]);
        seat.placement.nodes().all(|node| {
            let room = rooms[node.0 as usize];
            room.open && (self.limits.memory == MemoryRule::Ignored || seat.memory_on(node) <= room.free)
        })
    }

    /// Whether one more row is allowed.
    #[must_use]
    pub fn may_open_row(&self) -> bool {
        self.limits.max_rows.is_none_or(|max| self.rows.len() < max as usize)
    }

    /// Adds an empty row at the back; it is the caller's to fill.
    pub(crate) fn open_row(&mut self) -> usize {
        self.rows.push_back(Row { slot: SlotId(self.next_slot), seats: BTreeMap::new() });
        self.next_slot += 1;
        self.rows.len() - 1
    }

    /// Puts a job in the row at `index`.
    ///
    /// # Panics
    /// Where that breaks an invariant, in debug builds.
    pub(crate) fn seat(&mut self, index: usize, seat: Seat) {
        debug_assert!(self.row_of(seat.spec.id).is_none(), "a job lies in one row only");
        self.rows[index].seats.insert(seat.spec.id, seat);
        debug_assert_eq!(self.check(), Ok(()), "each cell keeps the limits");
    }

    /// Takes a job out of its row, which may be empty afterwards.
    pub(crate) fn unseat(&mut self, job: JobId) -> Option<Seat> {
        self.rows.iter_mut().find_map(|row| row.seats.remove(&job))
    }

    /// Forgets the rows without jobs; tells whether the front was one of them.
    pub(crate) fn drop_empty_rows(&mut self) -> bool {
        let front = self.front().map(|row| row.slot);
        self.rows.retain(|row| !row.seats.is_empty());
        self.front().map(|row| row.slot) != front
    }

    /// Ends the turn of the front row.
    pub(crate) fn rotate(&mut self) {
        if !self.rows.is_empty() {
            self.rows.rotate_left(1);
        }
    }

    /// Gives the turn (back) to the row of `job`.
    pub(crate) fn promote(&mut self, job: JobId) {
        if let Some(index) = self.rows.iter().position(|row| row.seats.contains_key(&job)) {
            let row = self.rows.remove(index).expect("just found");
            self.rows.push_front(row);
        }
    }

    /// What each cell of the row at `index` has left, by node.
    pub(crate) fn rooms_of(&self, index: usize) -> Vec<Room> {
        self.rooms(&self.rows[index])
    }

    /// What each cell of `row` has left, by node.
    fn rooms(&self, row: &Row) -> Vec<Room> {
        let room = |(node, capacity): (NodeId, Bytes)| {
            let jobs = u32::try_from(row.jobs_on(node).count()).unwrap_or(u32::MAX);
            let free = Bytes(capacity.0.saturating_sub(row.memory_on(node).0));
            Room { open: self.limits.max_per_cell.is_none_or(|max| jobs < max), jobs, free }
        };
        self.cluster.nodes().map(room).collect()
    }
}
