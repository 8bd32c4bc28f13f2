//! Stops the processes of a group and lets them run, as often as slices need it: its files stay open.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::Duration,
};

use super::files::{CgroupError, open};
use crate::proc_text::counter;

pub(super) const FREEZE: &str = "cgroup.freeze";

/// See the module.
#[derive(Debug)]
pub(crate) struct Stopper {
    group: PathBuf,
    freeze: File,
    events: File,
    times: File,
}

impl Stopper {
    pub(super) fn open(group: &Path) -> Result<Self, CgroupError> {
        let freeze = open(&group.join(FREEZE), File::options().write(true))?;
        let readable = |name: &str| open(&group.join(name), File::options().read(true));
        let (events, times) = (readable("cgroup.events")?, readable("cpu.stat")?);
        Ok(Self { group: group.to_path_buf(), freeze, events, times })
    }

    /// Begins to stop the processes.
    pub(crate) fn stop(&self) -> Result<(), CgroupError> {
        self.write(b"1")
    }

    pub(crate) fn let_run(&self) -> Result<(), CgroupError> {
        self.write(b"0")
    }

    fn write(&self, text: &[u8]) -> Result<(), CgroupError> {
        self.freeze.write_all_at(text, 0).map_err(|error| CgroupError::File(self.group.join(FREEZE), error))
    }

    /// Whether all of the processes have stopped. Asking in a loop finds that out within microseconds; the
    /// kernel announces changes of `cgroup.events` at most once in 10 ms.
    pub(crate) fn has_stopped(&self) -> bool {
        read(&self.events).is_none_or(|text| text.lines().any(|line| line == "frozen 1"))
    }

    pub(crate) fn has_processes(&self) -> bool {
        read(&self.events).is_some_and(|text| text.lines().any(|line| line == "populated 1"))
    }

    /// The processor time of all processes so far, also of those that have ended.
    pub(crate) fn processor_time(&self) -> Option<Duration> {
        counter(&read(&self.times)?, "usage_usec").map(Duration::from_micros)
    }
}

/// The first lines of a small file; `None` where its group has gone.
fn read(file: &File) -> Option<String> {
    let mut text = [0; 256];
    let length = file.read_at(&mut text, 0).ok()?;
    Some(String::from_utf8_lossy(&text[..length]).into_owned())
}
