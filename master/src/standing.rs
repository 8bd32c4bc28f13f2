//! The identity of a cluster that outlives its masters: `cluster.json` in its directory. It holds keys
//! and is root's alone.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use anyhow::{Context, anyhow, bail};
use coswitch_ckpt::private;
use coswitch_dispatcher::provisioning::{ClusterKey, NodesState};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::{
    config::{ClusterConfig, ParkMethod},
    replace::{remove, replace},
};

/// The name of the file in the directory of the cluster.
pub(crate) const FILE: &str = "cluster.json";
/// Names the directory of the cluster that is served at a socket; beside the socket.
const POINTER: &str = "cluster";
const LOCK: &str = "master.lock";
const VERSION: u32 = 4;

/// What a new master has to know of a cluster.
#[derive(Serialize, Deserialize)]
pub struct Standing {
    version: u32,
    /// The name in the node's cgroups and directories.
    pub run: String,
    /// Opens the images.
    pub sealing_key: ClusterKey,
    /// Of the last master; the first is 1.
    pub generation: u64,
    /// The start of the cluster, since 1970.
    began: Duration,
    pub cluster: ClusterConfig,
    pub park: ParkMethod,
    pub nodes: NodesState,
}

impl Standing {
    pub fn new(
        run: String,
        sealing_key: ClusterKey,
        cluster: ClusterConfig,
        park: ParkMethod,
        nodes: NodesState,
    ) -> Self {
        Self { version: VERSION, run, sealing_key, generation: 1, began: since_1970(), cluster, park, nodes }
    }

    /// The time since the start of the cluster.
    pub fn age(&self) -> Duration {
        since_1970().saturating_sub(self.began)
    }

    /// `None` where no cluster was served from this directory, or it has ended.
    ///
    /// # Errors
    /// Where the file cannot be read or understood.
    pub fn read(directory: &Path) -> anyhow::Result<Option<Self>> {
        let path = directory.join(FILE);
        let text = match private::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| format!("failed to read {}", path.display()))?,
        };
        let understood = format!("failed to understand {}", path.display());
        let standing: Self = serde_json::from_slice(&text).context(understood)?;
        if standing.version != VERSION {
            bail!("{} was written by another version of coswitch", path.display());
        }
        Ok(Some(standing))
    }

    /// Replaces the file in one step.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let path = directory.join(FILE);
        let write = || replace(&path, &serde_json::to_vec(self)?);
        write().map(drop).with_context(|| format!("failed to write {}", path.display()))
    }
}

/// Keeps other masters on this machine from the cluster, for as long as it is held.
///
/// # Errors
/// Where another one has it.
pub fn lock(directory: &Path) -> anyhow::Result<Flock<fs::File>> {
    let file = private::create_or_open(&directory.join(LOCK)).context("failed to open the lock")?;
    let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock);
    lock.map_err(|_| anyhow!("the cluster of {} has a master already", directory.display()))
}

/// Whether a master on this machine has the cluster of the directory.
pub fn has_master(directory: &Path) -> bool {
    let file = private::open_to_write(&directory.join(LOCK));
    file.is_ok_and(|file| Flock::lock(file, FlockArg::LockExclusiveNonblock).is_err())
}

/// The cluster of the directory has ended.
///
/// # Errors
/// Where the file cannot be removed.
pub fn forget(directory: &Path) -> io::Result<()> {
    remove(&directory.join(FILE))
}

/// Notes that the cluster of `directory` is served at `socket`.
///
/// # Errors
/// Where the note cannot be written.
pub fn note(socket: &Path, directory: &Path) -> io::Result<()> {
    let path = socket.with_extension(POINTER);
    remove(&path)?;
    private::write(&path, directory.as_os_str().as_encoded_bytes())
}

/// The directory of the cluster that was last served at `socket` and has not been ended.
pub fn noted(socket: &Path) -> Option<PathBuf> {
    let path = socket.with_extension(POINTER);
    let text = private::is_own(&path).then(|| private::read(&path).ok())??;
    let directory = PathBuf::from(String::from_utf8(text).ok()?);
    directory.join(FILE).exists().then_some(directory)
}

/// The cluster that was served at `socket` has ended.
pub fn forget_note(socket: &Path) {
    if let Err(error) = remove(&socket.with_extension(POINTER)) {
        tracing::warn!(%error, "the note of the cluster at the socket stays behind");
    }
}

/// The time now.
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
