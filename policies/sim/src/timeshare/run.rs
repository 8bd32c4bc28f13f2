//! The simulator's loop over time: feeds the scheduler what happens and carries out what it decides.
//!
//! The [`Switching`] of the live master executes a switch here as well. The orders of one step are carried
//! out together: all dumps end when the node that dumps most has finished, all incoming jobs arrive when the
//! node that restores most has. Before its first orders take effect a switch flushes the network; the
//! outgoing jobs still run then and may even finish. What switching costs the jobs that run beside it is not
//! modelled.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use coswitch_policies::{
    Bytes, Cause, Cluster, ConfigError, Decision, JobId, JobSpec, Order, RejectReason, Residence, Scheduler,
    SchedulerConfig, SchedulerEvent, SimTime, SwitchAction, SwitchOrder, SwitchOutcome, SwitchPlan,
    Switching, TimerId,
    metrics::{RunTimes, SLOWDOWN_FLOOR, Span, measure},
    spaceshare::queue::QueueId,
    timeshare::memory_monitor::Stage,
};
use thiserror::Error;

use crate::{
    CostModel, Faults, SimJob, SimReport, Step,
    timeshare::{
        faults::{Misfortune, Mishap},
        memory::Watch,
        world::{Ending, World},
    },
};

/// Why a simulation did not end.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SimError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Jobs are left and no event will ever come.
    #[error("nothing happens any more after {0:?} and jobs are left")]
    Stuck(SimTime),
    /// It took more steps than allowed.
    #[error("not done after {0} steps")]
    TooLong(usize),
}

/// What is due at a time.
enum Due {
    Arrival(Vec<SimJob>),
    Timer(TimerId),
    /// The network of the outgoing jobs is empty: the switch begins.
    Flushed,
    /// These jobs were given these orders together and have carried them out.
    Done(Vec<(JobId, Order)>),
    Ended(JobId),
    Hold(JobId),
    Release(JobId),
    /// The images of a checkpoint are written.
    Checkpointed(JobId, Duration),
    /// The memory of jobs is looked at.
    Look,
}

/// How long the end of an abandoned job takes.
const ABANDON: Duration = Duration::from_millis(50);

struct Simulation<'a> {
    tell: &'a mut dyn FnMut(Step),
    steps: usize,
    scheduler: Scheduler,
    world: World,
    cost: CostModel,
    misfortune: Misfortune,
    agenda: BTreeMap<(SimTime, u64), Due>,
    next_due: u64,
    now: SimTime,
    done: bool,
    switching: Option<Switching>,
    /// Jobs that stand still for a checkpoint.
    checkpointing: BTreeSet<JobId>,
    /// Whether no job could run because of the switch under way.
    exposes: bool,
    /// How long the restores of the switch under way take.
    restore: Option<Duration>,
    /// Where jobs hold other than they declare.
    watch: Option<Watch>,
    report: SimReport,
}

/// Runs `jobs` under the scheduler until all have ended, in at most `steps_max` events.
///
/// # Errors
/// Where the settings make no sense, or the run does not end, which is a fault of the scheduler.
pub fn simulate(
    cluster: &Cluster,
    config: &SchedulerConfig,
    jobs: &[SimJob],
    cost: &CostModel,
    faults: Faults,
    steps_max: usize,
) -> Result<SimReport, SimError> {
    let mut journal = Vec::new();
    let report =
        simulate_telling(cluster, config, jobs, cost, faults, steps_max, &mut |step| journal.push(step))?;
    Ok(SimReport { journal, ..report })
}

/// As [`simulate`], for runs whose journal is too large to hold: passes each step on, and the report has no
/// journal.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_telling(
    cluster: &Cluster,
    config: &SchedulerConfig,
    jobs: &[SimJob],
    cost: &CostModel,
    faults: Faults,
    steps_max: usize,
    tell: &mut dyn FnMut(Step),
) -> Result<SimReport, SimError> {
    let mut simulation = Simulation::new(cluster, config, cost, faults, tell)?;
    simulation.plan_arrivals(jobs);
    while simulation.steps < steps_max {
        if !simulation.step() {
            return if simulation.done {
                Ok(simulation.finish())
            } else {
                Err(SimError::Stuck(simulation.now))
            };
        }
    }
    Err(SimError::TooLong(steps_max))
}

impl<'a> Simulation<'a> {
    fn new(
        cluster: &Cluster,
        config: &SchedulerConfig,
        cost: &CostModel,
        faults: Faults,
        tell: &'a mut dyn FnMut(Step),
    ) -> Result<Self, SimError> {
        let nodes = u32::try_from(cluster.len()).unwrap_or(u32::MAX);
        let times = RunTimes { nodes, ..RunTimes::default() };
        Ok(Self {
            tell,
            steps: 0,
            scheduler: Scheduler::new(cluster.clone(), config.clone())?,
            world: World::new(cluster.clone(), cost.clone()),
            cost: cost.clone(),
            misfortune: Misfortune::new(faults),
            agenda: BTreeMap::new(),
            next_due: 0,
            now: SimTime::default(),
            done: true,
            switching: None,
            checkpointing: BTreeSet::new(),
            exposes: false,
            restore: None,
            watch: None,
            report: SimReport {
                journal: Vec::new(),
                metrics: measure(&times, SLOWDOWN_FLOOR),
                times,
                failed: Vec::new(),
                rejected: Vec::new(),
                memory_peak: Vec::new(),
                switches: 0,
                bytes_out: Bytes(0),
                bytes_in: Bytes(0),
            },
        })
    }

    /// Jobs of one instant arrive together.
    fn plan_arrivals(&mut self, jobs: &[SimJob]) {
        let mut by_time: BTreeMap<SimTime, Vec<SimJob>> = BTreeMap::new();
        for job in jobs {
            by_time.entry(job.spec.arrival).or_default().push(job.clone());
        }
        if jobs.iter().any(|job| job.memory.is_some()) {
            self.watch = Some(Watch::new(self.world.cluster().clone()));
            self.due(SimTime::default(), Due::Look);
        }
        for (at, jobs) in by_time {
            self.due(at, Due::Arrival(jobs));
        }
    }

    fn due(&mut self, at: SimTime, due: Due) {
        self.agenda.insert((at, self.next_due), due);
        self.next_due += 1;
    }

    /// Goes to the next event; false where there is none.
    fn step(&mut self) -> bool {
        let end = self.world.next_end();
        let due = self.agenda.first_key_value().map(|((at, _), _)| *at);
        match (end, due) {
            (Some((at, job)), due) if due.is_none_or(|due| at <= due) => {
                self.pass(at);
                match self.world.end_by_itself(job) {
                    Ending::Finished(job) => self.on_ended(job, Residence::Finished),
                    Ending::Crashed(job) => self.on_ended(job, Residence::Failed),
                }
            }
            (_, Some(at)) => {
                self.pass(at);
                let (_, due) = self.agenda.pop_first().expect("just seen");
                self.on_due(due);
            }
            (_, None) => return false,
        }
        true
    }

    fn pass(&mut self, to: SimTime) {
        self.world.advance(to);
        self.now = to;
    }

    fn on_due(&mut self, due: Due) {
        match due {
            Due::Arrival(jobs) => {
                for job in &jobs {
                    let crashes = self.misfortune.crashes();
                    self.world.add(job, crashes);
                }
                // As in a live run that has measured its programs before.
                let known = jobs.iter().filter_map(|job| Some((job.spec.id, job.communication?)));
                for (job, communication) in known.collect::<Vec<_>>() {
                    self.feed(SchedulerEvent::Measured { job, communication });
                }
                let urgent = jobs.iter().filter(|job| job.priority != 0);
                let priorities: Vec<(JobId, i32)> = urgent.map(|job| (job.spec.id, job.priority)).collect();
                if !priorities.is_empty() {
                    self.feed(SchedulerEvent::Prioritized { priorities });
                }
                let limited = jobs.iter().filter_map(|job| Some((job.spec.id, job.limit?)));
                let left: Vec<(JobId, Duration)> = limited.collect();
                if !left.is_empty() {
                    self.feed(SchedulerEvent::Limited { left });
                }
                let grouped = jobs.iter().filter(|job| job.queue != QueueId::default());
                let queues: Vec<(JobId, QueueId)> = grouped.map(|job| (job.spec.id, job.queue)).collect();
                if !queues.is_empty() {
                    self.feed(SchedulerEvent::Grouped { queues });
                }
                let jobs: Vec<JobSpec> = jobs.into_iter().map(|job| job.spec).collect();
                let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
                self.feed(SchedulerEvent::Submitted { jobs });
                ids.into_iter().for_each(|job| self.plan_hold(job));
            }
            Due::Hold(job) => self.feed(SchedulerEvent::Held { job }),
            Due::Release(job) => self.feed(SchedulerEvent::Released { job }),
            Due::Timer(timer) => self.feed(SchedulerEvent::TimerFired { timer }),
            Due::Flushed => self.on_flushed(),
            Due::Done(orders) => self.on_done(&orders),
            Due::Look => self.look(),
            Due::Checkpointed(job, stood_still) => self.on_checkpointed(job, stood_still),
            Due::Ended(job) if self.world.is_ended(job) => {}
            Due::Ended(job) => {
                self.world.end(job);
                self.on_ended(job, Residence::Failed);
            }
        }
    }

    fn plan_hold(&mut self, job: JobId) {
        if let Some((after, until)) = self.misfortune.holds() {
            let at = self.now.after(after);
            self.due(at, Due::Hold(job));
            self.due(at.after(until), Due::Release(job));
        }
    }

    /// The job is over: first the scheduler hears of it, then the switch under way.
    fn on_ended(&mut self, job: JobId, how: Residence) {
        let failed = how == Residence::Failed;
        if let Some(watch) = &mut self.watch {
            watch.on_ended(job);
        }
        self.feed(if failed { SchedulerEvent::Failed { job } } else { SchedulerEvent::Finished { job } });
        self.answer(job, how, Cause::Failed);
    }

    fn feed(&mut self, event: SchedulerEvent) {
        match event {
            SchedulerEvent::Failed { job } => self.report.failed.push(job),
            SchedulerEvent::Submitted { .. } => self.done = false,
            _ => {}
        }
        let decisions = self.scheduler.on_event(self.now, event.clone());
        decisions.iter().for_each(|decision| self.carry_out(decision));
        self.steps += 1;
        (self.tell)(Step { at: self.now, event, decisions });
        self.allow();
    }

    /// Gives nodes the allowances of the moment.
    fn allow(&mut self) {
        let Some(watch) = &mut self.watch else { return };
        let sooner = watch.set_allowances(self.now, self.scheduler.allowances(self.switching.as_ref()));
        sooner.into_iter().for_each(|at| self.due(at, Due::Look));
    }

    /// Stops running jobs where a node exceeds its allowance, and takes samples, as daemons and master do.
    fn look(&mut self) {
        let Some(watch) = self.watch.as_mut().filter(|watch| watch.due <= self.now) else { return };
        let (next, samples) = watch.on_look(self.now);
        self.world.measure();
        let mut events = Vec::new();
        let nodes: Vec<_> = self.world.cluster().nodes().map(|(node, _)| node).collect();
        for node in nodes {
            let (look, told) = watch.look(self.now, node, self.world.held_on(node));
            self.world.on_look(node, look);
            events.extend(told);
            if samples {
                let plan = self.switching.as_ref().map(Switching::plan);
                let frozen = |job: JobId| match plan.is_some_and(|plan| plan.names(job)) {
                    // It goes on by itself, so what it holds now is not what it holds when it is next frozen.
                    _ if self.checkpointing.contains(&job) => Stage::Runs,
                    true => Stage::Moves,
                    false => Stage::Rests,
                };
                let jobs = self.world.samples(node, frozen);
                events.extend(watch.on_sample(self.now, node, &jobs));
            }
        }
        self.steps += usize::from(samples);
        events.into_iter().for_each(|event| self.feed(event));
        // The last look is that after which nothing else is due.
        if !(self.done && self.agenda.is_empty()) {
            self.due(next, Due::Look);
        }
    }

    fn carry_out(&mut self, decision: &Decision) {
        match decision {
            Decision::Switch(plan) => {
                let flush = if plan.is_activation() { Duration::ZERO } else { self.cost.flush };
                self.switching = Some(Switching::new(plan.clone()));
                self.due(self.now.after(flush), Due::Flushed);
            }
            Decision::SetTimer { timer, at } => self.due(*at, Due::Timer(*timer)),
            Decision::Abandon { job, .. } => self.due(self.now.after(ABANDON), Due::Ended(*job)),
            Decision::Rejected { job, reason } => {
                self.report.rejected.push((*job, reason.clone()));
                if *reason != RejectReason::DuplicateId {
                    self.world.forget(*job);
                }
            }
            Decision::Checkpoint { job } => {
                self.world.freeze(*job);
                self.checkpointing.insert(*job);
                let (most, _) = self.world.bytes_of(std::iter::once(*job));
                let stood_still = self.cost.flush + self.cost.dump.time(most);
                self.due(self.now.after(stood_still), Due::Checkpointed(*job, stood_still));
            }
            Decision::AllDone => self.done = true,
            Decision::Admitted { .. }
            | Decision::Queued { .. }
            | Decision::Held { .. }
            | Decision::NotHeld { .. }
            | Decision::Moved(_)
            | Decision::SlotStarted(_)
            | Decision::SlotChanged(_)
            | Decision::Narrowed { .. }
            | Decision::Widened
            | Decision::Split(_)
            | Decision::Outgrew { .. } => {}
        }
    }

    fn on_checkpointed(&mut self, job: JobId, stood_still: Duration) {
        if self.world.is_ended(job) {
            return;
        }
        // Where a switch has taken it meanwhile, it goes on from there.
        if self.checkpointing.remove(&job) {
            self.world.thaw(job);
        }
        self.feed(SchedulerEvent::Checkpointed { job, stood_still });
    }

    fn on_flushed(&mut self) {
        let mut switching = self.switching.take().expect("a switch that flushes is under way");
        let plan = switching.plan();
        let activation = plan.is_activation();
        for outgoing in plan.outgoing.iter().filter(|outgoing| outgoing.running) {
            if !self.world.is_ended(outgoing.job) {
                self.checkpointing.remove(&outgoing.job);
                self.world.freeze(outgoing.job);
            }
        }
        self.exposes = !activation || self.world.is_idle();
        self.report.switches += u32::from(!activation);
        let action = switching.begin(self.now);
        self.switching = Some(switching);
        self.act(action);
    }

    fn act(&mut self, action: SwitchAction) {
        match action {
            SwitchAction::Wait => {}
            SwitchAction::Give(orders) => self.give(orders),
            SwitchAction::Over(outcome) => self.end_switch(outcome),
        }
    }

    /// Begins to carry out orders that were given together: jobs leave beside others that come.
    fn give(&mut self, orders: Vec<(JobId, Order)>) {
        let (leave, come): (Vec<_>, Vec<_>) =
            orders.into_iter().partition(|(_, order)| matches!(order, Order::Suspend | Order::Park));
        if !leave.is_empty() {
            let parked = jobs_with(&leave, &[Order::Park]);
            let (most, all) = self.world.bytes_of(parked.into_iter());
            self.report.bytes_out = self.report.bytes_out.saturating_add(all);
            self.due(self.now.after(self.cost.dump.time(most)), Due::Done(leave));
        }
        self.world.measure();
        self.allow();
        let (refused, come): (Vec<_>, Vec<_>) =
            come.into_iter().partition(|(job, order)| self.is_refused(*job, *order));
        if !come.is_empty() {
            let takes = self.bring_in(&come);
            self.due(self.now.after(takes), Due::Done(come));
        }
        for (job, order) in refused {
            let at = if order == Order::Launch { Residence::Unlaunched } else { Residence::Parked };
            self.answer(job, at, Cause::NoRoom);
        }
    }

    /// Whether a node of an incoming job has no room, by what its jobs hold at this moment.
    fn is_refused(&self, job: JobId, order: Order) -> bool {
        let (Some(watch), Some(switching)) = (&self.watch, &self.switching) else { return false };
        let full = |node| watch.is_full(node, self.world.held_on(node));
        let placement = switching.placement_of(job).filter(|_| order != Order::Resume);
        placement.is_some_and(|placement| placement.nodes().any(full))
    }

    /// Takes memory for the jobs that are not resident; says how long it takes until all can run.
    fn bring_in(&mut self, orders: &[(JobId, Order)]) -> Duration {
        let switching = self.switching.as_ref().expect("only a switch brings jobs in");
        for (job, order) in orders.iter().filter(|(_, order)| *order != Order::Resume) {
            let placement = switching.placement_of(*job).expect("an incoming job has a placement");
            self.world.enter(*job, placement);
            if let (Some(watch), Order::Launch) = (&mut self.watch, order) {
                let declared = self.scheduler.job(*job).expect("it was submitted").declared;
                watch.on_launched(*job, placement, declared);
            }
        }
        let restored = jobs_with(orders, &[Order::Restore, Order::Prefetch]);
        let (most, all) = self.world.bytes_of(restored.into_iter());
        self.report.bytes_in = self.report.bytes_in.saturating_add(all);
        let launches = orders.iter().any(|(_, order)| *order == Order::Launch);
        let launch = if launches { self.cost.launch } else { Duration::ZERO };
        let restore = self.cost.restore.time(most);
        self.restore = (most.0 > 0).then_some(restore);
        restore.max(launch)
    }

    /// Orders that were given together are carried out, or failed: moves the jobs, then answers for each.
    fn on_done(&mut self, orders: &[(JobId, Order)]) {
        let living = orders.iter().filter(|(job, _)| !self.world.is_ended(*job));
        let done: Vec<(JobId, Order, Option<Mishap>)> =
            living.map(|(job, order)| (*job, *order, self.misfortune.mishap(*order))).collect();
        for (job, _, _) in done.iter().filter(|(_, order, mishap)| *order == Order::Park && mishap.is_none())
        {
            self.on_dumped(*job);
        }
        let answers: Vec<(JobId, Residence)> =
            done.into_iter().map(|(job, order, mishap)| (job, self.carry(job, order, mishap))).collect();
        for (job, at) in answers {
            if at == Residence::Failed {
                self.on_ended(job, at);
            } else {
                self.answer(job, at, Cause::Failed);
            }
        }
    }

    /// The size of its images is known.
    fn on_dumped(&mut self, job: JobId) {
        let Some(watch) = &mut self.watch else { return };
        let held = self.world.held_by(job);
        let events: Vec<SchedulerEvent> =
            held.into_iter().filter_map(|(node, bytes)| watch.on_dumped(job, node, bytes)).collect();
        events.into_iter().for_each(|event| self.feed(event));
    }

    /// Moves the job as its order says, or as the mishap does; says where it is then.
    fn carry(&mut self, job: JobId, order: Order, mishap: Option<Mishap>) -> Residence {
        match (order, mishap) {
            (_, Some(Mishap::Lost)) | (Order::End | Order::Checkpoint, _) => {
                self.world.end(job);
                Residence::Failed
            }
            (Order::Suspend, _) | (Order::Prefetch, None) => Residence::Suspended,
            (Order::Park, None) => {
                self.world.leave(job);
                Residence::Parked
            }
            (Order::Park, Some(Mishap::Aborted)) if self.runs_on(job) => {
                self.world.thaw(job);
                Residence::Running
            }
            (Order::Park, Some(Mishap::Aborted)) => Residence::Suspended,
            (Order::Resume, _) | (Order::Launch | Order::Restore, None) => {
                self.world.thaw(job);
                Residence::Running
            }
            (Order::Launch | Order::Restore | Order::Prefetch, Some(Mishap::Aborted)) => {
                self.world.leave(job);
                if order == Order::Launch { Residence::Unlaunched } else { Residence::Parked }
            }
        }
    }

    /// Whether a job whose dump failed runs on: it ran when it was ordered to park.
    fn runs_on(&self, job: JobId) -> bool {
        let plan = self.switching.as_ref().map(Switching::plan);
        plan.is_some_and(|SwitchPlan { outgoing, order, .. }| {
            let ran = outgoing.iter().any(|outgoing| outgoing.job == job && outgoing.running);
            ran && *order != SwitchOrder::Overlapped
        })
    }

    fn answer(&mut self, job: JobId, at: Residence, cause: Cause) {
        let Some(switching) = &mut self.switching else { return };
        let action = switching.on_residence(self.now, job, at, cause);
        self.act(action);
    }

    fn end_switch(&mut self, SwitchOutcome { misplaced, restore, exposed }: SwitchOutcome) {
        let switching = self.switching.take().expect("it has just ended");
        let switch = switching.plan().switch;
        let exposed = exposed.filter(|_| self.exposes);
        self.report.times.switches.extend(exposed);
        let restore = restore.and(self.restore.take());
        let exposed = exposed.as_ref().map_or(Duration::ZERO, Span::length);
        self.feed(SchedulerEvent::SwitchTimed { switch, restore, exposed });
        self.feed(if misplaced.is_empty() {
            SchedulerEvent::SwitchDone { switch }
        } else {
            SchedulerEvent::SwitchFailed { switch, misplaced }
        });
    }

    fn finish(mut self) -> SimReport {
        self.report.times.jobs = self.world.take_times();
        self.report.metrics = measure(&self.report.times, SLOWDOWN_FLOOR);
        self.report.memory_peak = self.world.memory_peak();
        self.report
    }
}

/// The jobs that were given one of these orders.
fn jobs_with(orders: &[(JobId, Order)], which: &[Order]) -> Vec<JobId> {
    orders.iter().filter(|(_, order)| which.contains(order)).map(|(job, _)| *job).collect()
}
