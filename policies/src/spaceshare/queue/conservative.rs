//! Conservative backfilling (Feitelson and Weil 1998): every job gets a reservation when it comes, the earliest that puts nobody
//! else off.
//!
//! When a job ends before its limit, each waiting job in the order of reservations moves forward as far as it can. While limits are reservation, no
//! job starts later than it was promised. Where a job runs past its limit, or the allocator refuses though enough is free, all
//! promises are made anew, in the order of coming, and nobody behind it starts in the sets of its group until it has: so
//! it waits for those that run there, and not for ever for those that come.
//!
//! A reservation heeds the hours of the job's group, and says how much of it lies in which [region](RegionId) of the machine. The job is placed
//! so: had it the choice when it starts, it might take what is reserved for others. That is dear where the allocator refuses though
//! enough is free, for the job then waits for its region. Planning costs the waiting jobs times the steps of the profiles.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    QueueOrder, QueuedJob,
    profiles::{Profiles, Reservation},
};
use crate::{
    JobId, SimTime,
    spaceshare::machine::{GroupId, Machine, Period, RegionId},
};

/// How much longer a job past its limit is taken to run.
const OVERRUN: Duration = Duration::from_secs(60);

/// A job and what it was promised.
#[derive(Clone, Debug)]
struct Promise {
    job: QueuedJob,
    /// `None` until the next planning, and where the machine never has so much.
    reservation: Option<Reservation>,
}

/// When a running job is over at the latest, and what it asked for in which region.
type Runs = (SimTime, Vec<(RegionId, u32)>);

#[derive(Clone, Debug, Default)]
pub struct Conservative {
    /// In the order of coming.
    waiting: BTreeMap<u64, Promise>,
    numbers: BTreeMap<JobId, u64>,
    next: u64,
    /// The waiting by the time promised.
    by_start: BTreeSet<(SimTime, u64)>,
    running: BTreeMap<JobId, Runs>,
    by_end: BTreeSet<(SimTime, JobId)>,
    /// What is free after all running jobs and promises; `None` before the first planning.
    profiles: Option<Profiles>,
    /// A job ended or left early: promises may move forward.
    capacity_freed: bool,
    /// Numbers of jobs without a promise.
    unpromised: Vec<u64>,
}

impl Conservative {
    /// What `job` was promised, while it waits.
    #[must_use]
    pub fn promised(&self, job: JobId) -> Option<SimTime> {
        self.waiting[self.numbers.get(&job)?].reservation.as_ref().map(|reservation| reservation.start)
    }

    fn plan(&mut self, now: SimTime, machine: &Machine) {
        self.profiles.get_or_insert_with(|| Profiles::new(machine)).forget_before(now);
        let late = self.by_start.first().is_some_and(|(start, _)| *start < now);
        let overrun = self.by_end.first().is_some_and(|(end, _)| *end < now);
        if late || overrun {
            self.plan_anew(now, machine);
        } else if std::mem::take(&mut self.capacity_freed) {
            let order: Vec<u64> = self.by_start.iter().map(|(_, number)| *number).collect();
            order.into_iter().for_each(|number| self.move_forward(now, machine, number));
        }
        for number in std::mem::take(&mut self.unpromised) {
            self.promise(now, machine, number);
        }
    }

    /// Forgets all promises and makes them again.
    fn plan_anew(&mut self, now: SimTime, machine: &Machine) {
        let mut profiles = Profiles::new(machine);
        profiles.forget_before(now);
        for (end, parts) in self.running.values_mut() {
            let until = if *end < now { now.after(OVERRUN) } else { *end };
            profiles.take(now, until, parts);
            *end = until;
        }
        self.by_end = self.running.iter().map(|(job, (end, _))| (*end, *job)).collect();
        self.profiles = Some(profiles);
        self.by_start.clear();
        self.capacity_freed = false;
        self.unpromised = self.waiting.keys().copied().collect();
    }

    fn promise(&mut self, now: SimTime, machine: &Machine, number: u64) {
        let (Some(promise), Some(profiles)) = (self.waiting.get_mut(&number), &mut self.profiles) else {
            return;
        };
        promise.reservation = earliest(profiles, now, machine, &promise.job);
        if let Some(Reservation { start, parts }) = &promise.reservation {
            profiles.take(*start, start.after(promise.job.limit), parts);
            self.by_start.insert((*start, number));
        }
    }

    fn move_forward(&mut self, now: SimTime, machine: &Machine, number: u64) {
        let promise = self.waiting.get_mut(&number).expect("it was found by its start");
        let (job, before) = (promise.job, promise.reservation.take().expect("it was found by its start"));
        self.forget(number, &job, &before);
        self.promise(now, machine, number);
        debug_assert!(self.promised(job.job) <= Some(before.start), "nobody is put off");
    }

    fn begin(&mut self, now: SimTime, number: u64) {
        let Promise { job, reservation } = self.waiting.remove(&number).expect("who starts has waited");
        let Reservation { start, parts } = reservation.expect("who starts was promised it");
        self.by_start.remove(&(start, number));
        self.numbers.remove(&job.job);
        let end = now.after(job.limit);
        self.running.insert(job.job, (end, parts));
        self.by_end.insert((end, job.job));
    }

    fn forget(&mut self, number: u64, job: &QueuedJob, reservation: &Reservation) {
        self.by_start.remove(&(reservation.start, number));
        if let Some(profiles) = &mut self.profiles {
            profiles.give(reservation.start, reservation.start.after(job.limit), &reservation.parts);
        }
    }
}

/// The earliest reservation of `job` from `now` on at which its group has the sets in which it lies.
fn earliest(profiles: &Profiles, now: SimTime, machine: &Machine, job: &QueuedJob) -> Option<Reservation> {
    let hours = machine.hours_of(job.group);
    if let [alike] = hours {
        return in_regions(profiles, now, machine.regions_of(job.group, *alike), machine, job);
    }
    let in_hours = |period: &Period| {
        let mut from = machine.opens(now, job.group, *period)?;
        loop {
            let found = in_regions(profiles, from, machine.regions_of(job.group, *period), machine, job)?;
            from = machine.opens(found.start, job.group, *period)?;
            if from == found.start {
                return Some(found);
            }
        }
    };
    hours.iter().filter_map(in_hours).min_by_key(|found| found.start)
}

/// The same in some regions. A box of several CPUs is not divided.
fn in_regions(
    profiles: &Profiles,
    from: SimTime,
    regions: &[RegionId],
    machine: &Machine,
    job: &QueuedJob,
) -> Option<Reservation> {
    if regions.len() == 1 {
        return profiles.earliest(from, regions, job.request.units(), job.limit);
    }
    let together = if job.request.cpus == 1 { regions.len().max(1) } else { 1 };
    let choices = regions.chunks(together).filter(|regions| machine.can_hold_in(regions, job.request));
    choices
        .filter_map(|regions| profiles.earliest(from, regions, job.request.units(), job.limit))
        .min_by_key(|found| found.start)
}

impl QueueOrder for Conservative {
    fn submit(&mut self, job: QueuedJob) {
        self.waiting.insert(self.next, Promise { job, reservation: None });
        self.numbers.insert(job.job, self.next);
        self.unpromised.push(self.next);
        self.next += 1;
    }

    fn withdraw(&mut self, job: JobId) -> bool {
        let Some(number) = self.numbers.remove(&job) else { return false };
        let promise = self.waiting.remove(&number).expect("who has a number waits");
        if let Some(reservation) = &promise.reservation {
            self.forget(number, &promise.job, reservation);
            self.capacity_freed = true;
        }
        true
    }

    fn on_end(&mut self, now: SimTime, job: JobId) {
        let Some((end, parts)) = self.running.remove(&job) else { return };
        self.by_end.remove(&(end, job));
        if let Some(profiles) = &mut self.profiles {
            profiles.give(now, end, &parts);
        }
        self.capacity_freed |= now < end;
    }

    fn start(&mut self, now: SimTime, machine: &mut Machine, started: &mut Vec<QueuedJob>) {
        self.plan(now, machine);
        let due: Vec<u64> = self.by_start.range(..=(now, u64::MAX)).map(|(_, number)| *number).collect();
        let mut refused: Vec<GroupId> = Vec::new();
        for number in due {
            let Promise { job, reservation } = &self.waiting[&number];
            let (job, reservation) = (*job, reservation.as_ref().expect("it is due"));
            if refused.iter().any(|group| machine.share_sets(now, *group, job.group)) {
                continue;
            }
            // Another end may be about to be told for this very moment: then it is asked again.
            if machine.place_in(now, job.job, job.group, job.request, &reservation.parts) {
                self.begin(now, number);
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
