//! EASY backfilling (Lifka 1995): today's usual baseline.
//!
//! First come, first served, but where the head does not fit, it gets a reservation: the *shadow time* at which, by the limits
//! of the running jobs, enough is free for it, and what will be *extra* then. Jobs behind it start at once if they are over by then or need
//! no more than the extra. So only the head is protected; others may be put off.
//!
//! It counts free units of the whole machine: meant for a machine of one node group. With an allocator that refuses though enough is
//! free, a reservation may be missed, and the head waits on. A job past its limit is taken to end any moment.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    QueueOrder, QueuedJob,
    line::{Least, Line},
};
use crate::{JobId, SimTime, machine::Machine};

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Easy {
    waiting: Line,
    /// When each running job is over at the latest, and its units.
    running: BTreeMap<JobId, (SimTime, u32)>,
    by_end: BTreeSet<(SimTime, JobId)>,
}

/// What the head of the queue was promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reservation {
    shadow: SimTime,
    extra: u32,
}

impl Easy {
    /// When the head of the queue starts at the latest, if limits are kept.
    #[must_use]
    pub fn promised(&self, now: SimTime, machine: &Machine) -> Option<(JobId, SimTime)> {
        let (_, head) = self.waiting.head()?;
        let kept = self.reserve(now, machine.free(), head.request.units())?;
        Some((head.job, kept.shadow))
    }

    fn begin(&mut self, now: SimTime, job: JobId, started: &mut Vec<QueuedJob>) {
        let job = self.waiting.remove(job).expect("who starts has waited");
        let end = now.after(job.limit);
        self.running.insert(job.job, (end, job.request.units()));
        self.by_end.insert((end, job.job));
        started.push(job);
    }

    /// When `units` will be free, by the limits.
    fn reserve(&self, now: SimTime, free: u32, units: u32) -> Option<Reservation> {
        let mut free = free;
        for (end, job) in &self.by_end {
            free += self.running[job].1;
            if free >= units {
                return Some(Reservation { shadow: (*end).max(now), extra: free - units });
            }
        }
        None
    }

    fn backfill(
        &mut self,
        now: SimTime,
        machine: &mut Machine,
        mut kept: Reservation,
        started: &mut Vec<QueuedJob>,
    ) {
        let left: Duration = kept.shadow.since(now);
        let mut from = self.waiting.head().map_or(0, |(place, _)| place + 1);
        loop {
            let free = machine.free();
            let may =
                |least: Least| least.units <= free && (least.limit <= left || least.units <= kept.extra);
            let Some((place, &job)) = self.waiting.find(from, may) else { return };
            if machine.place(now, job.job, job.group, job.request) {
                if job.limit > left {
                    kept.extra -= job.request.units();
                }
                self.begin(now, job.job, started);
            }
            from = place + 1;
        }
    }
}

impl QueueOrder for Easy {
    fn submit(&mut self, job: QueuedJob) {
        self.waiting.push(job);
    }

    fn withdraw(&mut self, job: JobId) -> bool {
        self.waiting.remove(job).is_some()
    }

    fn on_end(&mut self, _: SimTime, job: JobId) {
        if let Some((end, _)) = self.running.remove(&job) {
            self.by_end.remove(&(end, job));
        }
    }

    fn start(&mut self, now: SimTime, machine: &mut Machine, started: &mut Vec<QueuedJob>) {
        while let Some((_, &head)) = self.waiting.head() {
            if !machine.place(now, head.job, head.group, head.request) {
                // Where not even the ends of all running jobs suffice, the hours keep the head out: it can be promised nothing.
                let free = machine.free();
                if let Some(kept) = self.reserve(now, free, head.request.units()) {
                    self.backfill(now, machine, kept, started);
                }
                return;
            }
            self.begin(now, head.job, started);
        }
    }

    fn next_wake(&self, now: SimTime, machine: &Machine) -> Option<SimTime> {
        if self.waiting.is_empty() { None } else { machine.next_change(now) }
    }

    fn waiting(&self) -> usize {
        self.waiting.len()
    }
}
