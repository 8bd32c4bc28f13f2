//! Packing of jobs into rows: vector packing, one dimension for each node.
//!
//! Jobs that come together are sorted by what they need of their fullest node, the largest first. Each goes
//! to the first row that holds it ([`Packing::FirstFit`]) or to the one it fills best ([`Packing::BestFit`]),
//! or all go where an exhaustive search puts them ([`Packing::Exact`]). *First* is in the order of turns, so
//! that packing delays no job; only a row whose turn is nearly over comes last, for a job that joined it
//! would hardly run before it had to leave. Under `paired`, jobs that came together are then exchanged
//! between rows until no exchange mixes them better ([`pairing`]).
//!
//! | file | what |
//! | --- | --- |
//! | `mod` | first fit, best fit |
//! | `buddy` | the least loaded block of a buddy tree over all rows |
//! | `unify` | slot unification when jobs end |
//! | `exact` | branch and bound, bounded in visits |
//! | `class` | classes of jobs by how much they communicate |
//! | `pairing` | rows that mix computing and communicating jobs (paper 003 §3.3.3) |

mod buddy;
pub mod class;
mod exact;
pub mod pairing;
mod unify;

use std::collections::BTreeMap;

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
    /// The first row that holds the job.
    #[default]
    FirstFit,
    /// The row that has the least memory left on the nodes of the job afterwards.
    BestFit,
    /// The least loaded block of the buddy tree over all rows, and there the first row that holds the job:
    /// DHC, ParPar.
    Buddy,
    /// The fewest rows, then the best mix, as far as a bounded search finds them; at least as good as first
    /// fit.
    Exact {
        /// Steps of the search; not a time, or the simulator and the cluster would decide differently.
        visits_max: u32,
    },
}

/// How a job came to its row, for `explain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Landing {
    /// The row that took it.
    pub slot: SlotId,
    pub placement: Placement,
    /// The jobs that were in the row already, at most sixteen of them.
    pub beside: Vec<JobId>,
    /// The rows that were tried before, and why each rejected the job.
    pub refused_by: Vec<(SlotId, RejectionCause)>,
}

/// How many jobs a [`Landing`] names: a row may hold thousands.
const BESIDE_MAX: usize = 16;

/// A job that changed its row: forward, where capacity was freed, or in an exchange that mixes the rows
/// better.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    pub job: JobId,
    pub from: SlotId,
    pub to: SlotId,
    /// The same as before unless the job is movable.
    pub placement: Placement,
}

/// Sorts jobs that came together into the order in which `policy` packs them.
pub fn sort_for_packing(policy: Policy, matrix: &Matrix, jobs: &mut [JobSpec]) {
    match policy {
        Policy::Batch | Policy::Cosched => jobs.sort_by_key(|job| (job.arrival, job.id)),
        Policy::Gang | Policy::Hybrid | Policy::Paired => {
            jobs.sort_by_cached_key(|job| matrix.size_order(job))
        }
    }
}

/// Gives each of `jobs`, which came together, its row, where the policy has as many rows as needed. In the
/// order of `jobs`.
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
        Some(found) => {
            found.into_iter().map(|(job, row, nodes)| assign_at(matrix, job, row, nodes)).collect()
        }
        None => jobs.iter().map(|job| (job.id, pack_one(matrix, job, first, packing))).collect(),
    };
    if let Some(fractions) = fractions {
        let movable = landings.keys().copied().collect();
        let pinned = landings.keys().copied().filter(|job| matrix.is_pinned(*job)).collect();
        for step in pairing::improve(matrix, &movable, &pinned, fractions, first, 0) {
            let beside = beside(matrix, step.job);
            let landing = landings.get_mut(&step.job).expect("only jobs that came together are exchanged");
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

/// The other jobs in the row of `job`, as far as a [`Landing`] names them.
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
fn assign_at(matrix: &mut Matrix, job: &JobSpec, index: usize, placement: Placement) -> (JobId, Landing) {
    while index >= matrix.rows().len() {
        matrix.open_row();
    }
    (job.id, assign(matrix, index, job, placement, Vec::new()))
}

/// Puts `job` into the row that it leaves the fullest, the rows before `first` last.
fn pack_best(matrix: &mut Matrix, job: &JobSpec, shape: Shape, first: usize) -> Option<Landing> {
    let mut refused_by = Vec::new();
    let mut best: Option<(bool, u64, usize, Placement)> = None;
    for index in 0..matrix.rows().len() {
        match matrix.try_placement(index, job, shape) {
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
        Some((_, _, index, placement)) => Some(assign(matrix, index, job, placement, refused_by)),
        None => pack(matrix, job, shape, first),
    }
}

/// The memory that the nodes of `job` would have left in a row, in all.
fn left_over(matrix: &Matrix, index: usize, job: &JobSpec, placement: &Placement) -> u64 {
    let left = placement.blocks().map(|block| {
        let free = matrix.free_capacity(index, block.node).free.0;
        free.saturating_sub(job.memory_of(block.ranks).0)
    });
    left.fold(0, u64::saturating_add)
}

/// Puts `job` into the first row that holds it, beginning `first` rows from the front, else into a new one;
/// `None` where neither may be: then it queues.
pub(crate) fn pack(matrix: &mut Matrix, job: &JobSpec, shape: Shape, first: usize) -> Option<Landing> {
    let mut refused_by = Vec::new();
    let rows = matrix.rows().len();
    for index in (first.min(rows)..rows).chain(0..first.min(rows)) {
        match matrix.try_placement(index, job, shape) {
            Ok(placement) => return Some(assign(matrix, index, job, placement, refused_by)),
            Err(rejection_cause) => refused_by.push((matrix.row(index).slot, rejection_cause)),
        }
    }
    if !matrix.may_open_row() {
        return None;
    }
    let index = matrix.open_row();
    let placement = matrix.try_placement(index, job, shape).expect("a job with a shape fits in an empty row");
    Some(assign(matrix, index, job, placement, refused_by))
}

/// Puts `job` into the row at `index`.
fn assign(
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
