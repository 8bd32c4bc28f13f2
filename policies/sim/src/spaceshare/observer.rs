//! Observers of a run: they see starts and ends and compute what the engine itself does not need.

use coswitch_policies::{
    JobId, SimTime,
    spaceshare::{
        allocate::Rect,
        machine::{Machine, SetId},
    },
};
use serde::{Deserialize, Serialize};

use super::{SpaceJob, summary::ratio};

/// Receives the events of a run in the order of time.
pub trait Observer {
    fn on_start(&mut self, _now: SimTime, _job: &SpaceJob, _machine: &Machine) {}

    /// `job` is about to release its nodes.
    fn on_end(&mut self, _now: SimTime, _job: JobId, _machine: &Machine) {}

    /// All ends, arrivals and starts at `now` are done (unless a job takes no time); `waiting` jobs are in
    /// the queue.
    fn on_instant(&mut self, _now: SimTime, _machine: &Machine, _waiting: usize) {}
}

#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}

impl<A: Observer, B: Observer> Observer for (A, B) {
    fn on_start(&mut self, now: SimTime, job: &SpaceJob, machine: &Machine) {
        self.0.on_start(now, job, machine);
        self.1.on_start(now, job, machine);
    }

    fn on_end(&mut self, now: SimTime, job: JobId, machine: &Machine) {
        self.0.on_end(now, job, machine);
        self.1.on_end(now, job, machine);
    }

    fn on_instant(&mut self, now: SimTime, machine: &Machine, waiting: usize) {
        self.0.on_instant(now, machine, waiting);
        self.1.on_instant(now, machine, waiting);
    }
}

/// Records the placement of every job, for pictures and for utilisation by node set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocks {
    /// In the order of starts.
    pub held: Vec<(JobId, SetId, Rect)>,
}

impl Observer for Blocks {
    fn on_start(&mut self, _: SimTime, job: &SpaceJob, machine: &Machine) {
        let job = job.queued.job;
        for (set, allocation) in machine.held_by(job) {
            self.held.extend(allocation.blocks.iter().map(|block| (job, set, *block)));
        }
    }
}

/// Fragmentation of the machine: means over time, or over jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeanFragmentation {
    last: Option<SimTime>,
    seen: f64,
    waited: f64,
    state: State,
    sums: State,
    refused: f64,
    blocks: u64,
    jobs: u64,
}

/// Units, or sums of units times seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct State {
    free: f64,
    scattered: f64,
    unattainable: f64,
    internal: f64,
    waiting: bool,
}

impl Observer for MeanFragmentation {
    fn on_start(&mut self, _: SimTime, job: &SpaceJob, machine: &Machine) {
        self.jobs += 1;
        for (_, allocation) in machine.held_by(job.queued.job) {
            self.blocks += allocation.blocks.len() as u64;
        }
    }

    fn on_instant(&mut self, now: SimTime, machine: &Machine, waiting: usize) {
        // Nothing is seen before the first job.
        let span = self.last.replace(now).map_or(0.0, |last| now.since(last).as_secs_f64());
        self.seen += span;
        self.sums.free += span * self.state.free;
        self.sums.scattered += span * self.state.scattered;
        self.sums.unattainable += span * self.state.unattainable;
        self.sums.internal += span * self.state.internal;
        if self.state.waiting {
            self.waited += span;
            self.refused += span * self.state.free;
        }
        self.state = State { waiting: waiting > 0, ..State::default() };
        for set in machine.sets() {
            let now = set.allocator.fragmentation();
            self.state.free += f64::from(now.free);
            self.state.scattered += f64::from(now.free - now.largest_block.min(now.free));
            self.state.unattainable += f64::from(now.free - now.largest_request.min(now.free));
            self.state.internal += f64::from(now.internal);
        }
    }
}

impl MeanFragmentation {
    /// The share of the free node time outside the largest free block.
    #[must_use]
    pub fn scatter(&self) -> f64 {
        ratio(self.sums.scattered, self.sums.free)
    }

    /// The share of the free node time that no single request could have had: external fragmentation.
    #[must_use]
    pub fn external(&self) -> f64 {
        ratio(self.sums.unattainable, self.sums.free)
    }

    /// Nodes held beyond the requests, averaged over time: internal fragmentation.
    #[must_use]
    pub fn internal_nodes(&self) -> f64 {
        ratio(self.sums.internal, self.seen)
    }

    /// Free nodes while jobs waited, averaged over the time in which jobs waited.
    #[must_use]
    pub fn idle_while_waiting(&self) -> f64 {
        ratio(self.refused, self.waited)
    }

    /// Mean number of blocks of a job: 1 is contiguous.
    #[must_use]
    pub fn blocks_per_job(&self) -> f64 {
        ratio(self.blocks as f64, self.jobs as f64)
    }
}
