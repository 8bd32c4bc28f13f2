//! Plans a switch as the difference between wanted and observed, and takes note of its outcome.

use std::{cmp::Reverse, collections::BTreeSet, time::Duration};

use super::{
    Scheduler, ShortOfMemory,
    residency::{Change, Load, Need, Residency, summed},
};
use crate::{
    Assignment, Cause, Decision, Incoming, JobId, MemoryRule, Misplaced, NodeId, Outgoing, Packing, Purpose,
    Residence, Row, Start, SwitchId, SwitchOrder, SwitchPlan, timeshare::alternate, timeshare::packing,
};

impl Scheduler {
    /// The backfilled jobs of the front row's turn: only jobs in memory, because no switch is made for them.
    pub(super) fn backfilled(&self) -> BTreeSet<JobId> {
        let active = |job: JobId| self.presence.is_active(job);
        let backfilled = alternate::backfilled(&self.matrix, 0, self.config.alternate, active);
        backfilled.into_iter().map(|backfilled| backfilled.job).collect()
    }

    /// Which jobs leave and which come so that exactly the front row and its backfilled jobs run; `None`
    /// where they do.
    pub(super) fn plan_switch(&self) -> Option<SwitchPlan> {
        let front = self.matrix.front()?;
        debug_assert!(self.presence.is_exact(&self.matrix), "the difference is kept as it changes");
        let backfilled = self.backfilled();
        let leaves = |job: &JobId| !backfilled.contains(job);
        let misplaced = self.presence.misplaced().iter().copied().filter(leaves);
        let held = self.leaving().filter(|job| self.presence.is_active(*job));
        let stopping: BTreeSet<JobId> = misplaced.chain(held).collect();
        let mut stopping: Vec<JobId> = stopping.into_iter().collect();
        // In the order of turns, then of numbers.
        stopping.sort_by_cached_key(|job| self.matrix.place_of(*job));
        let comes = |job: &JobId| !self.is_leaving(*job);
        let incoming = self.presence.absent().iter().copied().filter(comes).filter_map(|job| {
            let start = match self.jobs[&job].observed {
                Residence::Unlaunched => Start::Launch,
                Residence::Parked => Start::Restore,
                Residence::Suspended => Start::Resume,
                Residence::Running | Residence::Finished | Residence::Failed => return None,
            };
            let assignment =
                front.assignment(job).expect("a job that has to come lies in the row with the turn");
            Some(Incoming { job, start, placement: assignment.placement.clone() })
        });
        let incoming: Vec<Incoming> = incoming.collect();
        let crowded =
            !self.corrections.stopped.is_empty() || self.corrections.relieve && !self.overfull().is_empty();
        let held: Vec<JobId> = self.leaving().filter(|job| self.presence.suspended().contains(job)).collect();
        if stopping.is_empty() && incoming.is_empty() && !crowded && held.is_empty() {
            return None;
        }
        let (order, mut parked) = self.who_parks(front, &stopping, &incoming);
        parked.extend(held);
        if order != SwitchOrder::Prefetch {
            // With prefetch they stop first, and leave by a switch of their own.
            parked.extend(stopping.iter().copied().filter(|job| self.is_leaving(*job)));
        }
        if stopping.is_empty() && incoming.is_empty() && parked.is_empty() {
            return None;
        }
        let outgoing =
            stopping.iter().map(|job| Outgoing { job: *job, running: true, to: rest(&parked, *job) });
        let evicted = parked.iter().filter(|job| !stopping.contains(job));
        let evicted = evicted.map(|job| Outgoing { job: *job, running: false, to: Residence::Parked });
        let (switch, slot, purpose) = (SwitchId(self.switches), front.slot, Purpose::Turn);
        Some(SwitchPlan {
            switch,
            slot,
            purpose,
            outgoing: outgoing.chain(evicted).collect(),
            incoming,
            order,
        })
    }

    /// The order of the switch, and the jobs that leave memory. Where memory does not hold what the chosen
    /// order needs, the same jobs leave as in a sequential switch: before others come, or, with
    /// [`ShortOfMemory::Swap`], when the chosen order takes them out.
    fn who_parks(
        &self,
        front: Row<'_>,
        stopping: &[JobId],
        incoming: &[Incoming],
    ) -> (SwitchOrder, BTreeSet<JobId>) {
        if self.config.residency == Residency::Always {
            return (self.config.switching, BTreeSet::new());
        }
        let (memory, cluster) = (self.presence.memory(), self.matrix.cluster());
        let coming: BTreeSet<JobId> = incoming.iter().map(|incoming| incoming.job).collect();
        let to_enter = coming
            .iter()
            .filter(|job| !memory.holds(**job))
            .map(|job| front.assignment(*job).expect("it lies there"));
        let need = match self.matrix.limits().memory {
            MemoryRule::MustFit => {
                let mut need = memory.need_of(to_enter);
                need.extend(memory.growth_of(coming.iter().copied()));
                need.extend(self.overfull());
                need.extend(self.corrections.stopped.iter().map(|node| (*node, Load::default())));
                summed(need)
            }
            MemoryRule::Ignored => Need::new(),
        };
        let suspended =
            self.presence.suspended().iter().copied().filter(|job| !coming.contains(job)).collect();
        let suspended = self.farthest_first(suspended);
        let none = self.config.residency == Residency::None;
        let go = if none { stopping } else { &[] };
        let strict = self.corrections.stopped.clone();
        let mut change = Change { need, stop: stopping, go: &[], candidates: &[], strict };
        match self.config.switching {
            _ if stopping.is_empty() => {}
            SwitchOrder::Sequential => {}
            SwitchOrder::Overlapped => {
                if memory.evictions(cluster, &change).is_some() {
                    return (SwitchOrder::Overlapped, go.iter().copied().collect());
                }
            }
            // Jobs that stop here are parked beside the new turn, where they have to be.
            SwitchOrder::Prefetch => {
                change.candidates = &suspended;
                if let Some(parked) = memory.evictions(cluster, &change) {
                    return (SwitchOrder::Prefetch, parked);
                }
            }
        }
        let may_go = if none {
            suspended.clone()
        } else {
            self.farthest_first(suspended.iter().copied().chain(stopping.iter().copied()).collect())
        };
        change = Change { go, candidates: &may_go, ..change };
        let evicted = memory.evictions(cluster, &change);
        debug_assert!(evicted.is_some(), "a row fits the empty cluster");
        let mut parked = evicted.unwrap_or_else(|| may_go.into_iter().collect());
        parked.extend(go);
        let order = match self.config.switching {
            order if self.swaps() && !stopping.is_empty() => order,
            _ => SwitchOrder::Sequential,
        };
        if order == SwitchOrder::Prefetch {
            // They leave beside the new turn.
            parked.retain(|job| !stopping.contains(job));
        }
        (order, parked)
    }

    /// Whether a switch keeps its order where memory does not hold what that needs.
    pub(super) fn swaps(&self) -> bool {
        self.config.short_of_memory == ShortOfMemory::Swap
    }

    /// Nodes whose jobs, running and waiting, exceed their capacity.
    pub(super) fn overfull(&self) -> Need {
        let may_be = self.corrections.grew || self.swaps();
        let memory = may_be.then(|| self.presence.memory().overfull(self.matrix.cluster()));
        memory.unwrap_or_default()
    }

    /// Jobs in the order in which they are evicted.
    pub(super) fn farthest_first(&self, mut jobs: Vec<JobId>) -> Vec<JobId> {
        if jobs.len() > 1 {
            jobs.sort_by_cached_key(|job| Reverse((self.distance(*job), *job)));
        }
        jobs
    }

    /// The executor answered. Jobs that are not `misplaced` went as planned; jobs that ended meanwhile are
    /// left alone.
    pub(super) fn on_switch_over(
        &mut self,
        switch: SwitchId,
        misplaced: &[Misplaced],
        decisions: &mut Vec<Decision>,
    ) {
        let Some(plan) = self.under_way.take_if(|plan| plan.switch == switch) else { return };
        let went = |job: JobId, planned: Residence| {
            let misplaced = misplaced.iter().find(|misplaced| misplaced.job == job);
            let (at, cause) = misplaced.map_or((planned, Cause::Failed), |there| (there.at, there.cause));
            Went { job, planned, at, cause }
        };
        let out: Vec<Went> = plan.outgoing.iter().map(|outgoing| went(outgoing.job, outgoing.to)).collect();
        let came = plan.purpose.incoming_to();
        let into: Vec<Went> = plan.incoming.iter().map(|incoming| went(incoming.job, came)).collect();
        out.iter().chain(&into).for_each(|went| self.note(*went));
        // Where a dump failed, the incoming jobs had no chance: only the dumps are to blame.
        let stayed: Vec<Went> = out.iter().copied().filter(Went::failed).collect();
        for went in out.iter().filter(|went| went.failed() && went.at.is_in_memory()) {
            self.give_hold_up(went.job, decisions);
        }
        let blamed = if stayed.is_empty() { &into } else { &stayed };
        let is_to_blame = |went: &&Went| {
            let assignment = self.assignment(went.job);
            let was_up = assignment.is_none_or(|assignment| self.is_reachable(&assignment.placement));
            let is_its_own = went.cause == Cause::Failed && !self.disturbed.contains(&went.job);
            went.failed() && is_its_own && was_up
        };
        let failed: Vec<Went> = blamed.iter().filter(is_to_blame).copied().collect();
        for went in failed {
            self.blame(went.job, decisions);
        }
        if plan.purpose == Purpose::Ahead {
            if let Some(running) = &mut self.running {
                running.end_ahead(!misplaced.is_empty());
            }
            return;
        }
        let refused = into.iter().filter(|went| went.failed() && went.cause == Cause::NoRoom);
        let nodes = refused.filter_map(|went| Some(self.assignment(went.job)?.placement.nodes()));
        let nodes: Vec<NodeId> = nodes.flatten().collect();
        nodes.into_iter().for_each(|node| self.on_stopped(node));
        // A job that could not leave keeps its turn; the next strobe tries again.
        for went in stayed.iter().rev() {
            // One that has ended since it was refused has no row, and nobody else may have one. One that has
            // lost a node since is about to leave its own.
            let assignment = self.assignment(went.job);
            let is_there = assignment.is_some_and(|there| self.is_reachable(&there.placement));
            if is_there && went.at.is_in_memory() && !self.jobs[&went.job].abandoned {
                self.keep_in_front(went.job, decisions);
                self.running = None;
            }
        }
    }

    /// The measured cost of the switch under way.
    pub(super) fn on_timed(&mut self, switch: SwitchId, restore: Option<Duration>, exposed: Duration) {
        let Some(plan) = self.under_way.as_ref().filter(|plan| plan.switch == switch) else { return };
        let of = |start: Start| plan.incoming.iter().filter(move |incoming| incoming.start == start);
        if let Some(took) = restore {
            let assignments = of(Start::Restore).filter_map(|incoming| self.assignment(incoming.job));
            let moved: Vec<&Assignment> = assignments.collect();
            self.costs.restored(self.presence.memory().moved(moved.into_iter()), took);
        }
        if plan.purpose == Purpose::Turn && !plan.is_activation() && of(Start::Launch).next().is_none() {
            let parked = plan.outgoing.iter().any(|outgoing| outgoing.to == Residence::Parked);
            self.costs.exposed(parked || of(Start::Restore).next().is_some(), exposed);
        }
    }

    pub(super) fn assignment(&self, job: JobId) -> Option<&Assignment> {
        self.matrix.assignment_of(job)
    }

    fn note(&mut self, Went { job, planned, at, .. }: Went) {
        if at.is_ended() {
            return self.end(job, at);
        }
        let Some(entry) = self.jobs.get_mut(&job).filter(|entry| !entry.observed.is_ended()) else { return };
        entry.observed = at;
        if at == Residence::Unlaunched {
            // It may be placed anew.
            self.dirty = packing::DirtyRows::All;
        }
        let keeps = at != Residence::Unlaunched || self.config.packing == Packing::Buddy;
        self.matrix.set_pinned(job, keeps);
        if at == planned {
            entry.failures = 0;
            self.disturbed.remove(&job);
        }
        self.presence.on_observed(&self.matrix, job, at);
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

/// A job of a plan: where it was to go, and where it is.
#[derive(Clone, Copy)]
struct Went {
    job: JobId,
    planned: Residence,
    at: Residence,
    cause: Cause,
}

impl Went {
    fn failed(&self) -> bool {
        self.at != self.planned
    }
}

fn rest(parked: &BTreeSet<JobId>, job: JobId) -> Residence {
    if parked.contains(&job) { Residence::Parked } else { Residence::Suspended }
}
