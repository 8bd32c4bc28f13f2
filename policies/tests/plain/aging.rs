//! The rule of paper 002 §2.3 as written: sorts all jobs and tries each.

use std::collections::BTreeMap;

use coswitch_policies::{
    JobId, SimTime,
    spaceshare::{
        machine::Machine,
        queue::{AgingConfig, QueueId, QueueOrder, QueuedJob},
    },
};

const HOUR: u64 = 3_600_000_000_000;

#[derive(Clone, Debug)]
pub(crate) struct PlainAging {
    config: AgingConfig,
    waiting: Vec<QueuedJob>,
    running: BTreeMap<JobId, QueueId>,
}

impl PlainAging {
    pub(crate) fn new(config: AgingConfig) -> Self {
        Self { config, waiting: Vec::new(), running: BTreeMap::new() }
    }

    fn priority(&self, now: SimTime, job: &QueuedJob) -> i128 {
        let waited = i128::from(now.0 - job.submitted.0);
        let spec = &self.config.queues.0[usize::from(job.queue.0)];
        i128::from(spec.priority.0) * i128::from(HOUR) + i128::from(self.config.age_factor.0) * waited
    }
}

impl QueueOrder for PlainAging {
    fn submit(&mut self, job: QueuedJob) {
        self.waiting.push(job);
    }

    fn adopt(&mut self, _: SimTime, _: QueuedJob, _: SimTime, _: &Machine) {
        unreachable!("no job is adopted here")
    }

    fn withdraw(&mut self, _: JobId) -> bool {
        unreachable!("no job is taken back here")
    }

    fn on_end(&mut self, _: SimTime, job: JobId) {
        self.running.remove(&job);
    }

    fn start(&mut self, now: SimTime, machine: &mut Machine, started: &mut Vec<QueuedJob>) {
        let mut order = self.waiting.clone();
        order.sort_by_key(|job| (std::cmp::Reverse(self.priority(now, job)), job.submitted, job.job));
        for job in order {
            let max = self.config.queues.0[usize::from(job.queue.0)].running_max;
            let runs = self.running.values().filter(|queue| **queue == job.queue).count();
            if max.is_some_and(|max| runs >= max as usize)
                || !machine.can_hold_at(now, job.group, job.request)
            {
                continue;
            }
            if machine.place(now, job.job, job.group, job.request) {
                self.waiting.retain(|waiting| waiting.job != job.job);
                self.running.insert(job.job, job.queue);
                started.push(job);
            } else if self
                .config
                .block_priority
                .is_some_and(|block| self.priority(now, &job) > i128::from(block.0) * i128::from(HOUR))
            {
                return;
            }
        }
    }

    fn next_wake(&self, now: SimTime, machine: &Machine) -> Option<SimTime> {
        if self.waiting.is_empty() { None } else { machine.next_change(now) }
    }

    fn waiting(&self) -> usize {
        self.waiting.len()
    }
}
