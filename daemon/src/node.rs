//! Configuration of a node's daemon, names of the node's files and groups, and their removal.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
pub use coswitch_ckpt::{ClusterKey, store::Tier};
use coswitch_ckpt::{
    Sealing, Store,
    private::{self, Untrusted},
};
use coswitch_policies::{Bytes, JobId, NodeId, Rate, local::Technique};
use serde::{Deserialize, Serialize};

use crate::{
    cgroup::{CgroupError, Hierarchies, NodeCgroup},
    hold,
    pki::Identity,
    plane::LinkRules,
    process::Process,
    serve::DESTROY_LIMIT,
    survival,
};

/// Begins the name of each directory in `/dev/shm` and in a store that belongs to a daemon on this machine.
const PREFIX: &str = "coswitch-";
/// Space in the store for CRIU's images, the index of pages and the segment, besides the memory of the ranks.
pub const SNAPSHOT_OVERHEAD: Bytes = Bytes::mib(16);
const SHM: &str = "/dev/shm";
/// Each node has a directory here, with its notes. Only root may create names here, unlike in `/dev/shm`.
const RUN: &str = "/run/coswitch";
/// In a node's directory of notes: a list of the directories that hold its snapshots.
const STORE_LIST: &str = "store.json";
/// In a node's directory of notes, where its master may end first or is on another machine: the process of
/// its daemon.
const DAEMON: &str = "daemon.json";
/// In the same place, where the node outlives its masters: the process that ends what no daemon adopts.
pub(crate) const WATCHER: &str = "watcher.json";
/// In the same place: the process of its present master, or of the daemon while a master on another machine
/// follows it.
const MASTER: &str = "master.json";
/// Begin the names of variables that Slurm sets, and those of the process managers that it serves.
const OF_BATCH_SYSTEM: [&str; 6] = ["SLURM_", "SLURMD_", "SBATCH_", "SALLOC_", "PMI_", "PMIX_"];

/// The line that a daemon reads from its standard input when it starts.
#[derive(Clone, Serialize, Deserialize)]
pub struct NodeConfig {
    /// Distinguishes the cgroups and files of this run from those of other runs on the machine.
    pub run: String,
    pub node: NodeId,
    pub identity: Identity,
    /// Opens and seals the snapshots of the cluster.
    pub sealing_key: ClusterKey,
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
    /// After so long a silence of the head node, or so long without one, the daemon ends its applications
    /// and itself.
    pub stop_after: Duration,
    /// The node outlives its master and the process that started it, and waits for a new master. Otherwise it
    /// ends with them.
    pub standing: bool,
    /// By which its ranks are favoured; none: by the kernel's own.
    #[serde(default)]
    pub local: Option<Technique>,
    /// What this node asks of its data links.
    pub links: LinkRules,
    /// `Some` for a virtual node, which has a network namespace of its own; `None`: this machine is the node.
    pub link: Option<VirtualLink>,
    /// Files that have to be on the node, because its jobs read them, or write beside them.
    pub needed: Vec<PathBuf>,
    /// The node had a daemon before: this one ends what that has left running and keeps what it has sealed.
    #[serde(default)]
    pub returns: bool,
    /// With `returns`: that one has left parked applications. Until the daemon is asked to change one, its
    /// end leaves them as they are.
    #[serde(default)]
    pub resumes: bool,
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

    /// Whether the node is a machine, and not a part of one.
    pub const fn is_host(&self) -> bool {
        self.link.is_none()
    }

    /// The directory of a job's shared memory.
    pub fn shm(&self, job: JobId) -> PathBuf {
        shm_dir(&self.name()).join(job.to_string())
    }

    /// Seals and opens the node's snapshots. Images lie in plain below `/dev/shm` while CRIU writes or reads
    /// them, where a clean-up finds them.
    pub(crate) fn sealing(&self) -> Sealing {
        Sealing::new(self.sealing_key.clone(), self.name(), shm_dir(&self.name()))
    }

    /// The store in directories that are there.
    pub(crate) fn existing_store(&self) -> Store {
        Store::existing(self.store.clone()).sealed(self.sealing())
    }

    /// Makes the node's directories, which must not exist unless it returns, and opens its store. It notes
    /// those of the store first, so that a clean-up finds them.
    ///
    /// # Errors
    /// Where a directory cannot be made, exists, or lies where other users could replace it.
    pub fn open_store(&self) -> anyhow::Result<Store> {
        let make_dir = |dir: &Path| match self.returns && private::is_own(dir) {
            true => private::check_trusted(dir.parent().unwrap_or(Path::new("/"))).map_err(Into::into),
            false => make_dir(dir),
        };
        let (name, roots) = (self.name(), self.store.iter().map(|tier| tier.root.as_path()));
        let roots: Vec<&Path> = roots.collect();
        private::ensure_dir(Path::new(RUN))?;
        make_dir(&notes_dir(&name))?;
        if self.standing {
            hold::take(&name, DESTROY_LIMIT, || false)?;
        }
        forget_note(&notes_dir(&name).join(STORE_LIST))?;
        private::write(&notes_dir(&name).join(STORE_LIST), &serde_json::to_vec(&roots)?)?;
        if self.is_host() || self.resumes {
            note_daemon(&name)?;
        }
        make_dir(&shm_dir(&name))?;
        for root in roots {
            // The default directory is made by the first run.
            private::ensure_dir(root.parent().unwrap_or(Path::new("/")))?;
            make_dir(root)?;
        }
        Ok(self.existing_store())
    }
}

/// Makes a directory where only root and this user can replace it. Its name can be guessed, so one that
/// exists was made by somebody else.
fn make_dir(dir: &Path) -> anyhow::Result<()> {
    private::check_trusted(dir.parent().unwrap_or(Path::new("/")))?;
    private::create_dir(dir).with_context(|| format!("failed to make {}", dir.display()))
}

/// The directories in which a node keeps its snapshots, as its daemon has noted them.
pub fn listed_stores(name: &str) -> Vec<PathBuf> {
    // Earlier versions wrote the list to /dev/shm, where every user may write: only our own one counts.
    let lists = [notes_dir(name), shm_dir(name)].map(|dir| dir.join(STORE_LIST));
    let text =
        lists.into_iter().filter(|list| private::is_own(list)).find_map(|list| private::read(&list).ok());
    let roots: Vec<PathBuf> = text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    let own = store_dir(name);
    roots.into_iter().filter(|root| root.file_name() == Some(own.as_ref())).collect()
}

/// The daemon of a node that outlives its master, or has it on another machine; where the daemon is alive.
pub fn standing_daemon(name: &str) -> Option<Process> {
    noted_process(name, DAEMON)
}

/// Notes that this process is the node's daemon.
pub(crate) fn note_daemon(name: &str) -> io::Result<()> {
    note_process(name, DAEMON, Process::of(std::process::id()))
}

/// Whether a node that outlives its masters has one.
pub fn has_master(name: &str) -> bool {
    noted_process(name, MASTER).is_some()
}

/// Whether something waits for the next daemon of a node that has none, or watches the one that it has.
pub fn has_watcher(name: &str) -> bool {
    noted_process(name, WATCHER).is_some()
}

/// Notes that this process is the node's master.
///
/// # Errors
/// Where the note cannot be written.
pub fn note_master(name: &str) -> io::Result<()> {
    note_process(name, MASTER, Process::of(std::process::id()))
}

/// Notes that this process has no master.
///
/// # Errors
/// Where the note of the last one cannot be removed.
pub fn note_no_master(name: &str) -> io::Result<()> {
    forget_note(&notes_dir(name).join(MASTER))
}

fn forget_note(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub(crate) fn note_process(name: &str, what: &str, process: Option<Process>) -> io::Result<()> {
    let path = notes_dir(name).join(what);
    forget_note(&path)?;
    private::write(&path, &serde_json::to_vec(&process)?)
}

/// Where it is alive.
pub(crate) fn noted_process(name: &str, what: &str) -> Option<Process> {
    noted(name, what).filter(Process::is_alive)
}

fn noted(name: &str, what: &str) -> Option<Process> {
    let note = notes_dir(name).join(what);
    let text = private::is_own(&note).then(|| private::read(&note).ok())??;
    serde_json::from_slice::<Option<Process>>(&text).ok()?
}

/// Whether an environment variable tells a process of its place in a batch system, or of a process manager.
/// Ranks must not see these: theirs is another place.
#[must_use]
pub fn is_of_batch_system(name: &str) -> bool {
    OF_BATCH_SYSTEM.iter().any(|prefix| name.starts_with(prefix))
}

/// The name of a directory with a node's snapshots.
pub fn store_dir(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// See [`NodeConfig::name`].
pub fn node_name(run: &str, node: NodeId) -> String {
    format!("{run}-n{}", node.0)
}

fn shm_dir(name: &str) -> PathBuf {
    Path::new(SHM).join(format!("{PREFIX}{name}"))
}

/// The node's directory of notes, which is made where there is none.
pub(crate) fn ensure_notes_dir(name: &str) -> Result<PathBuf, Untrusted> {
    let dir = notes_dir(name);
    private::ensure_dir(Path::new(RUN))?;
    private::ensure_dir(&dir)?;
    Ok(dir)
}

pub(crate) fn notes_dir(name: &str) -> PathBuf {
    Path::new(RUN).join(name)
}

/// Ends every process of a node's jobs and removes its cgroups, shared memory and snapshots. May be called
/// again, and after the daemon has been killed.
///
/// # Errors
/// Where a part could not be removed.
pub fn destroy(hierarchies: &Hierarchies, name: &str, limit: Duration) -> Result<(), CgroupError> {
    survival::end_watcher(name);
    NodeCgroup::destroy(hierarchies, name, limit)?;
    // The directory with the list of the others goes last. What is not ours was made by somebody else.
    let dirs = listed_stores(name).into_iter().chain([shm_dir(name), notes_dir(name)]);
    dirs.filter(|dir| private::is_own(dir))
        .try_for_each(|dir| remove_tree(&dir).map_err(|error| CgroupError::File(dir, error)))
}

/// Ends what the daemon before has left running on the node, itself included; its snapshots stay.
///
/// # Errors
/// Where something cannot be ended or removed.
pub fn end_running(hierarchies: &Hierarchies, name: &str, limit: Duration) -> anyhow::Result<()> {
    end_running_but(hierarchies, name, &[], limit)
}

/// The same, without the processes of these jobs.
///
/// # Errors
/// As [`end_running`].
pub(crate) fn end_running_but(
    hierarchies: &Hierarchies,
    name: &str,
    keep: &[JobId],
    limit: Duration,
) -> anyhow::Result<()> {
    end_daemon_before(name, limit)?;
    survival::forget_others(name, keep);
    let keep: Vec<String> = keep.iter().map(ToString::to_string).collect();
    NodeCgroup::destroy_but(hierarchies, name, &keep, limit)?;
    let shm = shm_dir(name);
    if !private::is_own(&shm) {
        return Ok(());
    }
    let remove = |dir: &Path| remove_tree(dir).with_context(|| format!("failed to remove {}", dir.display()));
    if keep.is_empty() {
        return remove(&shm);
    }
    for entry in fs::read_dir(&shm)?.flatten() {
        if !keep.iter().any(|job| entry.file_name() == job.as_str()) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Ends the daemon before, where there is one and it is not this process, and its watcher. Then nothing of it
/// reads the rings of its applications.
///
/// # Errors
/// Where it does not end in time.
pub(crate) fn end_daemon_before(name: &str, limit: Duration) -> anyhow::Result<()> {
    if let Some(daemon) = noted(name, DAEMON).filter(|daemon| daemon.pid != std::process::id()) {
        let ended = daemon.kill().and_then(|()| daemon.wait_for_end(Some(limit)));
        ended.context("failed to end the daemon before")?;
    }
    survival::end_watcher(name);
    Ok(())
}

/// As [`destroy`], but leaves the snapshots for another daemon of the node.
///
/// # Errors
/// Where a part could not be removed.
pub fn leave(hierarchies: &Hierarchies, name: &str, limit: Duration) -> Result<(), CgroupError> {
    survival::end_watcher(name);
    NodeCgroup::destroy(hierarchies, name, limit)?;
    [shm_dir(name), notes_dir(name)]
        .into_iter()
        .filter(|dir| private::is_own(dir))
        .try_for_each(|dir| remove_tree(&dir).map_err(|error| CgroupError::File(dir, error)))
}

/// Kills the daemon of a node, where it is alive, and removes everything of the node.
///
/// # Errors
/// Where the daemon cannot be killed, or a part cannot be removed.
pub fn end(hierarchies: &Hierarchies, name: &str, limit: Duration) -> anyhow::Result<()> {
    if let Some(daemon) = standing_daemon(name) {
        daemon.kill().context("failed to end its daemon")?;
    }
    Ok(destroy(hierarchies, name, limit)?)
}

/// The names of all nodes that have cgroups or files on this machine, alive or not.
pub fn leftovers(hierarchies: &Hierarchies) -> Vec<String> {
    let mut names = NodeCgroup::list(hierarchies);
    names.extend(own_entries(SHM).filter_map(|name| Some(name.strip_prefix(PREFIX)?.to_string())));
    names.extend(own_entries(RUN));
    names.sort();
    names.dedup();
    names
}

fn own_entries(dir: &str) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let own = entries.filter(|entry| private::is_own(&entry.path()));
    own.filter_map(|entry| entry.file_name().into_string().ok())
}

/// Also succeeds where there is no such directory.
pub(crate) fn remove_tree(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
