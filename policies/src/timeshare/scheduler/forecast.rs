//! Forecast: when each job runs next, and when it will be done, by this very scheduler.
//!
//! A copy of the scheduler is driven ahead. Its timers fire, its switches take what such switches took so
//! far, and a job ends where it is known for how long it runs yet. What nobody can know is left out: jobs
//! that will arrive, and the end of jobs that say nothing about it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    Scheduler,
    oracle::Oracle,
    timetable::{ForeseenTurn, Turns},
};
use crate::{
    Decision, JobId, Purpose, Residence, SchedulerEvent, SimTime, Start, SwitchId, SwitchPlan, TimerId,
};

/// What is known of the present, besides the scheduler's own state.
#[derive(Clone, Debug, Default)]
pub struct Present {
    pub now: SimTime,
    /// The timers that were set; stale ones do no harm.
    pub timers: BTreeSet<(SimTime, TimerId)>,
    /// When the switch under way began.
    pub switch_began: Option<SimTime>,
    /// For how long jobs run yet, where that is known; the time of their turns counts.
    pub left: BTreeMap<JobId, Duration>,
    /// How many events are looked ahead at most: bounds the work where a job never gets a turn, or ends late.
    pub events_max: u32,
}

/// What a job may expect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outlook {
    /// When it runs next: now, where it runs.
    pub runs_from: Option<SimTime>,
    /// When that turn ends; `None` where no other job waits.
    pub runs_until: Option<SimTime>,
    /// When it is done, where it is known for how long it runs yet.
    pub done: Option<SimTime>,
}

impl Scheduler {
    /// What each living job may expect that is not held.
    #[must_use]
    pub fn forecast(&self, present: Present) -> BTreeMap<JobId, Outlook> {
        let events_max = present.events_max;
        let mut future = Future::of(self, present);
        future.run(events_max);
        future.outlooks
    }

    /// The turns until `until`, the present one first: those that the same forecast runs through.
    #[must_use]
    pub fn timetable(&self, present: Present, until: SimTime) -> Vec<ForeseenTurn> {
        let events_max = present.events_max;
        let mut future = Future::of(self, present);
        let mut turns = Turns::default();
        turns.note(&future.scheduler, future.now);
        for _ in 0..events_max {
            let due = future.due.pop_first();
            let Some((at, due)) = due.filter(|(at, _)| *at <= until) else { break };
            future.now = at;
            future.on_due(due);
            turns.note(&future.scheduler, at);
        }
        turns.finish(&future.scheduler)
    }

    /// How long a switch takes, by what such switches took so far.
    fn expected_cost(&self, plan: &SwitchPlan) -> Duration {
        let comes = |start: Start| plan.incoming.iter().filter(move |incoming| incoming.start == start);
        let restored = comes(Start::Restore).filter_map(|incoming| self.assignment(incoming.job));
        let restored = self.presence.memory().moved(restored);
        let restore = || match restored {
            0 => Duration::ZERO,
            bytes => self.costs.lead(Oracle::Exact, bytes),
        };
        if plan.purpose == Purpose::Ahead || plan.is_activation() {
            return restore();
        }
        let leave = plan.outgoing.iter().filter(|outgoing| outgoing.to == Residence::Parked);
        let dumped = leave.filter_map(|outgoing| self.assignment(outgoing.job));
        let dumped = self.presence.memory().moved(dumped);
        let unmeasured = || match dumped {
            0 => restore(),
            bytes => restore() + self.costs.lead(Oracle::Exact, bytes),
        };
        self.costs.of_switch(dumped > 0 || restored > 0).unwrap_or_else(unmeasured)
    }
}

/// What happens next. At one instant jobs end first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    End(JobId),
    SwitchOver(SwitchId),
    Timer(TimerId),
}

struct Future {
    scheduler: Scheduler,
    now: SimTime,
    due: BTreeSet<(SimTime, Due)>,
    /// Since when jobs run.
    since: BTreeMap<JobId, SimTime>,
    left: BTreeMap<JobId, Duration>,
    outlooks: BTreeMap<JobId, Outlook>,
}

impl Future {
    fn of(scheduler: &Scheduler, present: Present) -> Self {
        let hopes = |job: &JobId| !scheduler.held.contains_key(job);
        let living = scheduler.jobs.iter().filter(|(job, entry)| !entry.observed.is_ended() && hopes(job));
        let outlooks = living.map(|(job, _)| (*job, Outlook::default())).collect();
        let Present { now, timers, switch_began, left, .. } = present;
        let mut future = Self {
            scheduler: scheduler.clone(),
            now,
            due: timers.into_iter().map(|(at, timer)| (at.max(now), Due::Timer(timer))).collect(),
            since: BTreeMap::new(),
            left,
            outlooks,
        };
        // They are short against a turn.
        future.scheduler.config.mean_time_between_failures = None;
        let under_way = scheduler.under_way.as_ref();
        if let Some(plan) = under_way {
            let over = switch_began.unwrap_or(now).after(scheduler.expected_cost(plan));
            future.due.insert((over.max(now), Due::SwitchOver(plan.switch)));
        }
        let stops = |job: JobId| {
            under_way.is_some_and(|plan| plan.outgoing.iter().any(|outgoing| outgoing.job == job))
        };
        let runs = |job: &JobId| scheduler.presence.is_active(*job) && !stops(*job);
        scheduler.jobs.keys().copied().filter(runs).for_each(|job| future.start(job));
        future
    }

    fn run(&mut self, events_max: u32) {
        for _ in 0..events_max {
            let is_known = |(job, outlook): (&JobId, &Outlook)| match self.left.get(job) {
                Some(_) => outlook.done.is_some(),
                // The end of a turn that has begun is worth one more look.
                None => outlook.runs_from.is_some() && outlook.runs_until.is_some(),
            };
            if self.outlooks.iter().all(is_known) {
                return;
            }
            let Some((at, due)) = self.due.pop_first() else { return };
            self.now = at;
            self.on_due(due);
        }
    }

    fn on_due(&mut self, due: Due) {
        let event = match due {
            Due::Timer(timer) => SchedulerEvent::TimerFired { timer },
            Due::SwitchOver(switch) => {
                let plan = self.scheduler.under_way.as_ref().filter(|plan| plan.switch == switch);
                let incoming = plan.filter(|plan| plan.purpose == Purpose::Turn);
                let incoming = incoming.into_iter().flat_map(|plan| &plan.incoming);
                let jobs: Vec<JobId> = incoming.map(|incoming| incoming.job).collect();
                jobs.into_iter().for_each(|job| self.start(job));
                SchedulerEvent::SwitchDone { switch }
            }
            Due::End(job) => {
                self.stop(job);
                if let Some(outlook) = self.outlooks.get_mut(&job) {
                    outlook.done = Some(self.now);
                }
                SchedulerEvent::Finished { job }
            }
        };
        self.tell(event);
    }

    fn tell(&mut self, event: SchedulerEvent) {
        for decision in self.scheduler.on_event(self.now, event) {
            match decision {
                Decision::Switch(plan) => {
                    plan.outgoing.iter().for_each(|outgoing| self.stop(outgoing.job));
                    let over = self.now.after(self.scheduler.expected_cost(&plan));
                    self.due.insert((over, Due::SwitchOver(plan.switch)));
                }
                Decision::SetTimer { timer, at } => drop(self.due.insert((at, Due::Timer(timer)))),
                _ => {}
            }
        }
    }

    fn start(&mut self, job: JobId) {
        let Some(outlook) = self.outlooks.get_mut(&job).filter(|outlook| outlook.done.is_none()) else {
            return;
        };
        outlook.runs_from.get_or_insert(self.now);
        self.since.insert(job, self.now);
        if let Some(left) = self.left.get(&job) {
            self.due.insert((self.now.after(*left), Due::End(job)));
        }
    }

    fn stop(&mut self, job: JobId) {
        let Some(since) = self.since.remove(&job) else { return };
        if let Some(left) = self.left.get_mut(&job) {
            self.due.remove(&(since.after(*left), Due::End(job)));
            *left = left.saturating_sub(self.now.since(since));
        }
        let Some(outlook) = self.outlooks.get_mut(&job) else { return };
        outlook.runs_until.get_or_insert(self.now);
    }
}
