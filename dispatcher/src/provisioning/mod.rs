//! Provisioning: starts a daemon on each node of the cluster, says what the nodes offer and where the daemons
//! listen, and ends them.
//!
//! [`virtual_nodes`] are all on this machine, [`hosts`] are machines of their own, [`slurm`] has those of an
//! allocation, and a cluster's [`Nodes`] are of one kind. The sessions with the daemons are
//! [`crate::sessions`].

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use coswitch_daemon::{
    cgroup::CgroupError,
    node::{NodeConfig, node_name, store_dir},
    pki::{Identity, PkiError},
    virtual_net::VirtualNetError,
};
pub use coswitch_daemon::{
    node::{ClusterKey, Tier},
    plane::LinkRules,
    protocol::Programs,
};
use coswitch_policies::{Bytes, NodeId, local::Technique};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

pub mod hosts;
mod nodes;
pub mod slurm;
mod starting;
pub mod virtual_nodes;

pub use nodes::{Nodes, NodesRequest, NodesState};

/// The directory for images where the user names none: on disk, because memory is scarce, and root's alone.
/// The first run makes it.
pub const STORE: &str = "/var/lib/coswitch";
/// For a daemon to release its applications after it was told to end.
const END_LIMIT: Duration = Duration::from_secs(40);
/// Of an arena whose size the user leaves open.
const ARENA_MAX: Bytes = Bytes::mib(256);

/// Nodes whose daemons run. Where they are dropped without [`Provisioning::end`], the daemons are killed and
/// what is left of them is removed; daemons of a standing cluster are left alone.
pub trait Provisioning: Sized {
    /// What the user asks for: so many nodes on this machine, these hosts, an allocation of that size.
    type Request;
    /// What a new master needs to find them again. It holds the key of the head node: for root's eyes only.
    type State: Serialize + DeserializeOwned;

    /// Starts the daemons and waits until all of them listen. Threads that are to reach the nodes are started
    /// by the calling thread, and later: they inherit its network namespace, which may be a new one.
    ///
    /// # Errors
    /// [`ProvisioningError`]; no daemon is left then.
    fn start(request: &Self::Request) -> Result<Self, ProvisioningError>;

    /// Takes up nodes whose master has gone; also returns those whose daemon has ended, which
    /// [`Provisioning::restart`] gives another one. Threads: as for [`Provisioning::start`].
    ///
    /// # Errors
    /// [`ProvisioningError`]
    fn adopt(state: Self::State) -> Result<(Self, Vec<NodeId>), ProvisioningError>;

    /// Gives a node another daemon, which keeps what those before it have sealed there, and ends what they
    /// have left running, and them. Blocks; called by a thread that was started after the nodes.
    ///
    /// # Errors
    /// [`ProvisioningError`]; the node has no daemon then, and this may be called again.
    fn restart(&self, node: NodeId) -> Result<Address, ProvisioningError>;

    /// Brings programs to a node whose daemon is to be replaced. Blocks, as [`Provisioning::restart`] does.
    ///
    /// # Errors
    /// [`ProvisioningError`]; the node is as before.
    fn bring(&self, node: NodeId, installed: &Installed) -> Result<Programs, ProvisioningError>;

    /// A daemon was replaced by one of these programs: from now on daemons are started from them.
    fn use_from_now_on(&self, _installed: &Installed) {}

    /// Removes what is left of nodes that cannot be adopted.
    ///
    /// # Errors
    /// [`ProvisioningError`] where something could not be removed.
    fn remove(state: Self::State) -> Result<(), ProvisioningError>;

    fn state(&self) -> Self::State;

    /// Leaves the daemons alone, for a new master.
    fn leave(self);

    fn nodes(&self) -> &[NodeSpec];

    /// In the order of [`Provisioning::nodes`]; also of nodes whose daemon has ended.
    fn addresses(&self) -> Vec<Address>;

    /// The certificate that the head node shows to the daemons.
    fn identity(&self) -> &Identity;

    /// Notes that this process is the master of the nodes, for a clean-up of their machines.
    ///
    /// # Errors
    /// [`ProvisioningError::Io`]
    fn note_master(&self) -> Result<(), ProvisioningError>;

    /// Waits for the daemons, which a session has told to end, kills those that do not, and removes what is
    /// left.
    ///
    /// # Errors
    /// [`ProvisioningError`] where something could not be removed.
    fn end(self) -> Result<(), ProvisioningError>;

    /// As [`Provisioning::end`], for daemons that a session has told to leave the snapshots of parked
    /// applications: these stay, whatever happens.
    ///
    /// # Errors
    /// [`ProvisioningError`] where a daemon does not end, or something else could not be removed.
    fn end_parked(self) -> Result<(), ProvisioningError>;
}

/// What the daemons of a cluster are started with, whatever the nodes are.
#[derive(Clone, Debug)]
pub struct DaemonsRequest {
    /// Tells this run's cgroups and files from those of others.
    pub run: String,
    pub nodes: Vec<NodeSpec>,
    /// See [`NodeConfig::sealing_key`].
    pub sealing_key: ClusterKey,
    /// See [`NodeConfig::stop_after`].
    pub stop_after: Duration,
    /// See [`NodeConfig::standing`].
    pub standing: bool,
    /// See [`NodeConfig::local`].
    pub local: Option<Technique>,
    /// See [`NodeConfig::links`].
    pub links: LinkRules,
    /// See [`NodeConfig::resumes`]. What is dropped then leaves its snapshots.
    pub resumes: bool,
    /// The directory of the daemons' logs, on this machine.
    pub logs: PathBuf,
    pub installed: Installed,
}

impl DaemonsRequest {
    /// The configuration of a daemon that runs on this machine and listens where the kernel chooses.
    fn configure(&self, spec: &NodeSpec, identity: Identity) -> NodeConfig {
        let any = SocketAddr::from(([0; 4], 0));
        let own = store_dir(&node_name(&self.run, spec.node));
        let tiers = spec.store.iter().cloned();
        NodeConfig {
            run: self.run.clone(),
            node: spec.node,
            identity,
            sealing_key: self.sealing_key.clone(),
            control: any,
            data: any,
            memory: Some(spec.memory),
            processors: spec.processors.clone(),
            store: tiers.map(|tier| Tier { root: tier.root.join(&own), ..tier }).collect(),
            arena: spec.arena,
            provider: self.installed.here().provider,
            launcher: self.installed.launcher.clone(),
            stop_after: self.stop_after,
            standing: self.standing,
            local: self.local,
            links: self.links,
            link: None,
            needed: Vec::new(),
            returns: self.resumes,
            resumes: self.resumes,
        }
    }
}

/// The programs of a build of coswitch on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// The program `coswitchd`.
    pub daemon: PathBuf,
    /// The program `coswitch-launcher`.
    pub launcher: PathBuf,
    /// The library `libcoswitch_fi.so`.
    pub driver: PathBuf,
    /// The library `libcoswitch_criu.so`, in the same directory.
    pub preload: PathBuf,
}

impl Installed {
    /// For nodes that see them where they lie here.
    fn here(&self) -> Programs {
        let provider = self.driver.parent().unwrap_or(Path::new("/")).to_path_buf();
        Programs { daemon: self.daemon.clone(), launcher: self.launcher.clone(), provider }
    }
}

/// What a node offers to jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    pub node: NodeId,
    /// What the jobs on the node may hold together.
    pub memory: Bytes,
    /// The processors of the daemon and its ranks; empty: all that the daemon may use.
    pub processors: Vec<usize>,
    /// Each node has a directory of its own for snapshots in each of these, used in their order.
    pub store: Vec<Tier>,
    /// The daemon's memory for pages on their way to the store, besides `memory`.
    pub arena: Bytes,
}

impl NodeSpec {
    /// Of all processors. Without a `store` it uses [`STORE`]; without an `arena` it has 256 MiB, or as much
    /// as its jobs where that is less.
    #[must_use]
    pub fn new(node: NodeId, memory: Bytes, store: &[Tier], arena: Option<Bytes>) -> Self {
        let store = if store.is_empty() { vec![Tier::unbounded(STORE.into())] } else { store.to_vec() };
        let arena = arena.unwrap_or(memory.min(ARENA_MAX));
        Self { node, memory, processors: Vec::new(), store, arena }
    }

    #[must_use]
    fn with_processors(self, processors: Vec<usize>) -> Self {
        Self { processors, ..self }
    }
}

/// Where a node's daemon listens.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    pub node: NodeId,
    /// For the head node.
    pub control: SocketAddr,
    /// For the other daemons.
    pub data: SocketAddr,
}

/// Why nodes could not be started or ended.
#[derive(Debug, Error)]
pub enum ProvisioningError {
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error("the virtual network could not be set up")]
    Network(#[from] VirtualNetError),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error("failed to {act}")]
    Io { act: String, source: io::Error },
    #[error("there is no {0}")]
    Unknown(NodeId),
    /// The host could not be reached, or something on it failed.
    #[error("failed to {act} on {host}: {said}")]
    Host { act: &'static str, host: String, said: String },
    /// A step of Slurm could not be made, or has failed.
    #[error("failed to {act}: {said}")]
    Step { act: &'static str, said: String },
    /// The daemon ended, or did not write the line that was expected.
    #[error("the daemon of {node} did not start: {said}; its log is {}", .log.display())]
    Start { node: NodeId, said: String, log: PathBuf },
}

fn failed(act: impl Into<String>) -> impl FnOnce(io::Error) -> ProvisioningError {
    let act = act.into();
    move |source| ProvisioningError::Io { act, source }
}
