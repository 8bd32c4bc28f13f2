//! The control group of a node: parent of its jobs' groups, with the memory limit of all of them.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use coswitch_policies::Bytes;

use super::{
    daemons,
    files::{CgroupError, kill_and_remove, make_dir, remove_dir, sub_groups, write},
    hierarchies::Hierarchies,
    job::JobCgroup,
    memory::{self, MemoryGroup},
    swapping::Patience,
};
use crate::{protocol::MemoryUse, swap};

const REAP_LIMIT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct NodeCgroup {
    /// In version 2.
    freezer: PathBuf,
    memory: MemoryGroup,
    /// Counts processes, where it is another one.
    processes: Option<PathBuf>,
    checkpointers: PathBuf,
}

impl NodeCgroup {
    /// Makes the group in every hierarchy; `limit` bounds the memory of all jobs of the node together.
    pub fn create(hierarchies: Hierarchies, name: &str, limit: Option<Bytes>) -> Result<Self, CgroupError> {
        let checkpointers = hierarchies.checkpointers().join(name);
        make_dir(&checkpointers)?;
        hierarchies.node_groups(name).try_for_each(|dir| make_dir(&dir))?;
        for (dir, controller) in hierarchies.down_to(name) {
            write(&dir.join("cgroup.subtree_control"), &format!("+{controller}"))?;
        }
        let memory = hierarchies.memory(name);
        limit.map_or(Ok(()), |limit| memory.limit(limit))?;
        let processes = hierarchies.processes(name);
        Ok(Self { freezer: hierarchies.freezer(name), memory, processes, checkpointers })
    }

    /// The group of the checkpointers of this node's jobs.
    pub fn checkpointers(&self) -> &Path {
        &self.checkpointers
    }

    /// The bytes charged to all jobs of the node now.
    pub fn used(&self) -> Result<Bytes, CgroupError> {
        self.memory.used()
    }

    /// The memory of the node and of each job that has a group on it.
    pub fn memory_use(&self) -> Result<MemoryUse, CgroupError> {
        let jobs = self.memory.jobs();
        let (used, stall) = (self.used()?, memory::stall(&self.freezer));
        Ok(MemoryUse { used, stall, jobs, stopped: false, looks: 1, peak: used })
    }

    /// See [`Patience`].
    pub(crate) fn be_patient(&self, patience: &mut Patience) {
        patience.look(&self.memory, swap::free(), Instant::now());
    }

    /// Makes the group of one job.
    pub fn job(&self, name: &str) -> Result<JobCgroup, CgroupError> {
        let processes = self.processes.as_ref().map(|dir| dir.join(name));
        JobCgroup::create(self.freezer.join(name), self.memory.below(name), processes)
    }

    /// Kills every process of a job, whose group may have been removed already; does not wait.
    pub fn kill_job(&self, name: &str) {
        let _ = write(&self.freezer.join(name).join("cgroup.kill"), "1");
    }

    /// Kills every process in the groups of a node, removes the groups, and waits until the processes are
    /// reaped. The node's daemon may have died before.
    pub fn destroy(hierarchies: &Hierarchies, name: &str, limit: Duration) -> Result<(), CgroupError> {
        Self::destroy_but(hierarchies, name, &[], limit)
    }

    /// The same, without the groups of these jobs.
    pub(crate) fn destroy_but(
        hierarchies: &Hierarchies,
        name: &str,
        keep: &[String],
        limit: Duration,
    ) -> Result<(), CgroupError> {
        daemons::remove(hierarchies);
        kill_and_remove(&hierarchies.checkpointers().join(name), limit)?;
        for node in hierarchies.node_groups(name) {
            let is_kept = |dir: &PathBuf| keep.iter().any(|job| dir.ends_with(job));
            let others = sub_groups(&node).into_iter().filter(|dir| !is_kept(dir));
            others.into_iter().try_for_each(|job| kill_and_remove(&job, limit))?;
            if keep.is_empty() {
                remove_dir(&node)?;
            }
        }
        if !keep.is_empty() {
            wait_until_reaped(name, keep);
            return Ok(());
        }
        // The parents belong to every coswitch on the machine: the last node removes them.
        hierarchies.parents().chain([hierarchies.checkpointers()]).for_each(|dir| drop(fs::remove_dir(dir)));
        wait_until_reaped(name, &[]);
        Ok(())
    }

    /// Whether a job or a checkpointer of the node has processes.
    pub(crate) fn is_populated(hierarchies: &Hierarchies, name: &str) -> bool {
        let groups = [hierarchies.freezer(name), hierarchies.checkpointers().join(name)];
        groups.iter().any(|dir| {
            fs::read_to_string(dir.join("cgroup.events")).is_ok_and(|text| text.contains("populated 1"))
        })
    }

    /// The names of all node groups on this machine.
    pub fn list(hierarchies: &Hierarchies) -> Vec<String> {
        let parents = hierarchies.parents().chain([hierarchies.checkpointers()]);
        let groups = parents.flat_map(|parent| sub_groups(&parent));
        let mut names: Vec<String> =
            groups.filter_map(|dir| Some(dir.file_name()?.to_str()?.to_string())).collect();
        names.sort();
        names.dedup();
        names
    }
}

/// A child of a checkpointer that was killed is left to init, which reaps it a moment later. Where init never
/// does, nothing can be done.
fn wait_until_reaped(name: &str, keep: &[String]) {
    let deadline = Instant::now() + REAP_LIMIT;
    while has_processes(name, keep) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process, dead or alive, belongs to a group of the node, other than those of these jobs. Groups
/// that were removed still count.
fn has_processes(name: &str, keep: &[String]) -> bool {
    let below = format!("/{name}/");
    let kept: Vec<String> = keep.iter().map(|job| format!("/{name}/{job}/")).collect();
    let is_below = |line: &str| {
        let path = line.strip_suffix(" (deleted)").unwrap_or(line);
        let path = format!("{path}/");
        path.contains(&below) && !kept.iter().any(|kept| path.contains(kept))
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut groups = processes.filter_map(|entry| fs::read_to_string(entry.path().join("cgroup")).ok());
    groups.any(|text| text.lines().any(is_below))
}
