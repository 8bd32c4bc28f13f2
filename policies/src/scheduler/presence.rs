//! Who is in memory, beside who should be: the difference that a switch is made of, kept as it changes.
//!
//! A row of a large cluster holds thousands of jobs, and an event concerns one: planning must not look at all. Only when
//! the front row is another one, or jobs changed rows, is the difference taken anew.

use std::collections::BTreeSet;

use crate::{JobId, Matrix, SlotId};

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Presence {
    /// In memory and running.
    active: BTreeSet<JobId>,
    /// The row with the turn, when the difference was last taken.
    front: Option<SlotId>,
    /// Jobs of the front row that are not active.
    absent: BTreeSet<JobId>,
    /// Active jobs of other rows.
    astray: BTreeSet<JobId>,
    /// Jobs of which something became known since that was last asked.
    touched: BTreeSet<JobId>,
}

impl Presence {
    pub(super) fn is_active(&self, job: JobId) -> bool {
        self.active.contains(&job)
    }

    /// Who has to come in.
    pub(super) const fn absent(&self) -> &BTreeSet<JobId> {
        &self.absent
    }

    /// Who has to leave, unless it fills a gap.
    pub(super) const fn astray(&self) -> &BTreeSet<JobId> {
        &self.astray
    }

    /// A job was given its row; it is not active.
    pub(super) fn on_seated(&mut self, job: JobId, slot: SlotId) {
        if self.front == Some(slot) {
            self.absent.insert(job);
        }
    }

    /// Whether the job runs in the front row.
    pub(super) fn is_present(&self, job: JobId) -> bool {
        self.active.contains(&job) && !self.astray.contains(&job)
    }

    /// The jobs of which something became known since this was last asked.
    pub(super) fn take_touched(&mut self) -> BTreeSet<JobId> {
        std::mem::take(&mut self.touched)
    }

    /// A job became active or ceased to be.
    pub(super) fn on_observed(&mut self, matrix: &Matrix, job: JobId, active: bool) {
        self.touched.insert(job);
        let in_front = self.front.is_some() && matrix.slot_of(job) == self.front;
        let (here, there) = (&mut self.active, if in_front { &mut self.absent } else { &mut self.astray });
        if active {
            here.insert(job);
        } else {
            here.remove(&job);
        }
        if active == in_front {
            there.remove(&job);
        } else {
            there.insert(job);
        }
    }

    /// A job changed its row.
    pub(super) fn on_moved(&mut self, matrix: &Matrix, job: JobId) {
        self.on_observed(matrix, job, self.is_active(job));
        if matrix.slot_of(job) == self.front { &mut self.astray } else { &mut self.absent }.remove(&job);
    }

    /// A job is over and has left the matrix.
    pub(super) fn on_ended(&mut self, job: JobId) {
        self.touched.insert(job);
        self.active.remove(&job);
        self.absent.remove(&job);
        self.astray.remove(&job);
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
        let in_front = |job: &JobId| front.is_some_and(|row| row.seats.contains_key(job));
        self.front = front.map(|row| row.slot);
        self.astray = self.active.iter().copied().filter(|job| !in_front(job)).collect();
        let jobs = front.into_iter().flat_map(|row| row.jobs());
        self.absent = jobs.filter(|job| !self.active.contains(job)).collect();
    }

    /// Whether the difference is what taking it anew would give.
    pub(super) fn is_exact(&self, matrix: &Matrix) -> bool {
        let mut anew = self.clone();
        anew.refresh(matrix);
        anew == *self
    }
}
