//! The Ousterhout matrix: rows are time slots, columns are nodes, a cell may hold several jobs.
//!
//! Rows are kept in the order of their turns: the front row is the active one, a row that had its turn goes
//! to the back, and a new row enters at the back. Nothing overtakes, so a row `k` places from the front runs
//! after `k` turns at most.
//!
//! Invariants, asserted with [`Matrix::check`] after every addition in debug builds: a job is in one row
//! only, whole; each cell keeps the [`Limits`].

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
};

pub use crate::timeshare::row::{Assignment, RejectionCause, Row};

use crate::{
    Bytes, Cluster, JobId, JobSpec, Limits, MemoryRule, NodeId, SlotId,
    placement::{FreeCapacity, Placement, Shape},
    timeshare::index::{PinnedIndex, RowIndex},
};

/// The matrix of one cluster under one set of limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    cluster: Cluster,
    limits: Limits,
    /// In the order of turns; the front is the active row.
    rows: VecDeque<MatrixRow>,
    /// The row of each job.
    slots: BTreeMap<JobId, SlotId>,
    next_slot: u32,
    /// How many nodes there are of each capacity, without those that are down.
    kinds: Vec<(Bytes, u32)>,
    /// Nodes that take no job.
    down: BTreeSet<NodeId>,
    pinned: PinnedIndex,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct MatrixRow {
    slot: SlotId,
    assignments: BTreeMap<JobId, Assignment>,
    index: RowIndex,
}

impl MatrixRow {
    const fn row(&self) -> Row<'_> {
        Row { slot: self.slot, assignments: &self.assignments }
    }
}

/// A job in the order in which packing looks at jobs: the largest first, of equals the lowest number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SizeOrder {
    size: Reverse<(Bytes, Bytes)>,
    pub(crate) job: JobId,
}

impl SizeOrder {
    /// `size` is what the job needs of the node it fills most, then in all.
    pub(crate) const fn new(size: (Bytes, Bytes), job: JobId) -> Self {
        Self { size: Reverse(size), job }
    }
}

impl Matrix {
    /// An empty matrix.
    #[must_use]
    pub fn new(cluster: Cluster, limits: Limits) -> Self {
        let (kinds, pinned) = (cluster.kinds(), PinnedIndex::new(cluster.len()));
        let (rows, slots) = (VecDeque::new(), BTreeMap::new());
        Self { cluster, limits, rows, slots, next_slot: 0, kinds, down: BTreeSet::new(), pinned }
    }

    /// A matrix with these rows, legal or not.
    #[cfg(test)]
    pub(crate) fn from_rows(
        cluster: Cluster,
        limits: Limits,
        rows: impl IntoIterator<Item = (SlotId, Vec<Assignment>)>,
    ) -> Self {
        Self::new(cluster, limits).filled(rows)
    }

    fn filled(self, rows: impl IntoIterator<Item = (SlotId, Vec<Assignment>)>) -> Self {
        let mut matrix = self;
        for (slot, assignments) in rows {
            matrix.push_row(slot);
            let last = matrix.rows.len() - 1;
            assignments.into_iter().for_each(|assignment| matrix.insert(last, assignment));
        }
        matrix
    }

    /// A matrix of only the rows at these places, for trials.
    pub(crate) fn with_rows(&self, rows: &[usize]) -> Self {
        let rows =
            rows.iter().map(|row| (self.row(*row).slot, self.row(*row).assignments().cloned().collect()));
        let (kinds, down) = (self.kinds.clone(), self.down.clone());
        Self { kinds, down, ..Self::new(self.cluster.clone(), self.limits) }.filled(rows)
    }

    /// Whether `node` takes jobs. The jobs that it has stay in their rows.
    pub(crate) fn set_down(&mut self, node: NodeId, is_down: bool) {
        let changed = if is_down { self.down.insert(node) } else { self.down.remove(&node) };
        if !changed {
            return;
        }
        let up: Vec<Bytes> = self.up().map(|(_, capacity)| capacity).collect();
        self.kinds = Cluster::new(up).kinds();
        // The indices of movable jobs go by their shapes, which follow from the nodes that are up.
        let rows = mem::take(&mut self.rows);
        for MatrixRow { slot, assignments, .. } in rows {
            self.push_row(slot);
            let last = self.rows.len() - 1;
            assignments.into_values().for_each(|assignment| self.insert(last, assignment));
        }
    }

    fn up(&self) -> impl Iterator<Item = (NodeId, Bytes)> + '_ {
        self.cluster.nodes().filter(|(node, _)| !self.down.contains(node))
    }

    /// The nodes that take no job.
    #[must_use]
    pub const fn down(&self) -> &BTreeSet<NodeId> {
        &self.down
    }

    /// Whether all nodes of the placement are up.
    pub(crate) fn is_up(&self, placement: &Placement) -> bool {
        self.down.is_empty() || placement.nodes().all(|node| !self.down.contains(&node))
    }

    #[must_use]
    pub const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    #[must_use]
    pub const fn limits(&self) -> Limits {
        self.limits
    }

    /// The rows in the order of their turns.
    pub fn rows(&self) -> impl DoubleEndedIterator<Item = Row<'_>> + ExactSizeIterator + Clone {
        self.rows.iter().map(MatrixRow::row)
    }

    /// The row `index` places from the front.
    ///
    /// # Panics
    /// Where there is none.
    #[must_use]
    pub fn row(&self, index: usize) -> Row<'_> {
        self.rows[index].row()
    }

    /// The row whose turn it is.
    #[must_use]
    pub fn front(&self) -> Option<Row<'_>> {
        self.rows().next()
    }

    /// The row that holds `job`.
    #[must_use]
    pub fn row_of(&self, job: JobId) -> Option<Row<'_>> {
        self.place_of(job).map(|index| self.row(index))
    }

    /// `job` in its row.
    #[must_use]
    pub fn assignment_of(&self, job: JobId) -> Option<&Assignment> {
        self.row_of(job)?.assignment(job)
    }

    /// The number of the row that holds `job`.
    pub(crate) fn slot_of(&self, job: JobId) -> Option<SlotId> {
        self.slots.get(&job).copied()
    }

    /// The place of the row that holds `job`, counted from the front.
    pub(crate) fn place_of(&self, job: JobId) -> Option<usize> {
        let of = self.slot_of(job)?;
        self.rows.iter().position(|row| row.slot == of)
    }

    /// How `job` would spread, or `None` where even the empty nodes that are up do not hold it.
    #[must_use]
    pub fn shape_of(&self, job: &JobSpec) -> Option<Shape> {
        Shape::on_kinds(job, &self.kinds, self.limits.memory)
    }

    /// How `job` would spread over the empty cluster when all nodes are up; `None` where it does not hold it.
    #[must_use]
    pub fn empty_shape_of(&self, job: &JobSpec) -> Option<Shape> {
        Shape::on_empty(job, &self.cluster, self.limits.memory)
    }

    /// Where `job` would go in the row `index` places from the front.
    ///
    /// # Errors
    /// What the row lacks.
    pub fn try_placement(
        &self,
        index: usize,
        job: &JobSpec,
        shape: Shape,
    ) -> Result<Placement, RejectionCause> {
        self.placement(index, job, shape).ok_or_else(|| self.rows[index].index.rejection_cause(job, shape))
    }

    /// The same, without the reason.
    pub(crate) fn placement(&self, index: usize, job: &JobSpec, shape: Shape) -> Option<Placement> {
        self.rows[index].index.placement(job, shape)
    }

    pub(crate) fn size_order(&self, job: &JobSpec) -> SizeOrder {
        let most = self.shape_of(job).map_or(job.ranks, |shape| shape.most);
        SizeOrder::new((job.memory_of(most), job.memory()), job.id)
    }

    /// The jobs of the row at `index`, the largest first.
    pub(crate) fn largest_first(&self, index: usize) -> Vec<JobId> {
        let jobs = self.row(index).assignments().map(|assignment| self.size_order(&assignment.spec));
        let mut jobs: Vec<SizeOrder> = jobs.collect();
        jobs.sort_unstable();
        jobs.into_iter().map(|order| order.job).collect()
    }

    /// Whether memory and cells in all would do for all jobs in one row; where not, there is no use in
    /// trying.
    pub(crate) fn might_be_one_row(&self) -> bool {
        let used = self.rows.iter().map(|row| row.index.used());
        let (memory, cells) = used.fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1));
        let offered: u128 =
            self.kinds.iter().map(|(capacity, nodes)| u128::from(capacity.0) * u128::from(*nodes)).sum();
        let open = self.limits.max_per_cell.map(|max| u64::from(max) * self.cluster.len() as u64);
        (self.limits.memory == MemoryRule::Ignored || memory <= offered)
            && open.is_none_or(|open| cells <= open)
    }

    /// Whether a job that must stay where it is (its image lies on its nodes) could join the row at `index`.
    #[must_use]
    pub fn holds_in_place(&self, index: usize, assignment: &Assignment) -> bool {
        let ignored = self.limits.memory == MemoryRule::Ignored;
        assignment.placement.blocks().all(|block| {
            let left = self.free_capacity(index, block.node);
            left.open && (ignored || assignment.spec.memory_of(block.ranks) <= left.free)
        })
    }

    /// The first row, from the place `first` on, that holds a job where it is, or a new one.
    pub(crate) fn row_in_place(&mut self, first: usize, assignment: &Assignment) -> usize {
        let found = (first..self.rows.len()).find(|row| self.holds_in_place(*row, assignment));
        found.unwrap_or_else(|| self.open_row())
    }

    /// The pinned jobs of later rows that have a node of these placements and that the row at `index` would
    /// take, with their rows, the largest first.
    pub(crate) fn pinned_for(&self, index: usize, placements: &[Placement]) -> Vec<(SizeOrder, SlotId)> {
        let ignored = self.limits.memory == MemoryRule::Ignored;
        let nodes = placements.iter().flat_map(Placement::nodes).map(|node| {
            let free = self.free_capacity(index, node).free;
            (node, if ignored { Bytes(u64::MAX) } else { free })
        });
        let places =
            self.pinned.fitting(nodes).into_iter().filter_map(|job| Some((job, self.place_of(job)?)));
        let later = places.filter(|(_, place)| *place > index).map(|(job, place)| {
            let row = self.row(place);
            (row.slot, row.assignment(job).expect("it lies in this row"))
        });
        let fitting = later.filter(|(_, assignment)| self.holds_in_place(index, assignment));
        let mut found: Vec<(SizeOrder, SlotId)> =
            fitting.map(|(slot, assignment)| (self.size_order(&assignment.spec), slot)).collect();
        found.sort_unstable();
        found
    }

    /// The movable job of the row `from` to try next in the row `to`, the largest behind `after` that might
    /// fit there.
    pub(crate) fn next_movable(
        &self,
        from: usize,
        freest: &[Bytes],
        after: Option<SizeOrder>,
    ) -> Option<SizeOrder> {
        self.rows[from].index.next_movable(freest, after)
    }

    /// The memory left on the freest open nodes of the row at `index`, on as many as the widest movable job
    /// of any later row spans.
    pub(crate) fn freest(&self, index: usize) -> Vec<Bytes> {
        let later = self.rows.range(index + 1..);
        let widest = later.filter_map(|row| row.index.widest_movable()).max();
        widest.map_or_else(Vec::new, |widest| self.rows[index].index.freest(widest))
    }

    /// What is left of the cell of `node` in the row at `index`.
    #[must_use]
    pub fn free_capacity(&self, index: usize, node: NodeId) -> FreeCapacity {
        self.rows[index].index.free_capacity(node)
    }

    /// What each cell of the row at `index` has left, by node.
    pub(crate) fn free_capacities(&self, index: usize) -> Vec<FreeCapacity> {
        self.cluster.nodes().map(|(node, _)| self.free_capacity(index, node)).collect()
    }

    /// Whether one more row is allowed.
    #[must_use]
    pub fn may_open_row(&self) -> bool {
        self.limits.max_rows.is_none_or(|max| self.rows.len() < max as usize)
    }

    /// Adds an empty row at the back; the caller has to fill it.
    pub(crate) fn open_row(&mut self) -> usize {
        self.push_row(SlotId(self.next_slot));
        self.next_slot += 1;
        self.rows.len() - 1
    }

    fn push_row(&mut self, slot: SlotId) {
        let index = RowIndex::new(&self.cluster, self.limits, &self.down);
        self.rows.push_back(MatrixRow { slot, assignments: BTreeMap::new(), index });
    }

    /// Puts a job in the row at `index`.
    ///
    /// # Panics
    /// Where that breaks an invariant, in debug builds.
    pub(crate) fn assign(&mut self, index: usize, assignment: Assignment) {
        debug_assert!(self.slot_of(assignment.spec.id).is_none(), "a job lies in one row only");
        self.insert(index, assignment);
        debug_assert_eq!(self.check(), Ok(()), "each cell keeps the limits");
    }

    fn insert(&mut self, index: usize, assignment: Assignment) {
        let job = assignment.spec.id;
        if self.is_pinned(job) {
            self.pinned.add(&assignment);
        } else {
            self.set_movable(index, &assignment.spec, true);
        }
        let row = &mut self.rows[index];
        row.index.add(&assignment);
        self.slots.insert(job, row.slot);
        row.assignments.insert(job, assignment);
    }

    /// Takes a job out of its row, which may be empty afterwards.
    pub(crate) fn unassign(&mut self, job: JobId) -> Option<Assignment> {
        let index = self.place_of(job)?;
        self.slots.remove(&job);
        let row = &mut self.rows[index];
        let assignment = row.assignments.remove(&job)?;
        row.index.remove(&assignment);
        if self.is_pinned(job) {
            self.pinned.remove(&assignment);
        } else {
            self.set_movable(index, &assignment.spec, false);
        }
        Some(assignment)
    }

    fn set_movable(&mut self, index: usize, job: &JobSpec, movable: bool) {
        let Some(shape) = self.shape_of(job) else { return };
        let (order, index) = (self.size_order(job), &mut self.rows[index].index);
        if movable {
            index.add_movable(shape, order);
        } else {
            index.remove_movable(shape, order);
        }
    }

    /// Moves a job to the row at `index`; a pinned one keeps its nodes. Returns the placement it had.
    ///
    /// # Panics
    /// Where that breaks an invariant, in debug builds.
    pub(crate) fn shift(&mut self, job: JobId, index: usize, placement: Placement) -> Option<Placement> {
        let mut assignment = self.unassign(job)?;
        let before = mem::replace(&mut assignment.placement, placement);
        debug_assert!(!self.is_pinned(job) || assignment.placement == before, "a pinned job keeps its nodes");
        self.assign(index, assignment);
        Some(before)
    }

    /// Changes the estimate for a job that lies in a row, if its cells hold it so; returns whether they do.
    pub(crate) fn resize(&mut self, job: JobId, memory_per_rank: Bytes) -> bool {
        let Some(index) = self.place_of(job) else { return false };
        let assignment = self.unassign(job).expect("it lies in a row");
        let mut resized = assignment.clone();
        resized.spec.memory_per_rank = memory_per_rank;
        let fits = self.holds_in_place(index, &resized);
        self.assign(index, if fits { resized } else { assignment });
        fits
    }

    /// Whether `job` must keep its nodes from now on.
    pub(crate) fn set_pinned(&mut self, job: JobId, pinned: bool) {
        if !self.pinned.set(job, pinned) {
            return;
        }
        let Some(index) = self.place_of(job) else { return };
        let assignment = self.rows[index].assignments[&job].clone();
        self.set_movable(index, &assignment.spec, !pinned);
        if pinned {
            self.pinned.add(&assignment);
        } else {
            self.pinned.remove(&assignment);
        }
    }

    /// Whether `job` must keep its nodes.
    pub(crate) fn is_pinned(&self, job: JobId) -> bool {
        self.pinned.contains(job)
    }

    /// `job` is over: it leaves its row, which may be empty afterwards.
    pub(crate) fn end(&mut self, job: JobId) -> Option<(SlotId, Assignment)> {
        let slot = self.slot_of(job);
        let assignment = self.unassign(job);
        self.pinned.set(job, false);
        slot.zip(assignment)
    }

    /// Drops the rows without jobs; returns whether the front was one of them.
    pub(crate) fn drop_empty_rows(&mut self) -> bool {
        let front = self.front().map(|row| row.slot);
        self.rows.retain(|row| !row.assignments.is_empty());
        self.front().map(|row| row.slot) != front
    }

    /// Ends the turn of the front row: it goes behind the other rows that take turns.
    pub(crate) fn rotate(&mut self, rows_in_turn: usize) {
        if let Some(last) = self.rows.len().checked_sub(1) {
            self.put(0, rows_in_turn.saturating_sub(1).min(last));
        }
    }

    /// Puts the rows into the order of these slots, which are those of all rows.
    pub(crate) fn order_rows(&mut self, order: &[SlotId]) {
        let place = |slot: SlotId| order.iter().position(|other| *other == slot);
        self.rows.make_contiguous().sort_by_cached_key(|row| place(row.slot));
    }

    /// Gives the turn (back) to the row of `job`.
    pub(crate) fn promote(&mut self, job: JobId) {
        if let Some(index) = self.place_of(job) {
            self.put(index, 0);
        }
    }

    /// Gives the row at one place another among the others.
    fn put(&mut self, from: usize, to: usize) {
        let row = self.rows.remove(from).expect("there is such a row");
        self.rows.insert(to, row);
    }
}
