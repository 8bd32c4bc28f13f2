//! Conservative backfilling (Feitelson and Weil 1998): on arrival every job gets the earliest reservation
//! that delays no other job.
//!
//! When a job ends before its limit, each waiting job moves forward as far as it can, in the order of
//! reservations. While jobs keep their limits, no job starts later than promised. If a job runs past its
//! limit, or the allocator refuses although enough units are free, all reservations are made again in the
//! order of arrival, and no job behind the refused one starts in the sets of its group before it does. So it
//! waits only for running jobs, and not for ever for new ones.
//!
//! A reservation respects the hours of the job's group and states its units in each [region](RegionId) of the
//! machine. The job is placed accordingly: with a free choice at its start it might take units that are
//! reserved for others. This costs time where the allocator refuses although enough units are free, because
//! the job then waits for its region.
//!
//! An arrival costs a search in the [profile](super::profile). An early end on a machine of one region costs
//! the jobs that it moves, and a search for each job whose reservation lies behind the units that were freed.
//! With several regions, and when all is planned anew, every waiting job is searched a place. A job that is
//! limited to no time reserves nothing, so that others may take its place.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound::{Excluded, Unbounded},
    time::Duration,
};

use super::{
    QueueOrder, QueuedJob,
    profile::Wanted,
    profiles::{Profiles, Reservation},
    steps::Steps,
};
use crate::{
    JobId, SimTime,
    spaceshare::machine::{GroupId, Machine, Period, RegionId},
};

/// The further run time assumed for a job past its limit.
const OVERRUN: Duration = Duration::from_secs(60);

/// A waiting job and its reservation.
#[derive(Clone, Debug)]
struct Promise {
    job: QueuedJob,
    /// `None` until the next planning, and where the machine never has enough units.
    reservation: Option<Reservation>,
}

/// The latest end of a running job, and its units by region.
type Runs = (SimTime, Vec<(RegionId, u32)>);

#[derive(Clone, Debug, Default)]
pub struct Conservative {
    /// In the order of arrival.
    waiting: BTreeMap<u64, Promise>,
    numbers: BTreeMap<JobId, u64>,
    next: u64,
    /// The waiting jobs by the time promised, with their units and limits.
    by_start: BTreeMap<(SimTime, u64), (u32, Duration)>,
    running: BTreeMap<JobId, Runs>,
    by_end: BTreeSet<(SimTime, JobId)>,
    /// Free units after all running jobs and reservations; `None` before the first planning.
    profiles: Option<Profiles>,
    /// A job ended or left early: reservations may move forward.
    capacity_freed: bool,
    /// Where that may have been, and with how many units.
    freed: Freed,
    /// Numbers of the jobs without a reservation.
    unpromised: Vec<u64>,
    /// A job was adopted: no reservation counts any more.
    adopted: bool,
}

impl Conservative {
    /// The reserved start of `job`, while it waits.
    #[must_use]
    pub fn reservation(&self, job: JobId) -> Option<SimTime> {
        self.waiting[self.numbers.get(&job)?].reservation.as_ref().map(|reservation| reservation.start)
    }

    fn plan(&mut self, now: SimTime, machine: &Machine) {
        self.profiles.get_or_insert_with(|| Profiles::new(machine)).forget_before(now);
        let late = self.by_start.first_key_value().is_some_and(|((start, _), _)| *start < now);
        let overrun = self.by_end.first().is_some_and(|(end, _)| *end < now);
        if std::mem::take(&mut self.adopted) || late || overrun {
            self.plan_anew(now, machine);
        } else if std::mem::take(&mut self.capacity_freed) {
            if is_uniform(machine) {
                self.move_touched(now)
            } else {
                self.move_all(now, machine)
            }
            self.freed = Freed::default();
        }
        for number in std::mem::take(&mut self.unpromised) {
            self.promise(now, machine, number);
        }
    }

    /// Drops all reservations and makes them again.
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
        self.freed = Freed::default();
        self.unpromised = self.waiting.keys().copied().collect();
    }

    fn promise(&mut self, now: SimTime, machine: &Machine, number: u64) {
        let (Some(promise), Some(profiles)) = (self.waiting.get_mut(&number), &mut self.profiles) else {
            return;
        };
        promise.reservation = earliest(profiles, now, machine, &promise.job);
        if let Some(Reservation { start, parts }) = &promise.reservation {
            let QueuedJob { request, limit, .. } = promise.job;
            profiles.take(*start, start.after(limit), parts);
            self.by_start.insert((*start, number), (request.units(), limit));
        }
    }

    /// Moves each waiting job forward as far as it can, in the order of reservations.
    fn move_all(&mut self, now: SimTime, machine: &Machine) {
        let order: Vec<u64> = self.by_start.keys().map(|(_, number)| *number).collect();
        for number in order {
            let promise = self.waiting.get_mut(&number).expect("it was found by its start");
            let (job, before) = (promise.job, promise.reservation.take().expect("it was found by its start"));
            self.forget(number, &job, &before);
            self.promise(now, machine, number);
            debug_assert!(self.reservation(job.job) <= Some(before.start), "no job is delayed");
        }
    }

    /// The same for a machine on which any free units suit every job, where most jobs need not be looked at.
    ///
    /// Until something was freed no job could start earlier. So the new place of a job touches units that
    /// were freed and not taken since, and a job whose reservation lies before all of them stays.
    fn move_touched(&mut self, now: SimTime) {
        let mut last = (now, u64::MAX);
        while let Some(first) = self.freed.first(now) {
            let behind = last.max((first, u64::MAX));
            let only = self.profiles.as_ref().and_then(Profiles::only).expect("it is one region");
            let before = self.freed.end;
            let earlier = |(&(own, number), &(units, length)): (&(SimTime, u64), &(u32, Duration))| {
                let from = first.before(length).max(now);
                let start = only.earliest_of(Wanted { units, length, from, before, own })?;
                Some(((own, number), start))
            };
            let mut next = self.by_start.range((Excluded(behind), Unbounded));
            let Some((found, start)) = next.find_map(earlier) else { return };
            last = found;
            self.move_to(found.1, start);
        }
    }

    fn move_to(&mut self, number: u64, start: SimTime) {
        let promise = self.waiting.get_mut(&number).expect("it was found by its start");
        let (job, reservation) =
            (promise.job, promise.reservation.as_mut().expect("it was found by its start"));
        let before = std::mem::replace(&mut reservation.start, start);
        let (units, profiles) = (job.request.units(), self.profiles.as_mut().expect("it was planned"));
        profiles.give(before, before.after(job.limit), &reservation.parts);
        profiles.take(start, start.after(job.limit), &reservation.parts);
        self.freed.give(before, before.after(job.limit), units);
        self.freed.take(start, start.after(job.limit), units);
        let shape = self.by_start.remove(&(before, number)).expect("it waits");
        self.by_start.insert((start, number), shape);
    }

    fn begin(&mut self, now: SimTime, number: u64) {
        let Promise { job, reservation } =
            self.waiting.remove(&number).expect("a job that starts has waited");
        let Reservation { start, parts } = reservation.expect("a job that starts has a reservation");
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

/// The units that were freed since the last planning and not taken since, over time.
#[derive(Clone, Debug)]
struct Freed {
    units: Steps,
    /// Nothing was freed from here on.
    end: SimTime,
}

impl Default for Freed {
    fn default() -> Self {
        Self { units: Steps::new(0), end: SimTime(0) }
    }
}

impl Freed {
    fn give(&mut self, from: SimTime, to: SimTime, units: u32) {
        self.units.add(from, to, i64::from(units));
        self.end = self.end.max(to);
    }

    fn take(&mut self, from: SimTime, to: SimTime, units: u32) {
        self.units.add(from, to, -i64::from(units));
    }

    /// The first time from `now` on at which some of them are free.
    fn first(&self, now: SimTime) -> Option<SimTime> {
        let found = self.units.first_at_least(self.units.find(now), 1)?;
        Some(self.units.at(found).0.max(now))
    }
}

/// Whether any free units suit every job at all hours.
fn is_uniform(machine: &Machine) -> bool {
    let groups = (0..).map(GroupId).take(machine.groups().len());
    machine.regions().count() == 1
        && groups.map(|group| machine.hours_of(group)).all(|hours| hours.len() == 1)
}

/// The earliest reservation of `job` from `now` on, at a time when its group may use the sets that it needs.
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

/// The earliest reservation in some regions. A request for several CPUs a node is not divided.
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

    fn adopt(&mut self, _: SimTime, job: QueuedJob, end: SimTime, machine: &Machine) {
        let mut parts: BTreeMap<RegionId, u32> = BTreeMap::new();
        for (set, units) in machine.asked_by(job.job) {
            *parts.entry(machine.region_of(set)).or_default() += units;
        }
        self.running.insert(job.job, (end, parts.into_iter().collect()));
        self.by_end.insert((end, job.job));
        self.adopted = true;
    }

    fn withdraw(&mut self, job: JobId) -> bool {
        let Some(number) = self.numbers.remove(&job) else { return false };
        let promise = self.waiting.remove(&number).expect("a job with a number waits");
        if let Some(reservation) = &promise.reservation {
            self.forget(number, &promise.job, reservation);
            let Reservation { start, .. } = *reservation;
            self.freed.give(start, start.after(promise.job.limit), promise.job.request.units());
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
        self.freed.give(now, end, parts.iter().map(|(_, units)| units).sum());
        self.capacity_freed |= now < end;
    }

    fn start(&mut self, now: SimTime, machine: &mut Machine, started: &mut Vec<QueuedJob>) {
        self.plan(now, machine);
        let due: Vec<u64> = self.by_start.range(..=(now, u64::MAX)).map(|((_, number), _)| *number).collect();
        let mut refused: Vec<GroupId> = Vec::new();
        for number in due {
            let Promise { job, reservation } = &self.waiting[&number];
            let (job, reservation) = (*job, reservation.as_ref().expect("it is due"));
            if refused.iter().any(|group| machine.share_sets(now, *group, job.group)) {
                continue;
            }
            // If another job ends at this very moment but is not yet reported, this is asked again.
            if machine.place_in(now, job.job, job.group, job.request, &reservation.parts) {
                self.begin(now, number);
                started.push(job);
            } else if machine.can_hold_at(now, job.group, job.request) {
                refused.push(job.group);
            }
        }
    }

    fn next_wake(&self, now: SimTime, machine: &Machine) -> Option<SimTime> {
        let due = self.by_start.range((Excluded((now, u64::MAX)), Unbounded)).next();
        due.map(|((start, _), _)| *start)
            .into_iter()
            .chain(machine.next_change(now))
            .min()
            .filter(|_| !self.waiting.is_empty())
    }

    fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn promised(&self, _: SimTime, _: &Machine, job: JobId) -> Option<SimTime> {
        self.reservation(job)
    }
}
