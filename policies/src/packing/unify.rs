//! Slot unification: when jobs end, rows are filled with jobs of later rows, in the order of turns (paper 000 §2.1 calls for it by its
//! figures; the name is Feitelson's).
//!
//! Every move brings a job's turn nearer, and largest go first. A job that ever ran keeps its nodes, where its image lies; another may be
//! placed anew. What could be moved was moved, so only rows that have room since, or all after the order of turns has changed, are
//! looked at again: [`Unsettled`].

use std::collections::BTreeSet;

use super::Move;
use crate::{JobId, Matrix, Placement, SlotId, matrix::Seat};

/// The rows that might take a job of a later row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unsettled {
    /// Any of them.
    All,
    /// Only these.
    Rows(BTreeSet<SlotId>),
}

impl Default for Unsettled {
    fn default() -> Self {
        Self::Rows(BTreeSet::new())
    }
}

impl Unsettled {
    /// This row, too.
    pub(crate) fn add(&mut self, slot: SlotId) {
        if let Self::Rows(rows) = self {
            rows.insert(slot);
        }
    }

    fn contains(&self, slot: SlotId) -> bool {
        match self {
            Self::All => true,
            Self::Rows(rows) => rows.contains(&slot),
        }
    }
}

/// Fills the `unsettled` rows from `first` on. Each move comes with the placement that was given up, for [`undo`]. Rows that this empties are
/// left to [`Matrix::drop_empty_rows`].
pub(crate) fn unify(
    matrix: &mut Matrix,
    first: usize,
    mut unsettled: Unsettled,
    rooted: impl Fn(JobId) -> bool,
) -> Vec<(Move, Placement)> {
    let mut moves = Vec::new();
    for to in first..matrix.rows().len() {
        if !unsettled.contains(matrix.rows()[to].slot) {
            continue;
        }
        for from in to + 1..matrix.rows().len() {
            let before = moves.len();
            let jobs: Vec<JobId> = matrix.largest_first(from).collect();
            moves.extend(jobs.into_iter().filter_map(|job| advance(matrix, from, to, job, rooted(job))));
            if moves.len() > before {
                unsettled.add(matrix.rows()[from].slot);
            }
        }
    }
    moves
}

fn advance(
    matrix: &mut Matrix,
    from: usize,
    to: usize,
    job: JobId,
    rooted: bool,
) -> Option<(Move, Placement)> {
    let seat = &matrix.rows()[from].seats[&job];
    let placement = if rooted {
        matrix.holds_in_place(to, seat).then(|| seat.placement.clone())?
    } else {
        matrix.find_in(to, &seat.spec, matrix.shape_of(&seat.spec)?)?
    };
    let (from, slot) = (matrix.rows()[from].slot, matrix.rows()[to].slot);
    let seat = matrix.unseat(job).expect("it was in this row");
    let before = seat.placement.clone();
    matrix.seat(to, Seat { placement: placement.clone(), ..seat });
    Some((Move { job, from, to: slot, placement }, before))
}

/// Takes `moves` back, the last one first; no row may have been dropped since.
pub(crate) fn undo(matrix: &mut Matrix, moves: Vec<(Move, Placement)>) {
    for (Move { job, from, .. }, placement) in moves.into_iter().rev() {
        let seat = matrix.unseat(job).expect("it was moved");
        let row = matrix.rows().iter().position(|row| row.slot == from).expect("its row is still there");
        matrix.seat(row, Seat { placement, ..seat });
    }
}
