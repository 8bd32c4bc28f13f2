//! Survival: the launchers of a cluster that stays, and their ranks, go on where their daemon dies, and the
//! next daemon of the node adopts what is provably whole.
//!
//! ```text
//!   daemon     at rest ─▶ record of the part      a step begins ─▶ no record
//!     ✝ killed
//!   next one   records ─▶ alive, and nothing was lost between launcher and daemon ─▶ adopt
//!                  └─ anything else: its processes are ended, and it goes back to its snapshot
//! ```
//! Between a launcher and its daemon are only the two rings in the segment. A record says how far the daemon
//! had read and acted upon it; where the ring says the same, nothing was lost. Two kinds of parts have a
//! record: those at a complete cut, which have nothing on its way, and running ones whose ranks are all on
//! this node, because none of their messages passes through a daemon. A record is removed before any other
//! step begins.
//!
//! The exit status of a launcher that is no child is known since Linux 6.15: before that nothing is adopted.
//! A [watcher](watch) ends what no daemon adopts.

mod record;
mod watch;

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use coswitch_policies::JobId;
use tracing::{info, warn};

pub(crate) use record::Record;
pub use watch::watch;
pub(crate) use watch::{end_watcher, start_watcher};

use crate::{handover::HandedState, kernel::Release, node::NodeConfig};

/// Parts that the daemon before has left, and that may be whole.
#[derive(Default)]
pub(crate) struct Survivors(Vec<Record>);

impl Survivors {
    /// Looks for them; the daemon before has ended.
    pub(crate) fn find(config: &NodeConfig) -> Self {
        let can = Release::running().is_some_and(Release::tells_of_any_exit);
        if !(config.standing && config.returns && can) {
            return Self::default();
        }
        Self(Record::all(&config.name()))
    }

    /// Those of which it can be known here that they are whole.
    pub(crate) fn proven(self, config: &NodeConfig) -> Self {
        let Self(mut records) = self;
        let mut network = None;
        records.retain(|record| {
            let proven = prove(config, record, &mut network);
            if let Err(why) = &proven {
                warn!(job = %record.part.job, why, "it is not adopted");
            }
            proven.is_ok()
        });
        Self(records)
    }

    pub(crate) fn jobs(&self) -> Vec<JobId> {
        self.0.iter().map(|record| record.part.job).collect()
    }

    /// A process in the namespaces in which they have begun.
    pub(crate) fn anyone(&self) -> Option<u32> {
        let mut roots = self.0.iter().filter_map(|record| record.part.state.root());
        roots.find(|root| root.is_alive()).map(|root| root.pid)
    }

    pub(crate) fn take(self) -> Vec<Record> {
        self.0
    }
}

/// What can be known of it before it is adopted.
fn prove(config: &NodeConfig, record: &Record, network: &mut Option<u64>) -> Result<(), &'static str> {
    record.is_readable()?;
    let root = record.part.state.root().ok_or("it had no processes")?;
    if !root.is_alive() {
        // Its last messages tell how it has ended.
        let ran = matches!(record.part.state, HandedState::Running { .. });
        return if ran { Ok(()) } else { Err("its launcher has ended") };
    }
    let group = format!("/{}/{}", config.name(), record.part.job);
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", root.pid)).unwrap_or_default();
    if !groups.lines().any(|line| line.ends_with(&group)) {
        return Err("its launcher is in another group");
    }
    if namespace(&root.pid.to_string(), "mnt") != namespace("self", "mnt") {
        return Err("it sees other file systems");
    }
    let its = namespace(&root.pid.to_string(), "net");
    // A virtual node gets its network back by its survivors.
    let own = match config.is_host() {
        true => namespace("self", "net"),
        false => network.or(its),
    };
    *network = own;
    if its.is_none() || its != own { Err("it has another network") } else { Ok(()) }
}

fn namespace(process: &str, kind: &str) -> Option<u64> {
    Some(fs::metadata(Path::new("/proc").join(process).join("ns").join(kind)).ok()?.ino())
}

/// Removes the records of all but these jobs.
pub(crate) fn forget_others(name: &str, keep: &[JobId]) {
    Record::remove_others(name, keep);
    if !keep.is_empty() {
        info!(?keep, "the daemon before has left applications that may be whole");
    }
}

fn path(name: &str, job: JobId) -> PathBuf {
    crate::node::notes_dir(name).join(format!("{PART}{job}"))
}

/// Begins the name of a record.
const PART: &str = "part-";
