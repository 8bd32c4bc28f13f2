//! A cluster of virtual nodes without a master: the test gives orders to the dispatchers itself.
//!
//! [`run_in`] starts a thread in a network namespace of its own and the daemons, and runs a test. Afterwards
//! it ends them and searches for leftovers. Every wait has a time-out, after which it shows the state of all
//! jobs.

mod inspect;
mod primitives;

use std::{
    collections::{BTreeMap, BTreeSet},
    env, panic,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use coswitch::run_name::RunName;
use coswitch_daemon::node::{Tier, node_name};
use coswitch_dispatcher::{
    Dispatcher,
    app::Timeouts,
    protocol::{AppOutcome, LaunchSpec, NodeEvent, Order, Report, StepDone},
    provisioning::{
        DaemonsRequest, LinkRules, Provisioning,
        virtual_nodes::{self, VirtualNodes, VirtualRequest},
    },
    sessions::Sessions,
    watch::Heartbeats,
};
use coswitch_policies::{
    Bytes, CopyRule, Epoch, JobId, NodeId,
    local::{Technique, explicit::Slices},
    strobe::Rows,
};
use tokio::{
    runtime::Runtime,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::timeout,
};

use crate::{
    STORE, TestDir,
    job::TestJob,
    leftovers::{Leftovers, MARK},
    parts,
};

/// Of the nodes' snapshots.
const SEALING_KEY: [u8; 32] = [7; 32];
/// Time-out of operations that take a second on an idle machine.
pub const STEP_LIMIT: Duration = Duration::from_secs(60);
/// Time-out of a program's whole run.
pub const RUN_LIMIT: Duration = Duration::from_secs(180);
/// Of each side with the other, when that is silent.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(2);
const LEFT_LIMIT: Duration = Duration::from_secs(10);
/// Memory of a node, large because these tests do not concern it.
const NODE_MEMORY: Bytes = Bytes::mib(8192);

/// Status of a job by the reports of its dispatcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobStatus {
    /// An order is being carried out.
    Ordered(Order),
    Running,
    /// In memory and stopped.
    Suspended,
    /// Out of memory.
    Parked,
    /// It was removed from all nodes, because it had no snapshot when one of them was lost.
    Unlaunched,
    Ended(AppOutcome),
}

/// A job that was launched.
pub struct LaunchedJob {
    pub spec: TestJob,
    pub status: JobStatus,
    /// How often it was parked.
    pub parked: u32,
    /// Reasons why it could not be parked, one for each failure.
    pub stayed: Vec<String>,
    /// Failures that were repaired.
    pub mended: Vec<String>,
    /// Snapshots that it has gone back to because a node was lost.
    pub went_back: Vec<Epoch>,
    /// Steps that its nodes have taken.
    pub phases: Vec<StepDone>,
    /// Directory of its ranks' outputs.
    pub output: PathBuf,
    dispatcher: Dispatcher,
}

/// Size and equipment of a cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterSpec {
    pub nodes: u32,
    /// Size of the arena for dumped pages; `None` gives the default of a run.
    pub arena: Option<Bytes>,
    /// Whether the store has a second directory, which is used after [`TestCluster::fill`] has filled the
    /// first.
    pub two_tiers: bool,
    /// By which the nodes favour ranks.
    pub local: Option<Technique>,
    /// Whether daemons wait for another master when theirs has gone.
    pub standing: bool,
    /// What the first directory of the store takes; `None`: as much as there is.
    pub store_max: Option<Bytes>,
    /// By which way nodes are heard.
    pub heartbeats: Heartbeats,
}

/// More jobs than any test launches.
const JOBS_MAX: u32 = 1000;
/// Capacity of the first of two directories.
const FIRST_TIER: Bytes = Bytes::mib(8192);

/// A cluster of virtual nodes, and the jobs launched on it.
pub struct TestCluster {
    run: String,
    test_dir: TestDir,
    stores: Vec<Tier>,
    sessions: Sessions,
    /// Of the master of the sessions.
    generation: u64,
    heartbeats: Heartbeats,
    nodes: VirtualNodes,
    leftovers: Leftovers,
    runtime: Runtime,
    reports: UnboundedReceiver<(JobId, Report)>,
    report_to: UnboundedSender<(JobId, Report)>,
    node_events: UnboundedReceiver<NodeEvent>,
    /// Jobs in the order of their launch.
    pub jobs: BTreeMap<JobId, LaunchedJob>,
    /// Nodes whose session has failed, with the reason.
    pub lost: BTreeMap<NodeId, String>,
    /// Nodes that are not heard.
    pub silent: BTreeSet<NodeId>,
}

/// Runs a test on a cluster of `nodes` nodes.
///
/// # Panics
/// As [`run_in`].
pub fn run_on(nodes: u32, test: impl FnOnce(&mut TestCluster) + Send) {
    run_in(ClusterSpec { nodes, ..ClusterSpec::default() }, test);
}

/// Runs a test on a cluster and checks that nothing is left afterwards.
///
/// # Panics
/// If the test panics, if the nodes do not start, or if something is left.
pub fn run_in(cluster_spec: ClusterSpec, test: impl FnOnce(&mut TestCluster) + Send) {
    let _turn = crate::turn();
    // The thread leaves the network namespace of the process, so it cannot be a thread of the test harness.
    let outcome = thread::scope(|scope| {
        let run = || {
            let mut cluster = TestCluster::start(&cluster_spec);
            test(&mut cluster);
            cluster.end();
        };
        scope.spawn(run).join()
    });
    outcome.unwrap_or_else(|panicked| panic::resume_unwind(panicked));
}

impl TestCluster {
    fn start(cluster_spec: &ClusterSpec) -> Self {
        static CLUSTERS: AtomicU32 = AtomicU32::new(0);
        // `coswitch clean` knows it, should this process be killed.
        let run = format!("-t{:03}", CLUSTERS.fetch_add(1, Ordering::Relaxed));
        let run = RunName::of_this_process().with_suffix(&run);
        let test_dir = TestDir::new(&run);
        let dirs = [STORE.into(), format!("{STORE}-2")].map(|name| test_dir.path().join(name));
        let mut stores = dirs.clone().map(Tier::unbounded).to_vec();
        stores[0].bytes_max = cluster_spec.store_max.map(|most| most.0);
        if cluster_spec.two_tiers {
            stores[0].bytes_max = Some(FIRST_TIER.0);
        } else {
            stores.truncate(1);
        }
        let mut leftovers = Leftovers::of(&run, &run, &dirs);
        let equal = virtual_nodes::equal_nodes(cluster_spec.nodes, NODE_MEMORY, &stores, cluster_spec.arena);
        let request = VirtualRequest {
            daemons: DaemonsRequest {
                run: run.clone(),
                nodes: equal.expect("the kernel names the processors"),
                sealing_key: SEALING_KEY.into(),
                stop_after: PATIENCE,
                standing: cluster_spec.standing,
                local: cluster_spec.local,
                links: LinkRules::default(),
                resumes: false,
                logs: test_dir.path().to_path_buf(),
                installed: parts::installation().into(),
            },
            rate: None,
        };
        let nodes = VirtualNodes::start(&request).expect("the daemons start");
        leftovers.add_namespace("thread-self");
        nodes.pids().for_each(|pid| leftovers.add_namespace(&pid.to_string()));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (to_cluster, node_events) = unbounded_channel();
        let connected = runtime.block_on(Sessions::connect(
            &nodes.addresses(),
            &[],
            nodes.identity(),
            1,
            (PATIENCE, cluster_spec.heartbeats),
            to_cluster,
        ));
        let (report_to, reports) = unbounded_channel();
        Self {
            run,
            test_dir,
            stores,
            sessions: connected.expect("the daemons answer"),
            generation: 1,
            heartbeats: cluster_spec.heartbeats,
            nodes,
            leftovers,
            runtime,
            reports,
            report_to,
            node_events,
            jobs: BTreeMap::new(),
            lost: BTreeMap::new(),
            silent: BTreeSet::new(),
        }
    }

    /// Ends the daemons and checks that nothing is left.
    fn end(self) {
        let Self { ref sessions, nodes, ref leftovers, runtime, .. } = self;
        sessions.shut_down();
        let ended = nodes.end();
        runtime.shutdown_timeout(Duration::from_secs(5));
        ended.expect("the nodes end");
        leftovers.assert_nothing_left(LEFT_LIMIT);
    }

    /// The directory of a job's part on a node, from its launch to its release.
    pub fn shared_memory(&self, node: NodeId, job: JobId) -> PathBuf {
        let node = format!("coswitch-{}", node_name(&self.run, node));
        Path::new("/dev/shm").join(node).join(job.to_string())
    }

    /// Each job, also one that is launched later, has a slice in one of so many rows.
    pub fn strobe(&self, slice: Duration, rows: u32) {
        let rows = (0..rows).map(|row| (row..JOBS_MAX).step_by(rows as usize).map(JobId).collect()).collect();
        self.sessions.strobe(Rows { slice, rows });
    }

    /// Sets the slices of ranks and local tasks.
    pub fn set_slices(&self, slices: Slices) {
        self.sessions.set_slices(slices);
    }

    /// Launches a job without waiting; [`TestCluster::wait_for_order`] waits until it runs.
    pub fn launch(&mut self, spec: TestJob) -> JobId {
        let job = JobId(u32::try_from(self.jobs.len()).expect("few jobs"));
        let output = self.test_dir.path().join(job.to_string());
        let mut env: Vec<(String, String)> = env::vars().collect();
        env.push((MARK.into(), self.run.clone()));
        let request = LaunchSpec {
            name: spec.name.clone(),
            placement: spec.placement.clone(),
            command: spec.command.clone(),
            env,
            cwd: self.test_dir.path().to_path_buf(),
            umask: 0o022,
            user: None,
            memory: Bytes(0),
            output: output.clone(),
            wait: spec.wait,
            park: spec.park,
            copies: CopyRule::default(),
            delivery: spec.delivery,
        };
        let (sessions, reports) = (self.sessions.clone(), self.report_to.clone());
        let _in_runtime = self.runtime.enter();
        let dispatcher = Dispatcher::start(job, request, Timeouts::default(), sessions, reports);
        let status = JobStatus::Ordered(Order::Launch);
        let launched = LaunchedJob {
            spec,
            status,
            parked: 0,
            stayed: Vec::new(),
            mended: Vec::new(),
            went_back: Vec::new(),
            phases: Vec::new(),
            output,
            dispatcher,
        };
        self.jobs.insert(job, launched);
        job
    }

    /// Gives an order without waiting.
    pub fn order(&mut self, job: JobId, order: Order) {
        let launched = self.jobs.get_mut(&job).expect("the job was launched");
        if !matches!(launched.status, JobStatus::Ended(_)) {
            launched.status = JobStatus::Ordered(order);
            launched.dispatcher.order(order);
        }
    }

    /// Parks a job and waits; true if it is then parked.
    pub fn park(&mut self, job: JobId) -> bool {
        *self.order_and_wait(job, Order::Park) == JobStatus::Parked
    }

    /// Restores a job and waits; true if it then runs.
    pub fn restore(&mut self, job: JobId) -> bool {
        *self.order_and_wait(job, Order::Restore) == JobStatus::Running
    }

    /// Gives an order and waits until it has been carried out. Returns the job's status.
    pub fn order_and_wait(&mut self, job: JobId, order: Order) -> &JobStatus {
        self.order(job, order);
        self.wait_for_order(job)
    }

    /// Waits until the last order to a job has been carried out, or the job has ended.
    pub fn wait_for_order(&mut self, job: JobId) -> &JobStatus {
        let settled = |cluster: &Self| !matches!(cluster.jobs[&job].status, JobStatus::Ordered(_));
        self.wait_until(&format!("the end of an order to {job}"), STEP_LIMIT, settled);
        &self.jobs[&job].status
    }

    /// Waits until a job has ended.
    ///
    /// # Panics
    /// If it does not end within `limit`.
    pub fn wait_for_end(&mut self, job: JobId, limit: Duration) -> AppOutcome {
        self.wait_until(&format!("{job} to end"), limit, |cluster| {
            matches!(cluster.jobs[&job].status, JobStatus::Ended(_))
        });
        match &self.jobs[&job].status {
            JobStatus::Ended(outcome) => outcome.clone(),
            status => unreachable!("the job has ended, not {status:?}"),
        }
    }

    /// Waits until a job has ended, and checks its results.
    ///
    /// # Panics
    /// If it failed, or its results are wrong.
    pub fn verify(&mut self, job: JobId, limit: Duration) {
        let outcome = self.wait_for_end(job, limit);
        let launched = &self.jobs[&job];
        launched.spec.check(&outcome, &launched.output).unwrap_or_else(|wrong| panic!("{job}: {wrong}"));
        assert_eq!(launched.mended, Vec::<String>::new(), "{job} had failures that were repaired");
        let because_it_ends = |reason: &String| reason.contains("its ranks");
        assert!(launched.stayed.iter().all(because_it_ends), "{job} was not parked: {:?}", launched.stayed);
    }

    /// Gives a lost node another daemon.
    ///
    /// # Panics
    /// If it does not start, or cannot join the others.
    pub fn restart(&mut self, node: NodeId) {
        let address = self.nodes.restart(node).expect("another daemon starts");
        let joined = self.runtime.block_on(self.sessions.connect_again(&address));
        joined.expect("it joins the others");
        self.wait_until("the node to be back", STEP_LIMIT, |cluster| !cluster.lost.contains_key(&node));
    }

    /// Handles events for a while.
    pub fn run_for(&mut self, span: Duration) {
        let end = Instant::now() + span;
        while self.handle_event(end) {}
    }

    /// Waits until `done` holds, which is checked after each event.
    ///
    /// # Panics
    /// If that takes longer than `limit`; the message shows the status of all jobs.
    pub fn wait_until(&mut self, what: &str, limit: Duration, done: impl Fn(&Self) -> bool) {
        let end = Instant::now() + limit;
        while !done(self) {
            if !self.handle_event(end) && !done(self) {
                let standing = self
                    .jobs
                    .iter()
                    .map(|(job, launched)| format!("{job} {} {:?}", launched.spec.name, launched.status));
                let standing: Vec<_> = standing.collect();
                panic!("waited {limit:?} for {what}; {standing:?}, lost: {:?}", self.lost);
            }
        }
    }

    /// Waits until `done` holds, which may change without an event and is checked periodically.
    ///
    /// # Panics
    /// If that takes longer than `limit`.
    pub fn poll_until(&mut self, what: &str, limit: Duration, done: impl Fn(&Self) -> bool) {
        let end = Instant::now() + limit;
        while !done(self) {
            assert!(
                Instant::now() < end,
                "waited {limit:?} for {what}; there are {:#?}",
                self.leftovers.left()
            );
            self.run_for(LOOK_EVERY);
        }
    }

    /// Handles one event; `false` if none arrives before `end`.
    fn handle_event(&mut self, end: Instant) -> bool {
        let (reports, node_events) = (&mut self.reports, &mut self.node_events);
        let events_may_come = !node_events.is_closed() || !node_events.is_empty();
        let next = async {
            tokio::select! {
                report = reports.recv() => Ok(report.expect("the cluster itself holds a sender")),
                event = node_events.recv(), if events_may_come => Err(event),
            }
        };
        match self
            .runtime
            .block_on(async { timeout(end.saturating_duration_since(Instant::now()), next).await })
        {
            Err(_) => return false,
            Ok(Ok((job, report))) => self.on_report(job, report),
            Ok(Err(Some(NodeEvent::Back { node }))) => drop(self.lost.remove(&node)),
            Ok(Err(Some(NodeEvent::Lost { node, reason }))) => {
                self.silent.remove(&node);
                self.lost.insert(node, reason);
            }
            Ok(Err(Some(NodeEvent::Silent { node }))) => drop(self.silent.insert(node)),
            Ok(Err(Some(NodeEvent::Heard { node, .. }))) => drop(self.silent.remove(&node)),
            Ok(Err(_)) => {}
        }
        true
    }

    fn on_report(&mut self, job: JobId, report: Report) {
        let launched = self.jobs.get_mut(&job).expect("only jobs of this cluster report to it");
        match report {
            Report::Running => launched.status = JobStatus::Running,
            Report::Suspended => launched.status = JobStatus::Suspended,
            Report::StillSuspended { cause } => {
                launched.status = JobStatus::Suspended;
                launched.stayed.push(cause.to_string());
            }
            Report::Parked => {
                launched.status = JobStatus::Parked;
                launched.parked += 1;
            }
            Report::StillRunning { cause } => {
                launched.status = JobStatus::Running;
                launched.stayed.push(cause.to_string());
            }
            Report::Displaced { .. } => {
                launched.status = JobStatus::Parked;
                launched.parked += 1;
            }
            Report::Unlaunched => launched.status = JobStatus::Unlaunched,
            Report::Survived { .. } | Report::Sent { .. } => {}
            Report::WentBack { epoch, .. } => launched.went_back.push(epoch),
            Report::Ended(outcome) => launched.status = JobStatus::Ended(outcome),
            Report::Mended { what } => launched.mended.push(what),
            Report::StepDone(phase) => launched.phases.push(phase),
            Report::Checkpointed { .. } => launched.status = JobStatus::Running,
            Report::NotCheckpointed { cause } => {
                launched.status = JobStatus::Running;
                launched.stayed.push(cause.to_string());
            }
            Report::Stored { .. }
            | Report::Copied { .. }
            | Report::NotCopied { .. }
            | Report::Moved { .. }
            | Report::NotMoved { .. }
            | Report::Progress { .. }
            | Report::Processed { .. }
            | Report::Scheduled { .. }
            | Report::Traffic { .. } => {}
        }
    }
}
