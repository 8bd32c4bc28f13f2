//! A job on this node, as the node scheduler sees it.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use coswitch_ckpt::processes;
use coswitch_policies::local::{TaskEvent, TaskId};
use coswitch_ring::Segment;
use nix::unistd::Pid;
use tracing::warn;

use super::{
    local_task::LocalTask,
    measure::Meter,
    rank::Rank,
    weight::{Group, Weight, set_all},
};
use crate::cgroup::JobCgroup;

pub(super) struct Job {
    pub(super) segment: Arc<Segment>,
    pub(super) cgroup: JobCgroup,
    /// By local index.
    pub(super) ranks: Vec<Place>,
    pub(super) locals: Vec<LocalTask>,
    pub(super) runs: bool,
    pub(super) since: Instant,
}

/// A place for a rank.
pub(super) enum Place {
    /// It does not use MPI yet.
    Empty,
    Taken(Box<Known>),
    /// Its processes have ended.
    Left,
}

/// A rank that uses MPI.
pub(super) struct Known {
    pub(super) task: TaskId,
    pub(super) rank: Rank,
    pub(super) group: Group,
    pub(super) meter: Meter,
    /// As it was set last.
    pub(super) weight: Option<Weight>,
}

impl Job {
    /// Gives all processes of the job the usual weight. The weights are set by process groups first, and then
    /// for every thread in the cgroup: a child may have left the process group of its rank, and the scheduler
    /// may not have seen the newest children of a local task. Such children still have their parent's weight.
    pub(super) fn forget_weights(&mut self) {
        let segment = Arc::clone(&self.segment);
        for (local, known) in self.known() {
            known.set(Weight::Usual);
            segment.activity(local).stop_asking();
        }
        if let Err(error) = set_all(&self.cgroup, Weight::Usual) {
            let group = self.cgroup.freezer().display();
            warn!(%error, %group, "processes of a job do not have their weight back");
        }
    }

    /// What its tasks have used.
    pub(super) fn measure(&mut self) -> Vec<TaskEvent> {
        let segment = Arc::clone(&self.segment);
        let of_rank = |(local, known): (u32, &mut Known)| {
            let usage = known.meter.usage(segment.counters(local).bytes_sent).ok()?;
            Some(TaskEvent::Measured { task: known.task, usage })
        };
        let mut measured: Vec<TaskEvent> = self.known().filter_map(of_rank).collect();
        measured.extend(self.locals.iter().filter_map(LocalTask::measure));
        measured
    }

    /// The ranks that use MPI, with their local indexes.
    pub(super) fn known(&mut self) -> impl Iterator<Item = (u32, &mut Known)> {
        (0..).zip(&mut self.ranks).filter_map(|(local, place)| match place {
            Place::Taken(known) => Some((local, &mut **known)),
            Place::Empty | Place::Left => None,
        })
    }

    /// These tasks have ended.
    pub(super) fn forget(&mut self, ended: &[TaskId]) {
        for place in &mut self.ranks {
            if matches!(place, Place::Taken(known) if ended.contains(&known.task)) {
                *place = Place::Left;
            }
        }
    }
}

impl Known {
    /// False where its processes have ended.
    pub(super) fn set(&mut self, weight: Weight) -> bool {
        if self.weight.replace(weight) == Some(weight) {
            return true;
        }
        self.group.set(weight).unwrap_or_else(|error| {
            warn!(%error, task = %self.task, "the weight of a rank cannot be set");
            true
        })
    }
}

/// The processes of a job, by their ids in their own namespace. None where they are just ending.
pub(super) fn processes_of(cgroup: &JobCgroup) -> BTreeMap<u32, Pid> {
    let pids: Vec<Pid> = cgroup.pids().unwrap_or_default().into_iter().map(Pid::from_raw).collect();
    processes::by_own_id(&pids)
}
