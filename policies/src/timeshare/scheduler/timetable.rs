//! Timetable: the turns that a forecast runs through, as a user wants to see them.

use serde::{Deserialize, Serialize};

use super::Scheduler;
use crate::{JobId, Placement, SimTime, SlotId};

/// A turn that is to come, or the present one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeseenTurn {
    pub slot: SlotId,
    pub from: SimTime,
    /// `None` where no other job waits, or where the end lies beyond what was looked at.
    pub until: Option<SimTime>,
    /// The jobs that run in it, also for a part of it, and their nodes.
    pub jobs: Vec<(JobId, Placement)>,
}

/// Takes note of turns while a scheduler is driven.
#[derive(Debug, Default)]
pub(super) struct Turns {
    turns: Vec<ForeseenTurn>,
    /// The last one goes on.
    open: bool,
}

impl Turns {
    /// After each event.
    pub(super) fn note(&mut self, scheduler: &Scheduler, now: SimTime) {
        let began = scheduler.running.as_ref().map(|running| (running.slot(), running.since()));
        let last = self.turns.last().map(|turn| (turn.slot, turn.from));
        if self.open && began != last {
            self.open = false;
            self.turns.last_mut().expect("an open turn").until = Some(now);
        }
        let Some(((slot, from), turn)) = began.zip(scheduler.turn()) else { return };
        if !self.open {
            self.open = true;
            self.turns.push(ForeseenTurn { slot, from, until: None, jobs: Vec::new() });
        }
        let jobs = &mut self.turns.last_mut().expect("an open turn").jobs;
        for job in turn.jobs {
            let is_new = jobs.iter().all(|(known, _)| *known != job);
            if let Some(assignment) = scheduler.assignment(job).filter(|_| is_new) {
                jobs.push((job, assignment.placement.clone()));
            }
        }
    }

    /// The turns; the last one ends when its timer says, where that is known.
    pub(super) fn finish(mut self, scheduler: &Scheduler) -> Vec<ForeseenTurn> {
        if let Some(last) = self.turns.last_mut().filter(|_| self.open) {
            last.until = scheduler.turn().and_then(|turn| turn.ends);
        }
        self.turns
    }
}
