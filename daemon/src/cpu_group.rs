//! One scheduling group for the daemons of a machine and all that they start.
//!
//! The kernel shares a core between groups first and within a group second, and `sched_yield` passes it on only within
//! one. A rank that waits for its data plane, or the other way round, thus gives the core away in vain where the two are
//! in different groups, and autogrouping puts every session into its own: a message then takes three times as long,
//! and twenty times beside a busy shell. What a daemon starts, and what CRIU restores for it, is born in its group.

use std::path::{Path, PathBuf};

use crate::cgroup::{CgroupError, Hierarchies, PARENT, make_dir, remove_dir, write};

/// Where the controller is.
#[derive(Clone, Debug)]
pub(crate) enum CpuController {
    /// In version 1, mounted here: the group holds daemons and ranks.
    V1(PathBuf),
    /// In version 2: the daemons are in a leaf beside their nodes' groups, under a common parent, below which the
    /// controller is not enabled.
    V2,
}

impl CpuController {
    fn group(&self, hierarchies: &Hierarchies) -> PathBuf {
        match self {
            Self::V1(root) => root.join(PARENT),
            Self::V2 => hierarchies.unified().join(PARENT).join("daemons"),
        }
    }
}

/// Moves this process into the group. Where the machine has no such controller there is nothing to do.
///
/// # Errors
/// [`CgroupError::File`]
pub(crate) fn enter(hierarchies: &Hierarchies) -> Result<(), CgroupError> {
    let Some(controller) = hierarchies.cpu() else { return Ok(()) };
    let group = controller.group(hierarchies);
    let join = || {
        make_dir(&group)?;
        if matches!(controller, CpuController::V2) {
            write(&hierarchies.unified().join("cgroup.subtree_control"), "+cpu")?;
        }
        move_to(&group)
    };
    // Another daemon that leaves may remove the group between the two steps.
    join().or_else(|_| join())
}

/// Moves this process out again, so that the group can be removed.
///
/// # Errors
/// [`CgroupError::File`]
pub(crate) fn leave(hierarchies: &Hierarchies) -> Result<(), CgroupError> {
    match hierarchies.cpu() {
        None => Ok(()),
        Some(CpuController::V1(root)) => move_to(root),
        Some(CpuController::V2) => move_to(hierarchies.unified()),
    }
}

/// Removes the group, unless a daemon is still in it.
pub(crate) fn remove(hierarchies: &Hierarchies) {
    if let Some(controller) = hierarchies.cpu() {
        let _ = remove_dir(&controller.group(hierarchies));
    }
}

fn move_to(group: &Path) -> Result<(), CgroupError> {
    write(&group.join("cgroup.procs"), &std::process::id().to_string())
}
