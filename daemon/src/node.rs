//! A node: what its daemon is told at its start, where its things lie, and how all of them are removed.

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

/// Every file in `/dev/shm` of every daemon on this machine lies in a directory that begins so, and every snapshot.
const SHM_PREFIX: &str = "coswitch-";
/// What CRIU's images, the index of pages and the segment may take in the store besides what the ranks hold.
pub const ADMITTED_BESIDES: Bytes = Bytes::mib(16);
/// In there: where the node's snapshots lie.
const NOTE: &str = "store.json";
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
    /// Where snapshots go, in the order of use; a directory of this node alone in each.
    pub store: Vec<Tier>,
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

    /// The store, its directories made. They are noted first, so that whoever cleans up finds them.
    ///
    /// # Errors
    /// Where one cannot be made.
    pub fn open_store(&self) -> anyhow::Result<Store> {
        let shm = shm_dir(&self.name());
        let roots: Vec<&Path> = self.store.iter().map(|tier| tier.root.as_path()).collect();
        fs::create_dir_all(&shm)?;
        fs::write(shm.join(NOTE), serde_json::to_vec(&roots)?)?;
        Ok(Store::with_tiers(self.store.clone())?)
    }
}

/// The directories in which a node keeps its snapshots, as its daemon has noted them.
#[must_use]
pub fn noted_stores(name: &str) -> Vec<PathBuf> {
    let note = shm_dir(name).join(NOTE);
    // Anybody may write to /dev/shm: only the daemon's own note counts, and only directories that belong to the node.
    let is_own = fs::symlink_metadata(&note)
        .is_ok_and(|found| found.is_file() && found.uid() == nix::unistd::geteuid().as_raw());
    let noted = is_own.then(|| fs::read(&note).ok()).flatten();
    let roots: Vec<PathBuf> = noted.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    let own = store_dir(name);
    roots.into_iter().filter(|root| root.file_name() == Some(own.as_ref())).collect()
}

/// What the directory of a node's snapshots is called, wherever it lies.
#[must_use]
pub fn store_dir(name: &str) -> String {
    format!("{SHM_PREFIX}{name}")
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
pub fn destroy(hierarchies: &Hierarchies, name: &str, limit: Duration) -> Result<(), CgroupError> {
    NodeCgroup::destroy(hierarchies, name, limit)?;
    // What tells of the others goes last.
    let dirs = noted_stores(name).into_iter().chain([shm_dir(name)]);
    dirs.into_iter().try_for_each(|dir| remove_tree(&dir).map_err(|error| CgroupError::File(dir, error)))
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
