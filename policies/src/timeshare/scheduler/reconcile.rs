//! Reconciliation: derives the next decisions from the state, whatever event led to it.

use std::collections::BTreeSet;

use super::{Scheduler, residency::Residency, turn::Running};
use crate::{Decision, JobId, Row, SimTime, timeshare::packing};

impl Scheduler {
    pub(super) fn reconcile(&mut self, now: SimTime, decisions: &mut Vec<Decision>) {
        if self.matrix.drop_empty_rows() {
            self.running = None;
        }
        self.presence.follow(&self.matrix);
        if self.may_act() {
            self.leave_drained();
            self.settle_held(decisions);
            self.settle_displaced();
            self.admit(now, decisions);
            self.order_rows(decisions);
            if self.strobe(decisions) {
                self.mix_rows(decisions);
            }
            self.correct_needs(decisions);
            self.unify_slots(now, decisions);
            self.order_rows(decisions);
            self.presence.follow(&self.matrix);
            self.under_way = self.plan_switch();
            self.corrections.on_planned();
            self.tell_switch(decisions);
        }
        self.tend_turn(now, decisions);
        if self.may_act() {
            self.under_way = self.plan_ahead();
            self.tell_switch(decisions);
        }
        self.tell_done(decisions);
    }

    fn tell_switch(&mut self, decisions: &mut Vec<Decision>) {
        if let Some(plan) = &self.under_way {
            self.switches += 1;
            decisions.push(Decision::Switch(plan.clone()));
        }
    }

    /// Whether no step is under way that the next plan has to wait for.
    fn may_act(&self) -> bool {
        self.under_way.is_none() && self.dying.is_empty() && !self.is_being_displaced()
    }

    /// Passes the turn on where it is over, or nobody is left to have it; says whether it was.
    fn strobe(&mut self, decisions: &mut Vec<Decision>) -> bool {
        let leaves = self.front_leaves();
        let is_over = leaves || self.running.as_ref().is_some_and(Running::is_over);
        let over = self.rows_in_turn() > 1 && is_over;
        if leaves {
            self.running = None;
        }
        if over {
            for job in self.matrix.front().into_iter().flat_map(|row| row.jobs()) {
                self.jobs.get_mut(&job).expect("an assigned job is known").put_back = false;
            }
            self.rotate(decisions);
            self.running = None;
            self.mixing.on_turn();
        }
        over
    }

    /// Offers freed capacity to later rows.
    ///
    /// A job joins the *active* row only while half of its quantum is left: otherwise it would come in,
    /// hardly run, and have lost the turn of the row it came from. Where no row would be left waiting, that
    /// does not matter.
    fn unify_slots(&mut self, now: SimTime, decisions: &mut Vec<Decision>) {
        if !self.capacity_freed {
            return;
        }
        self.capacity_freed = false;
        let late = self.front_is_late(now);
        let (matrix, dirty, rejection_cause) = (&mut self.matrix, &mut self.dirty, &mut self.rejection_cause);
        let whole = late.then(|| packing::unify_into_front(matrix, dirty, rejection_cause)).flatten();
        let moves = whole.unwrap_or_else(|| {
            // The freed capacity of the active row is offered again at the end of its turn.
            self.capacity_freed = late;
            packing::unify(matrix, usize::from(late), dirty)
        });
        debug_assert!(
            packing::is_unified(&self.matrix, usize::from(late)),
            "rows that were not looked at take no job"
        );
        self.matrix.drop_empty_rows();
        for step in moves {
            self.presence.on_moved(&self.matrix, step.job);
            decisions.push(Decision::Moved(step));
        }
    }

    /// Begins the turn when a job of the front row runs, keeps its timer, decides what changed.
    fn tend_turn(&mut self, now: SimTime, decisions: &mut Vec<Decision>) {
        let touched = self.presence.take_touched();
        let Some(front) = self.matrix.front() else { return };
        let turning = self.under_way.as_ref().is_some_and(|plan| !plan.is_activation());
        if self.running.is_none() && !turning {
            let present = self.present(front);
            if !present.is_empty() {
                self.running = Some(Running::new(front.slot, now, present));
                self.set_slice(decisions);
            }
        }
        let backfilled = if turning { BTreeSet::new() } else { self.backfilled() };
        let rows = self.rows_in_turn();
        let Some(running) = &mut self.running else { return };
        for job in touched {
            running.note(job, self.presence.is_present(job), || self.jobs[&job].observed.is_ended());
        }
        let set = if rows > 1 {
            running.set_strobe(now, self.slice, &mut self.timers)
        } else {
            running.forget_strobe();
            None
        };
        decisions.extend(running.tell(backfilled));
        decisions.extend(set);
        decisions.extend(self.time_ahead(now));
    }

    /// How many rows take turns, from the front on.
    pub(super) fn rows_in_turn(&self) -> usize {
        let rows = self.rows_of_first_priority();
        self.narrowed.map_or(rows, |narrowed| narrowed.min(rows))
    }

    /// At the beginning of a turn: sets its length and how many rows take turns, by the measured costs of
    /// switching.
    fn set_slice(&mut self, decisions: &mut Vec<Decision>) {
        let Some(auto) = self.config.auto else { return };
        let rows = self.rows_of_first_priority();
        let resident = self.rows_in_memory();
        let needed = |moving| self.costs.slice(auto, moving).unwrap_or(self.config.quantum);
        let too_long = resident < rows && self.costs.exceed(auto);
        let narrowed = too_long.then_some(resident.max(1));
        self.slice = needed(resident < rows && narrowed.is_none()).clamp(self.config.quantum, auto.longest);
        if narrowed != std::mem::replace(&mut self.narrowed, narrowed) {
            let count = |rows| u32::try_from(rows).unwrap_or(u32::MAX);
            decisions.push(narrowed.map_or(Decision::Widened, |rows| Decision::Narrowed {
                rows: count(rows),
                needed: needed(true),
            }));
        }
    }

    /// How many rows, from the front on, fit into memory together, where jobs may wait there.
    fn rows_in_memory(&self) -> usize {
        match self.config.residency {
            Residency::None => return 1,
            Residency::Always => return self.matrix.rows().len(),
            Residency::Planned => {}
        }
        let rows = self.matrix.rows().map(|row: Row<'_>| row.assignments());
        self.presence.memory().fit_together(self.matrix.cluster(), rows)
    }

    /// The running jobs of the front row.
    fn present(&self, front: Row<'_>) -> BTreeSet<JobId> {
        front.jobs().filter(|job| self.presence.is_active(*job)).collect()
    }

    fn tell_done(&mut self, decisions: &mut Vec<Decision>) {
        let idle = self.matrix.rows().len() == 0
            && self.queue.is_empty()
            && self.held.is_empty()
            && self.under_way.is_none();
        if idle && !self.done {
            self.done = true;
            decisions.push(Decision::AllDone);
        }
    }
}
