//! Work ahead of a switch (`prefetch`): while the jobs of a turn compute, the next row is restored, stopped,
//! and jobs that should not wait in memory are dumped.

use std::collections::BTreeSet;

use super::{
    Scheduler,
    residency::{Change, Residency},
};
use crate::{
    Assignment, Decision, Incoming, JobId, Outgoing, Purpose, Residence, SimTime, Start, SwitchId,
    SwitchOrder, SwitchPlan,
};

impl Scheduler {
    /// Plans which jobs leave or come now, so that no job has to wait for it later.
    pub(super) fn plan_ahead(&mut self) -> Option<SwitchPlan> {
        if self.config.switching != SwitchOrder::Prefetch {
            return None;
        }
        let running = self.running.as_mut().filter(|running| running.may_work_ahead())?;
        let prefetches = running.take_due_ahead();
        let slot = running.slot();
        let (outgoing, incoming) =
            if prefetches { self.prefetch()? } else { (self.left_over()?, Vec::new()) };
        let outgoing =
            outgoing.into_iter().map(|job| Outgoing { job, running: false, to: Residence::Parked });
        let (switch, order) = (SwitchId(self.switches), SwitchOrder::Sequential);
        Some(SwitchPlan {
            switch,
            slot,
            purpose: Purpose::Ahead,
            outgoing: outgoing.collect(),
            incoming,
            order,
        })
    }

    /// Jobs of the last turn that are not to wait in memory, or that it does not hold.
    fn left_over(&self) -> Option<Vec<JobId>> {
        let front = self.matrix.front()?;
        let over = |job: &JobId| !self.presence.is_prefetched(*job) && !front.contains(*job);
        let over: Vec<JobId> = self.presence.suspended().iter().copied().filter(over).collect();
        let over = match self.config.residency {
            Residency::None => over,
            Residency::Planned if self.swaps() => {
                let over = self.farthest_first(over);
                let change = Change { need: self.overfull(), candidates: &over, ..Change::default() };
                let leaving = self.presence.memory().evictions(self.matrix.cluster(), &change);
                leaving.map_or(over, |leaving| leaving.into_iter().collect())
            }
            Residency::Planned | Residency::Always => return None,
        };
        (!over.is_empty()).then_some(over)
    }

    /// Which jobs of the next row can come, and which leave so that all of it fits; `None` where it does not
    /// fit beside the row with the turn and is not to be swapped. Jobs that never ran are launched at their
    /// turn, into the room made here.
    fn prefetch(&self) -> Option<(Vec<JobId>, Vec<Incoming>)> {
        if self.config.residency == Residency::Always {
            return None;
        }
        let next = self.next_in_turn();
        let absent = |assignment: &&Assignment| !self.presence.memory().holds(assignment.spec.id);
        let absent: Vec<&Assignment> = next.iter().copied().filter(absent).collect();
        if absent.is_empty() {
            return None;
        }
        let is_next = |job: &JobId| next.iter().any(|assignment| assignment.spec.id == *job);
        let idle = self.presence.suspended().iter().copied().filter(|job| !is_next(job));
        let idle = self.farthest_first(idle.collect());
        let memory = self.presence.memory();
        // It comes with what it holds now, and gets the memory of its turn already.
        let change =
            Change { need: memory.need_of(absent.iter().copied()), candidates: &idle, ..Change::default() };
        let leaving = memory.evictions(self.matrix.cluster(), &change);
        let leaving = leaving.or_else(|| self.swaps().then(|| idle.iter().copied().collect()))?;
        let parked =
            absent.iter().filter(|assignment| self.jobs[&assignment.spec.id].observed == Residence::Parked);
        let incoming: Vec<Incoming> = parked
            .map(|assignment| Incoming {
                job: assignment.spec.id,
                start: Start::Restore,
                placement: assignment.placement.clone(),
            })
            .collect();
        let any = !leaving.is_empty() || !incoming.is_empty();
        any.then(|| (leaving.into_iter().collect(), incoming))
    }

    /// Sets the timer at which the next row begins to come, so that it is there when the turn ends.
    pub(super) fn time_ahead(&mut self, now: SimTime) -> Option<Decision> {
        if self.config.switching != SwitchOrder::Prefetch {
            return None;
        }
        let ends = self.running.as_ref()?.ends_without_ahead()?;
        let (leaving, incoming) = self.prefetch()?;
        let coming: BTreeSet<JobId> = incoming.into_iter().map(|incoming| incoming.job).collect();
        let memory = self.presence.memory();
        // Leaving takes about as long as coming.
        let moved =
            memory.moved(coming.iter().filter_map(|job| self.assignment(*job))) + memory.most(leaving);
        let at = ends.before(self.costs.lead(self.config.oracle, moved)).max(now);
        self.running.as_mut()?.set_ahead(at, &mut self.timers)
    }
}
