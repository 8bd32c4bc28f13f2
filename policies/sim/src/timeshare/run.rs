//! The loop over time: feeds the scheduler what happens, carries out what it decides.
//!
//! A switch passes through three stages, as on real nodes: *flush*, in which the outgoing jobs still run and may even
//! finish; *dump*, at whose end those that leave memory are out of it; *restore*, at whose end the incoming ones run, all
//! together. Overlapped, the last two are one. What happens beside a turn has no flush, and nobody runs at its end. What it costs
//! the running jobs is not modelled.

use std::{collections::BTreeMap, time::Duration};

use coswitch_policies::{
    Bytes, Cluster, ConfigError, Decision, Incoming, JobId, JobSpec, Left, Misplaced, Purpose, RejectReason,
    Rest, Scheduler, SchedulerConfig, SchedulerEvent, SimTime, Start, SwitchOrder, SwitchPlan, TimerId,
    metrics::{RunTimes, SLOWDOWN_FLOOR, Span, measure},
};
use thiserror::Error;

use crate::{
    CostModel, Faults, SimJob, SimReport, Step,
    timeshare::faults::{Misfortune, left_by},
    timeshare::world::{Ending, World},
};

/// Why a simulation did not end.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SimError {
    /// The settings make no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Jobs are left and nothing will ever happen.
    #[error("nothing happens any more after {0:?} and jobs are left")]
    Stuck(SimTime),
    /// More steps than allowed.
    #[error("not done after {0} steps")]
    TooLong(usize),
}

/// What is due at a time.
enum Due {
    Arrival(Vec<SimJob>),
    Timer(TimerId),
    Flushed(SwitchPlan),
    Dumped(SwitchPlan),
    Restored(SwitchPlan),
    /// Overlapped: one of the two is over.
    Half(SwitchPlan, Half),
    Ended(JobId),
}

/// Which half of an overlapped switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Half {
    Dumps,
    Restores,
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
    /// Of the overlapped switch under way: which half is over, and who is elsewhere than planned because of it.
    half: Option<Vec<Misplaced>>,
    /// How long the restores of the switch under way take.
    restore: Option<Duration>,
    /// When nodes stopped running jobs for the switch under way.
    exposed_since: Option<SimTime>,
    report: SimReport,
}

/// Runs `jobs` under the scheduler until all have ended, in at most `steps_max` events.
///
/// # Errors
/// Where the settings make no sense, or the run does not end: that is a fault of the scheduler.
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

/// The same, for runs whose journal nobody could hold: it is told step by step, and the report has none.
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
            half: None,
            restore: None,
            exposed_since: None,
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
        for (at, jobs) in by_time {
            self.due(at, Due::Arrival(jobs));
        }
    }

    fn due(&mut self, at: SimTime, due: Due) {
        self.agenda.insert((at, self.next_due), due);
        self.next_due += 1;
    }

    /// Goes to whatever comes next; false where nothing does.
    fn step(&mut self) -> bool {
        let end = self.world.next_end();
        let due = self.agenda.first_key_value().map(|((at, _), _)| *at);
        match (end, due) {
            (Some((at, job)), due) if due.is_none_or(|due| at <= due) => {
                self.pass(at);
                match self.world.end_by_itself(job) {
                    Ending::Finished(job) => self.feed(SchedulerEvent::Finished { job }),
                    Ending::Crashed(job) => self.feed(SchedulerEvent::Failed { job }),
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
                // As a live run that knows its programs from earlier ones.
                let known = jobs.iter().filter_map(|job| Some((job.spec.id, job.communication?)));
                for (job, communication) in known.collect::<Vec<_>>() {
                    self.feed(SchedulerEvent::Measured { job, communication });
                }
                let jobs: Vec<JobSpec> = jobs.into_iter().map(|job| job.spec).collect();
                self.feed(SchedulerEvent::Submitted { jobs });
            }
            Due::Timer(timer) => self.feed(SchedulerEvent::TimerFired { timer }),
            Due::Flushed(plan) => self.on_flushed(plan),
            Due::Dumped(plan) => self.on_dumped(plan),
            Due::Restored(plan) => self.on_restored(&plan),
            Due::Half(plan, half) => self.on_half(&plan, half),
            Due::Ended(job) if self.world.is_ended(job) => {}
            Due::Ended(job) => {
                self.world.end(job);
                self.feed(SchedulerEvent::Failed { job });
            }
        }
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
    }

    fn carry_out(&mut self, decision: &Decision) {
        match decision {
            Decision::Switch(plan) => {
                let flush = if plan.is_activation() { Duration::ZERO } else { self.cost.flush };
                self.due(self.now.after(flush), Due::Flushed(plan.clone()));
            }
            Decision::SetTimer { timer, at } => self.due(*at, Due::Timer(*timer)),
            Decision::Abandon { job, .. } => self.due(self.now.after(ABANDON), Due::Ended(*job)),
            Decision::Rejected { job, reason } => {
                self.report.rejected.push((*job, reason.clone()));
                if *reason != RejectReason::DuplicateId {
                    self.world.forget(*job);
                }
            }
            Decision::AllDone => self.done = true,
            Decision::Admitted { .. }
            | Decision::Queued { .. }
            | Decision::Moved(_)
            | Decision::SlotStarted(_)
            | Decision::SlotChanged(_)
            | Decision::Narrowed { .. }
            | Decision::Widened
            | Decision::Split(_)
            | Decision::Outgrew { .. } => {}
        }
    }

    fn on_flushed(&mut self, plan: SwitchPlan) {
        let running = plan.outgoing.iter().filter(|outgoing| outgoing.running).map(|outgoing| outgoing.job);
        for job in self.living(running) {
            self.world.freeze(job);
        }
        let begins = plan.purpose == Purpose::Turn && (!plan.is_activation() || self.world.is_idle());
        self.exposed_since = begins.then_some(self.now);
        let (most, all) = self.world.bytes_of(self.leaving(&plan).into_iter());
        self.report.switches += u32::from(!plan.is_activation());
        self.report.bytes_out = self.report.bytes_out.saturating_add(all);
        let dumped = self.now.after(self.cost.dump.time(most));
        if plan.order == SwitchOrder::Overlapped {
            let restored = self.now.after(self.bring_in(&plan));
            self.due(dumped, Due::Half(plan.clone(), Half::Dumps));
            return self.due(restored, Due::Half(plan, Half::Restores));
        }
        self.due(dumped, Due::Dumped(plan));
    }

    /// Those that leave memory.
    fn leaving(&self, plan: &SwitchPlan) -> Vec<JobId> {
        let parked = plan.outgoing.iter().filter(|outgoing| outgoing.rest == Rest::Parked);
        self.living(parked.map(|outgoing| outgoing.job))
    }

    /// Those of the plan that have not ended.
    fn coming(&self, plan: &SwitchPlan) -> Vec<Incoming> {
        plan.incoming.iter().filter(|incoming| !self.world.is_ended(incoming.job)).cloned().collect()
    }

    /// Takes memory for those that are not resident; says how long it takes until all could run.
    fn bring_in(&mut self, plan: &SwitchPlan) -> Duration {
        let mut coming = self.coming(plan);
        coming.retain(|incoming| incoming.start != Start::Resume);
        coming.iter().for_each(|incoming| self.world.enter(incoming.job, &incoming.placement));
        let restored = coming.iter().filter(|incoming| incoming.start == Start::Restore).map(|i| i.job);
        let (most, all) = self.world.bytes_of(restored);
        self.report.bytes_in = self.report.bytes_in.saturating_add(all);
        let launches = coming.iter().any(|incoming| incoming.start == Start::Launch);
        let launch = if launches { self.cost.launch } else { Duration::ZERO };
        let restore = self.cost.restore.time(most);
        self.restore = (most.0 > 0).then_some(restore);
        restore.max(launch)
    }

    /// The dumps are over. Says who is elsewhere than planned because of a dump that failed.
    fn end_dumps(&mut self, plan: &SwitchPlan) -> Vec<Misplaced> {
        let leaving = self.leaving(plan);
        let runs_on = |job: JobId| {
            let ran = plan.outgoing.iter().any(|outgoing| outgoing.job == job && outgoing.running);
            ran && plan.order == SwitchOrder::Sequential
        };
        let misplaced = self.misfortune.dumps(&leaving, runs_on);
        for job in leaving {
            match misplaced.iter().find(|misplaced| misplaced.job == job).map(|misplaced| misplaced.left) {
                None => self.world.leave(job),
                Some(Left::Lost) => self.lose(job),
                Some(Left::Active) => self.world.thaw(job),
                Some(_) => {}
            }
        }
        misplaced
    }

    fn on_dumped(&mut self, plan: SwitchPlan) {
        let mut misplaced = self.end_dumps(&plan);
        if misplaced.is_empty() {
            let restore = self.bring_in(&plan);
            return self.due(self.now.after(restore), Due::Restored(plan));
        }
        misplaced.extend(plan.incoming.iter().map(|i| Misplaced::new(i.job, left_by(i.start))));
        self.end_switch(&plan, misplaced);
    }

    fn on_half(&mut self, plan: &SwitchPlan, half: Half) {
        let mut misplaced = match half {
            Half::Dumps => self.end_dumps(plan),
            Half::Restores => self.end_restores(plan),
        };
        match self.half.take() {
            None => self.half = Some(misplaced),
            Some(others) => {
                misplaced.extend(others);
                self.end_switch(plan, misplaced);
            }
        }
    }

    fn on_restored(&mut self, plan: &SwitchPlan) {
        let misplaced = self.end_restores(plan);
        self.end_switch(plan, misplaced);
    }

    /// Who came runs, unless it came ahead of its turn. Says who is elsewhere than planned.
    fn end_restores(&mut self, plan: &SwitchPlan) -> Vec<Misplaced> {
        let misplaced = self.misfortune.restores(plan);
        for job in plan.incoming.iter().map(|i| i.job) {
            let left =
                misplaced.iter().find(|misplaced| misplaced.job == job).map(|misplaced| misplaced.left);
            match left {
                _ if self.world.is_ended(job) => {}
                None if plan.purpose == Purpose::Ahead => {}
                None => self.world.thaw(job),
                Some(Left::Lost) => self.lose(job),
                Some(_) => self.world.leave(job),
            }
        }
        self.end_exposed(plan, misplaced.is_empty());
        misplaced
    }

    /// The jobs that came run.
    fn end_exposed(&mut self, plan: &SwitchPlan, all_came: bool) {
        let exposed = self.exposed_since.take().map(|from| Span { from, to: self.now });
        self.report.times.switches.extend(exposed);
        let exposed = exposed.map_or(Duration::ZERO, |span| span.to.since(span.from));
        let restore = self.restore.take().filter(|_| all_came);
        self.feed(SchedulerEvent::SwitchTimed { switch: plan.switch, restore, exposed });
    }

    fn end_switch(&mut self, plan: &SwitchPlan, misplaced: Vec<Misplaced>) {
        if self.exposed_since.is_some() {
            self.end_exposed(plan, false);
        }
        let switch = plan.switch;
        let event = if misplaced.is_empty() {
            SchedulerEvent::SwitchDone { switch }
        } else {
            SchedulerEvent::SwitchFailed { switch, misplaced }
        };
        self.feed(event);
    }

    fn lose(&mut self, job: JobId) {
        self.world.end(job);
        self.report.failed.push(job);
    }

    fn living(&self, jobs: impl Iterator<Item = JobId>) -> Vec<JobId> {
        jobs.filter(|job| !self.world.is_ended(*job)).collect()
    }

    fn finish(mut self) -> SimReport {
        self.report.times.jobs = self.world.take_times();
        self.report.metrics = measure(&self.report.times, SLOWDOWN_FLOOR);
        self.report.memory_peak = self.world.memory_peak();
        self.report
    }
}
