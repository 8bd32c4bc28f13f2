//! Gang switches at random instants: jobs take turns on the nodes, one computes while the others wait, parked or,
//! in mixed turns, suspended: then the order of the switch, how a job leaves, where it waits, how it comes back and
//! which directories have room is drawn anew each time.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use coswitch_dispatcher::protocol::Order;
use coswitch_policies::{JobId, NodeId, SwitchOrder};

use crate::{
    act::Act,
    seed::{Seed, span},
    stage::{Life, RUN_LIMIT, Stage},
};

/// A rotation of jobs. A turn begins when a job's processes have been started or restored, and may end at once.
pub struct Turns<'a> {
    stage: &'a mut Stage,
    seed: &'a mut Seed,
    /// Of a turn.
    longest: Duration,
    mixed: bool,
    computing: Option<JobId>,
    waiting: VecDeque<JobId>,
    /// How often one job left and another one came.
    switches: u32,
    /// In which order: sequential, overlapped, prefetch.
    orders: [u32; 3],
}

impl<'a> Turns<'a> {
    /// Turns of random length up to `longest`.
    pub fn new(stage: &'a mut Stage, seed: &'a mut Seed, longest: Duration) -> Self {
        let waiting = VecDeque::new();
        Self { stage, seed, longest, mixed: false, computing: None, waiting, switches: 0, orders: [0; 3] }
    }

    /// Jobs also wait in memory.
    pub fn mixed(self) -> Self {
        Self { mixed: true, ..self }
    }

    /// Each of the acts plays to its end by turns, and is verified.
    pub fn play_all(mut self, acts: Vec<Act>) {
        for act in acts {
            self.switch(Some(act));
        }
        while !self.waiting.is_empty() {
            self.switch(None);
        }
        self.finish();
    }

    /// Two jobs play by turns until so many switches were made, all jobs to their end. A job that has ended is verified and
    /// replaced by the next act.
    pub fn play_until(mut self, switches: u32, mut act: impl FnMut(u32) -> Act) {
        let mut played = 0;
        while self.switches < switches {
            let next = (self.waiting.is_empty()).then(|| act(played));
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

    fn switch(&mut self, next: Option<Act>) {
        let order = self.draw();
        if let (SwitchOrder::Prefetch, None, Some(job)) = (order, &next, self.waiting.front())
            && self.stage.actors[job].life == Life::Parked
        {
            // It comes while the other one still computes.
            self.stage.order(*job, Order::Prefetch);
        }
        let left = self.leave(order);
        self.enter(next);
        for job in &self.waiting {
            self.stage.settle(*job);
        }
        self.switches += u32::from(left);
        self.orders[order as usize] += u32::from(left);
    }

    fn draw(&mut self) -> SwitchOrder {
        if !self.mixed {
            return SwitchOrder::Sequential;
        }
        if self.stage.has_two_tiers() {
            for node in (0..self.stage.nodes()).map(NodeId) {
                self.stage.fill(node, self.seed.chance(500));
            }
        }
        let orders = [SwitchOrder::Sequential, SwitchOrder::Overlapped, SwitchOrder::Prefetch];
        orders[self.seed.between(0, 2) as usize]
    }

    /// After a turn: says whether the job has left; it may have ended instead.
    fn leave(&mut self, switch: SwitchOrder) -> bool {
        let Some(job) = self.computing.take() else { return false };
        let in_order = switch == SwitchOrder::Sequential;
        let end = Instant::now() + RUN_LIMIT;
        loop {
            self.stage.run_for(span(self.seed, self.longest));
            let stays = !in_order || self.mixed && self.seed.chance(400);
            let order = if stays { Order::Suspend } else { Order::Park };
            match self.stage.obey(job, order) {
                // It runs on because its ranks are ending.
                Life::Running => {
                    let stayed = &self.stage.actors[&job].stayed;
                    assert!(
                        Instant::now() < end,
                        "{job} neither leaves nor ends within {RUN_LIMIT:?}: {stayed:?}"
                    );
                }
                Life::Ended(_) => {
                    self.stage.verify(job, Duration::ZERO);
                    return false;
                }
                Life::Suspended if !in_order && self.seed.chance(700) => {
                    // It leaves while the other one comes.
                    self.stage.order(job, Order::Park);
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

    /// Those that wait may wait elsewhere.
    fn rearrange(&mut self) {
        if !self.mixed {
            return;
        }
        for job in self.waiting.clone() {
            let order = match self.stage.actors[&job].life {
                Life::Suspended if self.seed.chance(400) => Order::Park,
                Life::Parked if self.seed.chance(300) => Order::Prefetch,
                _ => continue,
            };
            self.stage.obey(job, order);
            if order == Order::Prefetch && self.seed.chance(500) {
                self.stage.obey(job, Order::Park);
            }
        }
    }

    fn enter(&mut self, next: Option<Act>) {
        let job = match next {
            Some(act) => {
                let job = self.stage.launch(act);
                self.stage.settle(job);
                job
            }
            None => {
                let job = self.waiting.pop_front().expect("somebody waits");
                self.stage.settle(job);
                if self.stage.actors[&job].life == Life::Suspended {
                    self.stage.obey(job, Order::Resume);
                } else {
                    self.stage.restore(job);
                }
                job
            }
        };
        self.computing = Some(job);
    }

    fn finish(&mut self) {
        if let Some(job) = self.computing.take() {
            self.stage.verify(job, RUN_LIMIT);
        }
    }
}
