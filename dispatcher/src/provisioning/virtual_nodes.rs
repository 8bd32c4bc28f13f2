//! Virtual nodes: a daemon each on this machine, joined by a virtual network, that share its processors.
//!
//! Paper 003, §4.1: the dispatcher's first purpose is to launch the run-time environment.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    process::Command,
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant},
};

use coswitch_daemon::{
    cgroup::Hierarchies,
    node::{self, NodeConfig, VirtualLink},
    pki::{Authority, Holder, Identity},
    process::Process,
    processors,
    serve::NAMESPACE,
    virtual_net,
};
use coswitch_policies::{Bytes, NodeId, Rate};
use serde::{Deserialize, Serialize};

use super::{
    Address, DaemonsRequest, END_LIMIT, Installed, NodeSpec, Provisioning, ProvisioningError, Tier, failed,
    starting::{Log, Started, Starting},
};

const CONTROL_PORT: u16 = 7077;
const DATA_PORT: u16 = 7078;
const DESTROY_LIMIT: Duration = Duration::from_secs(10);

/// A request for virtual nodes.
#[derive(Clone, Debug)]
pub struct VirtualRequest {
    pub daemons: DaemonsRequest,
    /// Of each link; `None`: as fast as the machine can.
    pub rate: Option<Rate>,
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
    let cpus = processors::allowed().map_err(|error| failed("ask for the processors")(error.into()))?;
    let node = |number: u32| {
        let processors = processors::share(&cpus, number as usize, count as usize);
        NodeSpec::new(NodeId(number), memory, store, arena).with_processors(processors)
    };
    Ok((0..count).map(node).collect())
}

/// The running daemons of virtual nodes.
pub struct VirtualNodes {
    identity: Identity,
    nodes: Vec<NodeSpec>,
    daemons: Mutex<Vec<Daemon>>,
    programs: Programs,
    standing: bool,
    /// Snapshots of parked applications stay.
    keeps: bool,
}

/// How daemons are started again.
#[derive(Clone, Serialize, Deserialize)]
struct Programs {
    daemon: PathBuf,
    logs: PathBuf,
    configs: Vec<NodeConfig>,
}

struct Daemon {
    node: NodeId,
    name: String,
    process: Process,
    /// Of a daemon that this process has started.
    child: Option<Started>,
}

/// What a new master needs to find the nodes again.
#[derive(Clone, Serialize, Deserialize)]
pub struct VirtualState {
    identity: Identity,
    nodes: Vec<NodeSpec>,
    daemons: Vec<DaemonState>,
    programs: Programs,
}

#[derive(Clone, Serialize, Deserialize)]
struct DaemonState {
    node: NodeId,
    name: String,
    process: Process,
}

impl Provisioning for VirtualNodes {
    type Request = VirtualRequest;
    type State = VirtualState;

    /// Moves the calling thread into the network namespace that holds the bridge between the nodes.
    fn start(request: &VirtualRequest) -> Result<Self, ProvisioningError> {
        virtual_net::enter_head()?;
        let authority = Authority::new()?;
        let nodes = request.daemons.nodes.clone();
        let config = |node: &NodeSpec| {
            let identity = authority.certify(Holder::Node(node.node))?;
            Ok::<_, ProvisioningError>(configure(request, node, identity))
        };
        let configs = nodes.iter().map(config).collect::<Result<Vec<_>, _>>()?;
        let (daemon, logs) = (request.daemons.installed.daemon.clone(), request.daemons.logs.clone());
        let programs = Programs { daemon, logs, configs };
        let (daemons, keeps) = (Mutex::default(), request.daemons.resumes);
        let mut started = Self {
            identity: authority.certify(Holder::Head)?,
            nodes,
            daemons,
            programs,
            standing: false,
            keeps,
        };
        let mut starting = Vec::new();
        for config in &started.programs.configs {
            starting.push(started.programs.spawn(config)?);
        }
        // Each step for all of them before the next: they start side by side.
        let link = VirtualLink { rate: request.rate };
        let plugged = starting.iter_mut().try_for_each(|daemon| plug(daemon, link));
        let ready = plugged
            .and_then(|()| starting.iter_mut().try_for_each(|(_, starting)| starting.ready().map(drop)));
        let with_child =
            |(daemon, starting): (Daemon, Starting)| Daemon { child: Some(starting.started()), ..daemon };
        started.daemons = Mutex::new(starting.into_iter().map(with_child).collect());
        ready?;
        started.standing = request.daemons.standing;
        Ok(started)
    }

    /// Where no daemon holds the network namespace of the head node open any more, there is a new one.
    fn adopt(state: VirtualState) -> Result<(Self, Vec<NodeId>), ProvisioningError> {
        let (alive, gone): (Vec<_>, Vec<_>) =
            state.daemons.iter().partition(|daemon| daemon.process.is_alive());
        match alive.first() {
            Some(daemon) => virtual_net::enter_held(daemon.process.pid)?,
            None => virtual_net::enter_head()?,
        }
        let gone = gone.iter().map(|daemon| daemon.node).collect();
        Ok((Self::from(state), gone))
    }

    fn restart(&self, node: NodeId) -> Result<Address, ProvisioningError> {
        let config = self.programs.configs.iter().find(|config| config.node == node);
        let config = config.ok_or(ProvisioningError::Unknown(node))?;
        if let Some(before) = self.daemons().iter_mut().find(|daemon| daemon.node == node) {
            before.kill()?;
        }
        // Its processes may still hold the other end.
        virtual_net::unplug(node);
        let config = NodeConfig { returns: true, ..config.clone() };
        let mut starting = self.programs.spawn(&config)?;
        let link = VirtualLink { rate: config.link.and_then(|link| link.rate) };
        let ready = plug(&mut starting, link).and_then(|()| starting.1.ready().map(drop));
        let (daemon, starting) = starting;
        let mut daemon = Daemon { child: Some(starting.started()), ..daemon };
        if let Err(error) = ready {
            daemon.kill()?;
            return Err(error);
        }
        let mut daemons = self.daemons();
        daemons.retain(|daemon| daemon.node != node);
        daemons.push(daemon);
        Ok(address(node))
    }

    /// They are where they were.
    fn bring(&self, node: NodeId, installed: &Installed) -> Result<super::Programs, ProvisioningError> {
        match self.nodes.iter().any(|spec| spec.node == node) {
            true => Ok(installed.here()),
            false => Err(ProvisioningError::Unknown(node)),
        }
    }

    fn remove(state: VirtualState) -> Result<(), ProvisioningError> {
        Self::from(state).reap(Duration::ZERO)
    }

    fn state(&self) -> VirtualState {
        let state = |Daemon { node, name, process, .. }: &Daemon| {
            let (node, name, process) = (*node, name.clone(), *process);
            DaemonState { node, name, process }
        };
        let daemons = self.daemons().iter().map(state).collect();
        let (identity, nodes, programs) = (self.identity.clone(), self.nodes.clone(), self.programs.clone());
        VirtualState { identity, nodes, daemons, programs }
    }

    fn leave(self) {
        self.daemons().clear();
    }

    fn nodes(&self) -> &[NodeSpec] {
        &self.nodes
    }

    fn addresses(&self) -> Vec<Address> {
        self.nodes.iter().map(|spec| address(spec.node)).collect()
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The name of a run tells of its first master only.
    fn note_master(&self) -> Result<(), ProvisioningError> {
        let daemons = self.daemons();
        let mut names = daemons.iter().map(|daemon| &daemon.name);
        names.try_for_each(|name| node::note_master(name)).map_err(failed("note who the master is"))
    }

    fn end(mut self) -> Result<(), ProvisioningError> {
        self.keeps = false;
        self.reap(END_LIMIT)
    }

    fn end_parked(mut self) -> Result<(), ProvisioningError> {
        self.keeps = true;
        self.reap(END_LIMIT)
    }
}

impl VirtualNodes {
    /// The daemons' process ids, in the order of the nodes.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        let mut daemons: Vec<_> =
            self.daemons().iter().map(|daemon| (daemon.node, daemon.process.pid)).collect();
        daemons.sort_unstable();
        daemons.into_iter().map(|(_, pid)| pid)
    }

    fn daemons(&self) -> MutexGuard<'_, Vec<Daemon>> {
        self.daemons.lock().expect("no panic while holding it")
    }

    fn reap(&mut self, limit: Duration) -> Result<(), ProvisioningError> {
        let deadline = Instant::now() + limit;
        let hierarchies = Hierarchies::find()?;
        let mut daemons = std::mem::take(&mut *self.daemons());
        // One that no session has told ends because of this.
        daemons.iter_mut().filter_map(|daemon| daemon.child.as_mut()).for_each(|child| child.input = None);
        let mut outcome = Ok(());
        for mut daemon in daemons {
            // A child that has ended is a zombie, which is not alive.
            while daemon.process.is_alive() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            let remove = if self.keeps { node::leave } else { node::destroy };
            let killed = daemon.kill();
            let removed = killed.and_then(|()| Ok(remove(&hierarchies, &daemon.name, DESTROY_LIMIT)?));
            // One that cannot be removed keeps none of the others.
            outcome = outcome.and(removed);
        }
        outcome
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

impl Daemon {
    fn kill(&mut self) -> Result<(), ProvisioningError> {
        self.process.kill().map_err(failed("kill a daemon"))?;
        if let Some(Started { process, .. }) = &mut self.child {
            process.wait().map_err(failed("reap a daemon"))?;
        }
        Ok(())
    }
}

impl Programs {
    fn spawn(&self, config: &NodeConfig) -> Result<(Daemon, Starting), ProvisioningError> {
        let log = Log::of(config, &self.logs, config.returns);
        let starting = Starting::begin(Command::new(&self.daemon), config, log)?;
        let pid = starting.pid();
        // A child that has not been waited for has an entry.
        let process = Process::of(pid).unwrap_or(Process { pid, started: 0 });
        Ok((Daemon { node: config.node, name: config.name(), process, child: None }, starting))
    }
}

impl From<VirtualState> for VirtualNodes {
    fn from(VirtualState { identity, nodes, daemons, programs }: VirtualState) -> Self {
        let daemons = Mutex::new(daemons.into_iter().map(Daemon::from).collect());
        Self { identity, nodes, daemons, programs, standing: true, keeps: false }
    }
}

fn address(node: NodeId) -> Address {
    Address { node, control: listen(node, CONTROL_PORT), data: listen(node, DATA_PORT) }
}

fn listen(node: NodeId, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(virtual_net::address(node)), port)
}

fn configure(request: &VirtualRequest, spec: &NodeSpec, identity: Identity) -> NodeConfig {
    NodeConfig {
        control: listen(spec.node, CONTROL_PORT),
        data: listen(spec.node, DATA_PORT),
        link: Some(VirtualLink { rate: request.rate }),
        ..request.daemons.configure(spec, identity)
    }
}

impl From<DaemonState> for Daemon {
    fn from(DaemonState { node, name, process }: DaemonState) -> Self {
        Self { node, name, process, child: None }
    }
}

fn plug((daemon, starting): &mut (Daemon, Starting), link: VirtualLink) -> Result<(), ProvisioningError> {
    starting.expect(NAMESPACE)?;
    virtual_net::plug(daemon.node, daemon.process.pid, link.rate)?;
    starting.say("").map_err(failed("tell a daemon that its link is there"))
}
