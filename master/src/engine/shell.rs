//! The shell around the run core: owns the clock, the sockets, the signals and the dispatchers.

use std::{collections::BTreeMap, time::Duration};

use coswitch_daemon::node::is_of_batch_system;
use coswitch_dispatcher::{
    Dispatcher,
    app::{Adoption, Timeouts},
    protocol::{NodeEvent, Report},
    provisioning::{Address, Programs, Provisioning},
    sessions::Sessions,
};
use coswitch_policies::{JobId, SimTime};
use coswitch_report::journal::{Event, RunEvent, RunOutcome};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        oneshot,
    },
    time::{Instant, sleep_until},
};

use super::{
    Ask, EngineOptions, EventSink, Origin, Outcome, Resumed,
    keeper::{Keep, Keeper, Kept},
    machine_counters::MachineCounters,
    run::{Asked, Input, Output, Run, RunSettings, Takeover, Ticket},
};
use crate::{
    api::{Refusal, Reply},
    config::JobSet,
    daytime, parked,
    shutdown::{self, Left},
    standing::since_1970,
};

/// Runs the job set on nodes that are up, and tells them to end.
pub(super) async fn drive(
    mut jobs: JobSet,
    options: &EngineOptions,
    nodes: &impl Provisioning,
    mut keeper: Keeper,
    origin: Origin,
    asks: &mut UnboundedReceiver<Ask>,
    events: &mut impl EventSink,
) -> anyhow::Result<Outcome> {
    let (node_events, mut from_nodes) = unbounded_channel();
    let (reports, mut from_jobs) = unbounded_channel();
    let mut addresses = nodes.addresses();
    let patience = (jobs.cluster.lost_after, jobs.cluster.heartbeats);
    let absent = match &origin {
        Origin::TakenOver { absent, .. } => absent.clone(),
        Origin::Run | Origin::Served | Origin::Resumed(_) => Vec::new(),
    };
    addresses.retain(|address| absent.iter().all(|(node, _)| *node != address.node));
    let are_nodes_here = jobs.cluster.is_virtual();
    let generation = match origin {
        Origin::TakenOver { generation, .. } => generation,
        Origin::Resumed(ref resumed) => resumed.generation + 1,
        Origin::Run | Origin::Served => 1,
    };
    let sessions =
        Sessions::connect(&addresses, &absent, nodes.identity(), generation, patience, node_events.clone())
            .await?;
    let (run, out) = (options.run.clone(), options.out.clone());
    let standing = matches!(origin, Origin::Served | Origin::TakenOver { .. });
    // What users bring has an environment of its own.
    let environment = if standing { BTreeMap::new() } else { environment() };
    let umask = options.umask;
    let age = match &origin {
        Origin::Run | Origin::Served => Duration::ZERO,
        Origin::TakenOver { age, .. } => *age,
        Origin::Resumed(resumed) => resumed.age.max(resumed.past.known.last.since(SimTime(0))),
    };
    let ends = options.ends.map(|ends| SimTime::from(age + ends.saturating_sub(since_1970())));
    if let Some(sets) = &mut jobs.scheduler.sets {
        // Hours go by the clock of this machine, also where it was set since.
        sets.start = daytime::before(age);
    }
    let time_0 = Some(since_1970().saturating_sub(age));
    let settings = RunSettings { run, out, environment, umask, standing, ends, time_0 };
    let parks = jobs.cluster.allocation.is_some();
    let mut core = match origin {
        Origin::Run | Origin::Served => Run::new(jobs, settings)?,
        Origin::TakenOver { past, .. } => {
            Run::resume_run(jobs, settings, Takeover::new(generation, *past, sessions.inventories())?)?
        }
        Origin::Resumed(resumed) => {
            let (inventories, Resumed { past, expected, .. }) = (sessions.inventories(), *resumed);
            let named = |id| jobs.jobs.iter().find(|job| job.id == id).map(|job| job.name.clone());
            let name = |id: JobId| format!("`{}`", named(id).unwrap_or_else(|| id.to_string()));
            parked::check(&expected, &inventories, name)?;
            Run::resume_run(jobs, settings, Takeover::new(generation, past, inventories)?)?
        }
    };
    let began = Instant::now();
    let timeouts = if standing { Timeouts::standing() } else { Timeouts::default() };
    let mut shell = Shell {
        began,
        timeouts,
        age,
        generation,
        sessions,
        reports,
        events,
        dispatchers: BTreeMap::new(),
        keeping: keeper.keeping,
        node_events,
        tickets: BTreeMap::new(),
        asked: 0,
        over: None,
    };
    // Those of this machine say nothing of hosts.
    let machine = are_nodes_here.then(MachineCounters::now);
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut warned = signal(SignalKind::user_defined1())?;
    // A terminal that is closed, or a lost connection to it, ends no run: heard, and not followed.
    let _hangup = signal(SignalKind::hangup())?;
    let limit = options.limit.map(|limit| began + limit);
    let is_interrupted = options.interrupt.is_set();
    let mut input = if is_interrupted { Input::Stop(RunOutcome::Interrupted) } else { Input::Due };
    let outcome = loop {
        let mut outputs = core.on(shell.now(), input);
        if let Err(why) = shell.keep(&outputs) {
            outputs = refuse(&mut core, shell.now(), outputs, &why.to_string());
        }
        outputs.into_iter().for_each(|output| shell.carry_out(output));
        if let Some(outcome) = shell.over {
            break outcome;
        }
        let due = core.due().map(|at| began + at.since(SimTime(0)).saturating_sub(age));
        input = loop {
            // While the journal's disk is blocked, news of the jobs wait.
            let has_room = shell.events.has_room();
            break tokio::select! {
                // The loss of a node comes before the end of the jobs that it has ended.
                biased;
                _ = interrupt.recv() => Input::Stop(RunOutcome::Interrupted),
                _ = terminate.recv() => match (parks, standing) {
                    // Slurm says so that the end of the allocation is near.
                    (true, _) => Input::Warned,
                    (false, true) if shutdown::is_under_way() => return Err(Left.into()),
                    (false, _) => Input::Stop(RunOutcome::Interrupted),
                },
                _ = warned.recv() => Input::Warned,
                Some(event) = from_nodes.recv(), if has_room => Input::Node(event),
                Some((node, kept)) = keeper.kept.recv() => match kept {
                    Kept::Restarted(Ok(address)) => {
                        shell.connect_again(address);
                        continue;
                    }
                    Kept::Restarted(Err(reason)) => Input::Node(NodeEvent::NotBack { node, reason }),
                    Kept::Brought(Ok((address, programs))) => {
                        shell.replace(address, programs);
                        continue;
                    }
                    Kept::Brought(Err(reason)) => Input::Node(NodeEvent::NotReplaced { node, reason }),
                },
                Some((job, report)) = from_jobs.recv(), if has_room => Input::Report(job, report),
                Some(ask) = asks.recv(), if has_room => shell.take(ask),
                () = wait_until(due), if has_room => Input::Due,
                () = shell.events.room(), if !has_room => continue,
                () = wait_until(limit) => Input::Stop(RunOutcome::TimedOut),
            };
        };
    };
    if let Some(machine) = machine {
        shell.tell(Event::MachineUsed(machine.since()));
    }
    shell.tell(Event::RunEnded { outcome });
    match outcome {
        RunOutcome::Parked => shell.sessions.leave(),
        _ => shell.sessions.shut_down(),
    }
    Ok(Outcome { run: outcome, age: age + began.elapsed() })
}

/// The user's environment, without what a batch system says of this process alone.
fn environment() -> BTreeMap<String, String> {
    std::env::vars().filter(|(name, _)| !is_of_batch_system(name)).collect()
}

/// Jobs that could not be written down are not taken: a later master would not know them.
fn refuse(core: &mut Run, now: SimTime, mut outputs: Vec<Output>, why: &str) -> Vec<Output> {
    let mut not_kept = Vec::new();
    for output in &mut outputs {
        match output {
            Output::Keep(job) => not_kept.push(job.job.id),
            Output::Answer(_, reply @ Reply::Submitted(_)) => {
                *reply = Reply::Refused(Refusal::NotKept { why: why.into() });
            }
            _ => {}
        }
    }
    let end = |job| core.on(now, Input::NotKept(job));
    outputs.extend(not_kept.into_iter().flat_map(end));
    outputs
}

/// Waits for the time; for ever where there is none.
async fn wait_until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

struct Shell<'a, S> {
    began: Instant,
    /// The time of the run before that.
    age: Duration,
    generation: u64,
    timeouts: Timeouts,
    sessions: Sessions,
    reports: UnboundedSender<(JobId, Report)>,
    events: &'a mut S,
    dispatchers: BTreeMap<JobId, Dispatcher>,
    /// What is to be done about nodes.
    keeping: std::sync::mpsc::Sender<Keep>,
    node_events: UnboundedSender<NodeEvent>,
    /// Who waits for an answer.
    tickets: BTreeMap<Ticket, oneshot::Sender<Reply>>,
    asked: u64,
    over: Option<RunOutcome>,
}

impl<S: EventSink> Shell<'_, S> {
    fn now(&self) -> SimTime {
        SimTime::from(self.age + self.began.elapsed())
    }

    fn take(&mut self, Ask { user, request, answer }: Ask) -> Input {
        let ticket = Ticket(self.asked);
        self.asked += 1;
        self.tickets.retain(|_, answer| !answer.is_closed());
        self.tickets.insert(ticket, answer);
        Input::Asked(Asked { ticket, user, request })
    }

    /// Connects to the new daemon of a node, beside all else.
    fn connect_again(&self, address: Address) {
        let (sessions, events) = (self.sessions.clone(), self.node_events.clone());
        tokio::spawn(async move {
            if let Err(error) = sessions.connect_again(&address).await {
                let (node, error) = (address.node, anyhow::Error::from(error));
                let _ = events.send(NodeEvent::NotBack { node, reason: format!("{error:#}") });
            }
        });
    }

    /// Has the daemon of a node replaced, beside all else.
    fn replace(&self, address: Address, programs: Programs) {
        let (sessions, events, keeping) =
            (self.sessions.clone(), self.node_events.clone(), self.keeping.clone());
        tokio::spawn(async move {
            let node = address.node;
            let replaced = sessions.replace(&address, programs).await;
            let event = match replaced {
                Ok(replaced) => {
                    let _ = keeping.send(Keep::UseFromNowOn);
                    NodeEvent::Replaced { node, replaced }
                }
                Err(error) => NodeEvent::NotReplaced { node, reason: error.to_string() },
            };
            let _ = events.send(event);
        });
    }

    fn tell(&mut self, kind: Event) {
        let at = self.now();
        self.events.tell(RunEvent { at, kind });
    }

    /// Writes new jobs down, before anything is done about them.
    fn keep(&mut self, outputs: &[Output]) -> std::io::Result<()> {
        let new = outputs.iter().filter_map(|output| match output {
            Output::Keep(job) => Some(&**job),
            _ => None,
        });
        let new: Vec<_> = new.collect();
        if new.is_empty() { Ok(()) } else { self.events.keep(&new) }
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Keep(_) => {}
            Output::Tell(event) => {
                if let Event::Warning { text } = &event.kind {
                    tracing::warn!(text);
                }
                self.events.tell(event);
            }
            Output::Launch(job, spec) => {
                let (sessions, reports) = (self.sessions.clone(), self.reports.clone());
                let dispatcher = Dispatcher::start(job, *spec, self.timeouts, sessions, reports);
                self.dispatchers.insert(job, dispatcher);
            }
            Output::Adopt(job, spec, ended) => {
                let (sessions, reports) = (self.sessions.clone(), self.reports.clone());
                let adoption = Adoption { generation: self.generation, ended };
                let dispatcher = Dispatcher::adopt(job, *spec, adoption, self.timeouts, sessions, reports);
                self.dispatchers.insert(job, dispatcher);
            }
            Output::Release(node, job) => self.sessions.release(node, job),
            Output::Move(job, from, to) => {
                if let Some(dispatcher) = self.dispatchers.get(&job) {
                    dispatcher.move_part(from, to);
                }
            }
            Output::DropCopies(node, job) => self.sessions.drop_copies(node, job),
            Output::Order(job, order) => {
                if let Some(dispatcher) = self.dispatchers.get(&job) {
                    dispatcher.order(order);
                }
            }
            Output::Answer(ticket, reply) => {
                // Who has asked may have gone.
                if let Some(answer) = self.tickets.remove(&ticket) {
                    let _ = answer.send(reply);
                }
            }
            Output::Restart(node) => {
                // Who does that has gone only when the run is over.
                let _ = self.keeping.send(Keep::Restart(node));
            }
            Output::Replace(node) => {
                let _ = self.keeping.send(Keep::Bring(node));
            }
            Output::Strobe(rows) => self.sessions.strobe(rows),
            Output::SetSlices(slices) => self.sessions.set_slices(slices),
            Output::Allow(node, allowance) => self.sessions.allow(node, allowance),
            Output::Over(outcome) => {
                self.over.get_or_insert(outcome);
            }
        }
    }
}
