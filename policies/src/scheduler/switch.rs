//! Planning a switch as the difference between wanted and observed, and taking note of how it went.

use std::collections::BTreeSet;

use super::{Scheduler, state::Observed};
use crate::{Astray, Decision, Incoming, JobId, Left, Start, SwitchId, SwitchPlan, alternate, packing};

impl Scheduler {
    /// The jobs of other rows that go on in the turn of the front row: only who is in memory, for no switch is made for them.
    pub(super) fn fillers(&self) -> BTreeSet<JobId> {
        let active = |job: JobId| self.presence.is_active(job);
        let fillers = alternate::fillers(&self.matrix, 0, self.config.alternate, active);
        fillers.into_iter().map(|filler| filler.job).collect()
    }

    /// What has to leave and to come so that exactly the front row and its fillers are in memory; `None` where that is so.
    pub(super) fn plan_switch(&self) -> Option<SwitchPlan> {
        let front = self.matrix.front()?;
        debug_assert!(self.presence.is_exact(&self.matrix), "the difference is kept as it changes");
        let fillers = self.fillers();
        let leaves = |job: &JobId| !fillers.contains(job);
        let mut outgoing: Vec<JobId> = self.presence.astray().iter().copied().filter(leaves).collect();
        // In the order of turns, then of numbers.
        outgoing.sort_by_cached_key(|job| self.matrix.place_of(*job));
        let incoming = self.presence.absent().iter().filter_map(|job| {
            let start = match self.jobs[job].observed {
                Observed::Unlaunched => Start::Launch,
                Observed::Parked => Start::Restore,
                Observed::Active | Observed::Finished | Observed::Failed => return None,
            };
            Some(Incoming { job: *job, start, placement: front.seats[job].placement.clone() })
        });
        let incoming: Vec<Incoming> = incoming.collect();
        let (switch, slot, order) = (SwitchId(self.switches), front.slot, self.config.switching);
        let needed = !outgoing.is_empty() || !incoming.is_empty();
        needed.then_some(SwitchPlan { switch, slot, outgoing, incoming, order })
    }

    /// The executor answered. Jobs not `astray` went as planned; those that ended meanwhile are left alone.
    pub(super) fn on_switch_over(
        &mut self,
        switch: SwitchId,
        astray: &[Astray],
        decisions: &mut Vec<Decision>,
    ) {
        let Some(plan) = self.under_way.take_if(|plan| plan.switch == switch) else { return };
        let left = |job: JobId, planned: Left| {
            astray.iter().find(|astray| astray.job == job).map_or(planned, |astray| astray.left)
        };
        let out: Vec<_> = plan.outgoing.iter().map(|job| (*job, left(*job, Left::Parked))).collect();
        let into: Vec<_> = plan.incoming.iter().map(|i| (i.job, left(i.job, Left::Active))).collect();
        out.iter().for_each(|(job, left)| self.note(*job, *left, Left::Parked));
        into.iter().for_each(|(job, left)| self.note(*job, *left, Left::Active));
        // Where a dump failed, what should have come in had no chance: only the dumps are to blame.
        let unparked = jobs_not(&out, Left::Parked);
        let blamed = if unparked.is_empty() { jobs_not(&into, Left::Active) } else { unparked };
        for job in blamed {
            self.blame(job, decisions);
        }
        // A job that could not leave keeps its turn, with its whole row; the strobe will try again.
        let stuck = out.iter().rev().filter(|(job, left)| *left == Left::Active && !self.jobs[job].abandoned);
        for (job, _) in stuck {
            self.matrix.promote(*job);
            self.unsettled = packing::Unsettled::All;
            self.running = None;
        }
    }

    fn note(&mut self, job: JobId, left: Left, planned: Left) {
        let Some(entry) = self.jobs.get_mut(&job).filter(|entry| !entry.observed.is_ended()) else { return };
        match left {
            Left::Unlaunched => {
                entry.observed = Observed::Unlaunched;
                // It may be placed anew again.
                self.unsettled = packing::Unsettled::All;
            }
            Left::Active => entry.observed = Observed::Active,
            Left::Parked => entry.observed = Observed::Parked,
            Left::Lost => return self.end(job, Observed::Failed),
        }
        self.matrix.set_rooted(job, left != Left::Unlaunched);
        self.presence.on_observed(&self.matrix, job, left == Left::Active);
        if left == planned {
            entry.failures = 0;
        }
    }

    fn blame(&mut self, job: JobId, decisions: &mut Vec<Decision>) {
        let entry = self.jobs.get_mut(&job).expect("a planned job is known");
        if entry.observed.is_ended() {
            return;
        }
        entry.failures += 1;
        if entry.failures >= self.config.switch_failures_max && !entry.abandoned {
            entry.abandoned = true;
            self.dying.insert(job);
            decisions.push(Decision::Abandon { job, failures: entry.failures });
        }
    }
}

fn jobs_not(jobs: &[(JobId, Left)], planned: Left) -> Vec<JobId> {
    jobs.iter().filter(|(_, left)| *left != planned).map(|(job, _)| *job).collect()
}
