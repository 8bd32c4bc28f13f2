//! cgroups of a node and of each application on it; for the processor see `cpu_group`.
//!
//! Freezing is always version 2 (`cgroup.freeze`). Memory comes from version 2 where its controller is there, else
//! from version 1: many machines mount both, and the controller is in only one of them. In every hierarchy used, the
//! path is `coswitch/<node>/<job>`; the node's group carries the limit, the job's group the account. What dumps the jobs
//! of a node, and must neither be frozen nor charged with them, is in `coswitch-criu/<node>`.

use std::{
    fs,
    io::{self, Write},
    os::fd::AsFd,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use coswitch_policies::{Bytes, JobId};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use thiserror::Error;

use crate::{
    cpu_group::{self, CpuController},
    protocol::MemoryUse,
    working_set,
};

pub(crate) const PARENT: &str = "coswitch";
const CHECKPOINTERS: &str = "coswitch-criu";

/// Why a cgroup could not be used.
#[derive(Debug, Error)]
pub enum CgroupError {
    /// Nothing of version 2 is mounted.
    #[error(
        "no cgroup version 2 hierarchy is mounted; freezing needs one (mount -t cgroup2 none /sys/fs/cgroup)"
    )]
    NoVersion2,
    /// No memory controller in either version.
    #[error("no cgroup memory controller is mounted, neither version 2 nor version 1")]
    NoMemory,
    /// A file in a cgroup could not be read or written.
    #[error("cgroup file {} could not be used", .0.display())]
    File(PathBuf, #[source] io::Error),
    /// The ranks did not freeze, or did not end, in time.
    #[error("{what} took longer than {limit:?}")]
    TimeOut {
        /// What was waited for.
        what: &'static str,
        /// For how long.
        limit: Duration,
    },
}

/// Where the hierarchies are mounted.
#[derive(Clone, Debug)]
pub struct Hierarchies {
    unified: PathBuf,
    /// `None` where version 2 has the memory controller.
    memory_v1: Option<PathBuf>,
    /// `None` where neither version has the cpu controller.
    cpu: Option<CpuController>,
}

impl Hierarchies {
    /// Finds them in the mount table.
    ///
    /// # Errors
    /// [`CgroupError::NoVersion2`], [`CgroupError::NoMemory`]
    pub fn find() -> Result<Self, CgroupError> {
        let table = PathBuf::from("/proc/self/mounts");
        let mounts = fs::read_to_string(&table).map_err(|error| CgroupError::File(table, error))?;
        let rows: Vec<Vec<&str>> = mounts.lines().map(|line| line.split(' ').collect()).collect();
        let unified = rows
            .iter()
            .find(|row| row.get(2) == Some(&"cgroup2"))
            .map(|row| PathBuf::from(row[1]))
            .ok_or(CgroupError::NoVersion2)?;
        let controllers = fs::read_to_string(unified.join("cgroup.controllers")).unwrap_or_default();
        let in_v2 = |controller: &str| controllers.split_whitespace().any(|name| name == controller);
        let in_v1 = |controller: &str| {
            let has = |row: &&Vec<&str>| {
                row.get(2) == Some(&"cgroup") && row[3].split(',').any(|option| option == controller)
            };
            rows.iter().find(has).map(|row| PathBuf::from(row[1]))
        };
        let memory_v1 =
            if in_v2("memory") { None } else { Some(in_v1("memory").ok_or(CgroupError::NoMemory)?) };
        let cpu = if in_v2("cpu") { Some(CpuController::V2) } else { in_v1("cpu").map(CpuController::V1) };
        Ok(Self { unified, memory_v1, cpu })
    }

    pub(crate) fn unified(&self) -> &Path {
        &self.unified
    }

    pub(crate) fn cpu(&self) -> Option<&CpuController> {
        self.cpu.as_ref()
    }

    fn roots(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.unified).chain(&self.memory_v1)
    }
}

/// The group of a node: parent of its jobs' groups, and their limit.
#[derive(Debug)]
pub struct NodeCgroup {
    hierarchies: Hierarchies,
    name: String,
    checkpointers: PathBuf,
}

impl NodeCgroup {
    /// Makes the group in every hierarchy; `memory` limits all jobs of the node together.
    ///
    /// # Errors
    /// [`CgroupError`]
    pub fn create(hierarchies: Hierarchies, name: &str, memory: Option<Bytes>) -> Result<Self, CgroupError> {
        let checkpointers = hierarchies.unified.join(CHECKPOINTERS).join(name);
        let node = Self { hierarchies, name: name.to_string(), checkpointers };
        make_dir(&node.checkpointers)?;
        for root in node.hierarchies.roots() {
            make_dir(&root.join(PARENT).join(name))?;
        }
        if node.hierarchies.memory_v1.is_none() {
            for dir in
                [node.hierarchies.unified.clone(), node.hierarchies.unified.join(PARENT), node.unified()]
            {
                write(&dir.join("cgroup.subtree_control"), "+memory")?;
            }
        }
        if let Some(limit) = memory {
            let file =
                if node.hierarchies.memory_v1.is_some() { "memory.limit_in_bytes" } else { "memory.max" };
            write(&node.memory().join(file), &limit.0.to_string())?;
        }
        Ok(node)
    }

    /// The group of those that dump the node's jobs.
    #[must_use]
    pub fn checkpointers(&self) -> &Path {
        &self.checkpointers
    }

    fn unified(&self) -> PathBuf {
        self.hierarchies.unified.join(PARENT).join(&self.name)
    }

    fn memory(&self) -> PathBuf {
        self.hierarchies.memory_v1.as_ref().unwrap_or(&self.hierarchies.unified).join(PARENT).join(&self.name)
    }

    /// What is charged to all jobs of the node at this moment.
    ///
    /// # Errors
    /// [`CgroupError::File`]
    pub fn used(&self) -> Result<Bytes, CgroupError> {
        charged(&self.memory(), self.hierarchies.memory_v1.is_some())
    }

    /// As [`NodeCgroup::used`], with what each job that has a group holds, and how long they have stalled.
    ///
    /// # Errors
    /// [`CgroupError::File`]
    pub fn memory_use(&self) -> Result<MemoryUse, CgroupError> {
        let version_1 = self.hierarchies.memory_v1.is_some();
        let job_of = |dir: &Path| dir.file_name()?.to_str()?.strip_prefix("job-")?.parse().ok().map(JobId);
        let groups = sub_groups(&self.memory());
        // A group that goes away meanwhile holds nothing.
        let held = groups.iter().filter_map(|dir| working_set::of(job_of(dir)?, dir, version_1));
        let mut jobs: Vec<_> = held.collect();
        jobs.sort_unstable_by_key(|held| held.job);
        Ok(MemoryUse { used: self.used()?, stall: working_set::stall(&self.unified()), jobs })
    }

    /// Makes the group of one job.
    ///
    /// # Errors
    /// [`CgroupError::File`]
    pub fn job(&self, name: &str) -> Result<JobCgroup, CgroupError> {
        let (unified, memory) = (self.unified().join(name), self.memory().join(name));
        make_dir(&unified)?;
        make_dir(&memory)?;
        Ok(JobCgroup { unified, memory, version_1: self.hierarchies.memory_v1.is_some() })
    }

    /// Kills every process of a job, whose group may have gone already; does not wait.
    pub fn kill_job(&self, name: &str) {
        let _ = write(&self.unified().join(name).join("cgroup.kill"), "1");
    }

    /// Kills whatever is in the groups of a node and removes them; the daemon of that node may be long dead.
    ///
    /// # Errors
    /// [`CgroupError`]
    pub fn destroy(hierarchies: &Hierarchies, name: &str, limit: Duration) -> Result<(), CgroupError> {
        cpu_group::remove(hierarchies);
        let checkpointers = hierarchies.unified.join(CHECKPOINTERS);
        kill_and_remove(&checkpointers.join(name), limit)?;
        // As the parents below.
        let _ = fs::remove_dir(checkpointers);
        for root in hierarchies.roots() {
            let node = root.join(PARENT).join(name);
            for job in sub_groups(&node) {
                kill_and_remove(&job, limit)?;
            }
            remove_dir(&node)?;
            // The parent belongs to every coswitch on the machine: it goes when the last of them has gone.
            let _ = fs::remove_dir(root.join(PARENT));
        }
        Ok(())
    }

    /// The names of all node groups on this machine.
    #[must_use]
    pub fn list(hierarchies: &Hierarchies) -> Vec<String> {
        let mut names: Vec<String> = hierarchies
            .roots()
            .map(|root| root.join(PARENT))
            .chain([hierarchies.unified.join(CHECKPOINTERS)])
            .flat_map(|parent| sub_groups(&parent))
            .filter_map(|dir| Some(dir.file_name()?.to_str()?.to_string()))
            .collect();
        names.sort();
        names.dedup();
        names
    }
}

/// The group of one job on one node.
#[derive(Clone, Debug)]
pub struct JobCgroup {
    unified: PathBuf,
    memory: PathBuf,
    version_1: bool,
}

impl JobCgroup {
    /// The files that a process writes its id to in order to enter.
    #[must_use]
    pub fn procs(&self) -> Vec<PathBuf> {
        let mut dirs = vec![&self.unified];
        if self.version_1 {
            dirs.push(&self.memory);
        }
        dirs.into_iter().map(|dir| dir.join("cgroup.procs")).collect()
    }

    /// The directory that CRIU needs to know of (`freeze_cgroup`).
    #[must_use]
    pub fn freezer(&self) -> &Path {
        &self.unified
    }

    /// Every process in the group.
    ///
    /// # Errors
    /// [`CgroupError::File`]
    pub fn pids(&self) -> Result<Vec<i32>, CgroupError> {
        pids(&self.unified)
    }

    /// The processor time that the group has had, while CRIU is at work in it; `None` where it is not.
    pub(crate) fn used_by_criu(&self) -> Option<Duration> {
        let is_criu = |pid: &i32| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == "criu")
        };
        self.pids().ok()?.iter().find(|pid| is_criu(pid))?;
        let text = fs::read_to_string(self.unified.join("cpu.stat")).ok()?;
        let used = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
        used.parse().ok().map(Duration::from_micros)
    }

    /// What is charged to the job on this node at this moment.
    ///
    /// # Errors
    /// [`CgroupError::File`]
    pub fn used(&self) -> Result<Bytes, CgroupError> {
        charged(&self.memory, self.version_1)
    }

    /// What of it is shared memory, such as the segment.
    ///
    /// # Errors
    /// [`CgroupError::File`]
    pub(crate) fn shared(&self) -> Result<Bytes, CgroupError> {
        let path = self.memory.join("memory.stat");
        let text = fs::read_to_string(&path).map_err(|error| CgroupError::File(path, error))?;
        let value = text.lines().find_map(|line| line.strip_prefix("shmem "));
        Ok(Bytes(value.and_then(|value| value.parse().ok()).unwrap_or(0)))
    }

    /// Whether the kernel has killed a process of the job for want of memory.
    pub(crate) fn was_out_of_memory(&self) -> bool {
        let file = if self.version_1 { "memory.oom_control" } else { "memory.events" };
        let text = fs::read_to_string(self.memory.join(file)).unwrap_or_default();
        let killed = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        killed.is_some_and(|count| count.trim() != "0")
    }

    /// Has the kernel give back what is charged to the group and can be had again: clean pages, and those that are in
    /// swap already.
    ///
    /// # Errors
    /// [`CgroupError::File`]
    pub fn reclaim(&self) -> Result<(), CgroupError> {
        let (file, text) = match self.version_1 {
            true => ("memory.force_empty", "0".to_string()),
            false => ("memory.reclaim", self.used()?.0.to_string()),
        };
        match write(&self.memory.join(file), &text) {
            // Not all of it, or a signal came in between.
            Err(CgroupError::File(_, error))
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
            {
                Ok(())
            }
            result => result,
        }
    }

    /// Freezes and waits until it is so. Blocks for up to `limit`; on a time-out the group is thawed again.
    ///
    /// # Errors
    /// [`CgroupError`]
    pub fn freeze(&self, limit: Duration) -> Result<(), CgroupError> {
        write(&self.unified.join("cgroup.freeze"), "1")?;
        let frozen = self.wait_event("frozen 1", "freezing the ranks", limit);
        if frozen.is_err() {
            self.thaw()?;
        }
        frozen
    }

    /// Lets the processes run again.
    ///
    /// # Errors
    /// [`CgroupError::File`]
    pub fn thaw(&self) -> Result<(), CgroupError> {
        write(&self.unified.join("cgroup.freeze"), "0")
    }

    /// Waits until no process is in the group.
    ///
    /// # Errors
    /// [`CgroupError`]
    pub fn wait_empty(&self, limit: Duration) -> Result<(), CgroupError> {
        self.wait_event("populated 0", "ending the processes", limit)
    }

    /// Kills every process in the group, frozen or not; does not wait.
    ///
    /// # Errors
    /// [`CgroupError::File`]
    pub fn kill(&self) -> Result<(), CgroupError> {
        write(&self.unified.join("cgroup.kill"), "1")
    }

    /// Removes the group, once empty.
    ///
    /// # Errors
    /// [`CgroupError`]
    pub fn remove(&self) -> Result<(), CgroupError> {
        remove_dir(&self.unified)?;
        if self.version_1 { remove_dir(&self.memory) } else { Ok(()) }
    }

    fn wait_event(&self, line: &str, what: &'static str, limit: Duration) -> Result<(), CgroupError> {
        let path = self.unified.join("cgroup.events");
        let failed = |error| CgroupError::File(path.clone(), error);
        let began = Instant::now();
        let mut file = fs::File::open(&path).map_err(failed)?;
        loop {
            let mut text = String::new();
            io::Seek::rewind(&mut file).map_err(failed)?;
            io::Read::read_to_string(&mut file, &mut text).map_err(failed)?;
            if text.lines().any(|found| found == line) {
                return Ok(());
            }
            let left = limit.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(CgroupError::TimeOut { what, limit });
            }
            // The kernel notifies each change by POLLPRI; the short time-out only guards against a missed one.
            let nap =
                PollTimeout::try_from(left.min(Duration::from_millis(100))).unwrap_or(PollTimeout::ZERO);
            let _ = poll(&mut [PollFd::new(file.as_fd(), PollFlags::POLLPRI)], nap);
        }
    }
}

fn pids(dir: &Path) -> Result<Vec<i32>, CgroupError> {
    let path = dir.join("cgroup.procs");
    let text = fs::read_to_string(&path).map_err(|error| CgroupError::File(path, error))?;
    Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
}

pub(crate) fn charged(dir: &Path, version_1: bool) -> Result<Bytes, CgroupError> {
    let path = dir.join(if version_1 { "memory.usage_in_bytes" } else { "memory.current" });
    let text = fs::read_to_string(&path).map_err(|error| CgroupError::File(path.clone(), error))?;
    let value = text.trim().parse();
    value
        .map(Bytes)
        .map_err(|error| CgroupError::File(path, io::Error::new(io::ErrorKind::InvalidData, error)))
}

fn sub_groups(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

pub(crate) fn make_dir(dir: &Path) -> Result<(), CgroupError> {
    // Another node may remove the parent, empty until then, at the same time.
    let once = || fs::create_dir_all(dir);
    let result =
        once().or_else(|error| if error.kind() == io::ErrorKind::NotFound { once() } else { Err(error) });
    result.map_err(|error| CgroupError::File(dir.to_path_buf(), error))
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), CgroupError> {
    let result =
        fs::OpenOptions::new().write(true).open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    result.map_err(|error| CgroupError::File(path.to_path_buf(), error))
}

/// Also succeeds where the directory has gone already.
pub(crate) fn remove_dir(dir: &Path) -> Result<(), CgroupError> {
    match fs::remove_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(CgroupError::File(dir.to_path_buf(), error))
        }
        _ => Ok(()),
    }
}

fn kill_and_remove(dir: &Path, limit: Duration) -> Result<(), CgroupError> {
    let began = Instant::now();
    loop {
        for pid in pids(dir).unwrap_or_default() {
            let _ =
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
        }
        match remove_dir(dir) {
            Ok(()) => return Ok(()),
            Err(error) if began.elapsed() > limit => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}
