//! A cluster of virtual nodes under a test's own orders: no master, the dispatchers are told what to do one by one.
//!
//! [`play`] gives a test its turn, a thread in a network namespace of its own, and the daemons; afterwards it ends them and looks
//! for what is left. Every wait has a time-out and shows where everybody stood when it ran out.

use std::{
    collections::BTreeMap,
    env, fs, panic,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use coswitch::install::Installation;
use coswitch_ckpt::{Store, store::StoredSnapshot};
use coswitch_daemon::{
    cgroup::{Hierarchies, JobCgroup, NodeCgroup},
    node::{Tier, node_name, store_dir},
};
use coswitch_dispatcher::{
    Dispatcher,
    app::Timeouts,
    protocol::{AppOutcome, LaunchSpec, NodeEvent, Order, Report, StepDone},
    provisioning::{
        Provisioning,
        virtual_nodes::{self, VirtualNodes, VirtualRequest},
    },
    sessions::Sessions,
};
use coswitch_policies::{Bytes, JobId, NodeId};
use tokio::{
    runtime::Runtime,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::timeout,
};

use crate::{
    Papers, STORE,
    act::Act,
    parts,
    traces::{MARK, Traces},
};

/// For anything that takes a second on an idle machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// For a program to run to its end.
pub const RUN_LIMIT: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(2);
const LEFT_LIMIT: Duration = Duration::from_secs(10);
/// Memory is not what these tests are about.
const NODE_MEMORY: Bytes = Bytes::mib(8192);

/// Where a job stands, by what its dispatcher has reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Life {
    /// An order is being carried out.
    Asked(Order),
    /// It computes.
    Running,
    /// It is in memory, stopped.
    Suspended,
    /// It is out of memory.
    Parked,
    /// It is over.
    Ended(AppOutcome),
}

/// A job on the stage.
pub struct Actor {
    /// What it plays.
    pub act: Act,
    /// Where it stands.
    pub life: Life,
    /// How often it was parked.
    pub parked: u32,
    /// Why it could not be parked, each time.
    pub stayed: Vec<String>,
    /// What went wrong and was mended.
    pub mended: Vec<String>,
    /// What its nodes have done for it.
    pub phases: Vec<StepDone>,
    /// Where its ranks write to.
    pub output: PathBuf,
    dispatcher: Dispatcher,
}

/// What the nodes are like.
#[derive(Clone, Debug, Default)]
pub struct Scenery {
    /// How many there are.
    pub nodes: u32,
    /// For pages on their way out; `None`: as a run without a word about it has.
    pub arena: Option<Bytes>,
    /// Whether there is a second directory for what finds no room in the first, which [`Stage::fill`] then fills.
    pub two_tiers: bool,
}

/// What the first of two directories takes.
const FIRST_TIER: Bytes = Bytes::mib(8192);

/// See the module's description.
pub struct Stage {
    run: String,
    papers: Papers,
    stores: Vec<Tier>,
    sessions: Sessions,
    nodes: VirtualNodes,
    traces: Traces,
    runtime: Runtime,
    reports: UnboundedReceiver<(JobId, Report)>,
    report_to: UnboundedSender<(JobId, Report)>,
    node_events: UnboundedReceiver<NodeEvent>,
    /// The jobs, in the order of their launch.
    pub actors: BTreeMap<JobId, Actor>,
    /// Nodes that cannot be reached any more.
    pub lost: BTreeMap<NodeId, String>,
}

/// Plays a test on so many virtual nodes; nothing may be left afterwards.
///
/// # Panics
/// As [`play_in`].
pub fn play(nodes: u32, test: impl FnOnce(&mut Stage) + Send) {
    play_in(Scenery { nodes, ..Scenery::default() }, test);
}

/// Plays a test on nodes like that; nothing may be left afterwards.
///
/// # Panics
/// Where the test does, where the nodes do not come up, and where something is left.
pub fn play_in(scenery: Scenery, test: impl FnOnce(&mut Stage) + Send) {
    let _turn = crate::turn();
    // The thread leaves the network namespace of the process, so it is not one of the test harness.
    let outcome = thread::scope(|scope| {
        let act = || {
            let mut stage = Stage::set(&scenery);
            test(&mut stage);
            stage.strike();
        };
        scope.spawn(act).join()
    });
    outcome.unwrap_or_else(|panicked| panic::resume_unwind(panicked));
}

impl Stage {
    fn set(scenery: &Scenery) -> Self {
        static STAGES: AtomicU32 = AtomicU32::new(0);
        let run = format!("test-{}-{:03}", std::process::id(), STAGES.fetch_add(1, Ordering::Relaxed));
        let papers = Papers::new(&run);
        let dirs = [STORE.into(), format!("{STORE}-2")].map(|name| papers.path().join(name));
        let mut stores = dirs.clone().map(Tier::unbounded).to_vec();
        if scenery.two_tiers {
            stores[0].bytes_max = Some(FIRST_TIER.0);
        } else {
            stores.truncate(1);
        }
        let mut traces = Traces::of(&run, &run, &dirs);
        let Installation { daemon, launcher, driver } = parts::installation();
        let equal = virtual_nodes::equal_nodes(scenery.nodes, NODE_MEMORY, &stores, scenery.arena);
        let request = VirtualRequest {
            run: run.clone(),
            nodes: equal.expect("the kernel names the processors"),
            rate: None,
            logs: papers.path().to_path_buf(),
            daemon,
            launcher,
            driver,
        };
        let nodes = VirtualNodes::start(&request).expect("the daemons start");
        traces.note_namespace("thread-self");
        nodes.pids().for_each(|pid| traces.note_namespace(&pid.to_string()));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (to_stage, node_events) = unbounded_channel();
        let connected = runtime.block_on(Sessions::connect(&nodes.addresses(), nodes.identity(), to_stage));
        let (report_to, reports) = unbounded_channel();
        Self {
            run,
            papers,
            stores,
            sessions: connected.expect("the daemons answer"),
            nodes,
            traces,
            runtime,
            reports,
            report_to,
            node_events,
            actors: BTreeMap::new(),
            lost: BTreeMap::new(),
        }
    }

    /// Ends the daemons and looks for what is left.
    fn strike(self) {
        let Self { ref sessions, nodes, ref traces, runtime, .. } = self;
        sessions.shut_down();
        let ended = nodes.end();
        runtime.shutdown_timeout(Duration::from_secs(5));
        ended.expect("nothing of the nodes resists");
        traces.assert_nothing_left(LEFT_LIMIT);
    }

    /// Launches a job; it runs when [`Stage::settle`] says so.
    pub fn launch(&mut self, act: Act) -> JobId {
        let job = JobId(u32::try_from(self.actors.len()).expect("few jobs"));
        let output = self.papers.path().join(job.to_string());
        let mut env: Vec<(String, String)> = env::vars().collect();
        env.push((MARK.into(), self.run.clone()));
        let request = LaunchSpec {
            name: act.name.clone(),
            placement: act.placement.clone(),
            command: act.command.clone(),
            env,
            cwd: self.papers.path().to_path_buf(),
            output: output.clone(),
            wait: act.wait,
            park: act.park,
        };
        let (sessions, reports) = (self.sessions.clone(), self.report_to.clone());
        let _in_runtime = self.runtime.enter();
        let dispatcher = Dispatcher::start(job, request, Timeouts::default(), sessions, reports);
        let life = Life::Asked(Order::Launch);
        let (stayed, mended, phases) = (Vec::new(), Vec::new(), Vec::new());
        dispatcher.order(Order::Launch);
        self.actors.insert(job, Actor { act, life, parked: 0, stayed, mended, phases, output, dispatcher });
        job
    }

    /// Gives an order and does not wait.
    pub fn order(&mut self, job: JobId, order: Order) {
        let actor = self.actors.get_mut(&job).expect("launched");
        if !matches!(actor.life, Life::Ended(_)) {
            actor.life = Life::Asked(order);
            actor.dispatcher.order(order);
        }
    }

    /// Takes a job out of memory; says whether it is parked now.
    pub fn park(&mut self, job: JobId) -> bool {
        *self.obey(job, Order::Park) == Life::Parked
    }

    /// Brings a job back; says whether it runs now.
    pub fn restore(&mut self, job: JobId) -> bool {
        *self.obey(job, Order::Restore) == Life::Running
    }

    /// Gives an order and waits until it has been carried out; says where that has led to.
    pub fn obey(&mut self, job: JobId, order: Order) -> &Life {
        self.order(job, order);
        self.settle(job)
    }

    /// Waits until the last order to a job has been carried out, or the job has ended.
    pub fn settle(&mut self, job: JobId) -> &Life {
        let settled = |stage: &Self| !matches!(stage.actors[&job].life, Life::Asked(_));
        self.until(&format!("{job} to settle"), PATIENCE, settled);
        &self.actors[&job].life
    }

    /// Waits until a job has ended.
    ///
    /// # Panics
    /// Where it does not end within `limit`.
    pub fn end_of(&mut self, job: JobId, limit: Duration) -> AppOutcome {
        self.until(&format!("{job} to end"), limit, |stage| {
            matches!(stage.actors[&job].life, Life::Ended(_))
        });
        match &self.actors[&job].life {
            Life::Ended(outcome) => outcome.clone(),
            life => unreachable!("waited until it ended: {life:?}"),
        }
    }

    /// Waits until a job has ended, and checks what it has found.
    ///
    /// # Panics
    /// Where it did not end well, or found something wrong.
    pub fn verify(&mut self, job: JobId, limit: Duration) {
        let outcome = self.end_of(job, limit);
        let actor = &self.actors[&job];
        actor.act.check(&outcome, &actor.output).unwrap_or_else(|wrong| panic!("{job}: {wrong}"));
        assert_eq!(actor.mended, Vec::<String>::new(), "{job} had to be mended");
        let because_it_ends = |reason: &String| reason.contains("its ranks");
        assert!(actor.stayed.iter().all(because_it_ends), "{job} was not parked: {:?}", actor.stayed);
    }

    /// Lets everything go on for a while.
    pub fn run_for(&mut self, span: Duration) {
        let end = Instant::now() + span;
        while self.hear(end) {}
    }

    /// Waits until `done`.
    ///
    /// # Panics
    /// Shows where everybody stands if that takes longer than `limit`.
    pub fn until(&mut self, what: &str, limit: Duration, done: impl Fn(&Self) -> bool) {
        let end = Instant::now() + limit;
        while !done(self) {
            if !self.hear(end) && !done(self) {
                let standing = self
                    .actors
                    .iter()
                    .map(|(job, actor)| format!("{job} {} {:?}", actor.act.name, actor.life));
                let standing: Vec<_> = standing.collect();
                panic!("waited {limit:?} for {what}; {standing:?}, lost: {:?}", self.lost);
            }
        }
    }

    /// Waits until `done`, which looks at something that tells nobody when it changes.
    ///
    /// # Panics
    /// As [`Stage::until`].
    pub fn until_some_time(&mut self, what: &str, limit: Duration, done: impl Fn(&Self) -> bool) {
        let end = Instant::now() + limit;
        while !done(self) {
            assert!(Instant::now() < end, "waited {limit:?} for {what}; there are {:#?}", self.traces.left());
            self.run_for(LOOK_EVERY);
        }
    }

    /// Takes in one event; `false` where none comes before `end`.
    fn hear(&mut self, end: Instant) -> bool {
        let (reports, node_events) = (&mut self.reports, &mut self.node_events);
        let next = async {
            tokio::select! {
                report = reports.recv() => Ok(report.expect("the stage holds a sender itself")),
                event = node_events.recv(), if !node_events.is_closed() || !node_events.is_empty() => Err(event),
            }
        };
        match self
            .runtime
            .block_on(async { timeout(end.saturating_duration_since(Instant::now()), next).await })
        {
            Err(_) => return false,
            Ok(Ok((job, report))) => self.on_report(job, report),
            Ok(Err(Some(NodeEvent::Lost { node, reason }))) => drop(self.lost.insert(node, reason)),
            Ok(Err(_)) => {}
        }
        true
    }

    fn on_report(&mut self, job: JobId, report: Report) {
        let actor = self.actors.get_mut(&job).expect("only jobs of this stage report to it");
        match report {
            Report::Running => actor.life = Life::Running,
            Report::Suspended => actor.life = Life::Suspended,
            Report::StillSuspended { cause } => {
                actor.life = Life::Suspended;
                actor.stayed.push(cause.to_string());
            }
            Report::Parked => {
                actor.life = Life::Parked;
                actor.parked += 1;
            }
            Report::StillRunning { cause } => {
                actor.life = Life::Running;
                actor.stayed.push(cause.to_string());
            }
            Report::Ended(outcome) => actor.life = Life::Ended(outcome),
            Report::Mended { what } => actor.mended.push(what),
            Report::StepDone(phase) => actor.phases.push(phase),
            Report::Stored { .. } | Report::Progress { .. } | Report::Traffic { .. } => {}
        }
    }

    /// The process id of a node's daemon.
    #[must_use]
    pub fn daemon(&self, node: NodeId) -> u32 {
        self.nodes.pids().nth(node.0 as usize).expect("a node of this stage")
    }

    /// The processes of a job whose name (`comm`) is that.
    #[must_use]
    pub fn processes(&self, job: JobId, name: &str) -> Vec<u32> {
        let read =
            |pid: &u32, file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let is_of_job =
            |pid: &u32| read(pid, "cgroup").lines().any(|line| line.ends_with(&format!("/{job}")));
        let processes = self.traces.processes().into_iter();
        processes.filter(|pid| is_of_job(pid) && read(pid, "comm").trim() == name).collect()
    }

    /// What a job holds of a node's memory.
    ///
    /// # Panics
    /// Where it has no cgroup there.
    #[must_use]
    pub fn memory(&self, node: NodeId, job: JobId) -> Bytes {
        self.cgroup(node, job).used().expect("the job has a cgroup there")
    }

    /// The cgroup of a job on a node.
    ///
    /// # Panics
    /// Where it cannot be made; making one that is there changes nothing.
    #[must_use]
    pub fn cgroup(&self, node: NodeId, job: JobId) -> JobCgroup {
        self.groups(node).job(&job.to_string()).expect("root may make cgroups")
    }

    /// What a dump of that node has left running.
    #[must_use]
    pub fn checkpointers(&self, node: NodeId) -> Vec<u32> {
        let procs = self.groups(node).checkpointers().join("cgroup.procs");
        let pids = fs::read_to_string(procs).expect("the group stays");
        pids.lines().map(|pid| pid.parse().expect("a process id")).collect()
    }

    /// Making those that are there changes nothing.
    fn groups(&self, node: NodeId) -> NodeCgroup {
        let hierarchies = Hierarchies::find().expect("cgroups are mounted");
        NodeCgroup::create(hierarchies, &node_name(&self.run, node), None).expect("root may make cgroups")
    }

    /// The processes of the run whose name (`comm`) is that.
    #[must_use]
    pub fn processes_of_run(&self, name: &str) -> Vec<u32> {
        let is_it =
            |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
        self.traces.processes().into_iter().filter(is_it).collect()
    }

    /// Whether all snapshots of a job are durable on a node, and there is one.
    #[must_use]
    pub fn is_sealed(&self, node: NodeId, job: JobId) -> bool {
        let images = self.images(node, job);
        !images.is_empty() && images.iter().all(|image| image.problem.is_none())
    }

    /// A job's snapshots on a node, newest first.
    #[must_use]
    pub fn images(&self, node: NodeId, job: JobId) -> Vec<StoredSnapshot> {
        let entries = self.store(node).list().unwrap_or_default().into_iter();
        entries.filter(|entry| entry.application == job.to_string()).collect()
    }

    /// A node's snapshots, as another process than its daemon sees them.
    #[must_use]
    pub fn store(&self, node: NodeId) -> Store {
        Store::existing(self.tiers(node).into_iter().map(Tier::unbounded).collect())
    }

    /// The directories that a node keeps its snapshots in.
    #[must_use]
    pub fn tiers(&self, node: NodeId) -> Vec<PathBuf> {
        let own = store_dir(&node_name(&self.run, node));
        self.stores.iter().map(|tier| tier.root.join(&own)).collect()
    }

    /// How many nodes there are.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        u32::try_from(self.nodes.pids().count()).expect("few nodes")
    }

    /// Whether snapshots can go to another directory than the first.
    #[must_use]
    pub fn has_two_tiers(&self) -> bool {
        self.stores.len() == 2
    }

    /// Leaves no room in the first directory of a node, or all.
    ///
    /// # Panics
    /// Where that cannot be done.
    pub fn fill(&self, node: NodeId, full: bool) {
        let foreign = self.tiers(node)[0].join("filler");
        if full {
            fs::create_dir_all(foreign.join("epoch-0")).expect("a directory in the store");
            let file = fs::File::create(foreign.join("epoch-0/hole")).expect("a file in the store");
            file.set_len(FIRST_TIER.0).expect("a hole takes no room on the disk");
        } else if foreign.exists() {
            fs::remove_dir_all(foreign).expect("it is removed");
        }
    }

    /// The file that a job's ranks on a node share with its daemon.
    #[must_use]
    pub fn segment(&self, node: NodeId, job: JobId) -> PathBuf {
        let name = node_name(&self.run, node);
        Path::new("/dev/shm").join(format!("coswitch-{name}")).join(job.to_string()).join("segment")
    }

    /// Where a node keeps the snapshots of a job, if there is room.
    #[must_use]
    pub fn snapshots(&self, node: NodeId, job: JobId) -> PathBuf {
        self.tiers(node)[0].join(job.to_string())
    }

    /// The directory of logs and outputs.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.papers.path()
    }
}
