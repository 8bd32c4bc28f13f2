//! Virtual nodes: a daemon each on this machine, joined by a virtual network, that share its processors.
//!
//! Paper 003, §4.1: the dispatcher's first purpose is to launch the run-time environment.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{IpAddr, SocketAddr},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use coswitch_daemon::{
    cgroup::Hierarchies,
    node::{self, NodeConfig, VirtualLink, node_name, store_dir},
    pki::{Authority, Identity},
    private,
    process::Process,
    processors,
    serve::{NAMESPACE, READY},
    virtual_net,
};
use coswitch_policies::{Bytes, NodeId, Rate};
use nix::unistd::setsid;
use serde::{Deserialize, Serialize};

use super::{Address, NodeSpec, Provisioning, ProvisioningError, STORE, Tier};

const CONTROL_PORT: u16 = 7077;
const DATA_PORT: u16 = 7078;
const START_LIMIT: Duration = Duration::from_secs(30);
/// A daemon that has been told to end releases its applications first.
const END_LIMIT: Duration = Duration::from_secs(40);
const DESTROY_LIMIT: Duration = Duration::from_secs(10);
/// Of an arena whose size the user leaves open.
const ARENA_MAX: Bytes = Bytes::mib(256);

/// A request for virtual nodes.
#[derive(Clone, Debug)]
pub struct VirtualRequest {
    /// Tells this run's cgroups and files from those of others on the machine.
    pub run: String,
    pub nodes: Vec<NodeSpec>,
    /// Of each link; `None`: as fast as the machine can.
    pub rate: Option<Rate>,
    /// See [`NodeConfig::stop_after`].
    pub stop_after: Duration,
    /// See [`NodeConfig::standing`].
    pub standing: bool,
    /// The directory of the daemons' logs.
    pub logs: PathBuf,
    /// The program `coswitchd`.
    pub daemon: PathBuf,
    /// The program `coswitch-launcher`.
    pub launcher: PathBuf,
    /// The library `libcoswitch_fi.so`.
    pub driver: PathBuf,
}

/// Equal nodes, each with its share of this machine's processors. Without a `store` they use [`STORE`];
/// without an `arena` they have 256 MiB, or as much as their jobs where that is less.
///
/// # Errors
/// [`ProvisioningError::Io`] where the kernel does not name the processors.
pub fn equal_nodes(
    count: u32,
    memory: Bytes,
    store: &[Tier],
    arena: Option<Bytes>,
) -> Result<Vec<NodeSpec>, ProvisioningError> {
    let cpus = processors::allowed().map_err(|error| io("ask for the processors")(error.into()))?;
    let store = if store.is_empty() { vec![Tier::unbounded(STORE.into())] } else { store.to_vec() };
    let arena = arena.unwrap_or(memory.min(ARENA_MAX));
    let node = |number: u32| NodeSpec {
        node: NodeId(number),
        memory,
        processors: processors::share(&cpus, number as usize, count as usize),
        store: store.clone(),
        arena,
    };
    Ok((0..count).map(node).collect())
}

fn io(act: impl Into<String>) -> impl FnOnce(io::Error) -> ProvisioningError {
    let act = act.into();
    move |source| ProvisioningError::Io { act, source }
}

/// The running daemons of virtual nodes.
pub struct VirtualNodes {
    identity: Identity,
    nodes: Vec<NodeSpec>,
    daemons: Vec<Daemon>,
    standing: bool,
}

struct Daemon {
    node: NodeId,
    name: String,
    process: Process,
    /// Of a daemon that this process has started.
    child: Option<Started>,
}

struct Started {
    process: Child,
    /// Held open: its end tells the daemon that this process has died.
    input: ChildStdin,
}

/// What a new master needs to find the nodes again.
#[derive(Clone, Serialize, Deserialize)]
pub struct VirtualState {
    identity: Identity,
    nodes: Vec<NodeSpec>,
    daemons: Vec<DaemonState>,
}

#[derive(Clone, Serialize, Deserialize)]
struct DaemonState {
    node: NodeId,
    name: String,
    process: Process,
}

/// The conversation with a daemon while it starts.
struct Starting {
    daemon: Daemon,
    output: mpsc::Receiver<String>,
    log: PathBuf,
}

impl Provisioning for VirtualNodes {
    type Request = VirtualRequest;
    type State = VirtualState;

    /// Moves the calling thread into the network namespace that holds the bridge between the nodes.
    fn start(request: &VirtualRequest) -> Result<Self, ProvisioningError> {
        virtual_net::enter_head()?;
        let authority = Authority::new()?;
        let nodes = request.nodes.clone();
        let mut started = Self { identity: authority.member()?, nodes, daemons: Vec::new(), standing: false };
        let mut starting = Vec::new();
        for node in &request.nodes {
            let config = configure(request, node, authority.member()?);
            starting.push(spawn(config, request)?);
        }
        // Each step for all of them before the next: they start side by side.
        let link = VirtualLink { rate: request.rate };
        let plugged = starting.iter_mut().try_for_each(|daemon| daemon.plug(link));
        let ready = plugged.and_then(|()| starting.iter_mut().try_for_each(|daemon| daemon.expect(READY)));
        started.daemons = starting.into_iter().map(|starting| starting.daemon).collect();
        ready?;
        started.standing = request.standing;
        Ok(started)
    }

    fn adopt(VirtualState { identity, nodes, daemons }: VirtualState) -> Result<Self, ProvisioningError> {
        if let Some(gone) = daemons.iter().find(|daemon| !daemon.process.is_alive()) {
            return Err(ProvisioningError::Gone(gone.node));
        }
        if let Some(daemon) = daemons.first() {
            virtual_net::enter_held(daemon.process.pid)?;
        }
        let daemons = daemons.into_iter().map(Daemon::from).collect();
        Ok(Self { identity, nodes, daemons, standing: true })
    }

    fn remove(VirtualState { identity, nodes, daemons }: VirtualState) -> Result<(), ProvisioningError> {
        let daemons = daemons.into_iter().map(Daemon::from).collect();
        Self { identity, nodes, daemons, standing: true }.reap(Duration::ZERO)
    }

    fn state(&self) -> VirtualState {
        let state = |Daemon { node, name, process, .. }: &Daemon| {
            let (node, name, process) = (*node, name.clone(), *process);
            DaemonState { node, name, process }
        };
        let daemons = self.daemons.iter().map(state).collect();
        VirtualState { identity: self.identity.clone(), nodes: self.nodes.clone(), daemons }
    }

    fn leave(mut self) {
        self.daemons.clear();
    }

    fn nodes(&self) -> &[NodeSpec] {
        &self.nodes
    }

    fn addresses(&self) -> Vec<Address> {
        let address =
            |node| Address { node, control: listen(node, CONTROL_PORT), data: listen(node, DATA_PORT) };
        self.nodes.iter().map(|spec| address(spec.node)).collect()
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn end(mut self) -> Result<(), ProvisioningError> {
        self.reap(END_LIMIT)
    }
}

impl VirtualNodes {
    /// The daemons' process ids, in the order of the nodes.
    pub fn pids(&self) -> impl Iterator<Item = u32> + '_ {
        self.daemons.iter().map(|daemon| daemon.process.pid)
    }

    fn reap(&mut self, limit: Duration) -> Result<(), ProvisioningError> {
        let deadline = Instant::now() + limit;
        let hierarchies = Hierarchies::find()?;
        for mut daemon in self.daemons.drain(..) {
            // A child that has ended is a zombie, which is not alive.
            while daemon.process.is_alive() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            daemon.process.kill().map_err(io("kill a daemon"))?;
            if let Some(Started { process, .. }) = &mut daemon.child {
                process.wait().map_err(io("reap a daemon"))?;
            }
            node::destroy(&hierarchies, &daemon.name, DESTROY_LIMIT)?;
        }
        Ok(())
    }
}

impl Drop for VirtualNodes {
    fn drop(&mut self) {
        if self.standing {
            return;
        }
        if let Err(error) = self.reap(Duration::ZERO) {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "failed to remove what the run has left"
            );
        }
    }
}

fn listen(node: NodeId, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(virtual_net::address(node)), port)
}

fn configure(request: &VirtualRequest, spec: &NodeSpec, identity: Identity) -> NodeConfig {
    let NodeSpec { node, memory, processors, store, arena } = spec.clone();
    let own = store_dir(&node_name(&request.run, node));
    NodeConfig {
        run: request.run.clone(),
        node,
        identity,
        control: listen(node, CONTROL_PORT),
        data: listen(node, DATA_PORT),
        memory: Some(memory),
        processors,
        store: store.into_iter().map(|tier| Tier { root: tier.root.join(&own), ..tier }).collect(),
        arena,
        provider: request.driver.parent().unwrap_or(Path::new("/")).to_path_buf(),
        launcher: request.launcher.clone(),
        stop_after: request.stop_after,
        standing: request.standing,
        link: Some(VirtualLink { rate: request.rate }),
    }
}

impl From<DaemonState> for Daemon {
    fn from(DaemonState { node, name, process }: DaemonState) -> Self {
        Self { node, name, process, child: None }
    }
}

fn spawn(config: NodeConfig, request: &VirtualRequest) -> Result<Starting, ProvisioningError> {
    let log = request.logs.join(format!("{}.log", config.node));
    // A cluster that begins again goes on with its logs.
    let file = if request.standing { private::append(&log) } else { private::create(&log) };
    let file = file.map_err(io(format!("create {}", log.display())))?;
    let mut command = Command::new(&request.daemon);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file);
    // Ctrl-C and the end of a terminal reach the processes of its session; only the master shall hear them.
    // SAFETY: between fork and exec the closure makes one system call and touches no lock and no heap.
    unsafe { command.pre_exec(|| Ok(setsid().map(drop)?)) };
    let mut child = command.spawn().map_err(io(format!("start {}", request.daemon.display())))?;
    let mut input = child.stdin.take().expect("piped");
    let output = lines(child.stdout.take().expect("piped"));
    let line = serde_json::to_string(&config).expect("a configuration is plain data");
    let configured = writeln!(input, "{line}").map_err(io("configure a daemon"));
    // A child that has not been waited for has an entry.
    let process = Process::of(child.id()).unwrap_or(Process { pid: child.id(), started: 0 });
    let child = Some(Started { process: child, input });
    let daemon = Daemon { node: config.node, name: config.name(), process, child };
    configured.map(|()| Starting { daemon, output, log })
}

/// The lines that a daemon writes, read by a thread so that a wait for one can have a time-out.
fn lines(output: ChildStdout) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(output).lines();
        lines.map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    receiver
}

/// Why a daemon ended without a word on its standard output.
fn last_line(log: &Path) -> String {
    let bytes = private::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing").to_owned()
}

impl Starting {
    fn plug(&mut self, link: VirtualLink) -> Result<(), ProvisioningError> {
        self.expect(NAMESPACE)?;
        virtual_net::plug(self.daemon.node, self.daemon.process.pid, link.rate)?;
        let child = self.daemon.child.as_mut().expect("this process has started it");
        writeln!(child.input).map_err(io("tell a daemon that its link is there"))
    }

    fn expect(&mut self, word: &str) -> Result<(), ProvisioningError> {
        let said = self.output.recv_timeout(START_LIMIT).unwrap_or_else(|_| last_line(&self.log));
        if said == word {
            return Ok(());
        }
        Err(ProvisioningError::Start { node: self.daemon.node, said, log: self.log.clone() })
    }
}
