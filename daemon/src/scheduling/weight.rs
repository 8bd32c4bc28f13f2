//! The weight of a rank against the others that want its processor: the actuator of the node scheduler.
//!
//! The kernel compares weights inside one scheduling group, and all ranks and daemons of a processor share
//! one ([`daemons`](crate::cgroup)). A rank leads a session, and with it a process group: one call sets the
//! weight of all threads and children of the rank. The kernel has no call for all threads of one process, so
//! the weight of a single process is set thread by thread.

use std::{
    collections::BTreeSet,
    fs, io,
    os::fd::{AsFd, OwnedFd},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    unistd::{Pid, getpgid},
};

use crate::{cgroup::JobCgroup, children::open_pidfd, processors::set_nice};

/// Threads are listed so often at most: a process may make threads all the time.
const LISTINGS_MAX: usize = 8;

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

/// What has one weight: a rank's process group, or a local task.
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
        match self.which {
            libc::PRIO_PROCESS => set_each(|| threads_of(self.id), weight),
            which => set_nice(which, self.id, weight.nice()),
        }
    }

    pub(super) fn has_ended(&self) -> io::Result<bool> {
        Ok(poll(&mut [PollFd::new(self.process.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO)? > 0)
    }
}

/// Sets the weight of all processes of a job.
pub(super) fn set_all(job: &JobCgroup, weight: Weight) -> io::Result<()> {
    let file = job.freezer().join("cgroup.threads");
    let threads = || -> Vec<Pid> {
        // There is none where the group has gone.
        let text = fs::read_to_string(&file).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).map(Pid::from_raw).collect()
    };
    set_each(threads, weight).map(drop)
}

/// Sets the weight of each thread of a list. A new thread has the weight of the thread that makes it, so the
/// threads are listed until there is no new one. False where there is none at all.
fn set_each(list: impl Fn() -> Vec<Pid>, weight: Weight) -> io::Result<bool> {
    let mut known = BTreeSet::new();
    let mut tried: io::Result<()> = Ok(());
    for _ in 0..LISTINGS_MAX {
        let new: Vec<Pid> = list().into_iter().filter(|thread| known.insert(*thread)).collect();
        if new.is_empty() {
            break;
        }
        for thread in new {
            // A thread that has just ended is no error, and an error of one thread keeps no other one back.
            tried = tried.and(set_nice(libc::PRIO_PROCESS, thread, weight.nice()).map(drop));
        }
    }
    tried.map(|()| !known.is_empty())
}

/// None where the process has ended.
fn threads_of(process: Pid) -> Vec<Pid> {
    let entries = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).map(Pid::from_raw).collect()
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Write},
        os::unix::process::CommandExt,
        process::{Command, Stdio},
        thread,
        time::Duration,
    };

    use super::*;
    use crate::cgroup::{Hierarchies, NodeCgroup};

    const THREADS: &str = "scheduling::weight::tests::all_threads_of_a_process_get_the_weight";
    /// Set for a process of this program that makes a thread for each line of its standard input.
    const MAKES_THREADS: &str = "COSWITCH_MAKES_THREADS";

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

    #[test]
    fn all_threads_of_a_process_get_the_weight() {
        if std::env::var_os(MAKES_THREADS).is_some() {
            return io::stdin().lines().for_each(|_| {
                thread::spawn(|| thread::sleep(Duration::from_secs(60)));
                io::stderr().write_all(b"made\n").unwrap();
            });
        }
        let mut other = Command::new(std::env::current_exe().unwrap());
        let other = other.args(["--exact", THREADS]).env(MAKES_THREADS, "").stdin(Stdio::piped());
        let mut other = other.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut asks = other.stdin.take().unwrap();
        let mut answers = BufReader::new(other.stderr.take().unwrap());
        let mut make_thread = || {
            asks.write_all(b"\n").unwrap();
            answers.read_line(&mut String::new()).unwrap() > 0
        };
        let process = Pid::from_raw(other.id().cast_signed());
        let weights = || -> BTreeSet<i32> {
            threads_of(process).into_iter().map(|thread| nice(thread.as_raw().cast_unsigned())).collect()
        };
        let group = Group::of_one(process).unwrap();
        assert!(make_thread() && threads_of(process).len() > 1);
        assert!(group.set(Weight::Least).unwrap());
        assert_eq!(weights(), BTreeSet::from([19]));
        assert!(make_thread());
        assert_eq!(weights(), BTreeSet::from([19]), "a new thread has the weight of the one that made it");
        assert!(group.set(Weight::Usual).unwrap());
        assert_eq!(weights(), BTreeSet::from([0]));
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(!group.set(Weight::Least).unwrap());
    }

    #[test]
    fn a_child_that_has_left_the_group_of_its_rank_gets_its_weight_back_with_the_whole_job() {
        let name = format!("weight-test-{}", std::process::id());
        let node = NodeCgroup::create(Hierarchies::find().unwrap(), &name, None).unwrap();
        let job = node.job("job").unwrap();
        let mut rank = Command::new("/bin/sh");
        let rank = rank.args(["-c", "read -r line; setsid sleep 60 & exec sleep 60"]).process_group(0);
        let mut rank = rank.stdin(Stdio::piped()).spawn().unwrap();
        job.procs().iter().for_each(|file| fs::write(file, rank.id().to_string()).unwrap());
        let group = Group::of(Pid::from_raw(rank.id().cast_signed())).unwrap();
        assert!(group.set(Weight::Least).unwrap());
        // From now on the rank has a child.
        drop(rank.stdin.take());
        let has_left = |pid: &i32| getpgid(Some(Pid::from_raw(*pid))).is_ok_and(|its| its != group.id);
        let child = (0..1000).find_map(|_| {
            thread::sleep(Duration::from_millis(10));
            job.pids().unwrap().into_iter().find(has_left)
        });
        let child_nice = || child.map(|child| nice(child.cast_unsigned()));
        group.set(Weight::Usual).unwrap();
        let missed = child_nice();
        set_all(&job, Weight::Usual).unwrap();
        let both = (child_nice(), nice(rank.id()));
        job.kill().unwrap();
        rank.wait().unwrap();
        NodeCgroup::destroy(&Hierarchies::find().unwrap(), &name, Duration::from_secs(10)).unwrap();
        assert_eq!(missed, Some(19), "it is in no group of a rank");
        assert_eq!(both, (Some(0), 0));
        assert!(set_all(&job, Weight::Usual).is_ok(), "nothing is left");
    }
}
