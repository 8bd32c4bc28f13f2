//! The weight of a rank against the others that want its processor: the actuator of the node scheduler.
//!
//! The kernel compares weights inside one scheduling group, and all ranks and daemons of a processor share
//! one ([`daemons`](crate::cgroup)). A rank leads a session, and with it a process group: one call sets the
//! weight of all of its threads and children.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    unistd::{Pid, getpgid},
};

use crate::{children::open_pidfd, processors::set_nice};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    /// That of every process which says nothing else, and of the daemon.
    Usual,
    /// The least: 15 against 1024.
    Least,
}

impl Weight {
    const fn nice(self) -> i32 {
        match self {
            Self::Usual => 0,
            Self::Least => 19,
        }
    }
}

/// What has one weight: a rank's process group, or the first thread of a local task.
#[derive(Debug)]
pub(super) struct Group {
    which: libc::__priority_which_t,
    id: Pid,
    /// Of the process: when that has ended, other processes may get the group's id.
    process: OwnedFd,
}

impl Group {
    /// Of the rank with this process.
    pub(super) fn of(process: Pid) -> io::Result<Self> {
        let fd = open_pidfd(process.as_raw())?;
        Ok(Self { which: libc::PRIO_PGRP, id: getpgid(Some(process))?, process: fd })
    }

    /// Of this process, without its children: each of them is a task of its own.
    pub(super) fn of_one(process: Pid) -> io::Result<Self> {
        Ok(Self { which: libc::PRIO_PROCESS, id: process, process: open_pidfd(process.as_raw())? })
    }

    /// Sets the weight of all its threads. False where the process has ended.
    pub(super) fn set(&self, weight: Weight) -> io::Result<bool> {
        if self.has_ended()? {
            return Ok(false);
        }
        set_nice(self.which, self.id, weight.nice())
    }

    pub(super) fn has_ended(&self) -> io::Result<bool> {
        Ok(poll(&mut [PollFd::new(self.process.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO)? > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::CommandExt, process::Command};

    use super::*;

    fn nice(process: u32) -> i32 {
        // SAFETY: a system call with plain integers; the process is this test's child.
        unsafe { libc::getpriority(libc::PRIO_PROCESS, process) }
    }

    #[test]
    fn a_rank_and_its_children_get_the_weight_and_no_other_process() {
        let mut rank = Command::new("/bin/sh");
        let mut rank = rank.args(["-c", "sleep 60 & sleep 60"]).process_group(0).spawn().unwrap();
        let group = Group::of(Pid::from_raw(rank.id().cast_signed())).unwrap();
        let before = nice(0);
        assert!(group.set(Weight::Least).unwrap());
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", rank.id())).unwrap();
        let all = children.split_whitespace().map(|child| child.parse().unwrap()).chain([rank.id()]);
        assert!(all.map(nice).all(|nice| nice == 19), "{children}");
        assert_eq!(nice(0), before);
        group.set(Weight::Usual).unwrap();
        assert_eq!(nice(rank.id()), 0);
        nix::sys::signal::killpg(group.id, nix::sys::signal::Signal::SIGKILL).unwrap();
        rank.wait().unwrap();
        assert!(!group.set(Weight::Least).unwrap());
    }
}
