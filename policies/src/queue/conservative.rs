//! Conservative backfilling (Feitelson and Weil 1998): every job gets a reservation when it comes, the earliest that puts nobody
//! else off.
//!
//! When a job ends before its limit, each waiting job in the order of reservations moves forward as far as it can. While limits are kept, no
//! job starts later than it was promised. Where a job runs past its limit, or the allocator refuses though enough is free, all
//! promises are made anew, in the order of coming, and nobody behind it starts in the sets of its group until it has: so
//! it waits for those that run there, and not for ever for those that come.
//!
//! Like [`super::Easy`] it counts free units of the whole machine: with several node groups a promise may be missed. Planning costs the waiting jobs times the steps of the profile.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{QueueOrder, QueuedJob, profile::Profile};
use crate::{
    JobId, SimTime,
    machine::{GroupId, Machine},
};

/// How much longer a job past its limit is taken to run.
const OVERRUN: Duration = Duration::from_secs(60);

/// A job and what it was promised.
#[derive(Clone, Copy, Debug)]
struct Promise {
    job: QueuedJob,
    /// `None` until the next planning, and where the machine never has so much.
    start: Option<SimTime>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Conservative {
    /// In the order of coming.
    waiting: BTreeMap<u64, Promise>,
    numbers: BTreeMap<JobId, u64>,
    next: u64,
    /// The waiting by the time promised.
    by_start: BTreeSet<(SimTime, u64)>,
    running: BTreeMap<JobId, (SimTime, u32)>,
    by_end: BTreeSet<(SimTime, JobId)>,
    /// What is free after all running jobs and promises; `None` before the first planning.
    profile: Option<Profile>,
    /// A job ended or left early: promises may move forward.
    room_appeared: bool,
    /// Numbers of jobs without a promise.
    fresh: Vec<u64>,
}

impl Conservative {
    /// What `job` was promised, while it waits.
    #[must_use]
    pub fn promised(&self, job: JobId) -> Option<SimTime> {
        self.waiting[self.numbers.get(&job)?].start
    }

    fn plan(&mut self, now: SimTime, machine: &Machine) {
        let profile = self.profile.get_or_insert_with(|| Profile::new(machine.total()));
        profile.pass(now);
        let late = self.by_start.first().is_some_and(|(start, _)| *start < now);
        let overrun = self.by_end.first().is_some_and(|(end, _)| *end < now);
        if late || overrun {
            self.plan_anew(now, machine.total());
        } else if std::mem::take(&mut self.room_appeared) {
            let order: Vec<u64> = self.by_start.iter().map(|(_, number)| *number).collect();
            order.into_iter().for_each(|number| self.move_forward(now, number));
        }
        for number in std::mem::take(&mut self.fresh) {
            self.promise(now, number);
        }
    }

    /// Forgets all promises and makes them again.
    fn plan_anew(&mut self, now: SimTime, total: u32) {
        let mut profile = Profile::new(total);
        profile.pass(now);
        for (end, units) in self.running.values_mut() {
            let until = if *end < now { now.after(OVERRUN) } else { *end };
            profile.take(now, until, *units);
            *end = until;
        }
        self.by_end = self.running.iter().map(|(job, (end, _))| (*end, *job)).collect();
        self.profile = Some(profile);
        self.by_start.clear();
        self.room_appeared = false;
        self.fresh = self.waiting.keys().copied().collect();
    }

    fn promise(&mut self, now: SimTime, number: u64) {
        let (Some(promise), Some(profile)) = (self.waiting.get_mut(&number), &mut self.profile) else {
            return;
        };
        let (units, limit) = (promise.job.request.units(), promise.job.limit);
        promise.start = profile.earliest(now, units, limit);
        if let Some(start) = promise.start {
            profile.take(start, start.after(limit), units);
            self.by_start.insert((start, number));
        }
    }

    fn move_forward(&mut self, now: SimTime, number: u64) {
        let promise = self.waiting[&number];
        let start = promise.start.expect("it was found by its start");
        self.forget(start, number, &promise.job);
        self.promise(now, number);
        debug_assert!(self.waiting[&number].start <= Some(start), "nobody is put off");
    }

    fn forget(&mut self, start: SimTime, number: u64, job: &QueuedJob) {
        self.by_start.remove(&(start, number));
        if let Some(profile) = &mut self.profile {
            profile.give(start, start.after(job.limit), job.request.units());
        }
    }
}

impl QueueOrder for Conservative {
    fn submit(&mut self, job: QueuedJob) {
        self.waiting.insert(self.next, Promise { job, start: None });
        self.numbers.insert(job.job, self.next);
        self.fresh.push(self.next);
        self.next += 1;
    }

    fn withdraw(&mut self, job: JobId) -> bool {
        let Some(number) = self.numbers.remove(&job) else { return false };
        let promise = self.waiting.remove(&number).expect("who has a number waits");
        if let Some(start) = promise.start {
            self.forget(start, number, &promise.job);
            self.room_appeared = true;
        }
        true
    }

    fn on_end(&mut self, now: SimTime, job: JobId) {
        let Some((end, units)) = self.running.remove(&job) else { return };
        self.by_end.remove(&(end, job));
        if let Some(profile) = &mut self.profile {
            profile.give(now, end, units);
        }
        self.room_appeared |= now < end;
    }

    fn start(&mut self, now: SimTime, machine: &mut Machine, started: &mut Vec<QueuedJob>) {
        self.plan(now, machine);
        let due: Vec<u64> = self.by_start.range(..=(now, u64::MAX)).map(|(_, number)| *number).collect();
        let mut refused: Vec<GroupId> = Vec::new();
        for number in due {
            let Promise { job, start } = self.waiting[&number];
            if refused.iter().any(|group| machine.share_sets(now, *group, job.group)) {
                continue;
            }
            // Another end may be about to be told for this very moment: then it is asked again.
            if machine.place(now, job.job, job.group, job.request) {
                self.by_start.remove(&(start.expect("it is due"), number));
                self.waiting.remove(&number);
                self.numbers.remove(&job.job);
                let end = now.after(job.limit);
                self.running.insert(job.job, (end, job.request.units()));
                self.by_end.insert((end, job.job));
                started.push(job);
            } else if machine.can_hold_at(now, job.group, job.request) {
                refused.push(job.group);
            }
        }
    }

    fn next_wake(&self, now: SimTime, machine: &Machine) -> Option<SimTime> {
        let due = self.by_start.iter().map(|(start, _)| *start).find(|start| *start > now);
        due.into_iter().chain(machine.next_change(now)).min().filter(|_| !self.waiting.is_empty())
    }

    fn waiting(&self) -> usize {
        self.waiting.len()
    }
}
