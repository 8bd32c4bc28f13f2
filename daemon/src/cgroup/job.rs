//! The control group of one job on one node: freezing, killing, and its memory account.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use coswitch_policies::Bytes;

use super::{
    files::{self, CgroupError, write},
    memory::MemoryGroup,
    stopper::{FREEZE, Stopper},
};

/// For the child of a `vfork` to execute its program.
const FORK_TIME: Duration = Duration::from_millis(1);
/// The system calls that wait for the child where they are asked to.
const FORKS: [i64; 3] = [libc::SYS_vfork, libc::SYS_clone, libc::SYS_clone3];

#[derive(Clone, Debug)]
pub struct JobCgroup {
    /// In version 2.
    freezer: PathBuf,
    memory: MemoryGroup,
    /// Counts processes, where it is another one.
    processes: Option<PathBuf>,
}

impl JobCgroup {
    pub(super) fn create(
        freezer: PathBuf,
        memory: MemoryGroup,
        processes: Option<PathBuf>,
    ) -> Result<Self, CgroupError> {
        let group = Self { freezer, memory, processes };
        group.dirs().try_for_each(files::make_dir)?;
        Ok(group)
    }

    fn dirs(&self) -> impl Iterator<Item = &Path> {
        let memory = self.memory.is_version_1().then(|| self.memory.dir());
        std::iter::once(self.freezer.as_path()).chain(memory).chain(self.processes.as_deref())
    }

    /// The files that a process writes its id to in order to enter the group.
    pub fn procs(&self) -> Vec<PathBuf> {
        self.dirs().map(|dir| dir.join("cgroup.procs")).collect()
    }

    /// Bounds the number of processes and threads in the group, where the kernel can.
    pub(crate) fn limit_processes(&self, most: u32) -> Result<(), CgroupError> {
        let file = self.processes.as_ref().unwrap_or(&self.freezer).join("pids.max");
        if file.exists() { write(&file, &most.to_string()) } else { Ok(()) }
    }

    /// The directory for CRIU's option `freeze_cgroup`.
    pub fn freezer(&self) -> &Path {
        &self.freezer
    }

    /// Every process in the group.
    pub fn pids(&self) -> Result<Vec<i32>, CgroupError> {
        files::pids(&self.freezer)
    }

    /// The processor time of the group while CRIU works in it; `None` where CRIU is not there.
    pub(crate) fn used_by_criu(&self) -> Option<Duration> {
        let is_criu = |pid: &i32| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == "criu")
        };
        self.pids().ok()?.iter().find(|pid| is_criu(pid))?;
        self.stopper().ok()?.processor_time()
    }

    /// The number of the group, which no later one has, and the processor time that it has counted.
    pub(crate) fn processed(&self) -> Option<(u64, Duration)> {
        let group = fs::metadata(&self.freezer).ok()?.ino();
        Some((group, self.stopper().ok()?.processor_time()?))
    }

    /// A handle with open files, which stops the processes and lets them run within microseconds.
    pub(crate) fn stopper(&self) -> Result<Stopper, CgroupError> {
        Stopper::open(&self.freezer)
    }

    /// The bytes charged to the job on this node now.
    pub fn used(&self) -> Result<Bytes, CgroupError> {
        self.memory.used()
    }

    /// The same without caches of files, and with what is in swap; takes longer to read.
    pub(crate) fn working_set(&self) -> Bytes {
        self.memory.working_set().unwrap_or_default()
    }

    /// The shared memory in it, such as the segment.
    pub(crate) fn shared(&self) -> Result<Bytes, CgroupError> {
        self.memory.shared()
    }

    /// Whether the kernel has killed a process of the job for want of memory.
    pub(crate) fn was_out_of_memory(&self) -> bool {
        self.memory.was_out_of_memory()
    }

    /// Makes the kernel free the pages that it can read back: clean ones, and those with a copy in swap.
    pub fn reclaim(&self) -> Result<(), CgroupError> {
        self.memory.reclaim()
    }

    /// Freezes the processes and blocks until they are frozen. After a time-out the group is thawed again.
    pub fn freeze(&self, limit: Duration) -> Result<(), CgroupError> {
        write(&self.freezer.join(FREEZE), "1")?;
        let frozen = files::wait_event(&self.freezer, "frozen 1", "freezing the ranks", limit);
        if frozen.is_err() {
            self.thaw()?;
        }
        frozen
    }

    /// As [`JobCgroup::freeze`], at an instant in which no thread waits in `vfork`. CRIU cannot stop that
    /// thread: it waits for its child, which is stopped already.
    pub fn freeze_between_forks(&self, limit: Duration) -> Result<(), CgroupError> {
        let deadline = Instant::now() + limit;
        loop {
            self.freeze(deadline.saturating_duration_since(Instant::now()))?;
            if !self.pids()?.into_iter().any(waits_for_child) {
                return Ok(());
            }
            self.thaw()?;
            if Instant::now() >= deadline {
                return Err(CgroupError::TimeOut { what: "waiting for the end of a `vfork`", limit });
            }
            thread::sleep(FORK_TIME);
        }
    }

    pub fn thaw(&self) -> Result<(), CgroupError> {
        write(&self.freezer.join(FREEZE), "0")
    }

    /// Blocks until no process is in the group.
    pub fn wait_empty(&self, limit: Duration) -> Result<(), CgroupError> {
        files::wait_event(&self.freezer, "populated 0", "ending the processes", limit)
    }

    /// Kills every process in the group, frozen or not; does not wait.
    pub fn kill(&self) -> Result<(), CgroupError> {
        write(&self.freezer.join("cgroup.kill"), "1")
    }

    /// Removes the group, which must be empty.
    pub fn remove(&self) -> Result<(), CgroupError> {
        self.dirs().try_for_each(files::remove_dir)
    }
}

/// Whether a thread of a frozen process is in a system call that makes a child, and so may wait for it.
fn waits_for_child(process: i32) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    threads.into_iter().any(|thread| {
        let call = fs::read_to_string(thread.path().join("syscall")).unwrap_or_default();
        let number = call.split_whitespace().next().and_then(|number| number.parse().ok());
        number.is_some_and(|number: i64| FORKS.contains(&number))
    })
}
