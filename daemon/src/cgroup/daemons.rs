//! One scheduling group for the daemons of a machine and all processes that they start.
//!
//! The kernel shares a core between groups first and within a group second, and `sched_yield` passes it on
//! only within one. A rank that waits for its data plane, or the other way round, gives the core away in vain
//! where the two are in different groups, and autogrouping puts every session into a group of its own: a
//! message then takes three times as long, and twenty times beside a busy shell. Processes that a daemon
//! starts, and those that CRIU restores for it, are born in the daemon's group.

use std::path::Path;

use super::{
    files::{CgroupError, make_dir, remove_dir, write},
    hierarchies::{CpuController, Hierarchies},
};

/// Moves this process into the group. Does nothing where the machine has no cpu controller.
pub(crate) fn enter(hierarchies: &Hierarchies) -> Result<(), CgroupError> {
    let Some(controller) = hierarchies.cpu() else { return Ok(()) };
    let group = hierarchies.daemons(controller);
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
pub(crate) fn leave(hierarchies: &Hierarchies) -> Result<(), CgroupError> {
    match hierarchies.cpu() {
        None => Ok(()),
        Some(CpuController::V1(root)) => move_to(root),
        Some(CpuController::V2) => move_to(hierarchies.unified()),
    }
}

/// Removes the group, unless a daemon is still in it.
pub(super) fn remove(hierarchies: &Hierarchies) {
    if let Some(controller) = hierarchies.cpu() {
        let _ = remove_dir(&hierarchies.daemons(controller));
    }
}

fn move_to(group: &Path) -> Result<(), CgroupError> {
    write(&group.join("cgroup.procs"), &std::process::id().to_string())
}
