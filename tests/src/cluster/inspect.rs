//! Observations of a cluster: the processes, cgroups, snapshots and files of its nodes and jobs.

use std::{
    fs,
    path::{Path, PathBuf},
};

use coswitch_ckpt::{Sealing, Store, store::StoredSnapshot};
use coswitch_daemon::{
    cgroup::{Hierarchies, JobCgroup, NodeCgroup},
    node::{Tier, node_name, store_dir},
};
use coswitch_policies::{Bytes, JobId, NodeId};

use super::{FIRST_TIER, SEALING_KEY, TestCluster};

impl TestCluster {
    #[must_use]
    pub fn daemon(&self, node: NodeId) -> u32 {
        self.nodes.pids().nth(node.0 as usize).expect("the cluster has the node")
    }

    /// The processes of a job with the name (`comm`) `name`.
    #[must_use]
    pub fn processes(&self, job: JobId, name: &str) -> Vec<u32> {
        let read =
            |pid: &u32, file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let is_of_job =
            |pid: &u32| read(pid, "cgroup").lines().any(|line| line.ends_with(&format!("/{job}")));
        let processes = self.leftovers.processes().into_iter();
        processes.filter(|pid| is_of_job(pid) && read(pid, "comm").trim() == name).collect()
    }

    /// Memory that a job uses on a node.
    ///
    /// # Panics
    /// If it has no cgroup there.
    #[must_use]
    pub fn memory(&self, node: NodeId, job: JobId) -> Bytes {
        self.cgroup(node, job).used().expect("the job has a cgroup on the node")
    }

    /// The cgroup of a job on a node. Creating an existing one changes nothing.
    ///
    /// # Panics
    /// If it cannot be created.
    #[must_use]
    pub fn cgroup(&self, node: NodeId, job: JobId) -> JobCgroup {
        self.groups(node).job(&job.to_string()).expect("root may create cgroups")
    }

    /// Processes of the checkpointer that run on a node.
    #[must_use]
    pub fn checkpointers(&self, node: NodeId) -> Vec<u32> {
        let procs = self.groups(node).checkpointers().join("cgroup.procs");
        let pids = fs::read_to_string(procs).expect("the cgroup exists");
        pids.lines().map(|pid| pid.parse().expect("a process id")).collect()
    }

    /// The cgroups of a node. Creating existing ones changes nothing.
    fn groups(&self, node: NodeId) -> NodeCgroup {
        let hierarchies = Hierarchies::find().expect("cgroups are mounted");
        NodeCgroup::create(hierarchies, &node_name(&self.run, node), None).expect("root may create cgroups")
    }

    /// The processes of the run with the name (`comm`) `name`.
    #[must_use]
    pub fn processes_of_run(&self, name: &str) -> Vec<u32> {
        let is_it =
            |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
        self.leftovers.processes().into_iter().filter(is_it).collect()
    }

    /// Whether a job has snapshots on a node and all of them are sealed.
    #[must_use]
    pub fn is_sealed(&self, node: NodeId, job: JobId) -> bool {
        let images = self.images(node, job);
        !images.is_empty() && images.iter().all(|image| image.problem.is_none())
    }

    /// Snapshots of a job on a node, newest first.
    #[must_use]
    pub fn images(&self, node: NodeId, job: JobId) -> Vec<StoredSnapshot> {
        let entries = self.store(node).list().unwrap_or_default().into_iter();
        entries.filter(|entry| entry.application == job.to_string()).collect()
    }

    /// The store of a node, opened by a process other than its daemon.
    #[must_use]
    pub fn store(&self, node: NodeId) -> Store {
        let name = node_name(&self.run, node);
        let plain = Path::new("/dev/shm").join(store_dir(&name));
        let sealing = Sealing::new(SEALING_KEY.into(), name, plain);
        Store::existing(self.tiers(node).into_iter().map(Tier::unbounded).collect()).sealed(sealing)
    }

    /// The store directories of a node.
    #[must_use]
    pub fn tiers(&self, node: NodeId) -> Vec<PathBuf> {
        let own = store_dir(&node_name(&self.run, node));
        self.stores.iter().map(|tier| tier.root.join(&own)).collect()
    }

    /// Number of nodes.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        u32::try_from(self.nodes.pids().count()).expect("few nodes")
    }

    /// Whether the store has a second directory.
    #[must_use]
    pub fn has_two_tiers(&self) -> bool {
        self.stores.len() == 2
    }

    /// Fills the first store directory of a node, or empties it again.
    ///
    /// # Panics
    /// If that fails.
    pub fn fill(&self, node: NodeId, full: bool) {
        let foreign = self.tiers(node)[0].join("filler");
        if full {
            fs::create_dir_all(foreign.join("epoch-0")).expect("a directory in the store");
            let file = fs::File::create(foreign.join("epoch-0/hole")).expect("a file in the store");
            file.set_len(FIRST_TIER.0).expect("a sparse file takes no space");
        } else if foreign.exists() {
            fs::remove_dir_all(foreign).expect("the directory is removed");
        }
    }

    /// The segment of a job on a node.
    #[must_use]
    pub fn segment(&self, node: NodeId, job: JobId) -> PathBuf {
        let name = node_name(&self.run, node);
        Path::new("/dev/shm").join(format!("coswitch-{name}")).join(job.to_string()).join("segment")
    }

    /// Directory of a job's snapshots in the first store directory of a node.
    #[must_use]
    pub fn snapshots(&self, node: NodeId, job: JobId) -> PathBuf {
        self.tiers(node)[0].join(job.to_string())
    }

    /// Directory of logs and outputs.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.test_dir.path()
    }
}
