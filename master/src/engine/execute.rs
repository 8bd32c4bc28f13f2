//! The loop: events to the scheduler, its decisions to the dispatchers, everything that happens to the caller.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use coswitch_dispatcher::{
    Dispatcher,
    app::Timeouts,
    protocol::{
        self as app, AppOutcome, Exit, LaunchSpec, MemoryUse, NodeEvent, Order, RankTraffic, Report,
        StayCause, SwitchStep,
    },
    provisioning::Provisioning,
    sessions::Sessions,
};
use coswitch_policies::{
    Decision, Incoming, JobId, Left, NodeId, Rest, Scheduler, SchedulerEvent, SimTime, SwitchId, TimerId,
    Turn,
    timeshare::memory_monitor::{Finding, JobSample, MemoryMonitor},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc::{UnboundedSender, unbounded_channel},
    time::{Instant, sleep_until},
};

use super::{
    EngineOptions, Outcome,
    machine::Machine,
    measure::{Measure, Measured},
    switch::{Next, Switching},
};
use crate::{
    config::{Job, JobSet, Park, Wait},
    journal::{Event, JobMemory, JobOutcome, Phase, RunEvent, RunOutcome, VERSION},
};

/// Runs the set on nodes that are up, and tells them to end.
pub(super) async fn execute(
    jobs: JobSet,
    options: &EngineOptions,
    nodes: &impl Provisioning,
    events: impl FnMut(RunEvent),
) -> anyhow::Result<Outcome> {
    let (node_events, mut from_nodes) = unbounded_channel();
    let (reports, mut from_jobs) = unbounded_channel();
    let cluster = Sessions::connect(&nodes.addresses(), nodes.identity(), node_events).await?;
    let mut executor = Executor::new(jobs, options, cluster, reports, events)?;
    let machine = Machine::now();
    executor.start();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let run = loop {
        if let Some(outcome) = executor.over() {
            break outcome;
        }
        let due = executor.due();
        let deadline = options.limit.map(|limit| executor.began + limit);
        tokio::select! {
            Some((job, report)) = from_jobs.recv() => executor.on_report(job, report),
            Some(event) = from_nodes.recv() => if let Some(lost) = executor.on_node(event) { break lost },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => executor.on_due(),
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => break RunOutcome::TimedOut,
            _ = interrupt.recv() => break RunOutcome::Interrupted,
            _ = terminate.recv() => break RunOutcome::Interrupted,
        }
    };
    executor.tell(Event::MachineUsed(machine.since()));
    executor.tell(Event::RunEnded { outcome: run });
    executor.cluster.shut_down();
    Ok(Outcome { run })
}

/// Everything the loop keeps.
struct Executor<'a, F> {
    began: Instant,
    jobs: BTreeMap<JobId, Job>,
    options: &'a EngineOptions,
    cluster: Sessions,
    reports: UnboundedSender<(JobId, Report)>,
    events: F,
    scheduler: Scheduler,
    dispatchers: BTreeMap<JobId, Dispatcher>,
    /// Submitted at these times.
    arrivals: BTreeMap<SimTime, Vec<JobId>>,
    timers: BTreeSet<(SimTime, TimerId)>,
    switching: Option<Switching>,
    /// For steps that outlast their switch.
    last_switch: SwitchId,
    running: BTreeSet<JobId>,
    measure: Measure,
    watch: MemoryMonitor,
    park: app::Park,
    any_failed: bool,
    all_done: bool,
}

impl<'a, F: FnMut(RunEvent)> Executor<'a, F> {
    fn new(
        set: JobSet,
        options: &'a EngineOptions,
        cluster: Sessions,
        reports: UnboundedSender<(JobId, Report)>,
        events: F,
    ) -> anyhow::Result<Self> {
        let (settings, machines) = (&set.scheduler, &set.cluster);
        let (config, capacity) = (set.scheduler_config(), set.cluster());
        let watch = MemoryMonitor::new(capacity.clone());
        let mut arrivals: BTreeMap<SimTime, Vec<JobId>> = BTreeMap::new();
        for job in &set.jobs {
            arrivals.entry(job.arrival).or_default().push(job.id);
        }
        let mut executor = Self {
            began: Instant::now(),
            options,
            cluster,
            reports,
            events,
            scheduler: Scheduler::new(capacity, config.clone()).context("failed to set up the scheduler")?,
            dispatchers: BTreeMap::new(),
            arrivals,
            timers: BTreeSet::new(),
            switching: None,
            last_switch: SwitchId(0),
            running: BTreeSet::new(),
            measure: Measure::default(),
            watch,
            park: if settings.park == Park::PageOut { app::Park::PageOut } else { app::Park::Criu },
            any_failed: false,
            all_done: false,
            jobs: BTreeMap::new(),
        };
        executor.tell(Event::RunStarted {
            version: VERSION,
            run: options.run.clone(),
            name: set.name.clone(),
            policy: settings.policy,
            nodes: machines.nodes,
            capacity: machines.memory,
            quantum: settings.quantum,
            scheduler: Some(executor.scheduler.config().clone()),
        });
        executor.jobs = set.jobs.into_iter().map(|job| (job.id, job)).collect();
        Ok(executor)
    }

    fn now(&self) -> SimTime {
        SimTime::from(self.began.elapsed())
    }

    /// Says when.
    fn tell(&mut self, kind: Event) -> SimTime {
        let at = self.now();
        (self.events)(RunEvent { at, kind });
        at
    }

    fn warn(&mut self, text: String) {
        tracing::warn!(text);
        self.tell(Event::Warning { text });
    }

    fn over(&self) -> Option<RunOutcome> {
        let over = self.all_done && self.arrivals.is_empty() && self.dispatchers.is_empty();
        over.then_some(if self.any_failed { RunOutcome::JobsFailed } else { RunOutcome::Done })
    }

    /// When the next timer fires or job arrives.
    fn due(&self) -> Option<Instant> {
        let arrival = self.arrivals.keys().next().copied();
        let timer = self.timers.first().map(|(at, _)| *at);
        let next = [arrival, timer].into_iter().flatten().min()?;
        Some(self.began + next.since(SimTime(0)))
    }

    fn start(&mut self) {
        self.on_due();
    }

    fn on_due(&mut self) {
        let now = self.now();
        while let Some(entry) = self.arrivals.first_entry().filter(|entry| *entry.key() <= now) {
            let ids = entry.remove();
            let jobs: Vec<Job> = ids.iter().map(|id| self.jobs[id].clone()).collect();
            let at = self.now();
            for job in &jobs {
                let Job { id, name, ranks, memory, alone, .. } = job.clone();
                (self.events)(RunEvent {
                    at,
                    kind: Event::JobSubmitted { job: id, name, ranks, memory, alone },
                });
            }
            self.schedule(at, SchedulerEvent::Submitted { jobs: jobs.iter().map(Job::spec).collect() });
        }
        while let Some((_, timer)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.pop_first();
            let at = self.tell(Event::TimerFired { timer });
            self.schedule(at, SchedulerEvent::TimerFired { timer });
        }
    }

    /// Asks the scheduler about what the journal tells at `at`: so the same can be asked again.
    fn schedule(&mut self, at: SimTime, happened: SchedulerEvent) {
        self.all_done = false;
        for decision in self.scheduler.on_event(at, happened) {
            self.carry_out(decision);
        }
    }

    fn carry_out(&mut self, decision: Decision) {
        match decision {
            Decision::Admitted { .. } | Decision::Queued { .. } | Decision::Moved(_) => {}
            Decision::Split(split) => drop(self.tell(Event::SetSplit(split))),
            Decision::Outgrew { job, node, held, capacity } => {
                self.tell(Event::JobOutgrew { job, node, held, capacity });
            }
            Decision::Rejected { job, reason } => {
                self.any_failed = true;
                let outcome = JobOutcome::Failed(reason.to_string());
        self.tell(Event::JobFinished { job, outcome, last_output: String::new() });
            }
            Decision::Switch(plan) => {
                self.last_switch = plan.switch;
                let parked = plan.outgoing.iter().filter(|outgoing| outgoing.rest == Rest::Parked);
                self.tell(Event::SwitchStarted {
                    switch: plan.switch,
                    purpose: plan.purpose,
                    order: plan.order,
                    outgoing: plan.outgoing.iter().map(|outgoing| outgoing.job).collect(),
                    parked: Some(parked.map(|outgoing| outgoing.job).collect()),
                    incoming: plan.incoming.iter().map(|incoming| incoming.job).collect(),
                });
                for outgoing in &plan.outgoing {
                    self.running.remove(&outgoing.job);
                    self.measure.pause(outgoing.job);
                }
                let mut switching = Switching::new(plan, self.now());
                let (orders, next) = switching.begin(self.now());
                self.switching = Some(switching);
                self.give(orders);
                self.go_on(next);
            }
            Decision::Narrowed { rows, needed } => self.warn(format!(
                "switching all sets would need slices of {:.0} s to stay within its share: only {rows} take turns until jobs end",
                needed.as_secs_f64()
            )),
            Decision::Widened => self.warn("all sets take turns again".into()),
            Decision::SetTimer { timer, at } => drop(self.timers.insert((at, timer))),
            Decision::Abandon { job, failures } => {
                self.warn(format!("{job} is given up: {failures} switches in a row failed because of it"));
                if let Some(dispatcher) = self.dispatchers.get(&job) {
                    dispatcher.order(Order::End);
                }
            }
            Decision::SlotStarted(_) | Decision::SlotChanged(_) => {
                if let Some(Turn { slot, jobs, ends }) = self.scheduler.turn() {
                    self.tell(Event::SlotStarted { slot, jobs, ends });
                }
            }
            Decision::AllDone => self.all_done = true,
        }
    }

    /// The switch under way has come a step further.
    fn go_on(&mut self, next: Next) {
        match next {
            Next::Wait => {}
            Next::Go(orders, incoming) => {
                self.give(orders);
                incoming.into_iter().for_each(|incoming| self.bring_in(incoming));
            }
            Next::Over(misplaced) => {
                let Some(switching) = self.switching.take() else { return };
                let moved: BTreeSet<JobId> =
                    switching.plan.incoming.iter().map(|incoming| incoming.job).collect();
                let others_run = self.running.iter().any(|job| !moved.contains(job));
                let (switch, restore) = (switching.plan.switch, switching.restore());
                let exposed = switching.exposed(self.now(), others_run);
                let (bytes_out, bytes_in) = (switching.bytes_out, switching.bytes_in);
                let at = self.tell(Event::SwitchEnded {
                    switch,
                    restore,
                    exposed,
                    bytes_out,
                    bytes_in,
                    misplaced: misplaced.clone(),
                });
                self.schedule(at, SchedulerEvent::SwitchTimed { switch, restore, exposed });
                let over = if misplaced.is_empty() {
                    SchedulerEvent::SwitchDone { switch }
                } else {
                    SchedulerEvent::SwitchFailed { switch, misplaced }
                };
                self.schedule(at, over);
            }
        }
    }

    fn give(&self, orders: Vec<(JobId, Order)>) {
        for (job, order) in orders {
            if let Some(dispatcher) = self.dispatchers.get(&job) {
                dispatcher.order(order);
            }
        }
    }

    fn bring_in(&mut self, Incoming { job, start, placement }: Incoming) {
        let order = self.switching.as_ref().map_or(Order::Restore, |switching| switching.call(start));
        if order != Order::Launch {
            return self.give(vec![(job, order)]);
        }
        self.tell(Event::JobLaunched { job, placement: placement.clone() });
        let spec = &self.jobs[&job];
        self.watch.on_launched(job, &placement, spec.memory);
        let mut command = vec![spec.program.display().to_string()];
        command.extend(spec.arguments.iter().cloned());
        let launch = LaunchSpec {
            name: spec.name.clone(),
            placement: placement.by_rank().collect(),
            command,
            env: environment(spec),
            cwd: spec.cwd.clone(),
            output: self.options.out.join(&spec.name),
            wait: wait(spec.wait),
            park: self.park,
        };
        let dispatcher =
            Dispatcher::start(job, launch, Timeouts::default(), self.cluster.clone(), self.reports.clone());
        dispatcher.order(Order::Launch);
        self.dispatchers.insert(job, dispatcher);
    }

    fn on_report(&mut self, job: JobId, report: Report) {
        match report {
            Report::Running => {
                self.running.insert(job);
                self.tell(Event::JobRunning { job });
                self.step(|switching, now| switching.on_at(now, job, Left::Active));
            }
            Report::Suspended => self.step(|switching, now| switching.on_at(now, job, Left::Suspended)),
            Report::Parked => self.step(|switching, now| switching.on_at(now, job, Left::Parked)),
            Report::StillRunning { cause } => {
                self.note_no_room(job, &cause);
                self.running.insert(job);
                self.tell(Event::JobRunning { job });
                self.warn(format!("{job} could not leave and runs on: {cause}"));
                self.step(|switching, now| switching.on_at(now, job, Left::Active));
            }
            Report::StillSuspended { cause } => {
                self.note_no_room(job, &cause);
                self.warn(format!("{job} could not leave memory and is suspended: {cause}"));
                self.step(|switching, now| switching.on_at(now, job, Left::Suspended));
            }
            Report::Ended(outcome) => self.on_ended(job, outcome),
            Report::StepDone(phase) => self.on_phase(job, phase),
            Report::Mended { what } => self.warn(format!("{job}: {what}")),
            Report::Progress { node, step, bytes, total } => {
                self.tell(Event::Progress { job, node, phase: step_of(step), bytes, total });
            }
            Report::Stored { node, root, bytes } => {
                self.tell(Event::SnapshotStored { job, node, root, bytes });
            }
            Report::Traffic { ranks, .. } => self.on_traffic(job, &ranks),
        }
    }

    fn note_no_room(&mut self, job: JobId, cause: &StayCause) {
        if let (StayCause::StoreFull { .. }, Some(switching)) = (cause, &mut self.switching) {
            switching.on_no_room(job);
        }
    }

    fn on_traffic(&mut self, job: JobId, ranks: &[RankTraffic]) {
        let now = self.now();
        self.measure.count(job, ranks);
        if !self.running.contains(&job) {
            return self.measure.pause(job);
        }
        if let Some(measured) = self.measure.on_traffic(now, job, ranks) {
            let Measured { communication, bytes_per_second, ranks } = measured;
            let at = self.tell(Event::JobMeasured { job, communication, bytes_per_second, ranks });
            self.schedule(at, SchedulerEvent::Measured { job, communication });
        }
    }

    fn step(&mut self, advance: impl FnOnce(&mut Switching, SimTime) -> Next) {
        let now = self.now();
        if let Some(next) = self.switching.as_mut().map(|switching| advance(switching, now)) {
            self.go_on(next);
        }
    }

    fn on_ended(&mut self, job: JobId, outcome: AppOutcome) {
        self.running.remove(&job);
        let counted = self.measure.forget(job);
        self.watch.on_ended(job);
        self.dispatchers.remove(&job);
        let (outcome, last_output) = told(outcome);
        let happened = if outcome.is_success() {
            SchedulerEvent::Finished { job }
        } else {
            SchedulerEvent::Failed { job }
        };
        self.any_failed |= !outcome.is_success();
        self.tell(counted);
        let at = self.tell(Event::JobFinished { job, outcome, last_output });
        self.schedule(at, happened);
        self.step(|switching, now| switching.on_ended(now, job));
    }

    fn on_phase(&mut self, job: JobId, phase: app::StepDone) {
        let ended = self.now();
        let began = SimTime(ended.0.saturating_sub(u64::try_from(phase.took.as_nanos()).unwrap_or(u64::MAX)));
        if let Some(switching) = &mut self.switching {
            match phase.step {
                SwitchStep::Dump => switching.bytes_out = switching.bytes_out.saturating_add(phase.bytes),
                SwitchStep::Restore => switching.bytes_in = switching.bytes_in.saturating_add(phase.bytes),
                _ => {}
            }
        }
        let (switch, node, bytes) = (self.last_switch, phase.node, phase.bytes);
        let phase = step_of(phase.step);
        self.tell(Event::PhaseDone { switch, job, node, phase, began, ended, bytes });
    }

    fn on_memory(&mut self, node: NodeId, MemoryUse { used, stall, jobs }: &MemoryUse) {
        let by_job = jobs.iter().map(|held| JobMemory { job: held.job, used: held.used }).collect();
        let at = self.tell(Event::MemorySample { node, used: *used, by_job });
        let sample = |memory: &app::JobMemory| JobSample {
            job: memory.job,
            held: memory.held,
            major_faults: memory.major_faults,
            runs: self.running.contains(&memory.job),
        };
        let samples: Vec<JobSample> = jobs.iter().map(sample).collect();
        for finding in self.watch.on_sample(at, node, *used, *stall, &samples) {
            match finding {
                Finding::Held { job, node, held } => {
                    let at = self.tell(Event::JobHeld { job, node, held });
                    self.schedule(at, SchedulerEvent::Held { job, node, held });
                }
                Finding::MemoryPressure { node, pressure } => {
                    let at = self.tell(Event::NodePressed { node, pressure });
                    self.schedule(at, SchedulerEvent::MemoryPressure { node });
                }
            }
        }
    }

    /// Losing a node ends the run: what ran there cannot be taken up elsewhere yet.
    fn on_node(&mut self, event: NodeEvent) -> Option<RunOutcome> {
        match event {
            NodeEvent::Memory { node, memory } => {
                self.on_memory(node, &memory);
                None
            }
            NodeEvent::Lost { node, reason } => {
                self.warn(format!("{node} was lost: {reason}; the run ends"));
                Some(RunOutcome::Aborted)
            }
        }
    }
}

/// The journal's name of a step.
fn step_of(kind: SwitchStep) -> Phase {
    match kind {
        SwitchStep::Freeze => Phase::Freeze,
        SwitchStep::Flush => Phase::Flush,
        SwitchStep::Dump => Phase::Dump,
        SwitchStep::Release => Phase::Release,
        SwitchStep::Seal => Phase::Seal,
        SwitchStep::Restore => Phase::Restore,
        SwitchStep::Thaw => Phase::Thaw,
    }
}

/// What the journal says of an application's end.
fn told(outcome: AppOutcome) -> (JobOutcome, String) {
    match outcome {
        AppOutcome::Succeeded => (JobOutcome::Exit(0), String::new()),
        AppOutcome::RankFailed { rank, exit, last_output } => {
            let outcome = match exit {
                Exit::Status(status) => JobOutcome::Exit(status),
                Exit::Signal(signal) => JobOutcome::Signal(signal),
                Exit::OutOfMemory => JobOutcome::Failed(format!(
                    "rank {rank} was killed by the kernel: the memory of its node was used up"
                )),
                Exit::NotStarted(reason) => {
                    JobOutcome::Failed(format!("rank {rank} did not start: {reason}"))
                }
                Exit::Aborted(code) => {
                    JobOutcome::Failed(format!("rank {rank} called MPI_Abort with code {code}"))
                }
            };
            (outcome, last_output)
        }
        AppOutcome::Lost { reason } => (JobOutcome::Failed(reason), String::new()),
        AppOutcome::Stopped => (JobOutcome::Failed("stopped".into()), String::new()),
    }
}

/// A rank sees the environment of `coswitch run`, as under any MPI launcher, and what the run file adds.
fn environment(job: &Job) -> Vec<(String, String)> {
    let mut env: BTreeMap<String, String> = std::env::vars().collect();
    env.extend(job.env.clone());
    env.into_iter().collect()
}

fn wait(wait: Wait) -> app::Wait {
    match wait {
        Wait::Spin => app::Wait::Spin,
        Wait::Yield => app::Wait::Yield,
        Wait::Block => app::Wait::Block,
        Wait::SpinBlock => app::Wait::SpinBlock,
    }
}
