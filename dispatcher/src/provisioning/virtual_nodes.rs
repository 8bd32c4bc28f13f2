//! Virtual nodes: a daemon each on this machine, joined by a virtual network, that share its processors.
//!
//! Paper 003, §4.1: the dispatcher's first purpose is to launch the run-time environment.

use std::{
    net::{IpAddr, SocketAddr},
    process::Command,
    time::{Duration, Instant},
};

use coswitch_daemon::{
    cgroup::Hierarchies,
    node::{self, NodeConfig, VirtualLink},
    pki::{Authority, Identity},
    process::Process,
    processors,
    serve::NAMESPACE,
    virtual_net,
};
use coswitch_policies::{Bytes, NodeId, Rate};
use serde::{Deserialize, Serialize};

use super::{
    Address, DaemonsRequest, END_LIMIT, NodeSpec, Provisioning, ProvisioningError, Tier, failed,
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

impl Provisioning for VirtualNodes {
    type Request = VirtualRequest;
    type State = VirtualState;

    /// Moves the calling thread into the network namespace that holds the bridge between the nodes.
    fn start(request: &VirtualRequest) -> Result<Self, ProvisioningError> {
        virtual_net::enter_head()?;
        let authority = Authority::new()?;
        let nodes = request.daemons.nodes.clone();
        let mut started = Self { identity: authority.member()?, nodes, daemons: Vec::new(), standing: false };
        let mut starting = Vec::new();
        for node in &request.daemons.nodes {
            let config = configure(request, node, authority.member()?);
            starting.push(spawn(config, &request.daemons)?);
        }
        // Each step for all of them before the next: they start side by side.
        let link = VirtualLink { rate: request.rate };
        let plugged = starting.iter_mut().try_for_each(|daemon| plug(daemon, link));
        let ready = plugged
            .and_then(|()| starting.iter_mut().try_for_each(|(_, starting)| starting.ready().map(drop)));
        let with_child =
            |(daemon, starting): (Daemon, Starting)| Daemon { child: Some(starting.started()), ..daemon };
        started.daemons = starting.into_iter().map(with_child).collect();
        ready?;
        started.standing = request.daemons.standing;
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

    /// The name of a run tells of its first master only.
    fn note_master(&self) -> Result<(), ProvisioningError> {
        let mut names = self.daemons.iter().map(|daemon| &daemon.name);
        names.try_for_each(|name| node::note_master(name)).map_err(failed("note who the master is"))
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
            daemon.process.kill().map_err(failed("kill a daemon"))?;
            if let Some(Started { process, .. }) = &mut daemon.child {
                process.wait().map_err(failed("reap a daemon"))?;
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

fn spawn(config: NodeConfig, request: &DaemonsRequest) -> Result<(Daemon, Starting), ProvisioningError> {
    let program = Command::new(&request.daemon);
    let starting = Starting::begin(program, &config, Log::of(&config, &request.logs, false))?;
    let pid = starting.pid();
    // A child that has not been waited for has an entry.
    let process = Process::of(pid).unwrap_or(Process { pid, started: 0 });
    Ok((Daemon { node: config.node, name: config.name(), process, child: None }, starting))
}

fn plug((daemon, starting): &mut (Daemon, Starting), link: VirtualLink) -> Result<(), ProvisioningError> {
    starting.expect(NAMESPACE)?;
    virtual_net::plug(daemon.node, daemon.process.pid, link.rate)?;
    starting.say("").map_err(failed("tell a daemon that its link is there"))
}
