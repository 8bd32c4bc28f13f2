//! Scheduling groups for daemons and all processes that they start.
//!
//! The kernel shares a core between groups first and within a group second, and `sched_yield` passes it on
//! only within one. A rank that waits for its data plane, or the other way round, gives the core away in vain
//! where the two are in different groups, and autogrouping puts every session into a group of its own: a
//! message then takes a third longer, and eight times as long beside a busy shell. Processes that a daemon
//! starts, and those that CRIU restores for it, are born in the daemon's group.
//!
//! Nodes of one processor have a group for each processor: its weight there is always the same, which keeps
//! clear of a fault that some kernels have ([`kernel`](crate::kernel)). Nodes of several processors have one
//! group for the machine, and none where the kernel has the fault: ranks are then in the groups of their
//! sessions, which hold one process each.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    files::{CgroupError, make_dir, remove_dir, sub_groups, write},
    hierarchies::{CpuController, Hierarchies, PARENT},
};
use crate::kernel::Release;

/// Moves this process, whose node has these processors, into its group. Does nothing where the machine has no
/// cpu controller.
pub(crate) fn enter(hierarchies: &Hierarchies, processors: &[usize]) -> Result<(), CgroupError> {
    let Some(controller) = hierarchies.cpu() else { return Ok(()) };
    let starves = Release::running().is_some_and(Release::lets_groups_starve_others);
    let Some(group) = group(hierarchies, controller, processors, starves) else { return Ok(()) };
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

/// Whether this process is in such a group. The ranks of its node are then in the same one, and the kernel
/// compares their weights.
pub(crate) fn is_in_group(hierarchies: &Hierarchies) -> bool {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some(controller) = hierarchies.cpu() else { return false };
    text.lines().any(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        let is_of_cpu = match controller {
            CpuController::V1(_) => controllers.split(',').any(|name| name == "cpu"),
            CpuController::V2 => controllers.is_empty(),
        };
        is_of_cpu && group.contains(PARENT)
    })
}

/// The group of a node with these processors; `starves` is the kernel's fault.
fn group(
    hierarchies: &Hierarchies,
    controller: &CpuController,
    processors: &[usize],
    starves: bool,
) -> Option<PathBuf> {
    match (controller, processors) {
        // Not below a common parent, whose weight would change.
        (CpuController::V1(root), [only]) => Some(root.join(format!("{PARENT}{OF_PROCESSOR}{only}"))),
        _ => (!starves).then(|| hierarchies.daemons(controller)),
    }
}

const OF_PROCESSOR: &str = "-cpu";

/// Moves this process out again, so that the group can be removed.
pub(crate) fn leave(hierarchies: &Hierarchies) -> Result<(), CgroupError> {
    match hierarchies.cpu() {
        None => Ok(()),
        Some(CpuController::V1(root)) => move_to(root),
        Some(CpuController::V2) => move_to(hierarchies.unified()),
    }
}

/// Removes the groups that have no daemon left in them.
pub(super) fn remove(hierarchies: &Hierarchies) {
    let Some(controller) = hierarchies.cpu() else { return };
    let _ = remove_dir(&hierarchies.daemons(controller));
    if let CpuController::V1(root) = controller {
        sub_groups(root).iter().filter(|dir| is_of_processor(dir)).for_each(|dir| drop(remove_dir(dir)));
    }
}

fn is_of_processor(dir: &Path) -> bool {
    let name = dir.file_name().and_then(|name| name.to_str());
    let number = name.and_then(|name| name.strip_prefix(PARENT)?.strip_prefix(OF_PROCESSOR));
    number.is_some_and(|number| number.parse::<usize>().is_ok())
}

fn move_to(group: &Path) -> Result<(), CgroupError> {
    write(&group.join("cgroup.procs"), &std::process::id().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "none /u cgroup2 rw 0 0\ncg /m cgroup rw,memory 0 0\ncg /c cgroup rw,cpu 0 0\n";

    #[test]
    fn a_node_of_one_processor_shares_a_group_with_those_on_the_same_one() {
        let hierarchies = Hierarchies::among(V1).unwrap();
        let of = |processors: &[usize], starves| {
            group(&hierarchies, hierarchies.cpu().unwrap(), processors, starves)
        };
        for starves in [false, true] {
            assert_eq!(of(&[3], starves), Some("/c/coswitch-cpu3".into()));
        }
        assert_eq!(of(&[0, 1], false), Some("/c/coswitch".into()));
        assert_eq!(of(&[0, 1], true), None, "its weight would change while it runs");
    }

    #[test]
    fn only_groups_of_processors_are_taken_for_such() {
        let is = |name: &str| is_of_processor(&Path::new("/c").join(name));
        assert!(is("coswitch-cpu12") && !is("coswitch-cpus") && !is("coswitch") && !is("other-cpu1"));
    }
}
