//! Memory account of one control group, in either version: use, working set, reclaim.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use coswitch_policies::{Bytes, JobId};
use tracing::warn;

use super::files::{self, CgroupError};
use crate::{proc_text::counter, protocol::JobMemory};

#[derive(Clone, Debug)]
pub(super) struct MemoryGroup {
    dir: PathBuf,
    version_1: bool,
}

impl MemoryGroup {
    pub(super) fn at(dir: PathBuf, version_1: bool) -> Self {
        Self { dir, version_1 }
    }

    pub(super) fn below(&self, name: &str) -> Self {
        Self::at(self.dir.join(name), self.version_1)
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn is_version_1(&self) -> bool {
        self.version_1
    }

    fn file(&self, version_1: &str, version_2: &str) -> PathBuf {
        self.dir.join(if self.version_1 { version_1 } else { version_2 })
    }

    fn stat(&self) -> Result<String, CgroupError> {
        files::read(&self.dir.join("memory.stat"))
    }

    pub(super) fn limit(&self, limit: Bytes) -> Result<(), CgroupError> {
        files::write(&self.file("memory.limit_in_bytes", "memory.max"), &limit.0.to_string())
    }

    /// The bytes charged to the group now.
    pub(super) fn used(&self) -> Result<Bytes, CgroupError> {
        let path = self.file("memory.usage_in_bytes", "memory.current");
        let value = files::read(&path)?.trim().parse().map(Bytes);
        value.map_err(|error| CgroupError::File(path, io::Error::new(io::ErrorKind::InvalidData, error)))
    }

    /// The shared memory in it, such as the segment.
    pub(super) fn shared(&self) -> Result<Bytes, CgroupError> {
        Ok(Bytes(counter(&self.stat()?, "shmem").unwrap_or(0)))
    }

    /// The account of each job below the group of a node, by job.
    pub(super) fn jobs(&self) -> Vec<JobMemory> {
        let job_of = |dir: &Path| dir.file_name()?.to_str()?.strip_prefix("job-")?.parse().ok().map(JobId);
        let groups = files::sub_groups(&self.dir).into_iter();
        // A group that is removed meanwhile uses no memory.
        let mut jobs: Vec<_> =
            groups.filter_map(|dir| Self::at(dir.clone(), self.version_1).of_job(job_of(&dir)?)).collect();
        jobs.sort_unstable_by_key(|memory| memory.job);
        jobs
    }

    /// The working set of the group of a job; `None` where that has been removed.
    pub(super) fn working_set(&self) -> Option<Bytes> {
        self.of_job(JobId(0)).map(|memory| memory.held)
    }

    /// `None` where the group has been removed.
    fn of_job(&self, job: JobId) -> Option<JobMemory> {
        let (used, stat) = (self.used().ok()?, self.stat().ok()?);
        let swapped = if self.version_1 {
            counter(&stat, "swap")
        } else {
            fs::read_to_string(self.dir.join("memory.swap.current"))
                .ok()
                .and_then(|text| text.trim().parse().ok())
        };
        let swapped = swapped.unwrap_or(0);
        let held = working_set(used, &stat, swapped);
        let major_faults = counter(&stat, "pgmajfault").unwrap_or(0);
        Some(JobMemory { job, used, held, swapped: Bytes(swapped), major_faults })
    }

    /// Whether the kernel has killed a process of the group for want of memory.
    pub(super) fn was_out_of_memory(&self) -> bool {
        let text = fs::read_to_string(self.file("memory.oom_control", "memory.events")).unwrap_or_default();
        counter(&text, "oom_kill").is_some_and(|count| count > 0)
    }

    /// Whether a process that finds no memory in the group waits, and whether one does so now. `None` where
    /// the kernel leaves no choice.
    pub(super) fn waits_for_memory(&self) -> Option<(bool, bool)> {
        let text = self.version_1.then(|| files::read(&self.dir.join("memory.oom_control")).ok())??;
        let is_set = |name| counter(&text, name).is_some_and(|value| value > 0);
        Some((is_set("oom_kill_disable"), is_set("under_oom")))
    }

    /// See [`Self::waits_for_memory`].
    pub(super) fn wait_for_memory(&self, waits: bool) {
        if let Err(error) = files::write(&self.dir.join("memory.oom_control"), if waits { "1" } else { "0" })
        {
            warn!(%error, waits, "what follows where memory is used up could not be set");
        }
    }

    /// Makes the kernel free the pages that it can read back: clean ones, and those with a copy in swap.
    pub(super) fn reclaim(&self) -> Result<(), CgroupError> {
        let text = if self.version_1 { "0".to_string() } else { self.used()?.0.to_string() };
        match files::write(&self.file("memory.force_empty", "memory.reclaim"), &text) {
            // Some pages stay, or a signal interrupted the call.
            Err(CgroupError::File(_, error))
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
            {
                Ok(())
            }
            result => result,
        }
    }
}

/// How long processes of the group `dir`, of version 2, have stalled for memory since it was made.
pub(super) fn stall(dir: &Path) -> Option<Duration> {
    total_stall(&fs::read_to_string(dir.join("memory.pressure")).ok()?)
}

/// The working set: all that is charged, without caches of files, which the kernel drops before it swaps, and
/// with the pages that are in swap already.
fn working_set(used: Bytes, stat: &str, swapped: u64) -> Bytes {
    // `shmem` is not on the file lists.
    let caches = ["inactive_file", "active_file"].map(|list| counter(stat, list).unwrap_or(0));
    Bytes(used.0.saturating_sub(caches.iter().sum()) + swapped)
}

fn total_stall(pressure: &str) -> Option<Duration> {
    let some = pressure.lines().find(|line| line.starts_with("some "))?;
    some.rsplit_once("total=")?.1.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_working_set_excludes_file_caches_and_includes_swap() {
        let stat = "cache 700\nswap 40\ninactive_file 100\nactive_file 200\ntotal_active_file 900\n";
        assert_eq!(working_set(Bytes(1000), stat, 40), Bytes(740));
        assert_eq!(working_set(Bytes(250), stat, 0), Bytes(0), "counters are not read at one instant");
    }

    #[test]
    fn the_stall_is_the_total_of_the_line_some() {
        let pressure = "some avg10=0.00 avg60=0.00 avg300=0.00 total=45\nfull avg10=0.00 total=7\n";
        assert_eq!(total_stall(pressure), Some(Duration::from_micros(45)));
        assert_eq!(total_stall(""), None);
    }
}
