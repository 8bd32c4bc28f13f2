//! Virtual nodes for a benchmark: daemons and dispatchers as in a run, without a master.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use coswitch::run_name::RunName;
use coswitch_dispatcher::{
    Dispatcher,
    app::Timeouts,
    protocol::{AppOutcome, Delivery, LaunchSpec, NodeEvent, Order, Park, Report, SliceUse, StepDone, Wait},
    provisioning::{
        DaemonsRequest, Installed, LinkRules, Provisioning,
        virtual_nodes::{self, VirtualNodes, VirtualRequest},
    },
    sessions::Sessions,
    watch::Heartbeats,
};
use coswitch_policies::{
    Bytes, CopyRule, JobId, NodeId, Rate,
    local::{
        ByKind, Technique,
        explicit::{Console, PowerWeight},
    },
    strobe::Rows,
};
use tempfile::TempDir;
use tokio::{
    runtime::Runtime,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
};

/// For anything that takes an idle machine a second.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Running nodes.
pub(crate) struct Stage {
    sessions: Sessions,
    nodes: VirtualNodes,
    runtime: Runtime,
    node_events: Mutex<UnboundedReceiver<NodeEvent>>,
    /// How often the console of DTS has set other slices.
    slices_set: Arc<AtomicU32>,
    jobs: AtomicU32,
    dir: TempDir,
}

/// A job on the stage.
pub(crate) struct Job {
    dispatcher: Dispatcher,
    reports: UnboundedReceiver<(JobId, Report)>,
    /// The directory of its ranks' output.
    pub(crate) output: PathBuf,
}

/// Runs `work` on a thread of its own, which may leave the network namespace of this process.
pub(crate) fn apart<R: Send>(work: impl FnOnce() -> Result<R> + Send) -> Result<R> {
    thread::scope(|scope| scope.spawn(work).join()).map_err(|_| anyhow!("the benchmark panicked"))?
}

impl Job {
    /// Gives an order without waiting.
    pub(crate) fn order(&self, order: Order) {
        self.dispatcher.order(order);
    }
}

impl Stage {
    /// Starts `count` nodes; the calling thread ([`apart`]) enters the namespace that joins them.
    pub(crate) fn set(count: u32, memory: Bytes, rate: Option<Rate>) -> Result<Self> {
        Self::with_links(count, memory, rate, LinkRules::default())
    }

    /// The same with links by these rules.
    pub(crate) fn with_links(
        count: u32,
        memory: Bytes,
        rate: Option<Rate>,
        links: LinkRules,
    ) -> Result<Self> {
        Self::start(count, memory, rate, links, None, Heartbeats::default())
    }

    /// The same whose nodes favour ranks by a technique.
    pub(crate) fn favouring(local: Option<Technique>, count: u32, memory: Bytes) -> Result<Self> {
        Self::start(count, memory, None, LinkRules::default(), local, Heartbeats::default())
    }

    /// The same whose nodes are heard by this way.
    pub(crate) fn heard_by(heartbeats: Heartbeats, count: u32, memory: Bytes) -> Result<Self> {
        Self::start(count, memory, None, LinkRules::default(), None, heartbeats)
    }

    fn start(
        count: u32,
        memory: Bytes,
        rate: Option<Rate>,
        links: LinkRules,
        local: Option<Technique>,
        heartbeats: Heartbeats,
    ) -> Result<Self> {
        static STAGES: AtomicU32 = AtomicU32::new(0);
        // `coswitch clean` knows it, should this process be killed.
        let run = format!("-b{:03}", STAGES.fetch_add(1, Ordering::Relaxed));
        let run = RunName::of_this_process().with_suffix(&run);
        let dir = tempfile::tempdir()?;
        let request = VirtualRequest {
            daemons: DaemonsRequest {
                run,
                nodes: virtual_nodes::equal_nodes(count, memory, &[], None)?,
                sealing_key: [7; 32].into(),
                stop_after: PATIENCE,
                standing: false,
                local,
                links,
                resumes: false,
                logs: dir.path().to_path_buf(),
                installed: Installed {
                    daemon: super::programs::built("coswitchd")?,
                    launcher: super::programs::built("coswitch-launcher")?,
                    driver: super::programs::built("libcoswitch_fi.so")?,
                    preload: super::programs::built("libcoswitch_criu.so")?,
                },
            },
            rate,
        };
        let nodes = VirtualNodes::start(&request)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (events, node_events) = unbounded_channel();
        let addresses = nodes.addresses();
        let patience = (PATIENCE, heartbeats);
        let sessions = Sessions::connect(&addresses, &[], nodes.identity(), 1, patience, events);
        let sessions = runtime.block_on(sessions)?;
        let equals = (0..count).map(|node| (NodeId(node), PowerWeight::FASTEST));
        let slices_set = Arc::new(AtomicU32::new(0));
        let node_events = match local.and_then(|technique| technique.console(equals)) {
            None => node_events,
            Some(console) => {
                let (others_to, others) = unbounded_channel();
                let slices_set = Arc::clone(&slices_set);
                runtime.spawn(balance(console, sessions.clone(), node_events, others_to, slices_set));
                others
            }
        };
        let node_events = Mutex::new(node_events);
        Ok(Self { sessions, nodes, runtime, node_events, slices_set, jobs: AtomicU32::new(0), dir })
    }

    /// The jobs that are launched next.
    pub(crate) fn next_jobs<const JOBS: usize>(&self) -> [JobId; JOBS] {
        let next = self.jobs.load(Ordering::Relaxed);
        std::array::from_fn(|at| JobId(next + at as u32))
    }

    /// Gives jobs their slices.
    pub(crate) fn strobe(&self, rows: Rows) {
        self.sessions.strobe(rows);
    }

    /// How often the loads of the nodes have changed the slices of ranks and local tasks.
    pub(crate) fn slices_set(&self) -> u32 {
        self.slices_set.load(Ordering::Relaxed)
    }

    /// What the slices of all nodes were since this was asked last; nodes tell it once a second.
    pub(crate) fn slices(&self) -> SliceUse {
        let mut all = SliceUse::default();
        let mut events = self.node_events.lock().expect("no panic while holding it");
        while let Ok(event) = events.try_recv() {
            if let NodeEvent::Slices { slices: SliceUse { switches, took, overlap }, .. } = event {
                all.switches += switches;
                all.took += took;
                all.overlap += overlap;
            }
        }
        all
    }

    /// Orders a launch; the ranks run after [`Stage::running`].
    pub(crate) fn launch(&self, command: &[&str], placement: &[u32], wait: Wait) -> Job {
        self.begin(command, placement, wait, Delivery::Shared)
    }

    fn begin(&self, command: &[&str], placement: &[u32], wait: Wait, delivery: Delivery) -> Job {
        let job = JobId(self.jobs.fetch_add(1, Ordering::Relaxed));
        let output = self.dir.path().join(job.to_string());
        let request = LaunchSpec {
            name: job.to_string(),
            placement: placement.iter().copied().map(NodeId).collect(),
            command: command.iter().map(ToString::to_string).collect(),
            env: std::env::vars().collect(),
            cwd: self.dir.path().to_path_buf(),
            umask: 0o022,
            user: None,
            memory: Bytes(0),
            output: output.clone(),
            wait,
            park: Park::Criu,
            copies: CopyRule::default(),
            delivery,
        };
        let (reports_to, reports) = unbounded_channel();
        let _in_runtime = self.runtime.enter();
        let dispatcher =
            Dispatcher::start(job, request, Timeouts::default(), self.sessions.clone(), reports_to);
        Job { dispatcher, reports, output }
    }

    /// Launches a program that is sent to its nodes, and waits for its end; returns how long it took to send
    /// it, and all of it.
    pub(crate) fn send_and_run(&self, program: &str, placement: &[u32]) -> Result<(Duration, Duration)> {
        let began = Instant::now();
        let mut job = self.begin(&[program], placement, Wait::default(), Delivery::Sent);
        let deadline = began + PATIENCE;
        let mut sent = None;
        loop {
            match self.next(&mut job, deadline)? {
                Report::Sent { took, .. } => sent = Some(took),
                Report::Ended(AppOutcome::Succeeded) => break,
                Report::Ended(outcome) => bail!("a job ended: {outcome:?}"),
                Report::Mended { what } => bail!("something went wrong and was mended: {what}"),
                _ => {}
            }
        }
        Ok((sent.context("its program was not sent")?, began.elapsed()))
    }

    /// Waits until all ranks run.
    pub(crate) fn running(&self, job: &mut Job) -> Result<Vec<StepDone>> {
        self.until(job, |report| *report == Report::Running)
    }

    /// Gives an order and waits until it is carried out; returns its steps.
    pub(crate) fn obey(&self, job: &mut Job, order: Order) -> Result<Vec<StepDone>> {
        job.order(order);
        self.after(job, order)
    }

    /// Waits until an order is carried out; returns its steps.
    pub(crate) fn after(&self, job: &mut Job, order: Order) -> Result<Vec<StepDone>> {
        match order {
            Order::Park => self.until(job, |report| *report == Report::Parked),
            Order::Suspend | Order::Prefetch => self.until(job, |report| *report == Report::Suspended),
            Order::Launch | Order::Resume | Order::Restore => self.running(job),
            Order::Checkpoint => self.until(job, |report| matches!(report, Report::Checkpointed { .. })),
            Order::End => self.until(job, |report| *report == Report::Ended(AppOutcome::Stopped)),
        }
    }

    /// Waits until the job has ended by itself with success.
    pub(crate) fn end_of(&self, job: &mut Job) -> Result<()> {
        self.until(job, |report| *report == Report::Ended(AppOutcome::Succeeded)).map(drop)
    }

    /// Waits until then for the job to end by itself with success. False where it had to be ended.
    pub(crate) fn ends_by(&self, job: &mut Job, deadline: Instant) -> Result<bool> {
        match self.until_by(job, deadline, |report| *report == Report::Ended(AppOutcome::Succeeded)) {
            Ok(_) => Ok(true),
            Err(_) if Instant::now() >= deadline => self.obey(job, Order::End).map(|_| false),
            Err(error) => Err(error),
        }
    }

    /// Checkpoints a job that runs; returns for how long it stood still, and what was written.
    pub(crate) fn checkpoint(&self, job: &mut Job) -> Result<(Duration, Bytes)> {
        job.order(Order::Checkpoint);
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.next(job, deadline)? {
                Report::Checkpointed { stood_still, bytes, .. } => return Ok((stood_still, bytes)),
                Report::NotCheckpointed { cause } => bail!("a job was not checkpointed: {cause}"),
                Report::Ended(outcome) => bail!("a job ended: {outcome:?}"),
                _ => {}
            }
        }
    }

    fn next(&self, job: &mut Job, deadline: Instant) -> Result<Report> {
        let left = deadline.saturating_duration_since(Instant::now());
        let next = async { tokio::time::timeout(left, job.reports.recv()).await };
        let report = self.runtime.block_on(next).context("a job takes too long")?;
        Ok(report.context("a dispatcher ended without a word")?.1)
    }

    /// Reads reports until the wanted one; a report that rules it out is an error.
    fn until(&self, job: &mut Job, wanted: impl Fn(&Report) -> bool) -> Result<Vec<StepDone>> {
        self.until_by(job, Instant::now() + PATIENCE, wanted)
    }

    fn until_by(
        &self,
        job: &mut Job,
        deadline: Instant,
        wanted: impl Fn(&Report) -> bool,
    ) -> Result<Vec<StepDone>> {
        let mut steps = Vec::new();
        loop {
            match self.next(job, deadline)? {
                report if wanted(&report) => return Ok(steps),
                Report::StepDone(step) => steps.push(step),
                Report::Ended(outcome) => bail!("a job ended: {outcome:?}"),
                Report::StillRunning { cause } => bail!("a job was not parked: {cause}"),
                Report::Mended { what } => bail!("something went wrong and was mended: {what}"),
                // Progress, traffic and other reports on the way.
                _ => {}
            }
        }
    }

    /// Waits for the end of a job that was ordered to end; returns what the node schedulers have counted of
    /// it.
    pub(crate) fn counted(&self, job: &mut Job) -> Result<ByKind> {
        let deadline = Instant::now() + PATIENCE;
        let mut all = ByKind::default();
        loop {
            match self.next(job, deadline)? {
                Report::Scheduled { counted, .. } => all += *counted,
                Report::Ended(AppOutcome::Stopped) => return Ok(all),
                Report::Ended(outcome) => bail!("a job ended: {outcome:?}"),
                Report::Mended { what } => bail!("something went wrong and was mended: {what}"),
                _ => {}
            }
        }
    }

    /// How many sessions rest.
    pub(crate) fn resting(&self) -> usize {
        self.sessions.resting().len()
    }

    /// The process ids of the daemons.
    pub(crate) fn daemons(&self) -> Vec<u32> {
        self.nodes.pids().collect()
    }

    /// Ends everything.
    pub(crate) fn strike(self) -> Result<()> {
        ensure!(self.sessions.lost().is_empty(), "nodes were lost: {:?}", self.sessions.lost());
        self.sessions.shut_down();
        self.nodes.end()?;
        self.runtime.shutdown_timeout(Duration::from_secs(5));
        Ok(())
    }
}

/// What the master of a run does under DTS in balanced mode: the console hears the loads of the nodes, and
/// these hear the slices that it sets. All other events go on.
async fn balance(
    mut console: Console,
    sessions: Sessions,
    mut events: UnboundedReceiver<NodeEvent>,
    others: UnboundedSender<NodeEvent>,
    slices_set: Arc<AtomicU32>,
) {
    loop {
        if let Some(slices) = console.to_tell() {
            sessions.set_slices(slices);
        }
        match events.recv().await {
            Some(NodeEvent::Load { node, index }) => {
                if let Ok(Some(_)) = console.on_load(node, index) {
                    slices_set.fetch_add(1, Ordering::Relaxed);
                }
            }
            Some(event) => drop(others.send(event)),
            None => return,
        }
    }
}

/// The standard output of rank 0 of a job.
pub(crate) fn said(output: &Path) -> Result<String> {
    said_by(output, 0)
}

/// The standard output of a rank of a job.
pub(crate) fn said_by(output: &Path, rank: u32) -> Result<String> {
    let path = output.join(format!("rank-{rank}.out"));
    std::fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))
}

/// Waits until rank 0 of a job has written these words.
pub(crate) fn until_said(output: &Path, words: &str) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !said(output).is_ok_and(|text| text.contains(words)) {
        ensure!(Instant::now() < deadline, "a program does not come to say \"{words}\"");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
