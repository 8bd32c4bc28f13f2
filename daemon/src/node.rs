//! A node: what its daemon is told at its start, where its things lie, and how all of them are removed.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use coswitch_policies::{Bytes, JobId, NodeId, Rate};
use serde::{Deserialize, Serialize};

use crate::{
    cgroup::{CgroupError, Hierarchies, NodeCgroup},
    pki::Identity,
};

/// Every file in `/dev/shm` of every daemon on this machine lies in a directory that begins so.
const SHM_PREFIX: &str = "coswitch-";
const SHM: &str = "/dev/shm";

/// The one line that a daemon reads from its standard input at its start.
#[derive(Clone, Serialize, Deserialize)]
pub struct NodeConfig {
    /// Tells this run's cgroups and files from those of others on the machine.
    pub run: String,
    /// Which node this is.
    pub node: NodeId,
    /// Proves that the daemon belongs to the cluster.
    pub identity: Identity,
    /// Where the head node connects to.
    pub control: SocketAddr,
    /// Where other daemons connect to.
    pub data: SocketAddr,
    /// What the jobs on this node may hold together; `None`: the machine's memory.
    pub memory: Option<Bytes>,
    /// The processors of this node and its ranks; empty: whatever the daemon may use.
    pub processors: Vec<usize>,
    /// Where snapshots go; a directory of this node alone.
    pub store: PathBuf,
    /// How much memory stands ready for the pages of jobs that are being parked; more than that goes to the store at
    /// once. It is the daemon's, besides `memory`.
    pub arena: Bytes,
    /// The directory that holds `libcoswitch_fi.so`.
    pub provider: PathBuf,
    /// The program `coswitch-launcher`.
    pub launcher: PathBuf,
    /// For a virtual node: it gets a network namespace of its own, and its link this rate.
    pub link: Option<VirtualLink>,
}

/// The link of a virtual node.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct VirtualLink {
    /// `None`: as fast as the machine can.
    pub rate: Option<Rate>,
}

impl NodeConfig {
    /// The name of the node's cgroups and directories, unique on this machine.
    #[must_use]
    pub fn name(&self) -> String {
        node_name(&self.run, self.node)
    }

    /// The directory of a job's shared memory.
    #[must_use]
    pub fn shm(&self, job: JobId) -> PathBuf {
        shm_dir(&self.name()).join(job.to_string())
    }

    /// The directory of a job's snapshots.
    #[must_use]
    pub fn snapshots(&self, job: JobId) -> PathBuf {
        self.store.join(job.to_string())
    }
}

/// See [`NodeConfig::name`].
#[must_use]
pub fn node_name(run: &str, node: NodeId) -> String {
    format!("{run}-n{}", node.0)
}

fn shm_dir(name: &str) -> PathBuf {
    Path::new(SHM).join(format!("{SHM_PREFIX}{name}"))
}

/// Ends every process of a node's jobs and removes its cgroups, shared memory and snapshots, whoever made them. Safe to
/// call again, and after the daemon has been killed.
///
/// # Errors
/// Where something would not go.
pub fn destroy(
    hierarchies: &Hierarchies,
    name: &str,
    store: Option<&Path>,
    limit: Duration,
) -> Result<(), CgroupError> {
    NodeCgroup::destroy(hierarchies, name, limit)?;
    for dir in [Some(shm_dir(name).as_path()), store].into_iter().flatten() {
        remove_tree(dir).map_err(|error| CgroupError::File(dir.to_path_buf(), error))?;
    }
    Ok(())
}

/// The names of all nodes of which something is left on this machine, alive or not.
#[must_use]
pub fn leftovers(hierarchies: &Hierarchies) -> Vec<String> {
    let mut names = NodeCgroup::list(hierarchies);
    let shm = fs::read_dir(SHM).into_iter().flatten().flatten();
    names.extend(
        shm.filter_map(|entry| Some(entry.file_name().to_str()?.strip_prefix(SHM_PREFIX)?.to_string())),
    );
    names.sort();
    names.dedup();
    names
}

fn remove_tree(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
