//! Gang switches at random instants: jobs take turns on the nodes, and one computes while the others are
//! parked.
//!
//! In mixed rotations jobs also wait suspended. The order of the switch, the way a job leaves and comes back,
//! the place where it waits and the directories with free space are then drawn anew for each switch.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use coswitch_dispatcher::protocol::Order;
use coswitch_policies::{JobId, NodeId, SwitchOrder};

use crate::{
    cluster::{JobStatus, RUN_LIMIT, TestCluster},
    job::TestJob,
    seed::{Seed, span},
};

/// A rotation of jobs. A turn begins when a job's processes have been started or restored, and may end
/// immediately.
pub struct Turns<'a> {
    cluster: &'a mut TestCluster,
    seed: &'a mut Seed,
    /// Longest turn.
    longest: Duration,
    mixed: bool,
    computing: Option<JobId>,
    waiting: VecDeque<JobId>,
    /// Number of switches from one job to another.
    switches: u32,
    /// Number of switches by order: sequential, overlapped, prefetch.
    orders: [u32; 3],
}

impl<'a> Turns<'a> {
    pub fn new(cluster: &'a mut TestCluster, seed: &'a mut Seed, longest: Duration) -> Self {
        let waiting = VecDeque::new();
        Self { cluster, seed, longest, mixed: false, computing: None, waiting, switches: 0, orders: [0; 3] }
    }

    /// Lets jobs also wait suspended in memory.
    pub fn mixed(self) -> Self {
        Self { mixed: true, ..self }
    }

    /// Runs all jobs to their ends in turns, and verifies them.
    pub fn run_all(mut self, specs: Vec<TestJob>) {
        for spec in specs {
            self.switch(Some(spec));
        }
        while !self.waiting.is_empty() {
            self.switch(None);
        }
        self.finish();
    }

    /// Runs two jobs in turns until there were `switches` switches, and then all jobs to their ends. A job
    /// that has ended is verified and replaced by the next one.
    pub fn run_until(mut self, switches: u32, mut spec: impl FnMut(u32) -> TestJob) {
        let mut played = 0;
        while self.switches < switches {
            let next = (self.waiting.is_empty()).then(|| spec(played));
            played += u32::from(next.is_some());
            self.switch(next);
        }
        self.finish();
        while !self.waiting.is_empty() {
            self.enter(None);
            self.finish();
        }
        let Self { switches, orders: [sequential, overlapped, prefetch], .. } = self;
        eprintln!(
            "{switches} switches: {sequential} sequential, {overlapped} overlapped, {prefetch} prefetched"
        );
    }

    fn switch(&mut self, next: Option<TestJob>) {
        let order = self.draw();
        if let (SwitchOrder::Prefetch, None, Some(job)) = (order, &next, self.waiting.front())
            && self.cluster.jobs[job].status == JobStatus::Parked
        {
            // It is fetched while the other job still computes.
            self.cluster.order(*job, Order::Prefetch);
        }
        let left = self.leave(order);
        self.enter(next);
        for job in &self.waiting {
            self.cluster.wait_for_order(*job);
        }
        self.switches += u32::from(left);
        self.orders[order as usize] += u32::from(left);
    }

    fn draw(&mut self) -> SwitchOrder {
        if !self.mixed {
            return SwitchOrder::Sequential;
        }
        if self.cluster.has_two_tiers() {
            for node in (0..self.cluster.nodes()).map(NodeId) {
                self.cluster.fill(node, self.seed.chance(500));
            }
        }
        let orders = [SwitchOrder::Sequential, SwitchOrder::Overlapped, SwitchOrder::Prefetch];
        orders[self.seed.between(0, 2) as usize]
    }

    /// Ends a turn. False if the job has ended instead of leaving.
    fn leave(&mut self, switch: SwitchOrder) -> bool {
        let Some(job) = self.computing.take() else { return false };
        let in_order = switch == SwitchOrder::Sequential;
        let end = Instant::now() + RUN_LIMIT;
        loop {
            self.cluster.run_for(span(self.seed, self.longest));
            let stays = !in_order || self.mixed && self.seed.chance(400);
            let order = if stays { Order::Suspend } else { Order::Park };
            match self.cluster.order_and_wait(job, order) {
                // The job continues because its ranks are ending.
                JobStatus::Running => {
                    let stayed = &self.cluster.jobs[&job].stayed;
                    assert!(
                        Instant::now() < end,
                        "{job} neither leaves nor ends within {RUN_LIMIT:?}: {stayed:?}"
                    );
                }
                JobStatus::Ended(_) => {
                    self.cluster.verify(job, Duration::ZERO);
                    return false;
                }
                JobStatus::Suspended if !in_order && self.seed.chance(700) => {
                    // It is parked while the other job is restored.
                    self.cluster.order(job, Order::Park);
                    self.waiting.push_back(job);
                    return true;
                }
                _ => {
                    self.waiting.push_back(job);
                    self.rearrange();
                    return true;
                }
            }
        }
    }

    /// Moves some waiting jobs into or out of memory.
    fn rearrange(&mut self) {
        if !self.mixed {
            return;
        }
        for job in self.waiting.clone() {
            let order = match self.cluster.jobs[&job].status {
                JobStatus::Suspended if self.seed.chance(400) => Order::Park,
                JobStatus::Parked if self.seed.chance(300) => Order::Prefetch,
                _ => continue,
            };
            self.cluster.order_and_wait(job, order);
            if order == Order::Prefetch && self.seed.chance(500) {
                self.cluster.order_and_wait(job, Order::Park);
            }
        }
    }

    fn enter(&mut self, next: Option<TestJob>) {
        let job = match next {
            Some(spec) => {
                let job = self.cluster.launch(spec);
                self.cluster.wait_for_order(job);
                job
            }
            None => {
                let job = self.waiting.pop_front().expect("a job waits");
                self.cluster.wait_for_order(job);
                if self.cluster.jobs[&job].status == JobStatus::Suspended {
                    self.cluster.order_and_wait(job, Order::Resume);
                } else {
                    self.cluster.restore(job);
                }
                job
            }
        };
        self.computing = Some(job);
    }

    fn finish(&mut self) {
        if let Some(job) = self.computing.take() {
            self.cluster.verify(job, RUN_LIMIT);
        }
    }
}
