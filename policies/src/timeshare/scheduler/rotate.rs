//! Rotation: what is exchanged at the end of a turn, the whole set or one job of it.
//!
//! With [`Rotation::Job`] the jobs form a ring (paper 003, §4.5 and §5.3): the job of the front row that
//! has been there for longest leaves, and the one that has waited for longest comes. Where that one needs
//! more room, more leave; where there is room for more, more come, in the order of the ring. The others
//! run on. So each job comes after those that waited before it, and stays for as many turns as jobs are
//! in the front row. The other rows only keep the places of jobs that wait.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Scheduler;
use crate::{Assignment, Decision, JobId, Move, timeshare::packing::DirtyRows};

/// What takes turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rotation {
    /// Whole rows.
    #[default]
    Set,
    /// Single jobs (`hybrid` only).
    Job,
}

/// For how long jobs have been in the front row, or waited.
#[derive(Clone, Debug, Default)]
pub(super) struct Ring {
    /// Whether a job was in the front row at the last exchange, and since which one it is where it is.
    since: BTreeMap<JobId, (bool, u64)>,
    exchanges: u64,
}

impl Scheduler {
    pub(super) fn rotate(&mut self, decisions: &mut Vec<Decision>) {
        match self.config.rotation {
            Rotation::Set => {
                let slot = self.matrix.row(0).slot;
                self.matrix.rotate(self.rows_in_turn());
                self.dirty.add_back(slot);
            }
            Rotation::Job => self.exchange(decisions),
        }
    }

    fn exchange(&mut self, decisions: &mut Vec<Decision>) {
        self.note_places();
        let waiting = self.in_order(|place| place > 0, |priority| -priority);
        let Some(next) = waiting.first().copied() else { return };
        let slot = self.matrix.row(0).slot;
        let mut leaving: Vec<Assignment> = Vec::new();
        for job in self.in_order(|place| place == 0, |priority| priority) {
            if !leaving.is_empty() && self.fits_in_front(next) {
                break;
            }
            leaving.extend(self.matrix.unassign(job));
        }
        let mut moved: Vec<Move> = Vec::new();
        for job in waiting {
            if self.fits_in_front(job) {
                let from = self.matrix.slot_of(job).expect("it waits in a row");
                let assignment = self.matrix.unassign(job).expect("it waits in a row");
                moved.push(Move { job, from, to: slot, placement: assignment.placement.clone() });
                self.matrix.assign(0, assignment);
            }
        }
        moved.extend(leaving.into_iter().map(|assignment| self.put_behind(assignment)));
        self.settle(moved, decisions);
    }

    /// A job could not leave: it stays in front, with its row, or in place of those that came last.
    pub(super) fn keep_in_front(&mut self, job: JobId, decisions: &mut Vec<Decision>) {
        if self.config.rotation == Rotation::Set {
            self.matrix.promote(job);
            self.dirty = DirtyRows::All;
            return;
        }
        let front = self.matrix.row(0).slot;
        let Some(from) = self.matrix.slot_of(job).filter(|slot| *slot != front) else { return };
        let stuck = self.matrix.unassign(job).expect("it lies in a row");
        let mut moved = Vec::new();
        let mut others = self.in_order(|place| place == 0, |priority| -priority);
        while !self.matrix.holds_in_place(0, &stuck) {
            // An empty row holds every job, except on drained nodes.
            let Some(newest) = others.pop() else { break };
            let leaving = self.matrix.unassign(newest).expect("it lies in front");
            moved.push(self.put_behind(leaving));
        }
        moved.push(Move { job, from, to: front, placement: stuck.placement.clone() });
        self.matrix.assign(0, stuck);
        self.settle(moved, decisions);
    }

    /// Gives a job of the front row, which it has left, the first other one that holds it.
    fn put_behind(&mut self, assignment: Assignment) -> Move {
        let row = self.matrix.row_in_place(1, &assignment);
        let (job, placement) = (assignment.spec.id, assignment.placement.clone());
        self.matrix.assign(row, assignment);
        Move { job, from: self.matrix.row(0).slot, to: self.matrix.row(row).slot, placement }
    }

    pub(super) fn settle(&mut self, moved: Vec<Move>, decisions: &mut Vec<Decision>) {
        self.matrix.drop_empty_rows();
        (self.dirty, self.capacity_freed) = (DirtyRows::All, true);
        for step in moved {
            self.presence.on_moved(&self.matrix, step.job);
            decisions.push(Decision::Moved(step));
        }
    }

    fn note_places(&mut self) {
        let Ring { since, exchanges } = &mut self.ring;
        *exchanges += 1;
        since.retain(|job, _| self.matrix.place_of(*job).is_some());
        let front = self.matrix.front().map(|row| row.slot);
        for row in self.matrix.rows() {
            let is_front = Some(row.slot) == front;
            for job in row.jobs() {
                let entry = since.entry(job).or_insert((is_front, *exchanges));
                if entry.0 != is_front {
                    *entry = (is_front, *exchanges);
                }
            }
        }
    }

    fn fits_in_front(&self, job: JobId) -> bool {
        self.assignment(job).is_some_and(|assignment| self.matrix.holds_in_place(0, assignment))
    }

    /// The jobs at some places: by this rank of their priorities, then those first that have been there for
    /// longest.
    fn in_order(&self, place: impl Fn(usize) -> bool, rank: fn(i32) -> i32) -> Vec<JobId> {
        let rows = self.matrix.rows().enumerate().filter(|(index, _)| place(*index));
        let mut jobs: Vec<JobId> = rows.flat_map(|(_, row)| row.jobs()).collect();
        jobs.sort_by_key(|job| (rank(self.priority(*job)), self.since(*job), *job));
        jobs
    }

    fn since(&self, job: JobId) -> u64 {
        let in_front = self.matrix.place_of(job) == Some(0);
        let noted = self.ring.since.get(&job).filter(|(was, _)| *was == in_front);
        noted.map_or(self.ring.exchanges + 1, |(_, since)| *since)
    }

    /// How far away the turn of a job is.
    pub(super) fn distance(&self, job: JobId) -> Option<u64> {
        let place = self.matrix.place_of(job)?;
        match self.config.rotation {
            Rotation::Job if place > 0 => Some(1 + self.since(job)),
            _ => Some(place as u64),
        }
    }

    /// The jobs that come at the end of the turn, as far as is known.
    pub(super) fn next_in_turn(&self) -> Vec<&Assignment> {
        match self.config.rotation {
            Rotation::Set => {
                self.matrix.rows().nth(1).into_iter().flat_map(|row| row.assignments()).collect()
            }
            Rotation::Job => {
                let waiting = self.matrix.rows().skip(1).flat_map(|row| row.assignments());
                let order = |id: JobId| (-self.priority(id), self.since(id), id);
                waiting.min_by_key(|job| order(job.spec.id)).into_iter().collect()
            }
        }
    }
}
