//! Stops the processes of a group and lets them run, as often as slices need it: its files stay open.

use std::{
    fs::File,
    io::{Read, Seek},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::Duration,
};

use super::files::{CgroupError, open};
use crate::proc_text::{WANTS_PROCESSOR, counter, state};

pub(super) const FREEZE: &str = "cgroup.freeze";

/// See the module.
#[derive(Debug)]
pub(crate) struct Stopper {
    group: PathBuf,
    freeze: File,
    events: File,
    times: File,
    threads: File,
    /// The threads when they were looked at last, each on a line, and the stat file of each.
    listed: String,
    stats: Vec<File>,
}

impl Stopper {
    pub(super) fn open(group: &Path) -> Result<Self, CgroupError> {
        let freeze = open(&group.join(FREEZE), File::options().write(true))?;
        let readable = |name: &str| open(&group.join(name), File::options().read(true));
        Ok(Self {
            group: group.to_path_buf(),
            freeze,
            events: readable("cgroup.events")?,
            times: readable("cpu.stat")?,
            threads: readable("cgroup.threads")?,
            listed: String::new(),
            stats: Vec::new(),
        })
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
    ///
    /// That the kernel calls the group frozen is not enough. It counts a thread as frozen a few steps before
    /// the thread leaves its processor. It also still counts a thread as frozen that was let run but has had
    /// no processor since; that thread needs a processor to stop again.
    pub(crate) fn has_stopped(&mut self) -> bool {
        let is_frozen = read(&self.events).is_none_or(|text| text.lines().any(|line| line == "frozen 1"));
        is_frozen && !self.wants_processor()
    }

    /// Whether any thread is on a processor, or waits for one. None is where the group has gone.
    fn wants_processor(&mut self) -> bool {
        let mut threads = String::new();
        if self.threads.rewind().and_then(|()| self.threads.read_to_string(&mut threads)).is_err() {
            return false;
        }
        if threads != self.listed {
            let stat = |thread| File::open(format!("/proc/{thread}/stat")).ok();
            self.stats = threads.lines().filter_map(stat).collect();
            self.listed = threads;
        }
        self.stats.iter().any(|stat| read(stat).is_some_and(|text| state(&text) == Some(WANTS_PROCESSOR)))
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

#[cfg(test)]
mod tests {
    use std::{
        process::{self, Command, Stdio},
        thread,
        time::Instant,
    };

    use super::super::{Hierarchies, NodeCgroup, files};
    use super::*;

    /// Others keep all processors busy, so that some are stopped again before they have one.
    #[test]
    fn what_has_stopped_uses_no_processor_however_shortly_it_was_let_run() {
        let name = format!("stopper-test-{}", process::id());
        let node = NodeCgroup::create(Hierarchies::find().unwrap(), &name, None).unwrap();
        let group = node.job("job").unwrap();
        let computes = || {
            let mut shell = Command::new("sh");
            shell.args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap()
        };
        let processors = crate::processors::allowed().unwrap().len();
        let mut others: Vec<_> = (0..2 * processors).map(|_| computes()).collect();
        let mut own: Vec<_> = (0..2).map(|_| computes()).collect();
        for (process, file) in
            own.iter().flat_map(|own| group.procs().into_iter().map(move |file| (own, file)))
        {
            files::write(&file, &process.id().to_string()).unwrap();
        }
        let mut stopper = group.stopper().unwrap();
        let mut rounds = |count: u64| {
            let mut ran = 0;
            for round in 0..count {
                let before = stopper.processor_time()?;
                stopper.let_run().ok()?;
                thread::sleep(Duration::from_millis(round % 8));
                stopper.stop().ok()?;
                let began = Instant::now();
                while !stopper.has_stopped() && began.elapsed() < Duration::from_secs(10) {
                    thread::sleep(Duration::from_micros(20));
                }
                let used = stopper.processor_time()?;
                thread::sleep(Duration::from_millis(2));
                ran += u32::from(used > before);
                if stopper.processor_time()? != used {
                    return Some(Err(round));
                }
            }
            Some(Ok(ran))
        };
        let ran = rounds(200);
        others.iter_mut().chain(&mut own).for_each(|process| process.kill().unwrap());
        group.thaw().unwrap();
        others.iter_mut().chain(&mut own).for_each(|process| assert!(!process.wait().unwrap().success()));
        NodeCgroup::destroy(&Hierarchies::find().unwrap(), &name, Duration::from_secs(10)).unwrap();
        assert!(matches!(ran, Some(Ok(1..))), "{ran:?}");
    }
}
