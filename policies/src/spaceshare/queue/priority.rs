//! Priority with aging, and blocking for large jobs (paper 002 §2.3).
//!
//! `job priority = queue priority + age factor · hours waited`. Jobs are looked at in the order of priority, and those that do not fit
//! are passed over. Where the first that does not fit has a priority above `block_priority`, nobody behind it starts: nodes fall idle
//! until it has enough. So no job starves: it ages past `block_priority`, and only finitely many jobs can still be ahead of it.
//!
//! All jobs age alike, so two never change places: within one queue the order is that of coming, and it is enough to compare the
//! heads of the queues. A job that cannot run now whoever ends, because the hours or the limit of its queue keep it out, does
//! not block the others; the paper says nothing of that case. Where others may run for longer than the hours of its group last, it may
//! so be kept out for ever: with those of the paper, twelve hours and sixteen, it is not.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::{Deserialize, Serialize};

use super::{
    Priority, QueueId, QueueOrder, QueueTable, QueuedJob,
    line::{Least, WaitingLine},
};
use crate::{
    JobId, SimTime,
    spaceshare::machine::{GroupId, Machine},
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgingConfig {
    pub queues: QueueTable,
    /// What a job gains in each hour it waits; not negative.
    pub age_factor: Priority,
    /// Above this a job that does not fit holds up all behind it; `None` is never.
    pub block_priority: Option<Priority>,
}

#[derive(Clone, Debug)]
pub struct Aging {
    config: AgingConfig,
    lines: Vec<WaitingLine>,
    /// Jobs of each queue that run.
    running: Vec<u32>,
    queue_of: BTreeMap<JobId, QueueId>,
    /// Whether any job ever asked for several CPUs of a node: then a refusal says nothing of larger requests.
    boxes: bool,
}

/// Priority multiplied by the nanoseconds of an hour: exact.
type Score = i128;
const HOUR_NS: i128 = 3_600_000_000_000;

impl Aging {
    /// Empty queues.
    ///
    /// # Panics
    /// Where the age factor is negative: the order of jobs would change while they wait.
    #[must_use]
    pub fn new(config: AgingConfig) -> Self {
        assert!(config.age_factor.0 >= 0, "jobs do not grow younger");
        let queues = config.queues.0.len();
        let (lines, running) = (vec![WaitingLine::default(); queues], vec![0; queues]);
        Self { config, lines, running, queue_of: BTreeMap::new(), boxes: false }
    }

    fn score(&self, now: SimTime, job: &QueuedJob) -> Score {
        let start = self.config.queues.0[usize::from(job.queue.0)].priority;
        let waited = i128::from(now.0.saturating_sub(job.submitted.0));
        i128::from(start.0) * HOUR_NS + i128::from(self.config.age_factor.0) * waited
    }

    fn blocks(&self, now: SimTime, job: &QueuedJob) -> bool {
        let above = |block: Priority| self.score(now, job) > i128::from(block.0) * HOUR_NS;
        self.config.block_priority.is_some_and(above)
    }

    /// Whether the limit of the queue lets one more of its jobs run.
    fn is_open(&self, queue: usize) -> bool {
        self.config.queues.0[queue].running_max.is_none_or(|max| self.running[queue] < max)
    }

    /// The job of highest priority among the first of each open queue that `find` returns.
    fn highest<'a>(
        &'a self,
        now: SimTime,
        find: impl Fn(usize, &'a WaitingLine) -> Option<(usize, &'a QueuedJob)>,
    ) -> Option<(usize, QueuedJob)> {
        let open =
            self.lines.iter().enumerate().filter(|(queue, line)| !line.is_empty() && self.is_open(*queue));
        open.filter_map(|(queue, line)| find(queue, line))
            .max_by_key(|(_, job)| (self.score(now, job), Reverse((job.submitted, job.job))))
            .map(|(place, job)| (place, *job))
    }

    fn begin(&mut self, job: QueuedJob, started: &mut Vec<QueuedJob>) {
        let queue = usize::from(job.queue.0);
        self.lines[queue].remove(job.job).expect("who starts has waited");
        self.running[queue] += 1;
        self.queue_of.insert(job.job, job.queue);
        started.push(job);
    }

    /// Starts the heads of all queues in order, until one does not fit; whether that one blocks.
    fn start_heads(&mut self, now: SimTime, machine: &mut Machine, started: &mut Vec<QueuedJob>) -> bool {
        // The largest request of each queue that the hours do not keep out.
        let mut most = vec![u32::MAX; self.lines.len()];
        while let Some((_, job)) =
            self.highest(now, |queue, line| line.find(0, |least| least.units <= most[queue]))
        {
            if machine.place(now, job.job, job.group, job.request) {
                self.begin(job, started);
            } else if machine.can_hold_at(now, job.group, job.request) {
                return self.blocks(now, &job);
            } else {
                most[usize::from(job.queue.0)] = job.request.units() - 1;
            }
        }
        false
    }

    /// Starts whoever fits, in order.
    fn start_fitting(&mut self, now: SimTime, machine: &mut Machine, started: &mut Vec<QueuedJob>) {
        let mut grantable = Grantable::new(now, machine);
        let mut from = vec![0; self.lines.len()];
        let group = |queue: usize| self.config.queues.0[queue].group;
        let groups: Vec<GroupId> = (0..self.lines.len()).map(group).collect();
        while let Some((place, job)) = self.highest(now, |queue, line| {
            line.find(from[queue], |least: Least| least.units <= grantable.of(groups[queue]))
        }) {
            if machine.place(now, job.job, job.group, job.request) {
                self.begin(job, started);
                grantable.shrink(now, machine);
            } else if !self.boxes {
                grantable.refused(&job);
            }
            // Within one queue nobody is looked at twice; a renumbering happens only when jobs come.
            from[usize::from(job.queue.0)] = place + 1;
        }
    }
}

/// How many units a request may have that each group might still grant.
struct Grantable(Vec<u32>);

impl Grantable {
    fn new(now: SimTime, machine: &Machine) -> Self {
        let groups = (0..).map(GroupId).take(machine.groups().len());
        Self(groups.map(|group| machine.free_in(now, group)).collect())
    }

    fn of(&self, group: GroupId) -> u32 {
        self.0.get(usize::from(group.0)).copied().unwrap_or(0)
    }

    fn shrink(&mut self, now: SimTime, machine: &Machine) {
        for (group, grantable) in (0..).map(GroupId).zip(&mut self.0) {
            *grantable = (*grantable).min(machine.free_in(now, group));
        }
    }

    /// An allocator that refuses so many nodes refuses more of them too.
    fn refused(&mut self, job: &QueuedJob) {
        if let Some(grantable) = self.0.get_mut(usize::from(job.group.0)) {
            *grantable = (*grantable).min(job.request.nodes - 1);
        }
    }
}

impl QueueOrder for Aging {
    fn submit(&mut self, job: QueuedJob) {
        self.boxes |= job.request.cpus > 1;
        self.lines[usize::from(job.queue.0)].push(job);
    }

    fn withdraw(&mut self, job: JobId) -> bool {
        self.lines.iter_mut().any(|line| line.remove(job).is_some())
    }

    fn on_end(&mut self, _: SimTime, job: JobId) {
        if let Some(queue) = self.queue_of.remove(&job) {
            self.running[usize::from(queue.0)] -= 1;
        }
    }

    fn start(&mut self, now: SimTime, machine: &mut Machine, started: &mut Vec<QueuedJob>) {
        if !self.start_heads(now, machine, started) {
            self.start_fitting(now, machine, started);
        }
    }

    fn next_wake(&self, now: SimTime, machine: &Machine) -> Option<SimTime> {
        if self.waiting() == 0 { None } else { machine.next_change(now) }
    }

    fn waiting(&self) -> usize {
        self.lines.iter().map(WaitingLine::len).sum()
    }
}
