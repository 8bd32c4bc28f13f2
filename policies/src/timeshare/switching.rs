//! The switch executor: turns a [`SwitchPlan`] into orders for jobs, and the jobs' answers into the outcome
//! of the switch.
//!
//! The live master and the simulator both drive this state machine; they differ only in what carries out an
//! order.
//!
//! ```text
//!   Planned ──begin──▶ Stopping ──all outgoing stopped──▶ BringingIn ──all arrived──▶ Over
//!                         │                                  overlapped: stopped jobs are dumped meanwhile
//!                         └── a job did not leave: no job comes in ──▶ Over
//! ```
//! A job that ends at any time is not waited for. An answer that differs from the plan makes the job
//! *misplaced*; the scheduler plans again from there.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Cause, JobId, Misplaced, Outgoing, Placement, Purpose, Residence, SimTime, Start, SwitchOrder,
    SwitchPlan, metrics::Span,
};

/// What a dispatcher is asked to do with its application. An order asks; a report says where the job then is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Start the ranks for the first time.
    Launch,
    /// From running: stop the ranks, empty the network, stay in memory.
    Suspend,
    /// From running or suspended: leave memory.
    Park,
    /// From parked: come back into memory, stopped.
    Prefetch,
    /// From suspended: compute.
    Resume,
    /// From parked or suspended: come back and compute.
    Restore,
    /// From running: write a snapshot, and compute on.
    Checkpoint,
    /// End the application.
    End,
}

/// What a switch needs next: time, orders given, or its outcome taken note of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwitchAction {
    /// Jobs still carry out their orders.
    Wait,
    /// Give these orders.
    Give(Vec<(JobId, Order)>),
    /// The switch is over.
    Over(SwitchOutcome),
}

/// How a switch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchOutcome {
    /// Jobs that are not where the plan wanted them, also those whose order was never given.
    pub misplaced: Vec<Misplaced>,
    /// From the first order to restore to the last job being back; `None` where none was restored, or not
    /// all.
    pub restore: Option<Span>,
    /// From the stop of the outgoing jobs to the arrival of the last incoming one; `None` for work beside a
    /// turn.
    pub exposed: Option<Span>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Planned,
    Stopping,
    BringingIn,
    Over,
}

/// One switch under way.
#[derive(Clone, Debug)]
pub struct Switching {
    plan: SwitchPlan,
    /// Where in the plan a job is.
    outgoing: BTreeMap<JobId, usize>,
    incoming: BTreeMap<JobId, usize>,
    stage: Stage,
    /// Jobs with an order that is not answered yet, and the incoming ones among them.
    waiting: BTreeSet<JobId>,
    coming: BTreeSet<JobId>,
    ended: BTreeSet<JobId>,
    misplaced: Vec<Misplaced>,
    began: SimTime,
    /// When the incoming jobs were ordered to come.
    called: Option<SimTime>,
    /// When the last incoming job arrived.
    arrived: Option<SimTime>,
}

impl Switching {
    #[must_use]
    pub fn new(plan: SwitchPlan) -> Self {
        Self {
            outgoing: plan.outgoing.iter().map(|outgoing| outgoing.job).zip(0..).collect(),
            incoming: plan.incoming.iter().map(|incoming| incoming.job).zip(0..).collect(),
            waiting: plan.outgoing.iter().map(|outgoing| outgoing.job).collect(),
            coming: BTreeSet::new(),
            plan,
            stage: Stage::Planned,
            ended: BTreeSet::new(),
            misplaced: Vec::new(),
            began: SimTime(0),
            called: None,
            arrived: None,
        }
    }

    #[must_use]
    pub const fn plan(&self) -> &SwitchPlan {
        &self.plan
    }

    /// The nodes of an incoming job.
    #[must_use]
    pub fn placement_of(&self, job: JobId) -> Option<&Placement> {
        self.incoming.get(&job).map(|at| &self.plan.incoming[*at].placement)
    }

    /// Whether the outgoing jobs have stopped, and others come.
    pub(super) fn brings_in(&self) -> bool {
        self.stage == Stage::BringingIn
    }

    /// Whether the job was ordered into memory and has not arrived.
    #[must_use]
    pub fn is_arriving(&self, job: JobId) -> bool {
        let enters = |at: &usize| self.plan.incoming[*at].start != Start::Resume;
        self.coming.contains(&job) && self.incoming.get(&job).is_some_and(enters)
    }

    /// Stops the outgoing jobs; where there are none, brings the incoming ones in.
    pub fn begin(&mut self, now: SimTime) -> SwitchAction {
        self.began = now;
        self.stage = Stage::Stopping;
        if self.waiting.is_empty() {
            return self.advance(now);
        }
        let living = self.plan.outgoing.iter().filter(|outgoing| self.waiting.contains(&outgoing.job));
        let order = |outgoing: &Outgoing| {
            let parks = outgoing.to == Residence::Parked && !self.parks_meanwhile(outgoing);
            (outgoing.job, if parks { Order::Park } else { Order::Suspend })
        };
        SwitchAction::Give(living.map(order).collect())
    }

    /// Takes the answer of a job: where it is now, and why where that is not what its order wanted.
    pub fn on_residence(&mut self, now: SimTime, job: JobId, at: Residence, cause: Cause) -> SwitchAction {
        if at.is_ended() {
            self.ended.insert(job);
        }
        if !self.waiting.remove(&job) {
            return SwitchAction::Wait;
        }
        self.coming.remove(&job);
        if !at.is_ended() && self.destination(job) != Some(at) {
            self.misplaced.push(Misplaced { job, at, cause });
        }
        self.advance(now)
    }

    /// A job has left memory on its own, because a node was lost. It is not where it was, if it has answered
    /// already. `None` where the switch does not move it.
    pub fn on_displaced(&mut self, now: SimTime, job: JobId, at: Residence) -> Option<SwitchAction> {
        if !self.plan.names(job) || self.stage == Stage::Over {
            return None;
        }
        if self.waiting.contains(&job) {
            return Some(self.on_residence(now, job, at, Cause::Failed));
        }
        if !self.ended.contains(&job) {
            self.misplaced.retain(|misplaced| misplaced.job != job);
            self.misplaced.push(Misplaced { job, at, cause: Cause::Failed });
        }
        Some(SwitchAction::Wait)
    }

    /// Whether the job is dumped while others come in.
    fn parks_meanwhile(&self, outgoing: &Outgoing) -> bool {
        self.plan.order == SwitchOrder::Overlapped && outgoing.running && outgoing.to == Residence::Parked
    }

    /// Where the last order takes the job.
    fn destination(&self, job: JobId) -> Option<Residence> {
        if let Some(outgoing) = self.outgoing.get(&job).map(|at| &self.plan.outgoing[*at]) {
            let stops = self.stage == Stage::Stopping && self.parks_meanwhile(outgoing);
            return Some(if stops { Residence::Suspended } else { outgoing.to });
        }
        self.incoming.contains_key(&job).then(|| self.plan.purpose.incoming_to())
    }

    fn advance(&mut self, now: SimTime) -> SwitchAction {
        if self.stage == Stage::BringingIn && self.coming.is_empty() {
            self.arrived.get_or_insert(now);
        }
        match self.stage {
            _ if !self.waiting.is_empty() => SwitchAction::Wait,
            Stage::Planned | Stage::Over => SwitchAction::Wait,
            Stage::Stopping if self.misplaced.is_empty() => self.bring_in(now),
            // A job that did not leave still holds its memory.
            Stage::Stopping => {
                self.cancel();
                self.end(now)
            }
            Stage::BringingIn => self.end(now),
        }
    }

    fn bring_in(&mut self, now: SimTime) -> SwitchAction {
        self.stage = Stage::BringingIn;
        self.called = Some(now);
        let parks = self.plan.outgoing.iter().filter(|outgoing| self.parks_meanwhile(outgoing));
        let parks = parks.map(|outgoing| (outgoing.job, Order::Park));
        let comes = self.plan.incoming.iter().map(|incoming| (incoming.job, self.call(incoming.start)));
        let mut orders: Vec<(JobId, Order)> = parks.chain(comes).collect();
        orders.retain(|(job, _)| !self.ended.contains(job));
        self.waiting = orders.iter().map(|(job, _)| *job).collect();
        self.coming = self.waiting.iter().copied().filter(|job| self.incoming.contains_key(job)).collect();
        if orders.is_empty() { self.advance(now) } else { SwitchAction::Give(orders) }
    }

    const fn call(&self, start: Start) -> Order {
        match (start, self.plan.purpose) {
            (Start::Launch, _) => Order::Launch,
            (Start::Restore, Purpose::Turn) => Order::Restore,
            (Start::Restore, Purpose::Ahead) => Order::Prefetch,
            (Start::Resume, _) => Order::Resume,
        }
    }

    /// The jobs that were to move later stay where they are.
    fn cancel(&mut self) {
        let stay = self.plan.incoming.iter().map(|incoming| (incoming.job, incoming.start.origin()));
        let parks = self.plan.outgoing.iter().filter(|outgoing| self.parks_meanwhile(outgoing));
        let stopped = parks.map(|outgoing| (outgoing.job, Residence::Suspended));
        let named: BTreeSet<JobId> = self.misplaced.iter().map(|misplaced| misplaced.job).collect();
        let others = stay.chain(stopped).filter(|(job, _)| !named.contains(job));
        let others: Vec<Misplaced> = others.map(|(job, at)| Misplaced::new(job, at)).collect();
        self.misplaced.extend(others);
    }

    fn end(&mut self, now: SimTime) -> SwitchAction {
        self.stage = Stage::Over;
        let restores = self.plan.incoming.iter().any(|incoming| incoming.start == Start::Restore);
        let complete = restores && self.misplaced.is_empty();
        let restore = self.called.zip(self.arrived).filter(|_| complete);
        let exposed = Span { from: self.began, to: self.arrived.unwrap_or(now) };
        SwitchAction::Over(SwitchOutcome {
            misplaced: std::mem::take(&mut self.misplaced),
            restore: restore.map(|(from, to)| Span { from, to }),
            exposed: (self.plan.purpose == Purpose::Turn).then_some(exposed),
        })
    }
}

#[cfg(test)]
mod tests;
