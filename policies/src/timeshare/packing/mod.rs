//! Which row takes a job: vector packing, one dimension for each node.
//!
//! Jobs that come together are sorted by what they need of the fullest node, largest first, and each goes to the first row
//! that holds it ([`Packing::FirstFit`]), to the one it fills best ([`Packing::BestFit`]), or all to where an exhaustive search puts
//! them ([`Packing::Exact`]). *First* is in the order of turns, so that packing delays nobody; only a row whose turn is nearly
//! over comes last, for a job that joined it would hardly run before it had to leave. Under `paired` jobs that came together are then
//! exchanged between rows until no exchange mixes them better ([`pairing`]).
//!
//! | file | what |
//! | --- | --- |
//! | `mod` | first fit, best fit |
//! | `buddy` | the least loaded block of a buddy tree over all rows |
//! | `unify` | slot unification when jobs end |
//! | `exact` | branch and bound, bounded in visits |
//! | `class` | jobs that compute, jobs that communicate, jobs that do both |
//! | `pairing` | what mixing computing and communicating jobs is worth (paper 003 §3.3.3) |

mod buddy;
pub mod class;
mod exact;
pub mod pairing;
mod unify;

use std::{cmp::Reverse, collections::BTreeMap};

use serde::{Deserialize, Serialize};

use crate::{
    JobId, JobSpec, Matrix, Placement, Policy, SlotId,
    placement::Shape,
    timeshare::matrix::{Assignment, RejectionCause},
};
use pairing::Fractions;
pub(crate) use unify::{DirtyRows, FreedNodes, is_unified, unify, unify_into_front};

/// How jobs that come together are given their rows, where the policy has as many rows as needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Packing {
    /// The first row that holds it.
    #[default]
    FirstFit,
    /// The row that has the least memory left on the nodes of the job afterwards.
    BestFit,
    /// The least loaded block of the buddy tree over all rows, and in it the first row that holds it: DHC, ParPar.
    Buddy,
    /// The fewest rows, then the best mix, as far as found in so many steps of the search; at least as good as first fit.
    Exact {
        /// Steps; never a time, or the simulator and the cluster would decide differently.
        visits_max: u32,
    },
}

/// How a job came to its row: kept for `explain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Landing {
    /// The row that took it.
    pub slot: SlotId,
    /// Its ranks on the nodes.
    pub placement: Placement,
    /// Who was in the row already; of many the first sixteen, for a cluster may run thousands side by side.
    pub beside: Vec<JobId>,
    /// The rows that were asked before, and what they lacked.
    pub refused_by: Vec<(SlotId, RejectionCause)>,
}

/// How many jobs a [`Landing`] names.
const BESIDE_MAX: usize = 16;

/// A job that changed its row: forward where room appeared, or in an exchange that mixes the rows better.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Who.
    pub job: JobId,
    /// Out of this row,
    pub from: SlotId,
    /// into this one.
    pub to: SlotId,
    /// Its ranks on the nodes; another than before only where it never ran.
    pub placement: Placement,
}

/// Sorts jobs that came together into the order in which `policy` looks at them.
pub fn sort_for_packing(policy: Policy, matrix: &Matrix, jobs: &mut [JobSpec]) {
    match policy {
        Policy::Batch | Policy::Cosched => jobs.sort_by_key(|job| (job.arrival, job.id)),
        Policy::Gang | Policy::Hybrid | Policy::Paired => {
            jobs.sort_by_cached_key(|job| (Reverse(matrix.size_of(job)), job.id))
        }
    }
}

/// Gives every one of `jobs`, which came together, its row; the policy has as many rows as needed. In the order of `jobs`.
pub(crate) fn pack_all(
    matrix: &mut Matrix,
    jobs: &[JobSpec],
    first: usize,
    packing: Packing,
    fractions: Option<&Fractions>,
) -> Vec<(JobId, Landing)> {
    let none = Fractions::default();
    let known = fractions.unwrap_or(&none);
    if fractions.is_none() && !matches!(packing, Packing::Exact { .. }) {
        return jobs.iter().map(|job| (job.id, pack_one(matrix, job, first, packing))).collect();
    }
    let found = match packing {
        Packing::Exact { visits_max } => exact::search(matrix, jobs, first, known, visits_max),
        Packing::FirstFit | Packing::BestFit | Packing::Buddy => None,
    };
    let mut landings: BTreeMap<JobId, Landing> = match found {
        Some(found) => found.into_iter().map(|(job, row, nodes)| seat_at(matrix, job, row, nodes)).collect(),
        None => jobs.iter().map(|job| (job.id, pack_one(matrix, job, first, packing))).collect(),
    };
    if let Some(fractions) = fractions {
        let movable = landings.keys().copied().collect();
        let pinned = landings.keys().copied().filter(|job| matrix.is_pinned(*job)).collect();
        for step in pairing::improve(matrix, &movable, &pinned, fractions, first, 0) {
            let beside = beside(matrix, step.job);
            let landing = landings.get_mut(&step.job).expect("only fresh jobs are exchanged");
            *landing = Landing { slot: step.to, placement: step.placement, beside, refused_by: Vec::new() };
        }
    }
    jobs.iter().filter_map(|job| landings.remove(&job.id).map(|landing| (job.id, landing))).collect()
}

fn pack_one(matrix: &mut Matrix, job: &JobSpec, first: usize, packing: Packing) -> Landing {
    let shape = matrix.shape_of(job).expect("a job that cannot run is refused");
    let landing = match packing {
        Packing::BestFit => pack_best(matrix, job, shape, first),
        Packing::Buddy => {
            let landing = buddy::pack(matrix, job, shape, first);
            landing.or_else(|| pack(matrix, job, shape, first))
        }
        Packing::FirstFit | Packing::Exact { .. } => pack(matrix, job, shape, first),
    };
    if packing == Packing::Buddy {
        matrix.set_pinned(job.id, true);
    }
    landing.expect("one more row is always allowed")
}

/// Who else is in the row of `job`.
pub(crate) fn beside(matrix: &Matrix, job: JobId) -> Vec<JobId> {
    let row = matrix.row_of(job).into_iter().flat_map(|row| row.jobs());
    first_of(row.filter(|other| *other != job))
}

fn first_of(jobs: impl Iterator<Item = JobId>) -> Vec<JobId> {
    let mut first = Vec::with_capacity(BESIDE_MAX);
    first.extend(jobs.take(BESIDE_MAX));
    first
}

/// Puts `job` where the search wants it, in a new row where `index` is past the last.
fn seat_at(matrix: &mut Matrix, job: &JobSpec, index: usize, placement: Placement) -> (JobId, Landing) {
    while index >= matrix.rows().len() {
        matrix.open_row();
    }
    (job.id, land(matrix, index, job, placement, Vec::new()))
}

/// Puts `job` into the row that it leaves the fullest, the rows before `first` last.
fn pack_best(matrix: &mut Matrix, job: &JobSpec, shape: Shape, first: usize) -> Option<Landing> {
    let mut refused_by = Vec::new();
    let mut best: Option<(bool, u64, usize, Placement)> = None;
    for index in 0..matrix.rows().len() {
        match matrix.plan_in(index, job, shape) {
            Ok(placement) => {
                let key = (index < first, left_over(matrix, index, job, &placement), index);
                if best.as_ref().is_none_or(|best| key < (best.0, best.1, best.2)) {
                    best = Some((key.0, key.1, key.2, placement));
                }
            }
            Err(rejection_cause) => refused_by.push((matrix.row(index).slot, rejection_cause)),
        }
    }
    match best {
        Some((_, _, index, placement)) => Some(land(matrix, index, job, placement, refused_by)),
        None => pack(matrix, job, shape, first),
    }
}

/// The memory that the nodes of `job` would have left in a row, in all.
fn left_over(matrix: &Matrix, index: usize, job: &JobSpec, placement: &Placement) -> u64 {
    let left = placement.blocks().map(|block| {
        let free = matrix.room(index, block.node).free.0;
        free.saturating_sub(job.memory_of(block.ranks).0)
    });
    left.fold(0, u64::saturating_add)
}

/// Puts `job` into the first row that holds it, beginning `first` rows from the front, else into a new one; `None` where
/// neither may be: then it queues.
pub(crate) fn pack(matrix: &mut Matrix, job: &JobSpec, shape: Shape, first: usize) -> Option<Landing> {
    let mut refused_by = Vec::new();
    let rows = matrix.rows().len();
    for index in (first.min(rows)..rows).chain(0..first.min(rows)) {
        match matrix.plan_in(index, job, shape) {
            Ok(placement) => return Some(land(matrix, index, job, placement, refused_by)),
            Err(rejection_cause) => refused_by.push((matrix.row(index).slot, rejection_cause)),
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
    refused_by: Vec<(SlotId, RejectionCause)>,
) -> Landing {
    let row = matrix.row(index);
    let landing =
        Landing { slot: row.slot, placement: placement.clone(), beside: first_of(row.jobs()), refused_by };
    matrix.assign(index, Assignment { spec: job.clone(), placement });
    landing
}
