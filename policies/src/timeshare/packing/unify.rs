//! Slot unification: when jobs end, rows are filled with jobs of later rows, in the order of turns (paper 000 §2.1 calls for it by its
//! figures; the name is Feitelson's).
//!
//! Every move brings a job's turn nearer, and largest go first. A job that ever ran keeps its nodes, where its image lies; another may be
//! placed anew. What could be moved was moved: whoever can be moved now uses room that has appeared since, or lies in a row that
//! has had its turn since, or was given jobs by a packing that passes rows over. [`DirtyRows`] remembers these, so that an event costs what its
//! nodes hold and not what the matrix does. Only an exchange of jobs that are known by now (`paired`, at the end of a turn) and a switch
//! that failed have every pair of rows looked at: rows squared times the jobs of a row.

use std::collections::{BTreeMap, BTreeSet};

use super::Move;
use crate::{
    JobId, Matrix, Placement, SlotId,
    timeshare::index::load::{Free, Rank},
    timeshare::matrix::Assignment,
};

/// Where room appeared in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FreedNodes {
    /// Anywhere.
    Any,
    /// Only where these jobs were.
    At(Vec<Placement>),
}

impl FreedNodes {
    /// Where a job was.
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

/// What has to be looked at before nobody can be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DirtyRows {
    /// Everything.
    All,
    /// Only a part.
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
    /// Room appeared in this row.
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

    /// What may have changed between two rows; nothing where there is nothing to look for.
    fn between(&self, from: SlotId, to: SlotId) -> Option<&FreedNodes> {
        match self {
            Self::All => Some(&FreedNodes::Any),
            Self::Part { back, .. } if back.contains(&from) => Some(&FreedNodes::Any),
            Self::Part { rows, .. } => rows.get(&to),
        }
    }

    /// All rows but the front were looked at, and that one too unless `first` is behind it.
    fn reconcile(&mut self, front: Option<SlotId>, first: usize) {
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

/// Fills the `dirty` rows from `first` (0 or 1) on, and reconciles them. Rows that this empties are left to
/// [`Matrix::drop_empty_rows`].
pub(crate) fn unify(matrix: &mut Matrix, first: usize, dirty: &mut DirtyRows) -> Vec<Move> {
    let (mut moves, mut free) = (Vec::new(), Free::default());
    let rows = matrix.rows().len();
    for to in first..rows {
        let (mut near, mut is_known) = (None, false);
        for from in to + 1..rows {
            let (slot, source) = (matrix.row(to).slot, matrix.row(from).slot);
            let Some(freed) = dirty.between(source, slot) else { continue };
            let pinned: Vec<Rank> = match freed {
                FreedNodes::Any => pinned(matrix, from, to),
                FreedNodes::At(placements) => {
                    let near = near.get_or_insert_with(|| matrix.pinned_for(to, placements)).iter();
                    near.filter(|(_, slot)| *slot == source).map(|(rank, _)| *rank).collect()
                }
            };
            let mut pinned = pinned.into_iter().peekable();
            let mut last = None;
            loop {
                if !std::mem::replace(&mut is_known, true) {
                    find_free(matrix, to, &mut free);
                }
                let movable = matrix.load(from).movable().next(&free, last);
                let Some(next) = pinned.peek().copied().into_iter().chain(movable).min() else { break };
                pinned.next_if_eq(&next);
                last = Some(next);
                if let Some((step, before)) = advance(matrix, from, to, next.1) {
                    is_known = false;
                    dirty.add(source, FreedNodes::at(&before));
                    moves.push(step);
                }
            }
        }
    }
    dirty.reconcile(matrix.front().map(|row| row.slot), first);
    moves
}

/// Moves all jobs into the front row, or none where not all fit; what is `dirty` then stays so. Remembers who did not fit:
/// most often it is the same job the next time.
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

/// What the row `to` has free for jobs of later rows that never ran, at most: on as many nodes as the widest of them wants.
fn find_free(matrix: &Matrix, to: usize, into: &mut Free) {
    let later = (to + 1..matrix.rows().len()).filter_map(|row| matrix.load(row).movable().bounds());
    let bounds = later.reduce(|(wide, least), (width, memory)| (wide.max(width), least.min(memory)));
    match bounds {
        Some((widest, least)) => matrix.load(to).most_free(widest, least, into),
        None => into.fill(std::iter::empty(), 0),
    }
}

/// Those jobs of the row `from` that ran and that the row `to` would take where they are, each by itself, the largest first.
fn pinned(matrix: &Matrix, from: usize, to: usize) -> Vec<Rank> {
    let fits = |assignment: &&Assignment| {
        matrix.holds_in_place(to, assignment) && matrix.is_pinned(assignment.spec.id)
    };
    let found = matrix.row(from).assignments().filter(fits);
    let mut ranks: Vec<Rank> = found.map(|assignment| matrix.rank_of(assignment)).collect();
    ranks.sort_unstable();
    ranks
}

/// Whether no job would go into any earlier row from `first` on: looked for without any memory of what changed.
pub(crate) fn is_unified(matrix: &Matrix, first: usize) -> bool {
    let rows = matrix.rows().len();
    let mut pairs = (first..rows).flat_map(|to| (to + 1..rows).map(move |from| (from, to)));
    pairs.all(|(from, to)| matrix.row(from).jobs().all(|job| destination(matrix, to, job).is_none()))
}

fn assigned(matrix: &Matrix, job: JobId) -> &Assignment {
    matrix.assignment_of(job).expect("who is looked at lies in a row")
}

/// Where the job would run in the row `to`.
fn destination(matrix: &Matrix, to: usize, job: JobId) -> Option<Placement> {
    let assignment = assigned(matrix, job);
    if matrix.is_pinned(job) {
        return matrix.holds_in_place(to, assignment).then(|| assignment.placement.clone());
    }
    matrix.find_in(to, &assignment.spec, matrix.shape_of(&assignment.spec)?)
}

/// The move, and the placement that was given up.
fn advance(matrix: &mut Matrix, from: usize, to: usize, job: JobId) -> Option<(Move, Placement)> {
    debug_assert!(matrix.row(from).contains(job), "who is looked at lies in the row");
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
