//! Pairing: rows that mix computing and communicating jobs (paper 003 §3.3.3, after Wiseman and Feitelson).
//!
//! A job that communicates a fraction `c` of its time wants the network for `c` of each second and the
//! processor for `1 − c`. On a node that several jobs share, the resource in higher demand decides how long
//! their common second takes, so the *cost* of a row is the sum over its nodes of max(Σ c, Σ (1 − c)). Two
//! alike jobs cost up to 2 a node, two that complement each other 1. A job that was never measured counts as
//! half and half: it neither gains nor loses by an exchange.
//!
//! `improve` exchanges jobs between rows, or moves one, while that lowers the sum of the costs by more than a
//! margin. Memory and cell limits hold at every step, and the number of rows never grows.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Move, class::Class};
use crate::{JobId, Matrix, NodeId, Placement, Row, timeshare::matrix::Assignment};

/// The share of its time that a job communicates, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Communication(u16);

impl Communication {
    /// Of a job that was never measured.
    pub const UNKNOWN: Self = Self(500);

    /// `thousandths` of the time, at most all of it.
    #[must_use]
    pub const fn per_mille(thousandths: u16) -> Self {
        Self(if thousandths > 1000 { 1000 } else { thousandths })
    }

    /// In thousandths.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// How much each job communicates, as far as it was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fractions(BTreeMap<JobId, (Communication, Class)>);

impl Fractions {
    /// Takes note of a measurement; returns whether it puts the job into another class.
    pub fn learn(&mut self, job: JobId, communication: Communication) -> bool {
        let known = self.0.entry(job).or_insert((communication, Class::default()));
        let class = known.1.after(communication);
        let news = known.1 != class;
        *known = (communication, class);
        news
    }

    /// Forgets a job that has ended.
    pub fn forget(&mut self, job: JobId) {
        self.0.remove(&job);
    }

    /// As measured, or half and half.
    #[must_use]
    pub fn of(&self, job: JobId) -> Communication {
        self.0.get(&job).map_or(Communication::UNKNOWN, |(communication, _)| *communication)
    }
}

/// What the jobs of a node want of each second, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Demand {
    network: u64,
    processor: u64,
}

impl Demand {
    /// With one more job.
    pub(super) const fn and(self, one: Communication) -> Self {
        let network = one.get() as u64;
        Self { network: self.network + network, processor: self.processor + 1000 - network }
    }

    pub(super) const fn times(self, nodes: u64) -> Self {
        Self { network: self.network * nodes, processor: self.processor * nodes }
    }

    pub(super) const fn plus(self, other: Self) -> Self {
        Self { network: self.network + other.network, processor: self.processor + other.processor }
    }

    /// How long their common second takes, in thousandths.
    pub(super) fn cost(self) -> u64 {
        self.network.max(self.processor)
    }
}

/// The cost of a row: see the module; thousandths of a node.
#[must_use]
pub fn cost(row: Row<'_>, fractions: &Fractions) -> u64 {
    let mut nodes: BTreeMap<NodeId, Demand> = BTreeMap::new();
    for assignment in row.assignments() {
        let fraction = fractions.of(assignment.spec.id);
        for node in assignment.placement.nodes() {
            let demand = nodes.entry(node).or_default();
            *demand = demand.and(fraction);
        }
    }
    nodes.values().map(|demand| demand.cost()).sum()
}

/// Exchanges and moves jobs of `movable` between the rows from `first` on while that lowers the cost; returns
/// the jobs that changed rows in the end. A step must gain more than `margin`, in thousandths of each node of
/// each job that changes its row.
///
/// A job in `pinned` keeps its nodes. Of all steps the best is taken, the first of equals; the cost falls
/// with each, so it ends.
pub(crate) fn improve(
    matrix: &mut Matrix,
    movable: &BTreeSet<JobId>,
    pinned: &BTreeSet<JobId>,
    fractions: &Fractions,
    first: usize,
    margin: u64,
) -> Vec<Move> {
    let mut before = BTreeMap::new();
    for row in matrix.rows() {
        before.extend(row.jobs().filter(|job| movable.contains(job)).map(|job| (job, row.slot)));
    }
    while let Some(step) = best_step(matrix, movable, pinned, fractions, (first, margin)) {
        step.take(matrix);
    }
    let moved = before.into_iter().filter_map(|(job, from)| {
        let (to, assignment) = matrix
            .slot_of(job)
            .zip(matrix.assignment_of(job))
            .expect("an exchange keeps all jobs in the matrix");
        (to != from).then(|| Move { job, from, to, placement: assignment.placement.clone() })
    });
    moved.collect()
}

/// Jobs that change rows together, each with its new row and placement.
struct Step(Vec<(JobId, usize, Placement)>);

impl Step {
    /// The nodes of all its jobs.
    fn nodes(&self) -> u64 {
        self.0.iter().map(|(_, _, placement)| placement.width() as u64).sum()
    }

    fn take(self, matrix: &mut Matrix) {
        let assignments: Vec<(usize, Assignment)> = self
            .0
            .into_iter()
            .map(|(job, to, placement)| {
                let mut assignment = matrix.unassign(job).expect("it was in a row");
                assignment.placement = placement;
                (to, assignment)
            })
            .collect();
        assignments.into_iter().for_each(|(to, assignment)| matrix.assign(to, assignment));
    }
}

fn best_step(
    matrix: &Matrix,
    movable: &BTreeSet<JobId>,
    pinned: &BTreeSet<JobId>,
    fractions: &Fractions,
    (first, margin): (usize, u64),
) -> Option<Step> {
    let rows: Vec<usize> = (first..matrix.rows().len()).collect();
    let jobs = |row: usize| matrix.row(row).jobs().filter(|job| movable.contains(job));
    let mut best: Option<(u64, Step)> = None;
    for (&a, &b) in rows.iter().enumerate().flat_map(|(at, a)| rows[at + 1..].iter().map(move |b| (a, b))) {
        let now = cost(matrix.row(a), fractions) + cost(matrix.row(b), fractions);
        let lone = |job, to| vec![(job, to)];
        let pairs = jobs(a).flat_map(|x| jobs(b).map(move |y| vec![(x, b), (y, a)]));
        let moves = jobs(a).map(|x| lone(x, b)).chain(jobs(b).map(|y| lone(y, a)));
        for changes in pairs.chain(moves) {
            if let Some((then, step)) = try_step(matrix, (a, b), &changes, pinned, fractions)
                && now > then + margin * step.nodes()
                && best.as_ref().is_none_or(|(gain, _)| now - then > *gain)
            {
                best = Some((now - then, step));
            }
        }
    }
    best.map(|(_, step)| step)
}

/// The cost of the two rows after these changes, where all jobs fit.
fn try_step(
    matrix: &Matrix,
    (a, b): (usize, usize),
    changes: &[(JobId, usize)],
    pinned: &BTreeSet<JobId>,
    fractions: &Fractions,
) -> Option<(u64, Step)> {
    let mut trial = matrix.with_rows(&[a, b]);
    let local = |row: usize| usize::from(row == b);
    let assignments: Vec<Assignment> = changes.iter().filter_map(|(job, _)| trial.unassign(*job)).collect();
    let mut taken = Vec::new();
    for ((job, to), mut assignment) in changes.iter().zip(assignments) {
        let placement = if pinned.contains(job) {
            trial.holds_in_place(local(*to), &assignment).then(|| assignment.placement.clone())?
        } else {
            trial.try_placement(local(*to), &assignment.spec, trial.shape_of(&assignment.spec)?).ok()?
        };
        assignment.placement = placement.clone();
        taken.push((*job, *to, placement));
        trial.assign(local(*to), assignment);
    }
    // A row that would fall empty is not a better mix.
    let kept = trial.rows().all(|row| row.jobs().next().is_some());
    let then = trial.rows().map(|row| cost(row, fractions)).sum();
    kept.then_some((then, Step(taken)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_complement_each_other_cost_half() {
        let demand = |shares: &[u16]| {
            shares.iter().fold(Demand::default(), |demand, c| demand.and(Communication::per_mille(*c)))
        };
        assert_eq!(demand(&[900, 900]).cost(), 1800);
        assert_eq!(demand(&[900, 100]).cost(), 1000);
        assert_eq!(demand(&[100, 100]).cost(), 1800);
        assert_eq!(demand(&[500, 500]).cost(), 1000);
    }

    #[test]
    fn only_another_class_is_news() {
        let mut fractions = Fractions::default();
        let c = Communication::per_mille;
        assert!(!fractions.learn(JobId(0), c(520)));
        assert!(fractions.learn(JobId(0), c(900)));
        assert!(!fractions.learn(JobId(0), c(580)));
        assert_eq!((fractions.of(JobId(0)), fractions.of(JobId(1))), (c(580), Communication::UNKNOWN));
        assert_eq!(c(2000), c(1000));
    }
}
