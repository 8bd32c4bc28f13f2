//! The scheduler of RMS (paper 000 §3.2.1, Algorithms 2 and 3): gang scheduling without a matrix.
//!
//! At every event all CPUs are given out anew for the coming timeslice, job by job in a fixed order: root first, then by
//! priority, by the timeslices waited, running and queued before suspended, and by submission. A job that has its CPUs gets those or none, for it
//! is never moved; one that has none yet gets a box of what is left ([`BoxPacker`]). The turns come about by waiting, and a job
//! whose CPUs nobody ahead of it wants runs in this timeslice too: alternate scheduling of whole jobs, for free.
//!
//! ```text
//!              usage limit            first box             passed over
//!   submitted ──────────▶ blocked ──▶ queued ──▶ running ◀───────────▶ suspended
//! ```
//!
//! A job of an ordinary user whose CPUs would bring all of theirs above the usage limit is blocked until others end. The paper leaves open
//! whether the waiting of a job that runs is forgotten; it is here, for else a newcomer would wait as often as all others
//! had waited in their lives.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::{Deserialize, Serialize};

use crate::{
    JobId, SimTime,
    spaceshare::allocate::{Allocation, Allocator, BoxPacker, Request},
};

/// What a user asks RMS for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RmsJob {
    pub job: JobId,
    /// Whether root submitted it.
    pub root: bool,
    /// Higher goes first.
    pub priority: i32,
    pub request: Request,
    pub submitted: SimTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RmsState {
    /// Above the usage limit.
    Blocked,
    /// No CPUs were found for it yet.
    Queued,
    /// In this timeslice.
    Running,
    /// Has CPUs, which others use in this timeslice.
    Suspended,
}

/// The order in which CPUs are given out; the smallest first.
type Precedence = (Reverse<bool>, Reverse<i32>, Reverse<u32>, bool, SimTime, JobId);

#[derive(Clone, Debug)]
struct Resource {
    job: RmsJob,
    state: RmsState,
    /// Timeslices since it last ran.
    waited: u32,
    /// Its CPUs, from its first timeslice on.
    cpus: Option<Allocation>,
}

impl Resource {
    const fn precedence(&self) -> Precedence {
        let RmsJob { job, root, priority, submitted, .. } = self.job;
        let suspended = matches!(self.state, RmsState::Suspended | RmsState::Blocked);
        (Reverse(root), Reverse(priority), Reverse(self.waited), suspended, submitted, job)
    }
}

/// What the node daemons are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RmsAct {
    /// Begin it on its CPUs.
    Start(JobId),
    Resume(JobId),
    /// Stop it until told.
    Suspend(JobId),
}

#[derive(Clone, Debug)]
pub struct Rms {
    nodes: u32,
    cpus: u32,
    usage_limit: u32,
    resources: BTreeMap<JobId, Resource>,
}

impl Rms {
    /// `nodes` nodes of `cpus` CPUs. Ordinary users may together have `usage_limit` CPUs, counted over all timeslices; the default of RMS is
    /// all CPUs once, which means that their jobs hardly share time.
    #[must_use]
    pub const fn new(nodes: u32, cpus: u32, usage_limit: u32) -> Self {
        Self { nodes, cpus, usage_limit, resources: BTreeMap::new() }
    }

    /// A job came; it runs when [`Self::schedule`] says so. False where it is larger than the machine.
    pub fn submit(&mut self, job: RmsJob) -> bool {
        let fits = BoxPacker::new(self.nodes, self.cpus).can_ever_hold(job.request);
        if fits {
            let fresh = Resource { job, state: RmsState::Queued, waited: 0, cpus: None };
            let before = self.resources.insert(job.job, fresh);
            assert!(before.is_none(), "{} is submitted once", job.job);
        }
        fits
    }

    /// A job ended, wherever it stood.
    pub fn on_end(&mut self, job: JobId) {
        self.resources.remove(&job);
    }

    #[must_use]
    pub fn state(&self, job: JobId) -> Option<RmsState> {
        self.resources.get(&job).map(|resource| resource.state)
    }

    /// The CPUs of `job`, from its first timeslice on.
    #[must_use]
    pub fn cpus_of(&self, job: JobId) -> Option<&Allocation> {
        self.resources.get(&job)?.cpus.as_ref()
    }

    /// Algorithm 3: gives out the CPUs of the coming timeslice; what changes. Call it at every event.
    pub fn schedule(&mut self, timeslice_expired: bool) -> Vec<RmsAct> {
        if timeslice_expired {
            // Who is blocked does not wait for a timeslice. Else it would be the first to get CPUs once it may: the leftmost, where
            // others have theirs, while the right half of the machine stays idle.
            let waits = |state| matches!(state, RmsState::Queued | RmsState::Suspended);
            let waiting = self.resources.values_mut().filter(|resource| waits(resource.state));
            waiting.for_each(|resource| resource.waited += 1);
        }
        let mut order: Vec<Precedence> = self.resources.values().map(Resource::precedence).collect();
        order.sort_unstable();
        let (mut packer, mut acts) = (BoxPacker::new(self.nodes, self.cpus), Vec::new());
        let ordinary = self.resources.values().filter(|resource| !resource.job.root);
        let mut used = ordinary.filter_map(|resource| resource.cpus.as_ref()).map(Allocation::units).sum();
        for (.., job) in order {
            acts.extend(self.give(job, &mut packer, &mut used));
        }
        acts
    }

    /// Finds the place of one job in the timeslice.
    fn give(&mut self, job: JobId, packer: &mut BoxPacker, used: &mut u32) -> Option<RmsAct> {
        let resource = self.resources.get_mut(&job).expect("it was just listed");
        let before = resource.state;
        resource.state = match &resource.cpus {
            Some(cpus) if packer.claim(job, cpus) => RmsState::Running,
            Some(_) => RmsState::Suspended,
            // It would bring the CPUs of ordinary users above their limit.
            None if !resource.job.root && *used + resource.job.request.units() > self.usage_limit => {
                RmsState::Blocked
            }
            None => {
                resource.cpus = packer.allocate(job, resource.job.request).cloned();
                let ordinary = resource.cpus.as_ref().filter(|_| !resource.job.root);
                *used += ordinary.map_or(0, Allocation::units);
                if resource.cpus.is_some() { RmsState::Running } else { RmsState::Queued }
            }
        };
        if resource.state == RmsState::Running {
            resource.waited = 0;
        }
        match (before, resource.state) {
            (RmsState::Queued | RmsState::Blocked, RmsState::Running) => Some(RmsAct::Start(job)),
            (RmsState::Suspended, RmsState::Running) => Some(RmsAct::Resume(job)),
            (RmsState::Running, RmsState::Suspended) => Some(RmsAct::Suspend(job)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(job: u32, nodes: u32, cpus: u32) -> RmsJob {
        let (request, submitted) = (Request { nodes, cpus }, SimTime(u64::from(job)));
        RmsJob { job: JobId(job), root: false, priority: 0, request, submitted }
    }

    fn running(rms: &Rms) -> Vec<u32> {
        let runs = rms.resources.values().filter(|resource| resource.state == RmsState::Running);
        runs.map(|resource| resource.job.job.0).collect()
    }

    #[test]
    fn jobs_take_turns_and_one_that_nobody_is_in_the_way_of_runs_in_both() {
        let mut rms = Rms::new(4, 2, 100);
        // 0 takes the left half, 1 all nodes but one, 2 one CPU of the last.
        [job(0, 2, 2), job(1, 3, 2), job(2, 1, 1)].into_iter().for_each(|job| assert!(rms.submit(job)));
        assert_eq!(rms.schedule(false), [RmsAct::Start(JobId(0)), RmsAct::Start(JobId(2))]);
        assert_eq!(running(&rms), [0, 2]);
        // Job 2 got a CPU of node 2, where job 1 wants to be: they take turns.
        assert_eq!(
            rms.schedule(true),
            [RmsAct::Start(JobId(1)), RmsAct::Suspend(JobId(0)), RmsAct::Suspend(JobId(2))]
        );
        assert_eq!(
            rms.schedule(true),
            [RmsAct::Resume(JobId(0)), RmsAct::Resume(JobId(2)), RmsAct::Suspend(JobId(1))]
        );
        // A job on the free node shares the slices of both.
        assert!(rms.submit(job(3, 1, 2)));
        assert_eq!(rms.schedule(false), [RmsAct::Start(JobId(3))]);
        rms.schedule(true);
        assert_eq!(running(&rms), [1, 3]);
        rms.schedule(true);
        assert_eq!(running(&rms), [0, 2, 3]);
    }

    #[test]
    fn root_goes_first_then_priority() {
        let mut rms = Rms::new(1, 1, 100);
        rms.submit(job(0, 1, 1));
        rms.submit(RmsJob { priority: 5, ..job(1, 1, 1) });
        rms.submit(RmsJob { root: true, ..job(2, 1, 1) });
        rms.schedule(false);
        assert_eq!(running(&rms), [2]);
        rms.on_end(JobId(2));
        rms.schedule(false);
        assert_eq!(running(&rms), [1]);
        // Waiting does not outweigh priority.
        (0..9).for_each(|_| drop(rms.schedule(true)));
        assert_eq!(running(&rms), [1]);
    }

    #[test]
    fn above_the_usage_limit_jobs_are_blocked_until_others_end() {
        let mut rms = Rms::new(2, 2, 4);
        [job(0, 2, 1), job(1, 2, 1), job(2, 2, 2)].into_iter().for_each(|job| assert!(rms.submit(job)));
        rms.schedule(false);
        assert_eq!(rms.state(JobId(2)), Some(RmsState::Blocked));
        (0..5).for_each(|_| assert_eq!(rms.schedule(true), []));
        rms.on_end(JobId(0));
        assert_eq!(rms.schedule(false), []);
        rms.on_end(JobId(1));
        assert_eq!(rms.schedule(false), [RmsAct::Start(JobId(2))]);
        assert!(!rms.submit(job(3, 3, 1)));
    }

    #[test]
    fn who_was_blocked_for_long_is_put_beside_those_that_run_and_not_in_their_place() {
        let mut rms = Rms::new(4, 1, 4);
        [job(0, 2, 1), job(1, 2, 1), job(2, 2, 1)].into_iter().for_each(|job| assert!(rms.submit(job)));
        rms.schedule(false);
        (0..5).for_each(|_| assert_eq!(rms.schedule(true), []));
        rms.on_end(JobId(1));
        assert_eq!(rms.schedule(false), [RmsAct::Start(JobId(2))]);
        assert_eq!(running(&rms), [0, 2]);
    }
}
