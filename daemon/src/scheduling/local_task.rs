//! Local tasks: the processes of a job that does not use MPI, as the node scheduler sees them.
//!
//! A job whose ranks have not begun to use MPI after a while is one of local tasks, until one of them does.
//! The kernel says whether a process wants a processor.

use std::{fs::File, io, os::unix::fs::FileExt, time::Duration};

use coswitch_policies::local::{TaskEvent, TaskId};
use nix::unistd::Pid;

use super::{
    measure::Meter,
    weight::{Group, Weight},
};
use crate::proc_text::{WANTS_PROCESSOR, state};

/// A rank that uses MPI does so after this time.
pub(super) const BEGINS_WITHIN: Duration = Duration::from_secs(1);
/// Further processes of a node are left to the kernel: each costs a look every millisecond.
pub(super) const COUNT_MAX: usize = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct LocalTask {
    pub(super) task: TaskId,
    pub(super) process: Pid,
    group: Group,
    stat: File,
    meter: Meter,
    is_ready: bool,
    /// As it was set last.
    weight: Option<Weight>,
}

/// What has become of it.
#[derive(Debug, PartialEq)]
pub(super) enum Look {
    Stays(Option<TaskEvent>),
    HasEnded,
}

impl LocalTask {
    /// One that the scheduler has just heard of: it is ready.
    pub(super) fn of(task: TaskId, process: Pid) -> io::Result<Self> {
        let group = Group::of_one(process)?;
        let stat = File::open(format!("/proc/{process}/stat"))?;
        let meter = Meter::start(process, 0)?;
        Ok(Self { task, process, group, stat, meter, is_ready: true, weight: None })
    }

    pub(super) fn look(&mut self) -> Look {
        let task = self.task;
        let Some(state) = self.state() else { return Look::HasEnded };
        let was_ready = std::mem::replace(&mut self.is_ready, state == WANTS_PROCESSOR);
        Look::Stays(match (was_ready, self.is_ready) {
            (true, false) => Some(TaskEvent::Blocked { task }),
            (false, true) => Some(TaskEvent::Unblocked { task }),
            _ => None,
        })
    }

    /// What it has used; `None` where it has ended.
    pub(super) fn measure(&self) -> Option<TaskEvent> {
        Some(TaskEvent::Measured { task: self.task, usage: self.meter.usage(0).ok()? })
    }

    /// `None` where it has ended, which a zombie has too.
    fn state(&self) -> Option<char> {
        let mut text = [0; 128];
        let length = self.stat.read_at(&mut text, 0).ok()?;
        state(&String::from_utf8_lossy(&text[..length])).filter(|state| !['Z', 'X'].contains(state))
    }

    /// Sets the weight of all its threads. False where it has ended.
    pub(super) fn set(&mut self, weight: Weight) -> io::Result<bool> {
        if self.weight.replace(weight) == Some(weight) { Ok(true) } else { self.group.set(weight) }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    const TASK: TaskId = TaskId(4);

    fn look_until(local: &mut LocalTask, wanted: &Look) {
        let found = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            local.look() == *wanted
        });
        assert!(found, "{wanted:?}");
    }

    #[test]
    fn a_process_is_away_while_it_sleeps_ready_while_it_computes_and_ends() {
        let script = "sleep 0.3; timeout 0.5 sh -c 'while :; do :; done'; exec sh -c 'while :; do :; done'";
        let mut process = Command::new("sh").args(["-c", script]).stdin(Stdio::null()).spawn().unwrap();
        let pid = Pid::from_raw(process.id().cast_signed());
        let mut local = LocalTask::of(TASK, pid).unwrap();
        look_until(&mut local, &Look::Stays(Some(TaskEvent::Blocked { task: TASK })));
        look_until(&mut local, &Look::Stays(Some(TaskEvent::Unblocked { task: TASK })));
        process.kill().unwrap();
        look_until(&mut local, &Look::HasEnded);
        process.wait().unwrap();
        assert_eq!(local.look(), Look::HasEnded);
        assert!(!local.set(Weight::Usual).unwrap());
    }
}
