//! Leftovers of a run: searches the machine for processes, cgroups, files and mounts that remain of it.
//!
//! A process belongs to the run if it has the run's environment variable, which all of them inherit, the
//! run's name in its command line, a cgroup of the run, or a network namespace of the run. Other runs on the
//! machine are ignored.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use coswitch_daemon::cgroup::{Hierarchies, NodeCgroup};

/// Environment variable that marks the processes of a test's run.
pub const MARK: &str = "COSWITCH_TEST_RUN";

/// The marks by which the leftovers of one run are recognised.
#[derive(Clone, Debug)]
pub struct Leftovers {
    run: String,
    /// `MARK=value`, as in the environment of a process.
    mark: String,
    /// Inodes of network namespaces.
    namespaces: BTreeSet<u64>,
    /// Directories that must be empty or missing at the end.
    stores: Vec<PathBuf>,
}

impl Leftovers {
    /// Marks of the run named `run`; `mark` is the value of [`MARK`] in the environment of its processes.
    #[must_use]
    pub fn of(run: &str, mark: &str, stores: &[PathBuf]) -> Self {
        let stores = stores.to_vec();
        Self { run: run.into(), mark: format!("{MARK}={mark}"), namespaces: BTreeSet::new(), stores }
    }

    /// Adds the network namespace of a thread or process (a path in `/proc`): all processes in it belong to
    /// the run.
    pub fn add_namespace(&mut self, process: &str) {
        self.namespaces.extend(namespace(Path::new("/proc").join(process).as_path()));
    }

    /// The processes of the run, except this one.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        let own = std::process::id();
        let ids = names("/proc").into_iter().filter_map(|name| name.parse().ok());
        ids.filter(|pid| *pid != own && self.owns(*pid)).collect()
    }

    fn owns(&self, pid: u32) -> bool {
        let dir = PathBuf::from(format!("/proc/{pid}"));
        let text = |file| fs::read(dir.join(file)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let has = |file, what: &str| text(file).is_ok_and(|text| text.contains(what));
        has("environ", &self.mark)
            || has("cmdline", &self.run)
            || has("cgroup", &format!("/{}-n", self.run))
            || namespace(&dir).is_some_and(|inode| self.namespaces.contains(&inode))
    }

    /// Descriptions of all leftovers.
    #[must_use]
    pub fn left(&self) -> Vec<String> {
        let processes = self.processes().into_iter().filter(|pid| !is_left_to_init(*pid));
        let mut left: Vec<String> = processes.map(describe).collect();
        let hierarchies = Hierarchies::find().expect("cgroups are mounted");
        let is_own = |name: &String| name.contains(&self.run);
        left.extend(
            NodeCgroup::list(&hierarchies).into_iter().filter(is_own).map(|name| format!("cgroup {name}")),
        );
        for dir in ["/dev/shm", "/run/coswitch", "/var/lib/coswitch"] {
            left.extend(names(dir).into_iter().filter(is_own).map(|name| format!("{dir}/{name}")));
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        left.extend(
            mounts.lines().filter(|line| line.contains(&self.run)).map(|line| format!("mount {line}")),
        );
        for store in &self.stores {
            left.extend(names(store).into_iter().map(|name| format!("{}/{name}", store.display())));
        }
        left.extend(zombies());
        left
    }

    /// Waits until nothing is left.
    ///
    /// # Panics
    /// If something is left after `limit`; the message lists it.
    pub fn assert_nothing_left(&self, limit: Duration) {
        let began = Instant::now();
        loop {
            let left = self.left();
            if left.is_empty() {
                return;
            }
            assert!(began.elapsed() < limit, "left after {limit:?}:\n  {}", left.join("\n  "));
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn names(dir: impl AsRef<Path>) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn namespace(process: &Path) -> Option<u64> {
    Some(fs::metadata(process.join("ns/net")).ok()?.ino())
}

/// State and parent of a process, which follow the name in its stat file.
fn stat(pid: &str) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.to_string(), fields.next()?.parse().ok()?))
}

/// It has ended after its parent, and init has not come round to it yet.
fn is_left_to_init(pid: u32) -> bool {
    stat(&pid.to_string()).is_some_and(|(state, parent)| state == "Z" && parent == 1)
}

/// Children of this process that were not reaped.
fn zombies() -> Vec<String> {
    let own = std::process::id();
    let is_one = |pid: &String| stat(pid).is_some_and(|(state, parent)| state == "Z" && parent == own);
    names("/proc").into_iter().filter(is_one).map(|pid| format!("zombie {pid}")).collect()
}

fn describe(pid: u32) -> String {
    let read = |file| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let (state, parent) = stat(&pid.to_string()).unwrap_or_default();
    let command = read("cmdline").replace('\0', " ");
    format!("process {pid} ({}, state {state}, parent {parent}) {}", read("comm").trim(), command.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_with_the_mark_is_found_until_it_is_reaped() {
        let _turn = crate::turn();
        let leftovers = Leftovers::of("no-such-run", "a-mark", &[]);
        assert_eq!(leftovers.left(), Vec::<String>::new());
        let mut child = std::process::Command::new("sleep").arg("60").env(MARK, "a-mark").spawn().unwrap();
        // Its environment can be read only some time after it has begun to execute its program.
        let began = Instant::now();
        while leftovers.processes().is_empty() && began.elapsed() < Duration::from_secs(10) {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(leftovers.processes(), [child.id()]);
        child.kill().unwrap();
        while stat(&child.id().to_string()).is_some_and(|(state, _)| state != "Z") {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(leftovers.left(), [format!("zombie {}", child.id())]);
        child.wait().unwrap();
        leftovers.assert_nothing_left(Duration::ZERO);
    }
}
