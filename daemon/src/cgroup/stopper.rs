//! Stops the processes of a group and lets them run, as often as slices need it: its files stay open.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::Duration,
};

use tracing::info;

use super::{
    files::{CgroupError, open},
    placements::Placements,
};
use crate::proc_text::counter;

/// What the kernel may still count of a process that it has said to stand still: the end of that, and packets
/// that it handles meanwhile.
const STOPPING: Duration = Duration::from_micros(100);
pub(super) const FREEZE: &str = "cgroup.freeze";

/// See the module.
#[derive(Debug)]
pub(crate) struct Stopper {
    group: PathBuf,
    freeze: File,
    events: File,
    times: File,
    placements: Placements,
}

/// What the processes had used at some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    processor_time: Duration,
    placements: Option<u64>,
}

impl Stopper {
    pub(super) fn open(group: &Path) -> Result<Self, CgroupError> {
        let freeze = open(&group.join(FREEZE), File::options().write(true))?;
        let readable = |name: &str| open(&group.join(name), File::options().read(true));
        let (events, times) = (readable("cgroup.events")?, readable("cpu.stat")?);
        Ok(Self { group: group.to_path_buf(), freeze, events, times, placements: Placements::default() })
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

    fn has_processes(&self) -> bool {
        read(&self.events).is_some_and(|text| text.lines().any(|line| line == "populated 1"))
    }

    /// The processor time of all processes so far, also of those that have ended.
    pub(crate) fn processor_time(&self) -> Option<Duration> {
        counter(&read(&self.times)?, "usage_usec").map(Duration::from_micros)
    }

    /// For [`Self::computed_since`]. The processes have stopped.
    pub(crate) fn used(&mut self) -> Option<Used> {
        let processor_time = self.processor_time()?;
        Some(Used { processor_time, placements: self.placements.count(&self.group) })
    }

    /// The processor time of processes that should have stood still; none where they have, and where all have
    /// ended: they were ending.
    pub(crate) fn computed_since(&self, before: Used) -> Duration {
        let more = self.processor_time().unwrap_or_default().saturating_sub(before.processor_time);
        if more <= STOPPING || !self.has_processes() {
            return Duration::ZERO;
        }
        let placed = before.placements.and_then(|count| self.placements.since(&self.group, count));
        if placed == Some(0) {
            return Duration::ZERO;
        }
        info!(?more, ?placed, "processes have used a processor that were to stand still");
        more
    }
}

/// The first lines of a small file; `None` where its group has gone.
fn read(file: &File) -> Option<String> {
    let mut text = [0; 256];
    let length = file.read_at(&mut text, 0).ok()?;
    Some(String::from_utf8_lossy(&text[..length]).into_owned())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        process::{Child, Command, Stdio},
        thread,
        time::Instant,
    };

    use super::*;
    use crate::cgroup::Hierarchies;

    /// Processes that only compute, in a group of their own.
    struct Hogs {
        group: PathBuf,
        hogs: Vec<Child>,
    }

    impl Hogs {
        fn start() -> Self {
            let unified = Hierarchies::find().unwrap().unified().to_path_buf();
            let group = unified.join(format!("coswitch-stopper-{}", std::process::id()));
            fs::create_dir(&group).unwrap();
            let mut hogs = Self { group, hogs: Vec::new() };
            hogs.add();
            hogs
        }

        fn add(&mut self) {
            let program = "read enter; while :; do :; done";
            let hog = Command::new("sh").args(["-c", program]).stdin(Stdio::piped()).spawn().unwrap();
            fs::write(self.group.join("cgroup.procs"), hog.id().to_string()).unwrap();
            self.hogs.push(hog);
            drop(self.hogs.last_mut().unwrap().stdin.take());
        }
    }

    impl Drop for Hogs {
        fn drop(&mut self) {
            let _ = fs::write(self.group.join(FREEZE), "0");
            self.hogs.iter_mut().for_each(|hog| drop(hog.kill().and_then(|()| hog.wait())));
            fs::remove_dir(&self.group).unwrap();
        }
    }

    fn stop(stopper: &Stopper) {
        let began = Instant::now();
        stopper.stop().unwrap();
        while !stopper.has_stopped() {
            assert!(began.elapsed() < Duration::from_secs(10), "it has not stopped");
            thread::sleep(Duration::from_micros(50));
        }
    }

    fn run_for(stopper: &Stopper, time: Duration) {
        stopper.let_run().unwrap();
        thread::sleep(time);
        stop(stopper);
    }

    #[test]
    fn what_stands_still_has_not_computed_and_what_runs_or_comes_has() {
        let mut hogs = Hogs::start();
        let mut stopper = Stopper::open(&hogs.group).unwrap();
        for _ in 0..20 {
            run_for(&stopper, Duration::from_millis(5));
            let before = stopper.used().unwrap();
            assert!(before.placements.is_some_and(|placements| placements > 0), "{before:?}");
            thread::sleep(Duration::from_millis(5));
            assert_eq!(stopper.computed_since(before), Duration::ZERO);
        }
        let before = stopper.used().unwrap();
        run_for(&stopper, Duration::from_millis(300));
        assert!(stopper.computed_since(before) > STOPPING);
        // One that nobody knew when it was counted.
        let before = stopper.used().unwrap();
        stopper.let_run().unwrap();
        hogs.add();
        run_for(&stopper, Duration::from_millis(300));
        assert!(stopper.computed_since(before) > STOPPING);
    }
}
