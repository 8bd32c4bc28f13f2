//! EASY backfilling (Lifka 1995), the usual baseline.
//!
//! First come, first served; but if the head does not fit, it gets a reservation: the *shadow time* at which
//! enough units will be free for it by the limits of the running jobs, and the *extra* units that will then
//! be left over. A job behind the head starts at once if it ends before the shadow time or needs no more than
//! the extra units. Only the head is protected; other jobs may be delayed.
//!
//! The head's reservation counts the sets of its group in the period that holds then. A longer job behind the
//! head may take no more of those sets than the extra units; so it is placed, checked, and released again if
//! it takes more. On other nodes it may start freely. If an allocator refuses although enough units are free,
//! a reservation may be missed, and the head waits on. A job past its limit is assumed to end at any moment.

use std::{collections::BTreeMap, time::Duration};

use super::{
    QueueOrder, QueuedJob,
    line::{Least, WaitingLine},
};
use crate::{
    JobId, SimTime,
    spaceshare::machine::{Machine, Period, SetId},
};

#[derive(Clone, Debug, Default)]
pub struct Easy {
    waiting: WaitingLine,
    /// The latest end of each running job, by its limit.
    running: BTreeMap<JobId, SimTime>,
    /// The units it requested in each set, ordered by that end.
    by_end: BTreeMap<(SimTime, JobId), Vec<(SetId, u32)>>,
}

/// The reservation of the head of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reservation {
    shadow: SimTime,
    extra: u32,
    /// The period whose sets it is for.
    hours: Period,
}

impl Easy {
    /// The head of the queue and its latest start, provided that jobs keep their limits.
    #[must_use]
    pub fn reservation(&self, now: SimTime, machine: &Machine) -> Option<(JobId, SimTime)> {
        let (_, head) = self.waiting.head()?;
        let reservation = self.reserve(now, machine, head)?;
        Some((head.job, reservation.shadow))
    }

    fn run_until(&mut self, end: SimTime, job: JobId, machine: &Machine) {
        self.running.insert(job, end);
        self.by_end.insert((end, job), machine.asked_by(job).collect());
    }

    fn begin(&mut self, now: SimTime, job: JobId, machine: &Machine, started: &mut Vec<QueuedJob>) {
        let job = self.waiting.remove(job).expect("a job that starts has waited");
        self.run_until(now.after(job.limit), job.job, machine);
        started.push(job);
    }

    /// The earliest reservation for `head`.
    fn reserve(&self, now: SimTime, machine: &Machine, head: &QueuedJob) -> Option<Reservation> {
        let hours = machine.hours_of(head.group).iter();
        hours
            .filter_map(|hours| self.reserve_in(now, machine, head, *hours))
            .min_by_key(|reservation| reservation.shadow)
    }

    /// The time at which enough units will be free in the sets of this period, by the limits, while the
    /// period holds.
    fn reserve_in(
        &self,
        now: SimTime,
        machine: &Machine,
        head: &QueuedJob,
        hours: Period,
    ) -> Option<Reservation> {
        let (sets, units) = (machine.sets_in(head.group, hours), head.request.units());
        let mut free = machine.free_of(sets);
        // In the current period the head was refused just now, even if the count suffices.
        let shadow = if free >= units && machine.opens(now, head.group, hours)? > now {
            now
        } else {
            let (end, _) = self.by_end.iter().find_map(|(end, asked)| {
                free += within(sets, asked.iter().copied());
                (free >= units).then_some(*end)
            })?;
            end.max(now)
        };
        let shadow = machine.opens(shadow, head.group, hours)?;
        Some(Reservation { shadow, extra: free - units, hours })
    }

    fn backfill(
        &mut self,
        now: SimTime,
        machine: &mut Machine,
        head: &QueuedJob,
        mut reservation: Reservation,
        started: &mut Vec<QueuedJob>,
    ) {
        let left: Duration = reservation.shadow.since(now);
        let mut from = self.waiting.head().map_or(0, |(place, _)| place + 1);
        loop {
            let (free, sets) = (machine.free(), machine.sets_in(head.group, reservation.hours));
            // A job may take this many units beside the head: the extra, and the free units of other sets.
            let beside = reservation.extra + (free - machine.free_of(sets));
            let may = |least: Least| least.units <= free && (least.limit <= left || least.units <= beside);
            let Some((place, &job)) = self.waiting.find(from, may) else { return };
            from = place + 1;
            if !machine.place(now, job.job, job.group, job.request) {
                continue;
            }
            let sets = machine.sets_in(head.group, reservation.hours);
            let taken = if job.limit > left { within(sets, machine.asked_by(job.job)) } else { 0 };
            if taken <= reservation.extra {
                reservation.extra -= taken;
                self.begin(now, job.job, machine, started);
            } else {
                assert!(machine.release(job.job), "it was just placed");
            }
        }
    }
}

/// The units of `asked` that are in `sets`.
fn within(sets: &[SetId], asked: impl Iterator<Item = (SetId, u32)>) -> u32 {
    asked.filter(|(set, _)| sets.contains(set)).map(|(_, units)| units).sum()
}

impl QueueOrder for Easy {
    fn submit(&mut self, job: QueuedJob) {
        self.waiting.push(job);
    }

    fn adopt(&mut self, _: SimTime, job: QueuedJob, end: SimTime, machine: &Machine) {
        self.run_until(end, job.job, machine);
    }

    fn withdraw(&mut self, job: JobId) -> bool {
        self.waiting.remove(job).is_some()
    }

    fn on_end(&mut self, _: SimTime, job: JobId) {
        if let Some(end) = self.running.remove(&job) {
            self.by_end.remove(&(end, job));
        }
    }

    fn start(&mut self, now: SimTime, machine: &mut Machine, started: &mut Vec<QueuedJob>) {
        while let Some((_, &head)) = self.waiting.head() {
            if !machine.place(now, head.job, head.group, head.request) {
                // There is no reservation where even the ends of all running jobs do not suffice.
                if let Some(reservation) = self.reserve(now, machine, &head) {
                    self.backfill(now, machine, &head, reservation, started);
                }
                return;
            }
            self.begin(now, head.job, machine, started);
        }
    }

    fn next_wake(&self, now: SimTime, machine: &Machine) -> Option<SimTime> {
        if self.waiting.is_empty() { None } else { machine.next_change(now) }
    }

    fn waiting(&self) -> usize {
        self.waiting.len()
    }
    fn promised(&self, now: SimTime, machine: &Machine, job: JobId) -> Option<SimTime> {
        self.reservation(now, machine).filter(|(head, _)| *head == job).map(|(_, start)| start)
    }
}
