//! Configuration of a node's daemon, names of the node's files and groups, and their removal.

use std::{
    fs, io,
    net::SocketAddr,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use coswitch_ckpt::Store;
pub use coswitch_ckpt::store::Tier;
use coswitch_policies::{Bytes, JobId, NodeId, Rate};
use serde::{Deserialize, Serialize};

use crate::{
    cgroup::{CgroupError, Hierarchies, NodeCgroup},
    pki::Identity,
};

/// Begins the name of each directory in `/dev/shm` and in a store that belongs to a daemon on this machine.
const SHM_PREFIX: &str = "coswitch-";
/// Space in the store for CRIU's images, the index of pages and the segment, besides the memory of the ranks.
pub const SNAPSHOT_OVERHEAD: Bytes = Bytes::mib(16);
const SHM: &str = "/dev/shm";
/// In a node's directory of `/dev/shm`: a list of the directories that hold its snapshots.
const STORE_LIST: &str = "store.json";

/// The line that a daemon reads from its standard input when it starts.
#[derive(Clone, Serialize, Deserialize)]
pub struct NodeConfig {
    /// Distinguishes the cgroups and files of this run from those of other runs on the machine.
    pub run: String,
    pub node: NodeId,
    pub identity: Identity,
    /// The head node connects to this address.
    pub control: SocketAddr,
    /// Other daemons connect to this address.
    pub data: SocketAddr,
    /// Limit of the memory of all jobs on this node; `None`: the machine's memory.
    pub memory: Option<Bytes>,
    /// The processors of this node and its ranks; empty: all that the daemon may use.
    pub processors: Vec<usize>,
    /// Directories for snapshots in the order of use; each belongs to this node alone.
    pub store: Vec<Tier>,
    /// Size of the memory that takes pages of jobs while they are parked; further pages go to the store at
    /// once. It belongs to the daemon and does not count in `memory`.
    pub arena: Bytes,
    /// The directory that holds `libcoswitch_fi.so`.
    pub provider: PathBuf,
    /// The program `coswitch-launcher`.
    pub launcher: PathBuf,
    /// `Some` for a virtual node, which has a network namespace of its own.
    pub link: Option<VirtualLink>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct VirtualLink {
    /// `None`: no limit.
    pub rate: Option<Rate>,
}

impl NodeConfig {
    /// The name of the node's cgroups and directories, unique on this machine.
    pub fn name(&self) -> String {
        node_name(&self.run, self.node)
    }

    /// The directory of a job's shared memory.
    pub fn shm(&self, job: JobId) -> PathBuf {
        shm_dir(&self.name()).join(job.to_string())
    }

    /// Opens the store and makes its directories. It lists them first, so that a clean-up finds them.
    ///
    /// # Errors
    /// Where a directory cannot be made.
    pub fn open_store(&self) -> anyhow::Result<Store> {
        let shm = shm_dir(&self.name());
        let roots: Vec<&Path> = self.store.iter().map(|tier| tier.root.as_path()).collect();
        fs::create_dir_all(&shm)?;
        fs::write(shm.join(STORE_LIST), serde_json::to_vec(&roots)?)?;
        Ok(Store::with_tiers(self.store.clone())?)
    }
}

/// The directories in which a node keeps its snapshots, as its daemon has listed them.
pub fn listed_stores(name: &str) -> Vec<PathBuf> {
    let list = shm_dir(name).join(STORE_LIST);
    // Every user may write to /dev/shm: only the daemon's own list counts, and only directories of the node.
    let is_own = fs::symlink_metadata(&list)
        .is_ok_and(|found| found.is_file() && found.uid() == nix::unistd::geteuid().as_raw());
    let text = is_own.then(|| fs::read(&list).ok()).flatten();
    let roots: Vec<PathBuf> = text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    let own = store_dir(name);
    roots.into_iter().filter(|root| root.file_name() == Some(own.as_ref())).collect()
}

/// The name of a directory with a node's snapshots.
pub fn store_dir(name: &str) -> String {
    format!("{SHM_PREFIX}{name}")
}

/// See [`NodeConfig::name`].
pub fn node_name(run: &str, node: NodeId) -> String {
    format!("{run}-n{}", node.0)
}

fn shm_dir(name: &str) -> PathBuf {
    Path::new(SHM).join(format!("{SHM_PREFIX}{name}"))
}

/// Ends every process of a node's jobs and removes its cgroups, shared memory and snapshots. May be called
/// again, and after the daemon has been killed.
///
/// # Errors
/// Where a part could not be removed.
pub fn destroy(hierarchies: &Hierarchies, name: &str, limit: Duration) -> Result<(), CgroupError> {
    NodeCgroup::destroy(hierarchies, name, limit)?;
    // The directory with the list of the others goes last.
    let dirs = listed_stores(name).into_iter().chain([shm_dir(name)]);
    dirs.into_iter().try_for_each(|dir| remove_tree(&dir).map_err(|error| CgroupError::File(dir, error)))
}

/// The names of all nodes that have cgroups or files on this machine, alive or not.
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

/// Also succeeds where there is no such directory.
pub(crate) fn remove_tree(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
