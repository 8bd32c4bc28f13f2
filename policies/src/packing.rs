//! Which row takes a job: first-fit-decreasing vector packing, one dimension for each node.
//!
//! Jobs that come together are sorted by what they need of the fullest node, largest first, and each goes to the first row
//! that holds it. *First* is in the order of turns, so that packing never delays anybody; only a row whose turn is nearly
//! over comes last, for a job that joined it would hardly run before it had to leave.

use std::{cmp::Reverse, collections::BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    JobId, JobSpec, Matrix, Placement, Policy, SlotId,
    matrix::{Misfit, Seat},
    placement::Shape,
};

/// How a job came to its row: kept for `explain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Landing {
    /// The row that took it.
    pub slot: SlotId,
    /// Its ranks on the nodes.
    pub placement: Placement,
    /// Who was in the row already.
    pub beside: Vec<JobId>,
    /// The rows that were asked before, and what they lacked.
    pub refused_by: Vec<(SlotId, Misfit)>,
}

/// A job that changed its row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Who.
    pub job: JobId,
    /// Out of this row,
    pub from: SlotId,
    /// into this one, whose turn comes sooner.
    pub to: SlotId,
    /// Its ranks on the nodes; another than before only where it never ran.
    pub placement: Placement,
}

/// Sorts jobs that came together into the order in which `policy` looks at them.
pub fn sort_for_packing(policy: Policy, matrix: &Matrix, jobs: &mut [JobSpec]) {
    match policy {
        Policy::Batch | Policy::Cosched => jobs.sort_by_key(|job| (job.arrival, job.id)),
        Policy::Gang | Policy::Hybrid => jobs.sort_by_key(|job| (Reverse(size(matrix, job)), job.id)),
    }
}

/// What `job` needs of the node it fills most, then in all.
fn size(matrix: &Matrix, job: &JobSpec) -> (u64, u64) {
    let most = matrix.shape_of(job).map_or(job.ranks, |shape: Shape| shape.most);
    (job.memory_of(most).0, job.memory().0)
}

/// Puts `job` into the first row that holds it, beginning `first` rows from the front, else into a new one; `None` where
/// neither may be: then it queues.
pub(crate) fn pack(matrix: &mut Matrix, job: &JobSpec, shape: Shape, first: usize) -> Option<Landing> {
    let mut refused_by = Vec::new();
    let rows = matrix.rows().len();
    for index in (first.min(rows)..rows).chain(0..first.min(rows)) {
        match matrix.plan_in(index, job, shape) {
            Ok(placement) => return Some(land(matrix, index, job, placement, refused_by)),
            Err(misfit) => refused_by.push((matrix.rows()[index].slot, misfit)),
        }
    }
    if !matrix.may_open_row() {
        return None;
    }
    let index = matrix.open_row();
    let placement = matrix.plan_in(index, job, shape).expect("a job with a shape fits in an empty row");
    Some(land(matrix, index, job, placement, refused_by))
}

fn land(
    matrix: &mut Matrix,
    index: usize,
    job: &JobSpec,
    placement: Placement,
    refused_by: Vec<(SlotId, Misfit)>,
) -> Landing {
    let row = &matrix.rows()[index];
    let landing =
        Landing { slot: row.slot, placement: placement.clone(), beside: row.jobs().collect(), refused_by };
    matrix.seat(index, Seat { spec: job.clone(), placement });
    landing
}

/// Slot unification: fills the rows from `first` on with jobs of later rows, in the order of turns.
///
/// Every move brings a job's turn nearer. A job in `rooted` keeps its nodes; another may be placed anew. Rows that this
/// empties are left to [`Matrix::drop_empty_rows`].
pub(crate) fn unify(matrix: &mut Matrix, first: usize, rooted: &BTreeSet<JobId>) -> Vec<Move> {
    let mut moves = Vec::new();
    for to in first..matrix.rows().len() {
        for from in to + 1..matrix.rows().len() {
            let mut jobs: Vec<JobSpec> =
                matrix.rows()[from].seats.values().map(|seat| seat.spec.clone()).collect();
            jobs.sort_by_key(|job| (Reverse(size(matrix, job)), job.id));
            moves.extend(jobs.iter().filter_map(|job| advance(matrix, from, to, job, rooted)));
        }
    }
    moves
}

fn advance(
    matrix: &mut Matrix,
    from: usize,
    to: usize,
    job: &JobSpec,
    rooted: &BTreeSet<JobId>,
) -> Option<Move> {
    let placement = if rooted.contains(&job.id) {
        let seat = &matrix.rows()[from].seats[&job.id];
        matrix.holds_in_place(to, seat).then(|| seat.placement.clone())?
    } else {
        matrix.plan_in(to, job, matrix.shape_of(job)?).ok()?
    };
    let (from, slot) = (matrix.rows()[from].slot, matrix.rows()[to].slot);
    let seat = matrix.unseat(job.id).expect("it was in this row");
    matrix.seat(to, Seat { placement: placement.clone(), ..seat });
    Some(Move { job: job.id, from, to: slot, placement })
}
