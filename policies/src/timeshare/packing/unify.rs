//! Slot unification: when jobs end, rows are filled with jobs of later rows, in the order of turns (as the
//! figures of paper 000 §2.1 suggest; the name is Feitelson's).
//!
//! Every move brings a job's turn nearer, and the largest jobs go first. A pinned job (it ran, and its image
//! lies on its nodes) keeps its nodes; a movable one may be placed anew. All moves that were possible have
//! been made: a job that can move now uses capacity that was freed since, or lies in a row that has had its
//! turn since, or was packed by a rule that passes rows over. [`DirtyRows`] remembers these rows, so that an
//! event costs what its nodes hold and not what the matrix holds. Only an exchange of jobs (`paired`, at the
//! end of a turn) and a failed switch make every pair of rows dirty.

use std::collections::{BTreeMap, BTreeSet};

use super::Move;
use crate::{
    JobId, Matrix, Placement, SlotId,
    timeshare::matrix::{Assignment, SizeOrder},
};

/// Where capacity was freed in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FreedNodes {
    Any,
    /// Only on the nodes of these placements.
    At(Vec<Placement>),
}

impl FreedNodes {
    pub(crate) fn at(placement: &Placement) -> Self {
        Self::At(vec![placement.clone()])
    }

    fn and(&mut self, more: Self) {
        match (&mut *self, more) {
            (Self::At(known), Self::At(more)) => known.extend(more),
            (Self::Any, _) => {}
            (_, Self::Any) => *self = Self::Any,
        }
    }
}

/// The rows to reconcile: after that no job can move to an earlier row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DirtyRows {
    All,
    Part {
        /// Rows that might take jobs of any later row.
        rows: BTreeMap<SlotId, FreedNodes>,
        /// Rows whose jobs might go into any earlier row.
        back: BTreeSet<SlotId>,
    },
}

impl Default for DirtyRows {
    fn default() -> Self {
        Self::Part { rows: BTreeMap::new(), back: BTreeSet::new() }
    }
}

impl DirtyRows {
    /// Capacity was freed in this row.
    pub(crate) fn add(&mut self, slot: SlotId, freed: FreedNodes) {
        if let Self::Part { rows, .. } = self {
            match rows.get_mut(&slot) {
                Some(known) => known.and(freed),
                None => drop(rows.insert(slot, freed)),
            }
        }
    }

    /// This row went behind others.
    pub(crate) fn add_back(&mut self, slot: SlotId) {
        if let Self::Part { back, .. } = self {
            back.insert(slot);
        }
    }

    /// The nodes of `to` on which jobs of `from` may fit by now; `None` where there is nothing to look for.
    fn between(&self, from: SlotId, to: SlotId) -> Option<&FreedNodes> {
        match self {
            Self::All => Some(&FreedNodes::Any),
            Self::Part { back, .. } if back.contains(&from) => Some(&FreedNodes::Any),
            Self::Part { rows, .. } => rows.get(&to),
        }
    }

    /// All rows from `first` (0 or 1) on are clean.
    fn clean(&mut self, front: Option<SlotId>, first: usize) {
        let before = std::mem::take(self);
        let Some(front) = front.filter(|_| first > 0) else { return };
        match before {
            Self::Part { mut rows, back } if back.is_empty() => {
                if let Some(freed) = rows.remove(&front) {
                    self.add(front, freed);
                }
            }
            _ => self.add(front, FreedNodes::Any),
        }
    }
}

/// Fills the `dirty` rows from `first` (0 or 1) on, which are clean then. Rows that this empties are left to
/// [`Matrix::drop_empty_rows`].
pub(crate) fn unify(matrix: &mut Matrix, first: usize, dirty: &mut DirtyRows) -> Vec<Move> {
    let (mut moves, rows) = (Vec::new(), matrix.rows().len());
    for to in first..rows {
        let (mut on_freed_nodes, mut freest) = (None, None);
        for from in to + 1..rows {
            let (slot, source) = (matrix.row(to).slot, matrix.row(from).slot);
            let Some(freed) = dirty.between(source, slot) else { continue };
            let pinned: Vec<SizeOrder> = match freed {
                FreedNodes::Any => pinned(matrix, from, to),
                FreedNodes::At(placements) => {
                    let found = on_freed_nodes.get_or_insert_with(|| matrix.pinned_for(to, placements));
                    found.iter().filter(|(_, slot)| *slot == source).map(|(order, _)| *order).collect()
                }
            };
            let mut pinned = pinned.into_iter().peekable();
            let mut last = None;
            loop {
                let known = freest.get_or_insert_with(|| matrix.freest(to));
                let movable = matrix.next_movable(from, known, last);
                let Some(next) = pinned.peek().copied().into_iter().chain(movable).min() else { break };
                pinned.next_if_eq(&next);
                last = Some(next);
                if let Some((step, before)) = advance(matrix, from, to, next.job) {
                    freest = None;
                    dirty.add(source, FreedNodes::at(&before));
                    moves.push(step);
                }
            }
        }
    }
    dirty.clean(matrix.front().map(|row| row.slot), first);
    moves
}

/// Moves all jobs into the front row, or none where not all fit; the `dirty` rows then stay so. Remembers the
/// job that did not fit: most often it is the same one the next time.
pub(crate) fn unify_into_front(
    matrix: &mut Matrix,
    dirty: &mut DirtyRows,
    rejection_cause: &mut Option<JobId>,
) -> Option<Vec<Move>> {
    let still = rejection_cause.filter(|job| matrix.place_of(*job).is_some_and(|place| place > 0));
    if !matrix.might_be_one_row() || still.is_some_and(|job| destination(matrix, 0, job).is_none()) {
        return None;
    }
    let (mut moves, rows) = (Vec::new(), matrix.rows().len());
    for from in 1..rows {
        for job in matrix.largest_first(from) {
            if let Some(step) = advance(matrix, from, 0, job) {
                moves.push(step);
            } else {
                undo(matrix, moves);
                *rejection_cause = Some(job);
                return None;
            }
        }
    }
    *dirty = DirtyRows::default();
    Some(moves.into_iter().map(|(step, _)| step).collect())
}

/// The pinned jobs of the row `from` that the row `to` would take, each by itself, the largest first.
fn pinned(matrix: &Matrix, from: usize, to: usize) -> Vec<SizeOrder> {
    let fits = |assignment: &&Assignment| {
        matrix.holds_in_place(to, assignment) && matrix.is_pinned(assignment.spec.id)
    };
    let found = matrix.row(from).assignments().filter(fits);
    let mut orders: Vec<SizeOrder> = found.map(|assignment| matrix.size_order(&assignment.spec)).collect();
    orders.sort_unstable();
    orders
}

/// Whether no job would go into any earlier row from `first` on: looked for without the help of
/// [`DirtyRows`].
pub(crate) fn is_unified(matrix: &Matrix, first: usize) -> bool {
    let rows = matrix.rows().len();
    let mut pairs = (first..rows).flat_map(|to| (to + 1..rows).map(move |from| (from, to)));
    pairs.all(|(from, to)| matrix.row(from).jobs().all(|job| destination(matrix, to, job).is_none()))
}

fn assigned(matrix: &Matrix, job: JobId) -> &Assignment {
    matrix.assignment_of(job).expect("the job lies in a row")
}

/// The placement of the job in the row `to`.
fn destination(matrix: &Matrix, to: usize, job: JobId) -> Option<Placement> {
    let assignment = assigned(matrix, job);
    if matrix.is_pinned(job) {
        return matrix.holds_in_place(to, assignment).then(|| assignment.placement.clone());
    }
    matrix.placement(to, &assignment.spec, matrix.shape_of(&assignment.spec)?)
}

/// Moves the job if it fits; returns the move and the placement that was given up.
fn advance(matrix: &mut Matrix, from: usize, to: usize, job: JobId) -> Option<(Move, Placement)> {
    debug_assert!(matrix.row(from).contains(job), "the job lies in the row");
    let placement = destination(matrix, to, job)?;
    let (from, slot) = (matrix.row(from).slot, matrix.row(to).slot);
    let before = matrix.shift(job, to, placement.clone()).expect("it was in this row");
    Some((Move { job, from, to: slot, placement }, before))
}

/// Takes `moves` back, the last one first; no row may have been dropped since.
fn undo(matrix: &mut Matrix, moves: Vec<(Move, Placement)>) {
    for (Move { job, from, .. }, placement) in moves.into_iter().rev() {
        let row = matrix.rows().position(|row| row.slot == from).expect("its row is still there");
        matrix.shift(job, row, placement).expect("it was moved");
    }
}
