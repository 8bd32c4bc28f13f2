//! Jobs that their users hold: out of memory and without turns, until they are released.
//!
//! A held job leaves by a switch, as every other job does; in the store it has no row. Its snapshot ties it
//! to its nodes, where it comes back. Where it cannot leave, it is held no more and goes on.

use super::{Scheduler, residency::Residency};
use crate::{Assignment, Decision, JobId, Residence, timeshare::packing::FreedNodes};

/// How far a held job has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// It keeps its row until it has left memory, and has no turn there.
    Leaving,
    /// A node of it is drained, and nobody holds it: as `Leaving`, and then it is to come back.
    Evading,
    /// Never launched: it will queue.
    Unlaunched,
    /// In the store, with the place where it comes back.
    Parked(Box<Assignment>),
    /// As `Parked`; a row is to take it when all of its nodes are up.
    Returning(Box<Assignment>),
}

impl Held {
    /// Whether it has to leave memory.
    const fn leaves(&self) -> bool {
        matches!(self, Self::Leaving | Self::Evading)
    }

    /// Whether its user holds it, and no node that is down.
    pub(super) const fn is_by_user(&self) -> bool {
        !matches!(self, Self::Returning(_) | Self::Evading)
    }
}

impl Scheduler {
    /// Whether jobs can be held: they have to leave memory by switches.
    #[must_use]
    pub fn can_hold(&self) -> bool {
        self.config.residency != Residency::Always
            && (self.matrix.limits().max_rows.is_none() || self.space.is_some())
    }

    /// Whether the job is held, and has nothing in memory.
    #[must_use]
    pub fn is_held_out(&self, job: JobId) -> bool {
        matches!(self.held.get(&job), Some(Held::Unlaunched | Held::Parked(_)))
    }

    pub(super) fn hold(&mut self, job: JobId) {
        let lives = self.jobs.get(&job).is_some_and(|entry| !entry.observed.is_ended() && !entry.abandoned);
        if !lives || !self.can_hold() {
            return;
        }
        let now = match self.held.remove(&job) {
            Some(Held::Returning(assignment)) => Held::Parked(assignment),
            Some(Held::Evading) | None => Held::Leaving,
            Some(held) => held,
        };
        self.held.insert(job, now);
    }

    pub(super) fn release(&mut self, job: JobId) {
        match self.held.remove(&job) {
            Some(Held::Unlaunched) => {
                self.done = false;
                self.queue.push_back(job);
            }
            Some(Held::Parked(assignment) | Held::Returning(assignment)) => {
                self.held.insert(job, Held::Returning(assignment));
            }
            Some(Held::Evading) => drop(self.held.insert(job, Held::Evading)),
            Some(Held::Leaving) | None => {}
        }
    }

    /// Takes jobs that have left memory out of the matrix, and gives rows to those that come back.
    pub(super) fn settle_held(&mut self, decisions: &mut Vec<Decision>) {
        let held: Vec<JobId> = self.held.keys().copied().collect();
        for job in held {
            match self.held.get(&job) {
                Some(Held::Leaving | Held::Evading) => self.settle_leaving(job, decisions),
                Some(Held::Returning(assignment)) if self.may_come_back(assignment) => {
                    let assignment = (**assignment).clone();
                    self.held.remove(&job);
                    self.place_back(assignment, decisions);
                }
                Some(Held::Unlaunched | Held::Parked(_) | Held::Returning(_)) | None => {}
            }
        }
        if self.matrix.drop_empty_rows() {
            self.running = None;
        }
        self.presence.follow(&self.matrix);
    }

    fn settle_leaving(&mut self, job: JobId, decisions: &mut Vec<Decision>) {
        let observed = self.jobs[&job].observed;
        if observed.is_in_memory() {
            return;
        }
        let slot = self.matrix.slot_of(job);
        let assignment = self.matrix.unassign(job);
        if let Some((slot, assignment)) = slot.zip(assignment.as_ref()) {
            self.dirty.add(slot, FreedNodes::at(&assignment.placement));
            self.capacity_freed = true;
            self.presence.on_moved(&self.matrix, job);
        } else {
            self.queue.retain(|queued| *queued != job);
        }
        self.jobs.get_mut(&job).expect("a held job is known").landing = None;
        if self.held.get(&job) == Some(&Held::Evading) {
            self.held.remove(&job);
            return self.await_nodes(job, observed, assignment, false);
        }
        let rests = match assignment {
            Some(assignment) if observed == Residence::Parked => Held::Parked(Box::new(assignment)),
            _ => Held::Unlaunched,
        };
        self.held.insert(job, rests);
        decisions.push(Decision::Held { job });
    }

    /// Held jobs that have to leave memory.
    pub(super) fn leaving(&self) -> impl Iterator<Item = JobId> + '_ {
        self.held.iter().filter(|(_, held)| held.leaves()).map(|(job, _)| *job)
    }

    /// Whether all jobs of the row with the turn have to leave.
    pub(super) fn front_leaves(&self) -> bool {
        !self.held.is_empty()
            && self.matrix.front().is_some_and(|row| row.jobs().all(|job| self.is_leaving(job)))
    }

    /// Whether the job has to leave memory.
    pub(super) fn is_leaving(&self, job: JobId) -> bool {
        self.held.get(&job).is_some_and(Held::leaves)
    }

    /// A held job could not leave.
    pub(super) fn give_hold_up(&mut self, job: JobId, decisions: &mut Vec<Decision>) {
        if self.is_leaving(job) {
            self.held.remove(&job);
            self.stuck.insert(job);
            decisions.push(Decision::NotHeld { job });
        }
    }
}
