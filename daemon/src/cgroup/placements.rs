//! How often the kernel has put the threads of a group on a processor. Processor time does not tell whether
//! they have computed: it holds the end of stopping as well, with packets that the kernel handles just then
//! and with time for which a hypervisor takes the processor away.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
    time::{Duration, Instant},
};

/// Threads are looked for so often at most: that takes longer than to read what is known.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// More are not counted: that would take longer than a switch.
const THREADS_MAX: usize = 64;

/// The files of the threads that were found last.
#[derive(Debug, Default)]
pub(crate) struct Placements {
    threads: BTreeMap<u32, File>,
    looked: Option<Instant>,
}

impl Placements {
    /// Of the threads that are known. `None` where the kernel does not count it, or they are too many.
    pub(crate) fn count(&mut self, group: &Path) -> Option<u64> {
        if self.looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY) {
            let found = threads(group)?.into_iter().take(THREADS_MAX + 1);
            self.threads = found.filter_map(|thread| Some((thread, schedstat(thread)?))).collect();
            self.looked = Some(Instant::now());
        }
        let is_countable = (1..=THREADS_MAX).contains(&self.threads.len());
        is_countable.then(|| self.threads.values().map(placed).sum())?
    }

    /// How often threads of the group were put on a processor since there was this count. `None` where one is
    /// not known.
    pub(crate) fn since(&self, group: &Path, count: u64) -> Option<u64> {
        let are_known = threads(group)?.iter().all(|thread| self.threads.contains_key(thread));
        let now: u64 = self.threads.values().map(placed).sum::<Option<u64>>()?;
        are_known.then(|| now.saturating_sub(count))
    }
}

fn threads(group: &Path) -> Option<Vec<u32>> {
    let text = fs::read_to_string(group.join("cgroup.threads")).ok()?;
    text.lines().map(|line| line.parse().ok()).collect()
}

fn schedstat(thread: u32) -> Option<File> {
    File::open(format!("/proc/{thread}/schedstat")).ok()
}

/// The third number; see `Documentation/scheduler/sched-stats.rst` of Linux.
fn placed(schedstat: &File) -> Option<u64> {
    let mut text = [0; 128];
    let length = schedstat.read_at(&mut text, 0).ok()?;
    String::from_utf8_lossy(&text[..length]).split_ascii_whitespace().nth(2)?.parse().ok()
}
