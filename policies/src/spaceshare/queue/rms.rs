//! Scheduler of RMS (paper 000 §3.2.1, Algorithms 2 and 3): gang scheduling without a matrix.
//!
//! At every event all CPUs are allocated anew for the coming timeslice, job by job in a fixed order: root
//! first, then by priority, by timeslices waited, running and queued before suspended, and by submission. A
//! job that has CPUs gets exactly those or none, because jobs never move; a job without CPUs gets a box of
//! the remaining ones ([`BoxPacker`]). Turns come about by waiting. A job whose CPUs no job ahead of it wants
//! runs in this timeslice too, which is alternate scheduling of whole jobs.
//!
//! ```text
//!              usage limit            first box             passed over
//!   submitted ──────────▶ blocked ──▶ queued ──▶ running ◀───────────▶ suspended
//! ```
//!
//! A job of an ordinary user is blocked, until others end, if its CPUs would raise the total of ordinary
//! users above the usage limit. The paper does not say whether a job's waiting is reset when it runs. Here it
//! is; otherwise a newcomer would have to wait as long as all others have waited in their lives.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::{Deserialize, Serialize};

use crate::{
    JobId, SimTime,
    spaceshare::allocate::{Allocation, Allocator, BoxPacker, Request},
};

/// A job as submitted to RMS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RmsJob {
    pub job: JobId,
    pub root: bool,
    /// Higher values go first.
    pub priority: i32,
    pub request: Request,
    pub submitted: SimTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RmsState {
    /// It would exceed the usage limit.
    Blocked,
    /// Waits for its first CPUs.
    Queued,
    /// Runs in this timeslice.
    Running,
    /// Has CPUs, which others use in this timeslice.
    Suspended,
}

/// The key that orders jobs when CPUs are allocated; the smallest goes first.
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

/// Orders for the node daemons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RmsAct {
    /// Starts the job on its CPUs.
    Start(JobId),
    Resume(JobId),
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
    /// `nodes` nodes of `cpus` CPUs. Ordinary users may together have `usage_limit` CPUs, counted over all
    /// timeslices; the default of RMS is the number of CPUs, with which their jobs hardly share time.
    #[must_use]
    pub const fn new(nodes: u32, cpus: u32, usage_limit: u32) -> Self {
        Self { nodes, cpus, usage_limit, resources: BTreeMap::new() }
    }

    /// A job arrived; it runs when [`Self::schedule`] starts it. False where it is larger than the machine.
    pub fn submit(&mut self, job: RmsJob) -> bool {
        let fits = BoxPacker::new(self.nodes, self.cpus).can_ever_hold(job.request);
        if fits {
            let fresh = Resource { job, state: RmsState::Queued, waited: 0, cpus: None };
            let before = self.resources.insert(job.job, fresh);
            assert!(before.is_none(), "{} is submitted once", job.job);
        }
        fits
    }

    /// A job ended, in whatever state.
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

    /// Algorithm 3: allocates the CPUs of the coming timeslice and returns what changes. Call it at every
    /// event.
    pub fn schedule(&mut self, timeslice_expired: bool) -> Vec<RmsAct> {
        if timeslice_expired {
            // Blocked jobs do not count timeslices. Otherwise such a job would be first once it may run, and
            // get the leftmost CPUs, which others have already, while the right half of the machine stays
            // idle.
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

    /// Decides about one job in this timeslice.
    fn give(&mut self, job: JobId, packer: &mut BoxPacker, used: &mut u32) -> Option<RmsAct> {
        let resource = self.resources.get_mut(&job).expect("it was just listed");
        let before = resource.state;
        resource.state = match &resource.cpus {
            Some(cpus) if packer.claim_boxes(job, cpus) => RmsState::Running,
            Some(_) => RmsState::Suspended,
            // It would raise the CPUs of ordinary users above their limit.
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
    fn jobs_take_turns_and_one_without_conflicts_runs_in_every_slice() {
        let mut rms = Rms::new(4, 2, 100);
        // Job 0 gets the left half, job 1 all nodes but one, job 2 one CPU of the last node.
        [job(0, 2, 2), job(1, 3, 2), job(2, 1, 1)].into_iter().for_each(|job| assert!(rms.submit(job)));
        assert_eq!(rms.schedule(false), [RmsAct::Start(JobId(0)), RmsAct::Start(JobId(2))]);
        assert_eq!(running(&rms), [0, 2]);
        // Job 2 got a CPU of node 2, which job 1 needs: they take turns.
        assert_eq!(
            rms.schedule(true),
            [RmsAct::Start(JobId(1)), RmsAct::Suspend(JobId(0)), RmsAct::Suspend(JobId(2))]
        );
        assert_eq!(
            rms.schedule(true),
            [RmsAct::Resume(JobId(0)), RmsAct::Resume(JobId(2)), RmsAct::Suspend(JobId(1))]
        );
        // A job on the free node runs in the slices of both.
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
    fn a_job_that_was_blocked_for_long_is_placed_beside_running_jobs_and_not_on_their_cpus() {
        let mut rms = Rms::new(4, 1, 4);
        [job(0, 2, 1), job(1, 2, 1), job(2, 2, 1)].into_iter().for_each(|job| assert!(rms.submit(job)));
        rms.schedule(false);
        (0..5).for_each(|_| assert_eq!(rms.schedule(true), []));
        rms.on_end(JobId(1));
        assert_eq!(rms.schedule(false), [RmsAct::Start(JobId(2))]);
        assert_eq!(running(&rms), [0, 2]);
    }
}
