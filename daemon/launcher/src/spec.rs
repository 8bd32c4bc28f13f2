//! Launch specification (JSON on the launcher's standard input) and the launcher's replies (lines of JSON).

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One application's part on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LauncherSpec {
    /// Name of the application, unique in the run and equal on all of its nodes. Gives the PMI key space its
    /// name.
    pub application: String,
    /// Process id of the daemon, which must be alive and the parent of PID 1 when PID 1 begins.
    pub daemon_pid: u32,
    /// Launcher and ranks go on where the daemon dies; else they end with it.
    #[serde(default)]
    pub outlives: bool,
    /// The `cgroup.procs` or `tasks` files of the cgroups to join.
    pub cgroup_procs: Vec<PathBuf>,
    pub segment: PathBuf,
    /// Directory of the driver; `None` leaves the choice of a libfabric provider to `env`.
    pub provider_dir: Option<PathBuf>,
    /// Number of ranks of the application on all nodes.
    pub world_size: u32,
    /// The ranks on this node.
    pub ranks: Vec<RankSpec>,
    /// Program and arguments. A program without `/` is looked up in the `PATH` of `env`.
    pub command: Vec<String>,
    /// The file that is executed, where it is another one than `command` names.
    #[serde(default)]
    pub program: Option<PathBuf>,
    /// Environment of the ranks. The launcher adds only the variables of the driver and of PMI.
    pub env: Vec<(String, String)>,
    pub cwd: PathBuf,
    /// The umask of the ranks; the launcher's own files are private.
    pub umask: u32,
    /// Whose the ranks are, with the files that they write; they have a network of their own, which is empty.
    /// `None`: the daemon's own user's, with all of its rights.
    #[serde(default)]
    pub user: Option<RankUser>,
    /// How readily the kernel ends a rank where memory is out: `oom_score_adj` in `/proc`, from -1000 (never)
    /// to 1000.
    pub oom_score_adj: i32,
    /// File to which the launcher appends its error messages.
    pub log: PathBuf,
}

/// A user, by numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankUser {
    pub uid: u32,
    pub gid: u32,
    /// All groups of the user.
    pub groups: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankSpec {
    /// Global rank in the application.
    pub rank: u32,
    /// Local index in the segment.
    pub local: u32,
    /// Regular file to which its standard output is appended.
    pub stdout: PathBuf,
    /// Regular file to which its standard error is appended; may equal `stdout`.
    pub stderr: PathBuf,
}

/// One line of the launcher's standard output during the start: `Born`, then `Started` or `Refused`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// PID 1 exists. It is a child of the daemon, which must reap it; `pid` is its id in the daemon's
    /// namespace.
    Born { pid: i32 },
    /// PID 1 is set up, and now starts the ranks.
    Started,
    /// The start has failed; PID 1 exits if it exists.
    Refused { reason: String },
}

impl LauncherSpec {
    /// Name of the PMI key space: the application's name as one word.
    #[must_use]
    pub fn key_space(&self) -> String {
        let word = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
        self.application.chars().take(200).map(word).collect()
    }
}
