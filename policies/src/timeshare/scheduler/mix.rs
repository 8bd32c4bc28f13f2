//! Mixing of rows (`paired`): exchanges jobs between rows where their measured classes promise a clear gain.
//!
//! A new class makes an exchange due; the end of a turn performs it. After an exchange the rows rest for one
//! round, after the next for two, then four, at most sixteen, until jobs come or go: a job that alternates
//! for ever costs less and less.

use std::collections::BTreeSet;

use super::Scheduler;
use crate::{Decision, JobId, Policy, Residence, SlotId, timeshare::packing};

/// What an exchange must gain on each node of each job that changes its row, in thousandths of a common
/// second.
const MARGIN: u64 = 100;
/// The longest rest, as a power of two, in rounds.
const REST_MAX: u32 = 4;

/// When rows may be mixed again.
#[derive(Clone, Debug, Default)]
pub(super) struct Mixing {
    /// A job changed its class since the rows were last mixed.
    due: bool,
    /// Turns to rest.
    rest: usize,
    /// Exchanges since jobs last came or went.
    done: u32,
}

impl Mixing {
    pub(super) const fn on_news(&mut self) {
        self.due = true;
    }

    pub(super) const fn on_turn(&mut self) {
        self.rest = self.rest.saturating_sub(1);
    }

    /// Jobs came or went.
    pub(super) const fn on_set_changed(&mut self) {
        (self.rest, self.done) = (0, 0);
    }

    fn on_mixed(&mut self, rows: usize) {
        self.rest = rows << self.done.min(REST_MAX);
        self.done += 1;
    }

    fn take_due(&mut self) -> bool {
        self.rest == 0 && std::mem::take(&mut self.due)
    }
}

impl Scheduler {
    /// Exchanges jobs between rows where their measured classes make for a clearly better mix.
    ///
    /// Only at the end of a turn: no job loses time then, and a job that is put back keeps its place until
    /// its turn has come.
    pub(super) fn mix_rows(&mut self, decisions: &mut Vec<Decision>) {
        if self.config.policy != Policy::Paired || !self.mixing.take_due() {
            return;
        }
        let assigned: Vec<JobId> = self.matrix.rows().flat_map(|row| row.jobs()).collect();
        let movable = assigned.iter().copied().filter(|job| !self.jobs[job].put_back).collect();
        let pinned = self.pinned();
        let place = |scheduler: &Self, slot: SlotId| {
            scheduler.matrix.rows().position(|row| row.slot == slot).expect("no row falls empty")
        };
        let steps =
            packing::pairing::improve(&mut self.matrix, &movable, &pinned, &self.fractions, 0, MARGIN);
        if !steps.is_empty() {
            self.mixing.on_mixed(self.matrix.rows().len());
        }
        self.presence.refresh(&self.matrix);
        self.dirty = packing::DirtyRows::All;
        for step in steps {
            let later = place(self, step.from) < place(self, step.to);
            self.jobs.get_mut(&step.job).expect("an assigned job is known").put_back = later;
            decisions.push(Decision::Moved(step));
        }
    }

    /// The jobs that must stay on their nodes: those that ever ran, or were given a block of the buddy tree.
    fn pinned(&self) -> BTreeSet<JobId> {
        let assigned = self.matrix.rows().flat_map(|row| row.jobs());
        let ran = |job: &JobId| self.jobs[job].observed != Residence::Unlaunched;
        assigned.filter(|job| ran(job) || self.matrix.is_pinned(*job)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_alternates_for_ever_has_the_rows_mixed_less_and_less_often() {
        let mut mixing = Mixing::default();
        let mixed: Vec<u32> = (0..100)
            .filter(|_| {
                mixing.on_turn();
                mixing.on_news();
                let due = mixing.take_due();
                if due {
                    mixing.on_mixed(3);
                }
                due
            })
            .collect();
        assert_eq!(mixed, [0, 3, 9, 21, 45, 93]);
        mixing.on_set_changed();
        mixing.on_news();
        assert!(mixing.take_due() && !mixing.take_due());
    }
}
