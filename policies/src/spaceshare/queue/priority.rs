//! Queue priorities with aging, and blocking for large jobs (paper 002 §2.3).
//!
//! `job priority = queue priority + age factor · hours waited`. Jobs are tried in the order of priority, and
//! jobs that do not fit are passed over. If the first job that does not fit has a priority above
//! `block_priority`, no job behind it starts, and nodes stay idle until it fits. So no job starves: it ages
//! past `block_priority`, and only finitely many jobs can still be ahead of it.
//!
//! All jobs age alike, so two jobs never swap their order: within a queue it is first come, first served, and
//! comparing the heads of the queues suffices. A job that no end of another job could let run now, because
//! the hours or the limit of its queue exclude it, does not block others; the paper does not mention this
//! case. Such a job may starve if others may run longer than the hours of its group last; with the paper's
//! twelve and sixteen hours it does not.

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
    /// Priority that a job gains in each hour it waits; not negative.
    pub age_factor: Priority,
    /// Above this priority a job that does not fit blocks all behind it; `None`: never.
    pub block_priority: Option<Priority>,
}

#[derive(Clone, Debug)]
pub struct Aging {
    config: AgingConfig,
    lines: Vec<WaitingLine>,
    /// Running jobs of each queue.
    running: Vec<u32>,
    queue_of: BTreeMap<JobId, QueueId>,
    /// Whether any job ever requested several CPUs of a node: then a refusal does not rule out larger
    /// requests.
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
        assert!(config.age_factor.0 >= 0, "the age factor is not negative");
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

    /// The job of highest priority among those that `find` returns for each open queue.
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
        self.lines[queue].remove(job.job).expect("a job that starts has waited");
        self.running[queue] += 1;
        self.queue_of.insert(job.job, job.queue);
        started.push(job);
    }

    /// Starts the heads of all queues in order until one does not fit; returns whether that one blocks.
    fn start_heads(&mut self, now: SimTime, machine: &mut Machine, started: &mut Vec<QueuedJob>) -> bool {
        // The largest request of each queue that the hours do not exclude.
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

    /// Starts every job that fits, in order.
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
            // Each job is tried once; places are renumbered only when jobs arrive.
            from[usize::from(job.queue.0)] = place + 1;
        }
    }
}

/// Free capacity by group: an upper bound on the units of a request that the group may still grant.
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

    /// An allocator that refuses a request refuses larger ones too.
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

    fn adopt(&mut self, _: SimTime, job: QueuedJob, _: SimTime, _: &Machine) {
        if let Some(running) = self.running.get_mut(usize::from(job.queue.0)) {
            *running += 1;
            self.queue_of.insert(job.job, job.queue);
        }
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
