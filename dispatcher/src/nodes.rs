//! The virtual nodes: one daemon each, started here, plugged into the bridge, and removed without trace at the end.
//!
//! The dispatcher's first purpose in the paper (003 §4.1) is to launch the run-time environment; this is that, for nodes
//! that are all on this machine.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Write},
    net::{IpAddr, SocketAddr},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use coswitch_daemon::{
    cgroup::{CgroupError, Hierarchies},
    fabric::{self, FabricError},
    node::{self, NodeConfig, Tier, VirtualLink, node_name, store_dir},
    pki::{Authority, Identity, PkiError},
    processors,
    serve::{NAMESPACE, READY},
};
use coswitch_policies::{Bytes, NodeId, Rate};
use thiserror::Error;

use crate::cluster::Address;

const CONTROL_PORT: u16 = 7077;
const DATA_PORT: u16 = 7078;
const START_LIMIT: Duration = Duration::from_secs(30);
/// A daemon that has been told to end releases its applications first.
const END_LIMIT: Duration = Duration::from_secs(40);
const DESTROY_LIMIT: Duration = Duration::from_secs(10);
/// Where images go if nothing is said.
pub const STORE: &str = "/var/tmp";
/// Memory of a daemon for pages on their way to its store.
const ARENA_MAX: Bytes = Bytes(256 << 20);

/// Why the nodes could not be started, or not be removed.
#[derive(Debug, Error)]
pub enum NodesError {
    /// Their certificates.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// Their network.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// Their cgroups, or files that would not go.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// A file or process.
    #[error("failed to {act}")]
    Io {
        /// What was tried.
        act: String,
        /// Why not.
        source: io::Error,
    },
    /// A daemon ended, or said something else than it should.
    #[error("the daemon of {node} did not start: {said}; its log is {}", .log.display())]
    Start {
        /// Which.
        node: NodeId,
        /// What it said.
        said: String,
        /// Where it says why.
        log: PathBuf,
    },
}

fn io(act: impl Into<String>) -> impl FnOnce(io::Error) -> NodesError {
    let act = act.into();
    move |source| NodesError::Io { act, source }
}

/// What the nodes shall be like.
#[derive(Clone, Debug)]
pub struct NodesSpec {
    /// Tells this run's cgroups and files from those of others on the machine.
    pub run: String,
    /// How many.
    pub count: u32,
    /// What the jobs on one node may hold together.
    pub memory: Bytes,
    /// Of each link; `None`: as fast as the machine can.
    pub rate: Option<Rate>,
    /// Snapshots go to a directory of each node in these, in the order of use; none: on disk, because memory is what
    /// there is too little of.
    pub store: Vec<Tier>,
    /// Memory of each daemon for pages on their way there; `None`: 256 MiB, and no more than the jobs have.
    pub arena: Option<Bytes>,
    /// Where the daemons' logs go.
    pub logs: PathBuf,
    /// The program `coswitchd`.
    pub daemon: PathBuf,
    /// The program `coswitch-launcher`.
    pub launcher: PathBuf,
    /// The library `libcoswitch_fi.so`.
    pub driver: PathBuf,
}

/// The running daemons. Dropped without [`Nodes::end`], they are killed and cleaned up after all the same.
pub struct Nodes {
    identity: Identity,
    daemons: Vec<Daemon>,
}

struct Daemon {
    node: NodeId,
    name: String,
    process: Child,
    /// Held open: its end tells the daemon that this process has died.
    input: ChildStdin,
}

/// The conversation with a daemon while it starts.
struct Starting {
    daemon: Daemon,
    output: mpsc::Receiver<String>,
    log: PathBuf,
}

impl Nodes {
    /// Starts them. The calling thread must be in the head's network namespace ([`fabric::enter_head`]).
    ///
    /// # Errors
    /// [`NodesError`]; nothing is left then.
    pub fn start(spec: &NodesSpec) -> Result<Self, NodesError> {
        let authority = Authority::new()?;
        let mut nodes = Self { identity: authority.member()?, daemons: Vec::new() };
        let cpus = processors::allowed().map_err(|error| io("ask for the processors")(error.into()))?;
        let mut starting = Vec::new();
        for node in (0..spec.count).map(NodeId) {
            let config = configure(spec, node, authority.member()?, &cpus);
            starting.push(spawn(config, spec)?);
        }
        // Each step for all of them before the next: they start side by side.
        let link = VirtualLink { rate: spec.rate };
        let plugged = starting.iter_mut().try_for_each(|daemon| daemon.plug(link));
        let ready = plugged.and_then(|()| starting.iter_mut().try_for_each(|daemon| daemon.expect(READY)));
        nodes.daemons = starting.into_iter().map(|starting| starting.daemon).collect();
        ready.map(|()| nodes)
    }

    /// What the head node proves itself with.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Where the daemons listen.
    #[must_use]
    pub fn addresses(&self) -> Vec<Address> {
        let address =
            |node| Address { node, control: listen(node, CONTROL_PORT), data: listen(node, DATA_PORT) };
        self.daemons.iter().map(|daemon| address(daemon.node)).collect()
    }

    /// The daemons' process ids, in the order of the nodes.
    pub fn pids(&self) -> impl Iterator<Item = u32> + '_ {
        self.daemons.iter().map(|daemon| daemon.process.id())
    }

    /// Waits for the daemons, which have been told to end, and removes what those that did not have left.
    ///
    /// # Errors
    /// Where something would not go.
    pub fn end(mut self) -> Result<(), NodesError> {
        self.reap(END_LIMIT)
    }

    fn reap(&mut self, limit: Duration) -> Result<(), NodesError> {
        let deadline = Instant::now() + limit;
        let hierarchies = Hierarchies::find()?;
        for mut daemon in self.daemons.drain(..) {
            let gone = |process: &mut Child| process.try_wait().map(|status| status.is_some());
            while !gone(&mut daemon.process).map_err(io("wait for a daemon"))? && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            daemon.process.kill().map_err(io("kill a daemon"))?;
            daemon.process.wait().map_err(io("reap a daemon"))?;
            node::destroy(&hierarchies, &daemon.name, DESTROY_LIMIT)?;
        }
        Ok(())
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        if let Err(error) = self.reap(Duration::ZERO) {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "failed to remove what the run has left"
            );
        }
    }
}

fn listen(node: NodeId, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(fabric::address(node)), port)
}

fn configure(spec: &NodesSpec, node: NodeId, identity: Identity, cpus: &[usize]) -> NodeConfig {
    let everywhere = [Tier::unbounded(STORE.into())];
    let tiers = if spec.store.is_empty() { &everywhere } else { spec.store.as_slice() };
    let own = store_dir(&node_name(&spec.run, node));
    NodeConfig {
        run: spec.run.clone(),
        node,
        identity,
        control: listen(node, CONTROL_PORT),
        data: listen(node, DATA_PORT),
        memory: Some(spec.memory),
        processors: processors::share(cpus, node.0 as usize, spec.count as usize),
        store: tiers.iter().map(|tier| Tier { root: tier.root.join(&own), ..tier.clone() }).collect(),
        arena: spec.arena.unwrap_or(spec.memory.min(ARENA_MAX)),
        provider: spec.driver.parent().unwrap_or(Path::new("/")).to_path_buf(),
        launcher: spec.launcher.clone(),
        link: Some(VirtualLink { rate: spec.rate }),
    }
}

fn spawn(config: NodeConfig, spec: &NodesSpec) -> Result<Starting, NodesError> {
    let log = spec.logs.join(format!("{}.log", config.node));
    let file = File::create(&log).map_err(io(format!("create {}", log.display())))?;
    let mut process = Command::new(&spec.daemon)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(file)
        // Ctrl-C at a terminal reaches its whole process group; only the master shall hear it.
        .process_group(0)
        .spawn()
        .map_err(io(format!("start {}", spec.daemon.display())))?;
    let mut input = process.stdin.take().expect("piped");
    let output = lines(process.stdout.take().expect("piped"));
    let line = serde_json::to_string(&config).expect("a configuration is plain data");
    let configured = writeln!(input, "{line}").map_err(io("configure a daemon"));
    let daemon = Daemon { node: config.node, name: config.name(), process, input };
    configured.map(|()| Starting { daemon, output, log })
}

/// What a daemon says, line by line, so that it can be waited for with a time-out.
fn lines(output: ChildStdout) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(output).lines();
        lines.map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    receiver
}

impl Starting {
    fn plug(&mut self, link: VirtualLink) -> Result<(), NodesError> {
        self.expect(NAMESPACE)?;
        fabric::plug(self.daemon.node, self.daemon.process.id(), link.rate)?;
        writeln!(self.daemon.input).map_err(io("tell a daemon that its link is there"))
    }

    fn expect(&mut self, word: &str) -> Result<(), NodesError> {
        let said = self.output.recv_timeout(START_LIMIT).unwrap_or_else(|_| "nothing".into());
        if said == word {
            return Ok(());
        }
        Err(NodesError::Start { node: self.daemon.node, said, log: self.log.clone() })
    }
}
