//! Processes of a tree: lists them, reads their states, resumes them and waits until they are gone.
//!
//! Processes are named by their ids and read from `/proc`. That is safe for a tree whose root is our child:
//! the root keeps its id until we reap it, and its descendants cannot end and be replaced while they are
//! frozen or stopped.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// Runs, sleeps, or is frozen by its cgroup.
    Alive,
    /// Stopped by a signal.
    Stopped,
    /// Ended and not reaped.
    Zombie,
    /// There is no process with that id.
    Gone,
}

impl ProcessState {
    /// Whether the process has memory and may run.
    pub fn is_live(self) -> bool {
        matches!(self, ProcessState::Alive | ProcessState::Stopped)
    }
}

/// Processes that should have ended, or stopped, in that time and did not.
#[derive(Debug, thiserror::Error)]
#[error("processes {pids:?} are still there, or still run, after {} ms", .waited.as_millis())]
pub struct StillThere {
    pub pids: Vec<i32>,
    pub waited: Duration,
}
pub fn state(pid: Pid) -> ProcessState {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The process's name precedes the state, in parentheses, and may hold any character.
    match stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()) {
        None => ProcessState::Gone,
        Some('Z' | 'X') => ProcessState::Zombie,
        Some('T' | 't') => ProcessState::Stopped,
        Some(_) => ProcessState::Alive,
    }
}

/// Lists the processes of the tree, zombies included: root first, each parent before its children.
pub fn tree(root: Pid) -> Vec<Pid> {
    let mut pids = vec![root];
    let mut next = 0;
    while let Some(&pid) = pids.get(next) {
        pids.extend(children(pid));
        next += 1;
    }
    pids
}

/// The ids of the process in its own PID namespace and in the enclosing ones, outermost first.
pub fn ids_in_namespaces(pid: Pid) -> Vec<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    line.split_whitespace().filter_map(|id| id.parse().ok()).collect()
}

/// Maps the id of each process in its own PID namespace to its id here.
pub fn by_own_id(pids: &[Pid]) -> BTreeMap<u32, Pid> {
    let own = |pid: &Pid| Some((u32::try_from(*ids_in_namespaces(*pid).last()?).ok()?, *pid));
    pids.iter().filter_map(own).collect()
}

/// Lets stopped processes go on: descendants first, because the root watches them.
pub fn resume(pids: &[Pid]) -> nix::Result<()> {
    for pid in pids.iter().rev() {
        kill(*pid, Signal::SIGCONT)?;
    }
    Ok(())
}

/// Waits until all live processes among them are stopped.
pub fn wait_stopped(pids: &[Pid], limit: Duration) -> Result<(), StillThere> {
    wait_until_none(limit, || pids.iter().copied().filter(|pid| state(*pid) == ProcessState::Alive).collect())
}

/// Waits until none of them has memory. Zombies count as gone; the caller reaps them.
pub fn wait_gone(pids: &[Pid], limit: Duration) -> Result<(), StillThere> {
    wait_until_none(limit, || pids.iter().copied().filter(|pid| state(*pid).is_live()).collect())
}

/// Waits until no live process is in the cgroup.
pub fn wait_cgroup_empty(cgroup: &Path, limit: Duration) -> Result<(), StillThere> {
    wait_until_none(limit, || {
        let members = in_cgroup(cgroup).unwrap_or_default();
        members.into_iter().filter(|pid| state(*pid).is_live()).collect()
    })
}

/// Lists the processes of a cgroup of either version.
pub fn in_cgroup(cgroup: &Path) -> io::Result<Vec<Pid>> {
    let text = fs::read_to_string(cgroup.join("cgroup.procs"))?;
    Ok(text.lines().filter_map(|line| line.parse().ok()).map(Pid::from_raw).collect())
}

/// Lists our children in a cgroup of version 2, including zombies, which [`in_cgroup`] leaves out.
pub(crate) fn children_in(cgroup: &Path) -> Vec<Pid> {
    let is_in = |pid: &Pid| {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let below = text.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        !below.is_empty() && cgroup.ends_with(below)
    };
    children(Pid::this()).into_iter().filter(is_in).collect()
}

/// The inodes that a process has mapped under that path, including files unlinked or replaced since.
pub fn mapped_inodes(pid: Pid, path: &Path) -> io::Result<Vec<u64>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let mut inodes: Vec<u64> = maps.lines().filter_map(|line| inode_of_mapping(line, path)).collect();
    inodes.dedup();
    Ok(inodes)
}

/// Decodes `address perms offset device inode path`, where the path may end in ` (deleted)`.
fn inode_of_mapping(line: &str, path: &Path) -> Option<u64> {
    let (head, mapped) = line.split_at(line.find('/')?);
    let mapped = mapped.strip_suffix(" (deleted)").unwrap_or(mapped);
    if Path::new(mapped) != path {
        return None;
    }
    head.split_whitespace().last()?.parse().ok()
}

fn children(pid: Pid) -> Vec<Pid> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let files = threads.filter_map(|thread| Some(thread.ok()?.path().join("children")));
    let lists = files.filter_map(|file| fs::read_to_string(file).ok());
    let ids: Vec<i32> =
        lists.flat_map(|list| list.split_whitespace().flat_map(str::parse).collect::<Vec<_>>()).collect();
    ids.into_iter().map(Pid::from_raw).collect()
}

fn wait_until_none(limit: Duration, mut left: impl FnMut() -> Vec<Pid>) -> Result<(), StillThere> {
    let deadline = Instant::now() + limit;
    loop {
        let pids = left();
        if pids.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(StillThere { pids: pids.into_iter().map(Pid::as_raw).collect(), waited: limit });
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_mapping_is_found_by_path_also_after_the_file_was_unlinked() {
        let line = "7f00-7f10 rw-s 00000000 00:1b 4242                     /dev/shm/ring one (deleted)";
        assert_eq!(inode_of_mapping(line, Path::new("/dev/shm/ring one")), Some(4242));
        assert_eq!(inode_of_mapping(line, Path::new("/dev/shm/ring")), None);
        assert_eq!(inode_of_mapping("7f00-7f10 rw-p 00000000 00:00 0 [heap]", Path::new("/x")), None);
    }

    #[test]
    fn a_process_is_alive_then_a_zombie_then_gone() {
        let mut child = Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap();
        let pid = Pid::from_raw(child.id() as i32);
        assert_eq!(state(pid), ProcessState::Alive);
        assert!(tree(Pid::this()).contains(&pid));
        let still = wait_gone(&[pid], Duration::from_millis(5)).unwrap_err();
        assert_eq!(still.pids, [pid.as_raw()]);
        child.kill().unwrap();
        wait_gone(&[pid], Duration::from_secs(10)).unwrap();
        assert_eq!(state(pid), ProcessState::Zombie);
        child.wait().unwrap();
        assert_eq!(state(pid), ProcessState::Gone);
    }
}
