//! What a launcher is told when it starts (JSON on its standard input) and what it answers (lines of JSON).

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Everything about one application's part on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchSpec {
    /// Name of the application, unique per run and the same on all of its nodes; becomes the PMI key space.
    pub application: String,
    /// Process id of the daemon, which must be alive and the parent when PID 1 begins.
    pub daemon_pid: u32,
    /// The `cgroup.procs` or `tasks` files of the groups to join.
    pub cgroup_procs: Vec<PathBuf>,
    /// The application's segment on this node.
    pub segment: PathBuf,
    /// The directory in which ranks find the driver; `None` leaves the choice of a libfabric provider to `env`.
    pub provider_dir: Option<PathBuf>,
    /// Ranks of the application on all nodes.
    pub world_size: u32,
    /// The ranks that live here.
    pub ranks: Vec<RankSpec>,
    /// Program and arguments; a program without `/` is looked for in the `PATH` of `env`.
    pub command: Vec<String>,
    /// The whole environment of a rank, to which only what the driver and PMI need is added.
    pub env: Vec<(String, String)>,
    /// Working directory of the ranks.
    pub cwd: PathBuf,
    /// Where the launcher writes what it has to complain about.
    pub log: PathBuf,
}

/// One rank of a [`LaunchSpec`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankSpec {
    /// In the application.
    pub rank: u32,
    /// Its index in the segment.
    pub local: u32,
    /// Regular file to which its standard output is appended.
    pub stdout: PathBuf,
    /// Regular file to which its standard error is appended; may be the same.
    pub stderr: PathBuf,
}

/// One line of the launcher's standard output while it starts: `Born`, then `Started` or `Refused`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// PID 1 exists, and is a child of the daemon, which has to reap it.
    Born {
        /// Its process id as the daemon sees it.
        pid: i32,
    },
    /// PID 1 has all it needs, dies with the daemon, and starts the ranks now.
    Started,
    /// It could not; PID 1, if born, exits.
    Refused {
        /// Why.
        reason: String,
    },
}

impl LaunchSpec {
    /// The name of the PMI key space: the application's, as one word.
    #[must_use]
    pub fn key_space(&self) -> String {
        let word = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
        self.application.chars().take(200).map(word).collect()
    }
}
