//! The control group of a node: parent of its jobs' groups, with the memory limit of all of them.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use coswitch_policies::Bytes;

use super::{
    daemons,
    files::{CgroupError, kill_and_remove, make_dir, remove_dir, sub_groups, write},
    hierarchies::Hierarchies,
    job::JobCgroup,
    memory::{self, MemoryGroup},
};
use crate::protocol::MemoryUse;

#[derive(Debug)]
pub struct NodeCgroup {
    /// In version 2.
    freezer: PathBuf,
    memory: MemoryGroup,
    checkpointers: PathBuf,
}

impl NodeCgroup {
    /// Makes the group in every hierarchy; `limit` bounds the memory of all jobs of the node together.
    pub fn create(hierarchies: Hierarchies, name: &str, limit: Option<Bytes>) -> Result<Self, CgroupError> {
        let checkpointers = hierarchies.checkpointers().join(name);
        make_dir(&checkpointers)?;
        hierarchies.node_groups(name).try_for_each(|dir| make_dir(&dir))?;
        for dir in hierarchies.down_to(name) {
            write(&dir.join("cgroup.subtree_control"), "+memory")?;
        }
        let memory = hierarchies.memory(name);
        limit.map_or(Ok(()), |limit| memory.limit(limit))?;
        Ok(Self { freezer: hierarchies.freezer(name), memory, checkpointers })
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
        Ok(MemoryUse { used: self.used()?, stall: memory::stall(&self.freezer), jobs, stopped: false })
    }

    /// Makes the group of one job.
    pub fn job(&self, name: &str) -> Result<JobCgroup, CgroupError> {
        JobCgroup::create(self.freezer.join(name), self.memory.below(name))
    }

    /// Kills every process of a job, whose group may have been removed already; does not wait.
    pub fn kill_job(&self, name: &str) {
        let _ = write(&self.freezer.join(name).join("cgroup.kill"), "1");
    }

    /// Kills every process in the groups of a node and removes them; the node's daemon may have died before.
    pub fn destroy(hierarchies: &Hierarchies, name: &str, limit: Duration) -> Result<(), CgroupError> {
        daemons::remove(hierarchies);
        kill_and_remove(&hierarchies.checkpointers().join(name), limit)?;
        for node in hierarchies.node_groups(name) {
            sub_groups(&node).iter().try_for_each(|job| kill_and_remove(job, limit))?;
            remove_dir(&node)?;
        }
        // The parents belong to every coswitch on the machine: the last node removes them.
        hierarchies.parents().chain([hierarchies.checkpointers()]).for_each(|dir| drop(fs::remove_dir(dir)));
        Ok(())
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
