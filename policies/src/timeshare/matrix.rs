//! The Ousterhout matrix: rows are time slots, columns are nodes, a cell may hold several jobs.
//!
//! Rows are kept in the order of their turns: the front row is the active one, a row that had its turn goes to the back,
//! and a new row enters at the back. Nothing overtakes, so a row `k` places from the front runs after `k` turns at most.
//!
//! Invariants, asserted with [`Matrix::check`] after every addition in debug builds: a job is in one row only, whole; each cell
//! keeps the [`Limits`].

use std::{cmp::Reverse, collections::VecDeque, mem};

pub use crate::timeshare::row::{Assignment, RejectionCause, Row};

use crate::{
    Bytes, Cluster, JobId, JobSpec, Limits, MemoryRule, NodeId, SlotId,
    placement::{Placement, Room, Shape},
    timeshare::index::job_map::{JobMap, JobSet},
    timeshare::index::load::{Load, Rank, Size},
    timeshare::index::pinned::PinnedJobs,
    timeshare::row::RowAssignment,
};

/// The matrix of one cluster under one set of limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    cluster: Cluster,
    limits: Limits,
    // In the order of turns; the front is the active row.
    rows: VecDeque<(SlotId, JobSet)>,
    assignments: JobMap<RowAssignment>,
    next_slot: u32,
    // What follows from the above, kept in step: nodes by capacity, the load of each row in the order of `rows`.
    kinds: Vec<(Bytes, u32)>,
    loads: VecDeque<Load>,
    // Jobs that keep their nodes, for they ran there.
    pinned: PinnedJobs,
    // The load of a row without jobs: to make one costs as much as there are nodes.
    spare: Option<Load>,
}

impl Matrix {
    /// An empty matrix.
    #[must_use]
    pub fn new(cluster: Cluster, limits: Limits) -> Self {
        let (kinds, pinned) = (cluster.kinds(), PinnedJobs::empty(cluster.len()));
        Self {
            cluster,
            limits,
            rows: VecDeque::new(),
            assignments: JobMap::default(),
            next_slot: 0,
            kinds,
            loads: VecDeque::new(),
            pinned,
            spare: None,
        }
    }

    /// A matrix with these rows, legal or not.
    pub(crate) fn from_rows(
        cluster: Cluster,
        limits: Limits,
        rows: impl IntoIterator<Item = (SlotId, Vec<Assignment>)>,
    ) -> Self {
        let mut matrix = Self::new(cluster, limits);
        for (slot, assignments) in rows {
            let (mut load, mut jobs) = (Load::empty(&matrix.cluster, limits), JobSet::default());
            for assignment in assignments {
                let (job, size) = (assignment.spec.id, matrix.size_of(&assignment.spec));
                load.add(&assignment, size, true);
                jobs.insert(job);
                matrix.assignments.insert(job, RowAssignment { slot, assignment });
            }
            matrix.rows.push_back((slot, jobs));
            matrix.loads.push_back(load);
        }
        matrix
    }

    /// A matrix of only the rows at these places, for trials.
    pub(crate) fn with_rows(&self, rows: &[usize]) -> Self {
        let rows =
            rows.iter().map(|row| (self.row(*row).slot, self.row(*row).assignments().cloned().collect()));
        Self::from_rows(self.cluster.clone(), self.limits, rows)
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
    pub fn rows(&self) -> impl DoubleEndedIterator<Item = Row<'_>> + ExactSizeIterator + Clone {
        self.rows.iter().map(|(slot, jobs)| Row { slot: *slot, jobs, assignments: &self.assignments })
    }

    /// The row so many places from the front.
    ///
    /// # Panics
    /// Where there is none.
    #[must_use]
    pub fn row(&self, index: usize) -> Row<'_> {
        let (slot, jobs) = &self.rows[index];
        Row { slot: *slot, jobs, assignments: &self.assignments }
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
        self.assignments.get(job).map(|assigned| &assigned.assignment)
    }

    /// The number of the row that holds `job`.
    pub(crate) fn slot_of(&self, job: JobId) -> Option<SlotId> {
        self.assignments.get(job).map(|assigned| assigned.slot)
    }

    /// The place of the row that holds `job`, counted from the front.
    pub(crate) fn place_of(&self, job: JobId) -> Option<usize> {
        let of = self.slot_of(job)?;
        self.rows.iter().position(|(slot, _)| *slot == of)
    }

    /// How `job` would spread, or `None` where even the empty cluster does not hold it.
    #[must_use]
    pub fn shape_of(&self, job: &JobSpec) -> Option<Shape> {
        Shape::on_kinds(job, &self.kinds, self.limits.memory)
    }

    /// Where `job` would go in the row `index` places from the front.
    ///
    /// # Errors
    /// What the row lacks.
    pub fn plan_in(&self, index: usize, job: &JobSpec, shape: Shape) -> Result<Placement, RejectionCause> {
        self.find_in(index, job, shape).ok_or_else(|| self.load(index).rejection_cause(job, shape))
    }

    /// The same, without the reason.
    pub(crate) fn find_in(&self, index: usize, job: &JobSpec, shape: Shape) -> Option<Placement> {
        self.load(index).plan(job, shape)
    }

    /// What `job` needs of the node it fills most, then in all.
    pub(crate) fn size_of(&self, job: &JobSpec) -> Size {
        let most = self.shape_of(job).map_or(job.ranks, |shape| shape.most);
        (job.memory_of(most).0, job.memory().0)
    }

    /// Where `assignment` is in the order in which jobs are looked at.
    pub(crate) fn rank_of(&self, assignment: &Assignment) -> Rank {
        (Reverse(self.size_of(&assignment.spec)), assignment.spec.id)
    }

    /// The jobs of the row at `index`, the largest first, of equals the lowest number.
    pub(crate) fn largest_first(&self, index: usize) -> Vec<JobId> {
        let mut jobs: Vec<Rank> =
            self.row(index).assignments().map(|assignment| self.rank_of(assignment)).collect();
        jobs.sort_unstable();
        jobs.into_iter().map(|(_, job)| job).collect()
    }

    /// Whether memory and cells in all would do for all jobs in one row; where not, there is no use in trying.
    pub(crate) fn might_be_one_row(&self) -> bool {
        let taken = self.loads.iter().map(Load::taken);
        let (memory, cells) = taken.fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1));
        let all: u128 =
            self.kinds.iter().map(|(capacity, nodes)| u128::from(capacity.0) * u128::from(*nodes)).sum();
        let open = self.limits.max_per_cell.map(|max| u64::from(max) * self.cluster.len() as u64);
        (self.limits.memory == MemoryRule::Ignored || memory <= all) && open.is_none_or(|open| cells <= open)
    }

    /// Whether a job that must stay where it is (its image lies on its nodes) could join the row at `index`.
    #[must_use]
    pub fn holds_in_place(&self, index: usize, assignment: &Assignment) -> bool {
        self.load(index).holds_in_place(assignment)
    }

    /// The jobs of later rows that keep their nodes and fit where jobs of the row at `index` were, with their rows, the largest first.
    pub(crate) fn pinned_for(&self, index: usize, placements: &[Placement]) -> Vec<(Rank, SlotId)> {
        let load = &self.loads[index];
        let is_later = |slot| self.rows.range(index + 1..).any(|(later, _)| *later == slot);
        let found = self.pinned.might_go(placements, |node| load.left(node), is_later);
        let assigned = found.into_iter().map(|job| &self.assignments[job]);
        let fitting = assigned.filter(|RowAssignment { assignment, .. }| load.holds_in_place(assignment));
        let mut ranks: Vec<(Rank, SlotId)> =
            fitting.map(|RowAssignment { slot, assignment }| (self.rank_of(assignment), *slot)).collect();
        ranks.sort_unstable();
        ranks
    }

    /// What is left of the cell of `node` in the row at `index`.
    #[must_use]
    pub fn room(&self, index: usize, node: NodeId) -> Room {
        self.load(index).room(node)
    }

    pub(crate) fn load(&self, index: usize) -> &Load {
        &self.loads[index]
    }

    /// Whether one more row is allowed.
    #[must_use]
    pub fn may_open_row(&self) -> bool {
        self.limits.max_rows.is_none_or(|max| self.rows.len() < max as usize)
    }

    /// Adds an empty row at the back; it is the caller's to fill.
    pub(crate) fn open_row(&mut self) -> usize {
        let slot = SlotId(self.next_slot);
        self.rows.push_back((slot, JobSet::default()));
        let load = self.spare.take().unwrap_or_else(|| Load::empty(&self.cluster, self.limits));
        self.loads.push_back(load);
        self.next_slot += 1;
        self.rows.len() - 1
    }

    /// Puts a job in the row at `index`.
    ///
    /// # Panics
    /// Where that breaks an invariant, in debug builds.
    pub(crate) fn assign(&mut self, index: usize, assignment: Assignment) {
        let (job, size) = (assignment.spec.id, self.size_of(&assignment.spec));
        debug_assert!(self.assignment_of(job).is_none(), "a job lies in one row only");
        let (slot, jobs) = &mut self.rows[index];
        if self.pinned.contains(job) {
            self.pinned.insert(&assignment, *slot);
        }
        self.loads[index].add(&assignment, size, !self.pinned.contains(job));
        jobs.insert(job);
        self.assignments.insert(job, RowAssignment { slot: *slot, assignment });
        debug_assert_eq!(self.check(), Ok(()), "each cell keeps the limits");
    }

    /// Takes a job out of its row, which may be empty afterwards.
    pub(crate) fn unassign(&mut self, job: JobId) -> Option<Assignment> {
        let index = self.place_of(job)?;
        let RowAssignment { assignment, .. } = self.assignments.remove(job)?;
        let size = self.size_of(&assignment.spec);
        self.rows[index].1.remove(job);
        self.loads[index].remove(&assignment, size, !self.pinned.contains(job));
        if self.pinned.contains(job) {
            self.pinned.remove(&assignment);
        }
        Some(assignment)
    }

    /// Puts a job of another row in the row at `index`, where it may lie elsewhere if it need not keep its nodes; where it lay.
    ///
    /// # Panics
    /// Where that breaks an invariant, in debug builds.
    pub(crate) fn shift(&mut self, job: JobId, index: usize, placement: Placement) -> Option<Placement> {
        let (from, pinned) = (self.place_of(job)?, self.is_pinned(job));
        let size = self.size_of(&self.assignment_of(job)?.spec);
        let RowAssignment { slot, assignment } = self.assignments.get_mut(job)?;
        self.loads[from].remove(assignment, size, !pinned);
        self.rows[from].1.remove(job);
        let before = mem::replace(&mut assignment.placement, placement);
        *slot = self.rows[index].0;
        if pinned {
            debug_assert_eq!(assignment.placement, before, "it keeps its nodes");
            self.pinned.shift(assignment, *slot);
        }
        self.loads[index].add(assignment, size, !pinned);
        self.rows[index].1.insert(job);
        debug_assert_eq!(self.check(), Ok(()), "each cell keeps the limits");
        Some(before)
    }

    /// What is assumed of a job that lies in a row changes, if its cells hold it so; tells whether they do.
    pub(crate) fn resize(&mut self, job: JobId, memory_per_rank: Bytes) -> bool {
        let Some(index) = self.place_of(job) else { return false };
        let assignment = self.unassign(job).expect("it lies in a row");
        let mut resized = assignment.clone();
        resized.spec.memory_per_rank = memory_per_rank;
        let fits = self.holds_in_place(index, &resized);
        self.assign(index, if fits { resized } else { assignment });
        fits
    }

    /// Whether `job`, which lies in a row, must keep its nodes from now on.
    pub(crate) fn set_pinned(&mut self, job: JobId, pinned: bool) {
        let changed = self.pinned.set(job, pinned);
        if let Some(index) = self.place_of(job).filter(|_| changed) {
            let RowAssignment { slot, assignment } = &self.assignments[job];
            let size = self.size_of(&assignment.spec);
            self.loads[index].set_movable(assignment, size, !pinned);
            if pinned {
                self.pinned.insert(assignment, *slot);
            } else {
                self.pinned.remove(assignment);
            }
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

    /// Forgets the rows without jobs; tells whether the front was one of them.
    pub(crate) fn drop_empty_rows(&mut self) -> bool {
        let front = self.front().map(|row| row.slot);
        while let Some(empty) = self.rows.iter().position(|(_, jobs)| jobs.is_empty()) {
            self.rows.remove(empty);
            self.spare = self.loads.remove(empty);
        }
        self.front().map(|row| row.slot) != front
    }

    /// Ends the turn of the front row: it goes behind the other rows that take turns.
    pub(crate) fn rotate(&mut self, rows_in_turn: usize) {
        if let Some(last) = self.rows.len().checked_sub(1) {
            self.put(0, rows_in_turn.saturating_sub(1).min(last));
        }
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
        let load = self.loads.remove(from).expect("each row has a load");
        self.loads.insert(to, load);
    }

    /// What each cell of the row at `index` has left, by node.
    pub(crate) fn rooms_of(&self, index: usize) -> Vec<Room> {
        self.cluster.nodes().map(|(node, _)| self.room(index, node)).collect()
    }
}
