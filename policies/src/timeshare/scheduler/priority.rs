//! Priorities: the rows that hold a job of the highest priority take turns among themselves, and the other
//! rows wait until no such job is left (paper 003 §1: urgent jobs displace others, and nobody's work is
//! lost).
//!
//! ```text
//!   front ─▶ [ 5  0 ]  rows with a job of the highest priority: they take turns; a job of a lower priority
//!            [ 5    ]  that fits beside runs with them
//!            [ 0  0 ]  no turns: these jobs wait where they are, suspended while there is room, then parked
//! ```
//! The priority of a row is that of its highest job. A job that comes with a higher priority than the turn
//! has ends that turn at once. It takes the place of lower jobs where these keep it from a row before its
//! own. Jobs of one priority take turns as if there were no others. A job that failed to leave memory keeps
//! its turn until the strobe, as ever: displacing it again at once would only count against it.

use std::{cmp::Reverse, collections::BTreeMap};

use super::Scheduler;
use crate::{Assignment, Decision, JobId, Move, Placement, Row, SlotId, timeshare::packing::DirtyRows};

/// The priorities of living jobs; jobs without one have 0.
pub(super) type Priorities = BTreeMap<JobId, i32>;

impl Scheduler {
    /// The priority of a job. The higher one comes first.
    #[must_use]
    pub fn priority(&self, job: JobId) -> i32 {
        self.priorities.get(&job).copied().unwrap_or_default()
    }

    /// The highest priority in the row with the turn, where that keeps the row of this job from having turns.
    #[must_use]
    pub fn outranked(&self, job: JobId) -> Option<i32> {
        let place = self.matrix.place_of(job)?;
        (place >= self.rows_of_first_priority()).then(|| self.row_priority(self.matrix.row(0)))?
    }

    /// Jobs that are not submitted yet may have one, too.
    pub(super) fn prioritize(&mut self, priorities: Vec<(JobId, i32)>) {
        for (job, priority) in priorities {
            match priority {
                0 => drop(self.priorities.remove(&job)),
                _ => drop(self.priorities.insert(job, priority)),
            }
        }
        self.priorities_changed = true;
    }

    /// The highest priority of the jobs that may have turns in the row; `None` where all of them are leaving.
    fn row_priority(&self, row: Row<'_>) -> Option<i32> {
        row.jobs().filter(|job| !self.is_leaving(*job)).map(|job| self.priority(job)).max()
    }

    /// How many rows take turns by their priority: all up to the last one of the highest.
    pub(super) fn rows_of_first_priority(&self) -> usize {
        let rows = self.matrix.rows();
        if self.priorities.is_empty() {
            return rows.len();
        }
        let ranks: Vec<Option<i32>> = rows.map(|row| self.row_priority(row)).collect();
        let highest = ranks.iter().max().copied().flatten();
        ranks.iter().rposition(|rank| *rank == highest).map_or(0, |last| last + 1)
    }

    /// The queue of a policy with few rows: jobs of the partition of the highest priority first, then those
    /// of the highest priority of their own, else first come first served.
    pub(super) fn order_queue(&mut self) {
        let (space, homes, priorities) = (self.space.as_ref(), &self.homes, &self.priorities);
        if self.queue.len() > 1 && !(priorities.is_empty() && homes.is_empty()) {
            let of = |job: &JobId| {
                let queue = homes.get(job).copied().unwrap_or_default();
                let rank = space.map_or(0, |space| space.rank_of(queue));
                (Reverse(rank), Reverse(priorities.get(job).copied().unwrap_or_default()))
            };
            self.queue.make_contiguous().sort_by_key(of);
        }
    }

    /// Brings the rows of the highest priority to the front. Where another row comes to the front, the turn
    /// is over.
    pub(super) fn order_rows(&mut self, decisions: &mut Vec<Decision>) {
        let changed = std::mem::take(&mut self.priorities_changed);
        if self.priorities.is_empty() && !changed || self.has_failed_in_front() {
            return;
        }
        let prioritized: Vec<JobId> = self.priorities.keys().copied().collect();
        self.sort_rows();
        prioritized.into_iter().for_each(|job| self.displace(job, decisions));
        self.sort_rows();
    }

    fn has_failed_in_front(&self) -> bool {
        let failed = |job: JobId| self.jobs.get(&job).is_some_and(|entry| entry.failures > 0);
        self.matrix.front().is_some_and(|row| row.jobs().any(failed))
    }

    fn sort_rows(&mut self) {
        let ranks = self.matrix.rows().map(|row| Reverse(self.row_priority(row)));
        if ranks.clone().is_sorted() {
            return;
        }
        let is_displaced = ranks.clone().min() < ranks.clone().next();
        let slots: Vec<SlotId> = self.matrix.rows().map(|row| row.slot).collect();
        let mut order: Vec<_> = ranks.zip(slots).collect();
        if is_displaced && self.running.take().is_some() {
            // It has had a turn, however short: the other rows of its priority have theirs first.
            order.rotate_left(1);
        }
        order.sort_by_key(|(rank, _)| *rank);
        let order: Vec<SlotId> = order.into_iter().map(|(_, slot)| slot).collect();
        self.matrix.order_rows(&order);
        (self.dirty, self.capacity_freed) = (DirtyRows::All, true);
        self.presence.refresh(&self.matrix);
    }

    /// Gives a job that waits the first row of its own priority, or of a higher one, that holds it without
    /// the lower jobs there. These go to other rows.
    fn displace(&mut self, job: JobId, decisions: &mut Vec<Decision>) {
        let Some(place) = self.matrix.place_of(job).filter(|_| !self.is_leaving(job)) else { return };
        let priority = self.priority(job);
        let may = |index: &usize| self.row_priority(self.matrix.row(*index)) >= Some(priority);
        let before: Vec<usize> = (0..place).filter(may).collect();
        let Some((index, placement, lower)) =
            before.into_iter().find_map(|index| self.room_without_lower(job, index))
        else {
            return;
        };
        let (from, to) = (self.matrix.row(place).slot, self.matrix.row(index).slot);
        let leaving: Vec<Assignment> = lower.iter().filter_map(|job| self.matrix.unassign(*job)).collect();
        let own = self.matrix.unassign(job).expect("it lies in a row");
        self.matrix.assign(index, Assignment { placement: placement.clone(), ..own });
        let mut moved = vec![Move { job, from, to, placement }];
        for assignment in leaving {
            let row = self.matrix.row_in_place(index + 1, &assignment);
            let (job, placement) = (assignment.spec.id, assignment.placement.clone());
            self.matrix.assign(row, assignment);
            moved.push(Move { job, from: to, to: self.matrix.row(row).slot, placement });
        }
        self.settle(moved, decisions);
    }

    /// The fewest lower jobs of a row, the lowest and latest first, without which it holds a job; and where
    /// the job lies then.
    fn room_without_lower(&self, job: JobId, index: usize) -> Option<(usize, Placement, Vec<JobId>)> {
        let priority = self.priority(job);
        let mut lower: Vec<JobId> =
            self.matrix.row(index).jobs().filter(|other| self.priority(*other) < priority).collect();
        if lower.is_empty() {
            return None;
        }
        lower.sort_by_key(|job| (self.priority(*job), Reverse(*job)));
        let own = self.matrix.assignment_of(job)?;
        let shape = self.matrix.shape_of(&own.spec)?;
        let mut trial = self.matrix.with_rows(&[index]);
        for count in 1..=lower.len() {
            drop(trial.unassign(lower[count - 1]));
            let placement = if self.matrix.is_pinned(job) {
                trial.holds_in_place(0, own).then(|| own.placement.clone())
            } else {
                trial.placement(0, &own.spec, shape)
            };
            if let Some(placement) = placement {
                lower.truncate(count);
                return Some((index, placement, lower));
            }
        }
        None
    }
}
