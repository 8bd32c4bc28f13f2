//! Mount points of the control group hierarchies, and the directories that coswitch uses in them.

use std::path::{Path, PathBuf};

use super::{
    files::{self, CgroupError},
    memory::MemoryGroup,
};

pub(super) const PARENT: &str = "coswitch";
const CHECKPOINTERS: &str = "coswitch-criu";

#[derive(Clone, Debug)]
pub struct Hierarchies {
    unified: PathBuf,
    /// `None` where version 2 has the memory controller.
    memory_v1: Option<PathBuf>,
    /// `None` where neither version has the cpu controller.
    cpu: Option<CpuController>,
    /// Where the controller of numbers of processes is, if it is not in version 2.
    pids_v1: Option<PathBuf>,
    /// The controllers that groups of version 2 pass on.
    passed_on: Vec<&'static str>,
}

#[derive(Clone, Debug)]
pub(super) enum CpuController {
    /// Version 1, with its mount point: a group holds daemons and ranks.
    V1(PathBuf),
    /// Version 2: the daemons are in a leaf beside the groups of their nodes, under a common parent that does
    /// not pass the controller on.
    V2,
}

impl Hierarchies {
    /// Reads the mount table.
    pub fn find() -> Result<Self, CgroupError> {
        Self::among(&files::read(Path::new("/proc/self/mounts"))?)
    }

    pub(super) fn among(mounts: &str) -> Result<Self, CgroupError> {
        let rows: Vec<Vec<&str>> = mounts.lines().map(|line| line.split(' ').collect()).collect();
        let mounted = |fits: &dyn Fn(&[&str]) -> bool| {
            rows.iter().find(|row| row.len() > 3 && fits(row)).map(|row| PathBuf::from(row[1]))
        };
        let unified = mounted(&|row| row[2] == "cgroup2").ok_or(CgroupError::NoVersion2)?;
        let controllers = files::read(&unified.join("cgroup.controllers")).unwrap_or_default();
        let in_v2 = |controller| controllers.split_whitespace().any(|name| name == controller);
        let in_v1 = |controller| {
            mounted(&|row| row[2] == "cgroup" && row[3].split(',').any(|option| option == controller))
        };
        let memory_v1 =
            if in_v2("memory") { None } else { Some(in_v1("memory").ok_or(CgroupError::NoMemory)?) };
        let cpu = if in_v2("cpu") { Some(CpuController::V2) } else { in_v1("cpu").map(CpuController::V1) };
        let pids_v1 = if in_v2("pids") { None } else { in_v1("pids") };
        let passed_on = ["memory", "pids"].into_iter().filter(|name| in_v2(name)).collect();
        Ok(Self { unified, memory_v1, cpu, pids_v1, passed_on })
    }

    pub(super) fn unified(&self) -> &Path {
        &self.unified
    }

    pub(super) fn cpu(&self) -> Option<&CpuController> {
        self.cpu.as_ref()
    }

    pub(super) fn daemons(&self, controller: &CpuController) -> PathBuf {
        match controller {
            CpuController::V1(root) => root.join(PARENT),
            CpuController::V2 => self.unified.join(PARENT).join("daemons"),
        }
    }

    /// The parents of the node groups, one in each hierarchy used.
    pub(super) fn parents(&self) -> impl Iterator<Item = PathBuf> {
        std::iter::once(&self.unified)
            .chain(&self.memory_v1)
            .chain(&self.pids_v1)
            .map(|root| root.join(PARENT))
    }

    /// The groups of a node, one in each hierarchy used.
    pub(super) fn node_groups(&self, name: &str) -> impl Iterator<Item = PathBuf> {
        self.parents().map(move |parent| parent.join(name))
    }

    pub(super) fn freezer(&self, name: &str) -> PathBuf {
        self.unified.join(PARENT).join(name)
    }

    pub(super) fn memory(&self, name: &str) -> MemoryGroup {
        let root = self.memory_v1.as_ref().unwrap_or(&self.unified);
        MemoryGroup::at(root.join(PARENT).join(name), self.memory_v1.is_some())
    }

    /// The group that counts the processes of a node, where it is another one than [`Self::freezer`].
    pub(super) fn processes(&self, name: &str) -> Option<PathBuf> {
        self.pids_v1.as_ref().map(|root| root.join(PARENT).join(name))
    }

    /// The parent of the checkpointers' groups.
    pub(super) fn checkpointers(&self) -> PathBuf {
        self.unified.join(CHECKPOINTERS)
    }

    /// The groups of version 2 from the root to the node's, and the controllers that they must pass on.
    pub(super) fn down_to(&self, name: &str) -> impl Iterator<Item = (PathBuf, &'static str)> {
        let groups = [self.unified.clone(), self.unified.join(PARENT), self.freezer(name)];
        groups.into_iter().flat_map(|group| self.passed_on.iter().map(move |name| (group.clone(), *name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_controller_is_found_where_it_is_mounted() {
        let mounts = "proc /proc proc rw 0 0\nnone /nowhere/unified cgroup2 rw 0 0\n\
                      cg /cg/memory cgroup rw,memory 0 0\ncg /cg/cpu cgroup rw,cpuacct,cpu 0 0\n";
        let found = Hierarchies::among(mounts).unwrap();
        assert_eq!(found.unified(), Path::new("/nowhere/unified"));
        assert_eq!(found.memory_v1, Some("/cg/memory".into()));
        assert!(matches!(found.cpu(), Some(CpuController::V1(root)) if root == Path::new("/cg/cpu")));
        assert_eq!(found.processes("n"), None);
        assert!(matches!(Hierarchies::among("proc /proc proc rw 0 0\n"), Err(CgroupError::NoVersion2)));
    }
}
