//! Index of jobs in memory against jobs that should be there: the difference that a switch removes.
//!
//! A row of a large cluster holds thousands of jobs and an event concerns one, so the difference is updated
//! job by job. It is computed anew only where the front row changes or jobs change rows.

use std::collections::BTreeSet;

use super::residency::{Known, Memory};
use crate::{Assignment, JobId, Matrix, NodeId, Residence, SlotId};

/// Jobs by residence, and the difference to the front row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Presence {
    active: BTreeSet<JobId>,
    suspended: BTreeSet<JobId>,
    /// Suspended jobs that came ahead of their turn.
    prefetched: BTreeSet<JobId>,
    memory: Memory,
    /// The row with the turn, when the difference was last computed.
    front: Option<SlotId>,
    /// Jobs of the front row that do not run.
    absent: BTreeSet<JobId>,
    /// Running jobs of other rows.
    misplaced: BTreeSet<JobId>,
    /// Jobs with news since [`Self::take_touched`].
    touched: BTreeSet<JobId>,
    /// How often residences were told, and jobs have ended.
    changes: u64,
}

impl Presence {
    pub(super) fn is_active(&self, job: JobId) -> bool {
        self.active.contains(&job)
    }

    /// The running jobs.
    pub(super) fn active(&self) -> impl Iterator<Item = JobId> + '_ {
        self.active.iter().copied()
    }

    /// Differs from an earlier count where a residence was told or a job has ended since.
    pub(super) const fn changes(&self) -> u64 {
        self.changes
    }

    /// Jobs that have to come in.
    pub(super) const fn absent(&self) -> &BTreeSet<JobId> {
        &self.absent
    }

    /// Jobs that have to leave, unless they are backfilled.
    pub(super) const fn misplaced(&self) -> &BTreeSet<JobId> {
        &self.misplaced
    }

    pub(super) const fn suspended(&self) -> &BTreeSet<JobId> {
        &self.suspended
    }

    /// Whether the job came ahead of its turn.
    pub(super) fn is_prefetched(&self, job: JobId) -> bool {
        self.prefetched.contains(&job)
    }

    pub(super) const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// A job was given a row; it does not run.
    pub(super) fn on_assigned(&mut self, job: JobId, slot: SlotId) {
        if self.front == Some(slot) {
            self.absent.insert(job);
        }
    }

    /// Whether the job runs in the front row.
    pub(super) fn is_present(&self, job: JobId) -> bool {
        self.active.contains(&job) && !self.misplaced.contains(&job)
    }

    /// The jobs with news since the last call.
    pub(super) fn take_touched(&mut self) -> BTreeSet<JobId> {
        std::mem::take(&mut self.touched)
    }

    /// A living job was seen at this residence.
    pub(super) fn on_observed(&mut self, matrix: &Matrix, job: JobId, observed: Residence) {
        self.changes += 1;
        self.touched.insert(job);
        let active = observed == Residence::Running;
        let in_memory = observed.is_in_memory();
        if in_memory && !self.memory.holds(job) {
            self.memory.enter(matrix.assignment_of(job).expect("a job in memory has a row"), active);
            if !active {
                self.prefetched.insert(job);
            }
        } else if in_memory {
            self.memory.set_running(job, active);
        } else {
            self.memory.leave(job);
        }
        if observed != Residence::Suspended {
            self.prefetched.remove(&job);
        }
        set(&mut self.suspended, job, observed == Residence::Suspended);
        set(&mut self.active, job, active);
        self.compare(matrix, job);
    }

    fn compare(&mut self, matrix: &Matrix, job: JobId) {
        let in_front = self.front.is_some() && matrix.slot_of(job) == self.front;
        let active = self.active.contains(&job);
        set(&mut self.absent, job, in_front && !active);
        set(&mut self.misplaced, job, !in_front && active);
    }

    /// The estimate of a job changed to that of its assignment.
    pub(super) fn on_resized(&mut self, assignment: &Assignment) {
        self.memory.resize(assignment);
    }

    /// A job was measured on a node.
    pub(super) fn on_measured(&mut self, job: JobId, node: NodeId, known: Known) {
        self.memory.learn(job, node, known);
    }

    /// A job goes back to what it was, whatever was measured since.
    pub(super) fn on_went_back(&mut self, job: JobId) {
        self.memory.unlearn(job);
    }

    /// A job changed its row.
    pub(super) fn on_moved(&mut self, matrix: &Matrix, job: JobId) {
        self.touched.insert(job);
        self.compare(matrix, job);
    }

    /// A job is over and has left the matrix.
    pub(super) fn on_ended(&mut self, job: JobId) {
        self.changes += 1;
        self.touched.insert(job);
        self.memory.forget(job);
        for set in [
            &mut self.active,
            &mut self.suspended,
            &mut self.prefetched,
            &mut self.absent,
            &mut self.misplaced,
        ] {
            set.remove(&job);
        }
    }

    /// Computes the difference anew where another row has the turn.
    pub(super) fn follow(&mut self, matrix: &Matrix) {
        if self.front != matrix.front().map(|row| row.slot) {
            self.refresh(matrix);
        }
    }

    /// Computes the difference anew.
    pub(super) fn refresh(&mut self, matrix: &Matrix) {
        let front = matrix.front();
        let in_front = |job: JobId| front.is_some_and(|row| row.contains(job));
        self.front = front.map(|row| row.slot);
        self.misplaced = self.active.iter().copied().filter(|job| !in_front(*job)).collect();
        let jobs = front.into_iter().flat_map(|row| row.jobs());
        self.absent = jobs.filter(|job| !self.active.contains(job)).collect();
    }

    /// Whether computing the difference anew would change nothing.
    pub(super) fn is_exact(&self, matrix: &Matrix) -> bool {
        let mut anew = self.clone();
        anew.refresh(matrix);
        anew == *self
    }
}

fn set(set: &mut BTreeSet<JobId>, job: JobId, is_in: bool) {
    if is_in {
        set.insert(job);
    } else {
        set.remove(&job);
    }
}
