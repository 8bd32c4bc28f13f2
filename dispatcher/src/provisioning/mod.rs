//! Provisioning: starts a daemon on each node of the cluster, says what the nodes offer and where the daemons
//! listen, and ends them.
//!
//! [`virtual_nodes`] are all on this machine. The sessions with the daemons are [`crate::sessions`].

use std::{io, net::SocketAddr, path::PathBuf};

pub use coswitch_daemon::node::Tier;
use coswitch_daemon::{
    cgroup::CgroupError,
    pki::{Identity, PkiError},
    virtual_net::VirtualNetError,
};
use coswitch_policies::{Bytes, NodeId};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

pub mod virtual_nodes;

/// The directory for images where the user names none: on disk, because memory is scarce, and root's alone.
/// The first run makes it.
pub const STORE: &str = "/var/lib/coswitch";

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

    /// Takes up nodes whose master has gone. Threads: as for [`Provisioning::start`].
    ///
    /// # Errors
    /// [`ProvisioningError::Gone`] where a daemon has ended.
    fn adopt(state: Self::State) -> Result<Self, ProvisioningError>;

    /// Removes what is left of nodes that cannot be adopted.
    ///
    /// # Errors
    /// [`ProvisioningError`] where something could not be removed.
    fn remove(state: Self::State) -> Result<(), ProvisioningError>;

    fn state(&self) -> Self::State;

    /// Leaves the daemons alone, for a new master.
    fn leave(self);

    fn nodes(&self) -> &[NodeSpec];

    /// In the order of [`Provisioning::nodes`].
    fn addresses(&self) -> Vec<Address>;

    /// The certificate that the head node shows to the daemons.
    fn identity(&self) -> &Identity;

    /// Waits for the daemons, which a session has told to end, kills those that do not, and removes what is
    /// left.
    ///
    /// # Errors
    /// [`ProvisioningError`] where something could not be removed.
    fn end(self) -> Result<(), ProvisioningError>;
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
    #[error("the daemon of {0} has ended")]
    Gone(NodeId),
    /// The daemon ended, or did not write the line that was expected.
    #[error("the daemon of {node} did not start: {said}; its log is {}", .log.display())]
    Start { node: NodeId, said: String, log: PathBuf },
}
