//! Who is in memory, beside who should be: the difference that a switch is made of, kept as it changes.
//!
//! A row of a large cluster holds thousands of jobs, and an event concerns one: planning must not look at all. Only when
//! the front row is another one, or jobs changed rows, is the difference taken anew.

use super::residency::Memory;
use crate::{Assignment, JobId, Matrix, Residence, SlotId, timeshare::index::job_map::JobSet};

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Presence {
    /// In memory and running.
    active: JobSet,
    /// In memory and stopped.
    suspended: JobSet,
    /// Those of them that were brought in ahead of their turn.
    prefetched: JobSet,
    memory: Memory,
    /// The row with the turn, when the difference was last taken.
    front: Option<SlotId>,
    /// Jobs of the front row that are not active.
    absent: JobSet,
    /// Active jobs of other rows.
    misplaced: JobSet,
    /// Jobs of which something became known since that was last asked.
    touched: JobSet,
}

impl Presence {
    pub(super) fn is_active(&self, job: JobId) -> bool {
        self.active.contains(job)
    }

    /// Who has to come in.
    pub(super) const fn absent(&self) -> &JobSet {
        &self.absent
    }

    /// Who has to leave, unless it fills a gap.
    pub(super) const fn misplaced(&self) -> &JobSet {
        &self.misplaced
    }

    /// Who waits in memory.
    pub(super) const fn suspended(&self) -> &JobSet {
        &self.suspended
    }

    /// Whether the job was brought in ahead of its turn.
    pub(super) fn is_prefetched(&self, job: JobId) -> bool {
        self.prefetched.contains(job)
    }

    /// Who holds how much.
    pub(super) const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// A job was given its row; it is not active.
    pub(super) fn on_assigned(&mut self, job: JobId, slot: SlotId) {
        if self.front == Some(slot) {
            self.absent.insert(job);
        }
    }

    /// Whether the job runs in the front row.
    pub(super) fn is_present(&self, job: JobId) -> bool {
        self.active.contains(job) && !self.misplaced.contains(job)
    }

    /// The jobs of which something became known since this was last asked.
    pub(super) fn take_touched(&mut self) -> JobSet {
        std::mem::take(&mut self.touched)
    }

    /// A job was seen to be there. It has not ended.
    pub(super) fn on_observed(&mut self, matrix: &Matrix, job: JobId, observed: Residence) {
        self.touched.insert(job);
        let active = observed == Residence::Running;
        let in_memory = observed.is_in_memory();
        if in_memory && !self.memory.holds(job) {
            self.memory.enter(matrix.assignment_of(job).expect("whoever is in memory has a row"));
            if !active {
                self.prefetched.insert(job);
            }
        } else if !in_memory {
            self.memory.leave(job);
        }
        if observed != Residence::Suspended {
            self.prefetched.remove(job);
        }
        set(&mut self.suspended, job, observed == Residence::Suspended);
        set(&mut self.active, job, active);
        self.compare(matrix, job);
    }

    fn compare(&mut self, matrix: &Matrix, job: JobId) {
        let in_front = self.front.is_some() && matrix.slot_of(job) == self.front;
        let active = self.active.contains(job);
        set(&mut self.absent, job, in_front && !active);
        set(&mut self.misplaced, job, !in_front && active);
    }

    /// What is assumed of a job is as its assignment says now.
    pub(super) fn on_resized(&mut self, assignment: &Assignment) {
        self.memory.resize(assignment);
    }

    /// A job changed its row.
    pub(super) fn on_moved(&mut self, matrix: &Matrix, job: JobId) {
        self.touched.insert(job);
        self.compare(matrix, job);
    }

    /// A job is over and has left the matrix.
    pub(super) fn on_ended(&mut self, job: JobId) {
        self.touched.insert(job);
        self.memory.leave(job);
        for set in [
            &mut self.active,
            &mut self.suspended,
            &mut self.prefetched,
            &mut self.absent,
            &mut self.misplaced,
        ] {
            set.remove(job);
        }
    }

    /// Takes the difference anew where another row has the turn.
    pub(super) fn follow(&mut self, matrix: &Matrix) {
        if self.front != matrix.front().map(|row| row.slot) {
            self.refresh(matrix);
        }
    }

    /// Takes the difference anew.
    pub(super) fn refresh(&mut self, matrix: &Matrix) {
        let front = matrix.front();
        let in_front = |job: JobId| front.is_some_and(|row| row.contains(job));
        self.front = front.map(|row| row.slot);
        self.misplaced = self.active.iter().filter(|job| !in_front(*job)).collect();
        let jobs = front.into_iter().flat_map(|row| row.jobs());
        self.absent = jobs.filter(|job| !self.active.contains(*job)).collect();
    }

    /// Whether the difference is what taking it anew would give.
    pub(super) fn is_exact(&self, matrix: &Matrix) -> bool {
        let mut anew = self.clone();
        anew.refresh(matrix);
        anew == *self
    }
}

fn set(set: &mut JobSet, job: JobId, is_in: bool) {
    if is_in {
        set.insert(job);
    } else {
        set.remove(job);
    }
}
