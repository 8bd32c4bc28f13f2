//! Checkpoints of running jobs, so that a lost node does not cost all that they have computed.
//!
//! A job that leaves memory has a snapshot for free, so only work since it came into memory counts. A
//! checkpoint is due after [Daly's interval](checkpoint_interval), and waits where a switch is under way,
//! where the turn is about to end, and where another job on one of its nodes is being checkpointed.
//!
//! ```text
//!   comes into memory ─▶ at risk until due ──▶ Checkpoint ─┬─▶ Checkpointed ─▶ at risk anew
//!                             ▲                            └─▶ NotCheckpointed: twice the time
//!   leaves memory, ends ─▶ forgotten
//! ```

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use super::Scheduler;
use crate::{Bytes, Decision, JobId, SimTime, TimerId, timeshare::checkpoint_interval};

/// The cost of a job is the median of so many checkpoints.
const MEASURED_MAX: usize = 5;
/// A turn end is waited for that comes within one part in so many of the interval.
const WAITS: u32 = 8;
/// Failures double the time to the next attempt up to this often.
const DOUBLED_MAX: u32 = 6;

/// What is known of the checkpoints of jobs in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Checkpoints {
    at_risk: BTreeMap<JobId, AtRisk>,
    /// How long the last checkpoints of a job have stopped it.
    costs: BTreeMap<JobId, VecDeque<Duration>>,
    /// Nanoseconds for a MiB of the last checkpoints of all jobs.
    rates: VecDeque<u64>,
    timer: Option<(TimerId, SimTime)>,
    /// The changes of residence that were looked at.
    seen: u64,
    /// Something else has happened that matters.
    is_news: bool,
}

/// A job in memory that has computed since its last snapshot.
#[derive(Clone, Copy, Debug)]
struct AtRisk {
    due: SimTime,
    is_under_way: bool,
    /// Checkpoints that failed since one was made.
    failures: u32,
}

impl Checkpoints {
    pub(super) fn on_timer(&mut self, timer: TimerId) {
        if self.timer.take_if(|(set, _)| *set == timer).is_some() {
            self.is_news = true;
        }
    }

    pub(super) fn on_ended(&mut self, job: JobId) {
        self.at_risk.remove(&job);
        self.costs.remove(&job);
    }

    fn cost(&self, job: JobId, bytes: Bytes) -> Duration {
        if let Some(cost) = self.costs.get(&job).and_then(median) {
            return cost;
        }
        match median(&self.rates) {
            Some(rate) => Duration::from_nanos(rate.saturating_mul(mib(bytes))),
            None => checkpoint_interval::assumed_cost(bytes),
        }
    }
}

impl Scheduler {
    /// A job computes on, and every node has its snapshot; `stood_still`: for so long it did not compute.
    pub(super) fn on_checkpointed(&mut self, now: SimTime, job: JobId, stood_still: Duration) {
        if self.jobs.get(&job).is_none_or(|entry| entry.observed.is_ended()) {
            return;
        }
        // Of a checkpoint that an earlier scheduler has decided the cost is not known.
        if !stood_still.is_zero() {
            let bytes = self.bytes_of(job);
            let nanos = u64::try_from(stood_still.as_nanos()).unwrap_or(u64::MAX);
            let checkpoints = &mut self.checkpoints;
            push(&mut checkpoints.rates, nanos / mib(bytes));
            push(checkpoints.costs.entry(job).or_default(), stood_still);
        }
        let due = now.after(self.checkpoint_interval(job));
        self.checkpoints.is_news = true;
        if let Some(at_risk) = self.checkpoints.at_risk.get_mut(&job) {
            *at_risk = AtRisk { due, is_under_way: false, failures: 0 };
        }
    }

    pub(super) fn on_not_checkpointed(&mut self, now: SimTime, job: JobId) {
        let interval = self.checkpoint_interval(job);
        self.checkpoints.is_news = true;
        if let Some(at_risk) = self.checkpoints.at_risk.get_mut(&job) {
            let failures = at_risk.failures + 1;
            let due = now.after(interval.saturating_mul(1 << failures.min(DOUBLED_MAX)));
            *at_risk = AtRisk { due, is_under_way: false, failures };
        }
    }

    /// After each event: decides which jobs are checkpointed now, and when to look again.
    pub(super) fn plan_checkpoints(&mut self, now: SimTime, decisions: &mut Vec<Decision>) {
        let changes = self.presence.changes();
        let is_news = std::mem::take(&mut self.checkpoints.is_news);
        if self.config.mean_time_between_failures.is_none() || changes == self.checkpoints.seen && !is_news {
            return;
        }
        self.checkpoints.seen = changes;
        self.follow_jobs_at_risk(now);
        if self.under_way.is_some() || !self.dying.is_empty() || self.is_being_displaced() {
            return;
        }
        let mut at_risk: Vec<(SimTime, JobId)> =
            self.checkpoints.at_risk.iter().map(|(job, at_risk)| (at_risk.due, *job)).collect();
        at_risk.sort_unstable();
        let mut wake: Option<SimTime> = None;
        for (due, job) in at_risk {
            if self.checkpoints.at_risk[&job].is_under_way || !self.presence.is_active(job) {
                continue;
            }
            let at = if due > now { Some(due) } else { self.turn_ends_soon(now, job) };
            match at {
                Some(at) => wake = Some(wake.map_or(at, |wake| wake.min(at))),
                // The news that it waits for comes by itself.
                None if self.is_leaving(job) || self.shares_a_node_with_one_under_way(job) => {}
                None => {
                    self.checkpoints.at_risk.get_mut(&job).expect("just listed").is_under_way = true;
                    decisions.push(Decision::Checkpoint { job });
                }
            }
        }
        decisions.extend(wake.and_then(|at| self.wake_for_checkpoint(at)));
    }

    fn follow_jobs_at_risk(&mut self, now: SimTime) {
        let jobs = &self.jobs;
        self.checkpoints
            .at_risk
            .retain(|job, _| jobs.get(job).is_some_and(|entry| entry.observed.is_in_memory()));
        let new: Vec<JobId> =
            self.presence.active().filter(|job| !self.checkpoints.at_risk.contains_key(job)).collect();
        for job in new {
            let due = now.after(self.checkpoint_interval(job));
            self.checkpoints.at_risk.insert(job, AtRisk { due, is_under_way: false, failures: 0 });
        }
    }

    /// When to look again, where the turn of the job ends before much more work is at risk: a job that parks
    /// then needs no checkpoint.
    fn turn_ends_soon(&self, now: SimTime, job: JobId) -> Option<SimTime> {
        let ends = self.running.as_ref()?.ends()?;
        let patience = self.checkpoint_interval(job) / WAITS;
        (now < ends && ends <= now.after(patience)).then(|| ends.after(patience))
    }

    fn shares_a_node_with_one_under_way(&self, job: JobId) -> bool {
        let Some(assignment) = self.assignment(job) else { return true };
        let under_way = self.checkpoints.at_risk.iter().filter(|(_, at_risk)| at_risk.is_under_way);
        let mut others = under_way.filter_map(|(other, _)| self.assignment(*other));
        others.any(|other| assignment.placement.nodes().any(|node| other.placement.count_on(node) > 0))
    }

    fn wake_for_checkpoint(&mut self, at: SimTime) -> Option<Decision> {
        if self.checkpoints.timer.is_some_and(|(_, set)| set <= at) {
            return None;
        }
        let timer = TimerId(self.timers);
        self.timers += 1;
        self.checkpoints.timer = Some((timer, at));
        Some(Decision::SetTimer { timer, at })
    }

    /// The work between two checkpoints of a job.
    fn checkpoint_interval(&self, job: JobId) -> Duration {
        let of_node = self.config.mean_time_between_failures;
        let (Some(of_node), Some(assignment)) = (of_node, self.assignment(job)) else { return Duration::MAX };
        let between = checkpoint_interval::between_failures(of_node, assignment.placement.nodes().count());
        checkpoint_interval::interval(self.checkpoints.cost(job, self.bytes_of(job)), between)
    }

    /// What the job holds on the node where it holds most.
    fn bytes_of(&self, job: JobId) -> Bytes {
        Bytes(self.presence.memory().moved(self.assignment(job).into_iter()))
    }
}

fn mib(bytes: Bytes) -> u64 {
    (bytes.0 >> 20).max(1)
}

fn push<T>(last: &mut VecDeque<T>, measured: T) {
    last.push_back(measured);
    if last.len() > MEASURED_MAX {
        last.pop_front();
    }
}

fn median<T: Copy + Ord>(measured: &VecDeque<T>) -> Option<T> {
    let mut sorted: Vec<T> = measured.iter().copied().collect();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}
