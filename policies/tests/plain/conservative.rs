//! Conservative backfilling in plain code, to compare with: every step of the plan is looked at each time.

use std::{collections::BTreeMap, time::Duration};

use coswitch_policies::{
    JobId, SimTime,
    spaceshare::{
        machine::{GroupId, Machine, Period, RegionId},
        queue::{QueueOrder, QueuedJob},
    },
};

const OVERRUN: Duration = Duration::from_secs(60);

type Parts = Vec<(RegionId, u32)>;

/// Free units of a region from each step until the next.
#[derive(Clone, Debug)]
struct Region {
    steps: BTreeMap<SimTime, u32>,
    /// What its sets grant when all is free.
    most: u32,
}

impl Region {
    fn at(&self, at: SimTime) -> u32 {
        *self.steps.range(..=at).next_back().expect("there is a step at time zero").1
    }

    fn change(&mut self, from: SimTime, to: SimTime, change: impl Fn(u32) -> u32) {
        if from < to {
            for at in [from, to] {
                let free = self.at(at);
                self.steps.insert(at, free);
            }
            self.steps.range_mut(from..to).for_each(|(_, free)| *free = change(*free));
        }
    }

    fn least(&self, from: SimTime, length: Duration) -> u32 {
        let within = self.steps.range(from..from.after(length)).map(|(_, free)| *free);
        within.chain([self.at(from)]).min().expect("at least one")
    }
}

#[derive(Clone, Debug)]
struct Waiting {
    job: QueuedJob,
    reserved: Option<(SimTime, Parts)>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct PlainConservative {
    /// In the order of arrival.
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
    running: BTreeMap<JobId, (SimTime, Parts)>,
    regions: Vec<Region>,
    freed: bool,
    unpromised: Vec<u64>,
}

impl PlainConservative {
    pub(crate) fn promised(&self, job: JobId) -> Option<SimTime> {
        let waiting = self.waiting.values().find(|waiting| waiting.job.job == job)?;
        waiting.reserved.as_ref().map(|(start, _)| *start)
    }

    fn by_start(&self) -> Vec<(SimTime, u64)> {
        let start = |(number, waiting): (&u64, &Waiting)| Some((waiting.reserved.as_ref()?.0, *number));
        let mut all: Vec<(SimTime, u64)> = self.waiting.iter().filter_map(start).collect();
        all.sort_unstable();
        all
    }

    fn take(&mut self, from: SimTime, to: SimTime, parts: &Parts) {
        for (region, units) in parts {
            self.regions[usize::from(region.0)].change(from, to, |free| free - units);
        }
    }

    fn give(&mut self, from: SimTime, to: SimTime, parts: &Parts) {
        for (region, units) in parts {
            self.regions[usize::from(region.0)].change(from, to, |free| free + units);
        }
    }

    fn plan(&mut self, now: SimTime, machine: &Machine) {
        if self.regions.is_empty() {
            self.regions = all_free(machine);
        }
        let late = self.by_start().first().is_some_and(|(start, _)| *start < now);
        let overrun = self.running.values().any(|(end, _)| *end < now);
        if late || overrun {
            self.plan_anew(now, machine);
        } else if std::mem::take(&mut self.freed) {
            for (start, number) in self.by_start() {
                let waiting = self.waiting.get_mut(&number).expect("listed");
                let (limit, (_, parts)) = (waiting.job.limit, waiting.reserved.take().expect("listed"));
                self.give(start, start.after(limit), &parts);
                self.promise(now, machine, number);
            }
        }
        for number in std::mem::take(&mut self.unpromised) {
            self.promise(now, machine, number);
        }
    }

    fn plan_anew(&mut self, now: SimTime, machine: &Machine) {
        self.regions = all_free(machine);
        let mut running = std::mem::take(&mut self.running);
        for (end, parts) in running.values_mut() {
            *end = if *end < now { now.after(OVERRUN) } else { *end };
            self.take(now, *end, parts);
        }
        self.running = running;
        self.freed = false;
        self.unpromised = self.waiting.keys().copied().collect();
        self.waiting.values_mut().for_each(|waiting| waiting.reserved = None);
    }

    fn promise(&mut self, now: SimTime, machine: &Machine, number: u64) {
        let Some(job) = self.waiting.get(&number).map(|waiting| waiting.job) else { return };
        let reserved = self.earliest(now, machine, &job);
        if let Some((start, parts)) = &reserved {
            self.take(*start, start.after(job.limit), parts);
        }
        self.waiting.get_mut(&number).expect("just seen").reserved = reserved;
    }

    fn earliest(&self, now: SimTime, machine: &Machine, job: &QueuedJob) -> Option<(SimTime, Parts)> {
        let in_hours = |period: &Period| {
            let regions = machine.regions_of(job.group, *period);
            let alike = machine.hours_of(job.group).len() == 1;
            let mut from = if alike { now } else { machine.opens(now, job.group, *period)? };
            loop {
                let found = self.in_regions(from, regions, machine, job)?;
                from = if alike { found.0 } else { machine.opens(found.0, job.group, *period)? };
                if from == found.0 {
                    return Some(found);
                }
            }
        };
        machine.hours_of(job.group).iter().filter_map(in_hours).min_by_key(|found| found.0)
    }

    fn in_regions(
        &self,
        from: SimTime,
        regions: &[RegionId],
        machine: &Machine,
        job: &QueuedJob,
    ) -> Option<(SimTime, Parts)> {
        let together = if job.request.cpus == 1 { regions.len().max(1) } else { 1 };
        let choices = regions.chunks(together);
        let choices = choices.filter(|choice| regions.len() == 1 || machine.can_hold_in(choice, job.request));
        choices.filter_map(|regions| self.at_some_step(from, regions, job)).min_by_key(|found| found.0)
    }

    /// Free units become more only where a step begins.
    fn at_some_step(&self, from: SimTime, regions: &[RegionId], job: &QueuedJob) -> Option<(SimTime, Parts)> {
        let of = |region: &RegionId| &self.regions[usize::from(region.0)];
        let steps = regions.iter().flat_map(|region| of(region).steps.range(from..).map(|(at, _)| *at));
        let mut starts: Vec<SimTime> = steps.chain([from]).collect();
        starts.sort_unstable();
        let units = job.request.units();
        starts.into_iter().find_map(|start| {
            let least = |region: &RegionId| {
                let cap = if regions.len() == 1 { u32::MAX } else { of(region).most };
                (*region, of(region).least(start, job.limit).min(cap))
            };
            split(&regions.iter().map(least).collect(), units).map(|parts| (start, parts))
        })
    }
}

fn split(free: &Parts, units: u32) -> Option<Parts> {
    let whole = free.iter().filter(|(_, free)| *free >= units).min_by_key(|(_, free)| *free);
    if let Some((region, _)) = whole {
        return Some(vec![(*region, units)]);
    }
    let (mut left, mut parts) = (units, Parts::new());
    for (region, free) in free {
        let part = left.min(*free);
        left -= part;
        parts.extend((part > 0).then_some((*region, part)));
    }
    (left == 0).then_some(parts)
}

fn all_free(machine: &Machine) -> Vec<Region> {
    let region = |region| {
        let sets = || machine.sets_of_region(region).map(|set| &machine.sets()[usize::from(set.0)].allocator);
        let total = sets().map(|set| set.total()).sum();
        let most = sets().map(|set| set.largest_ever()).sum();
        Region { steps: BTreeMap::from([(SimTime(0), total)]), most }
    };
    machine.regions().map(region).collect()
}

impl QueueOrder for PlainConservative {
    fn submit(&mut self, job: QueuedJob) {
        self.waiting.insert(self.next, Waiting { job, reserved: None });
        self.unpromised.push(self.next);
        self.next += 1;
    }

    fn adopt(&mut self, _: SimTime, _: QueuedJob, _: SimTime, _: &Machine) {
        unreachable!("no job is adopted here")
    }

    fn withdraw(&mut self, job: JobId) -> bool {
        let found = self.waiting.iter().find(|(_, waiting)| waiting.job.job == job);
        let Some(number) = found.map(|(number, _)| *number) else { return false };
        let waiting = self.waiting.remove(&number).expect("just found");
        if let Some((start, parts)) = waiting.reserved {
            self.give(start, start.after(waiting.job.limit), &parts);
            self.freed = true;
        }
        true
    }

    fn on_end(&mut self, now: SimTime, job: JobId) {
        if let Some((end, parts)) = self.running.remove(&job) {
            self.give(now, end, &parts);
            self.freed |= now < end;
        }
    }

    fn start(&mut self, now: SimTime, machine: &mut Machine, started: &mut Vec<QueuedJob>) {
        self.plan(now, machine);
        let mut refused: Vec<GroupId> = Vec::new();
        for (_, number) in self.by_start().into_iter().filter(|(start, _)| *start <= now) {
            let waiting = self.waiting[&number].clone();
            let (job, (_, parts)) = (waiting.job, waiting.reserved.expect("it is due"));
            if refused.iter().any(|group| machine.share_sets(now, *group, job.group)) {
                continue;
            }
            if machine.place_in(now, job.job, job.group, job.request, &parts) {
                self.waiting.remove(&number);
                self.running.insert(job.job, (now.after(job.limit), parts));
                started.push(job);
            } else if machine.can_hold_at(now, job.group, job.request) {
                refused.push(job.group);
            }
        }
    }

    fn next_wake(&self, now: SimTime, machine: &Machine) -> Option<SimTime> {
        let due = self.by_start().into_iter().map(|(start, _)| start).find(|start| *start > now);
        due.into_iter().chain(machine.next_change(now)).min().filter(|_| !self.waiting.is_empty())
    }

    fn waiting(&self) -> usize {
        self.waiting.len()
    }
}
