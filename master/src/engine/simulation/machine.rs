//! What a node of the simulation has besides parts: a disk, which outlives its daemon, and wires.

use std::collections::BTreeMap;

use coswitch_daemon::protocol::{AppEvent, DaemonEvent, SNAPSHOTS_KEPT};
use coswitch_policies::{Epoch, JobId, NodeId};

use super::{
    context::Context,
    network::{Message, Wire},
    part::Snapshot,
    plan::FailingStep,
};

pub(super) struct Machine {
    /// To the master that the daemon follows.
    pub(super) session: Option<Wire>,
    /// Data links.
    pub(super) wires: BTreeMap<NodeId, Wire>,
    /// To daemons below this one in the tree, each with what it was then.
    pub(super) below: BTreeMap<NodeId, (u64, Wire)>,
    /// The daemon of each other node.
    pub(super) known: BTreeMap<NodeId, u64>,
    disk: BTreeMap<JobId, BTreeMap<Epoch, Snapshot>>,
    pub(super) is_full: bool,
    /// Steps that are to fail.
    pub(super) failures: Vec<FailingStep>,
}

impl Machine {
    pub(super) fn new() -> Self {
        Self {
            session: None,
            wires: BTreeMap::new(),
            below: BTreeMap::new(),
            known: BTreeMap::new(),
            disk: BTreeMap::new(),
            is_full: false,
            failures: Vec::new(),
        }
    }

    /// Without a master, events are dropped.
    pub(super) fn tell(&self, ctx: &mut Context, event: DaemonEvent) {
        if let Some(session) = self.session {
            ctx.send(session, Message::ToHead(event));
        }
    }

    pub(super) fn tell_of(&self, ctx: &mut Context, job: JobId, event: AppEvent) {
        self.tell(ctx, DaemonEvent::App { job, event });
    }

    /// Takes the first due failure of these kinds.
    pub(super) fn next_failure(&mut self, kinds: &[FailingStep]) -> Option<FailingStep> {
        let index = self.failures.iter().position(|kind| kinds.contains(kind))?;
        Some(self.failures.swap_remove(index))
    }

    /// A snapshot is sealed; older ones go.
    pub(super) fn keep(&mut self, job: JobId, epoch: Epoch, snapshot: Snapshot) {
        let snapshots = self.disk.entry(job).or_default();
        assert!(snapshots.insert(epoch, snapshot).is_none(), "{epoch} of {job} is sealed once");
        while snapshots.len() > SNAPSHOTS_KEPT {
            snapshots.pop_first();
        }
    }

    pub(super) fn snapshot(&self, job: JobId, epoch: Epoch) -> Option<&Snapshot> {
        self.disk.get(&job)?.get(&epoch)
    }

    pub(super) fn sealed(&self, job: JobId) -> impl Iterator<Item = Epoch> {
        self.disk.get(&job).into_iter().flat_map(|snapshots| snapshots.keys().copied())
    }

    /// Snapshots of a past that has not happened.
    pub(super) fn remove_newer(&mut self, job: JobId, epoch: Epoch) {
        if let Some(snapshots) = self.disk.get_mut(&job) {
            snapshots.retain(|other, _| *other <= epoch);
        }
    }

    pub(super) fn remove_one(&mut self, job: JobId, epoch: Epoch) {
        if let Some(snapshots) = self.disk.get_mut(&job) {
            snapshots.remove(&epoch);
        }
        self.disk.retain(|_, snapshots| !snapshots.is_empty());
    }

    /// The newest snapshot of each job.
    pub(super) fn newest(&self) -> Vec<(JobId, Epoch, Snapshot)> {
        let newest = self.disk.iter().filter_map(|(job, all)| Some((*job, all.last_key_value()?)));
        newest.map(|(job, (epoch, snapshot))| (job, *epoch, snapshot.clone())).collect()
    }

    /// What outlives a daemon.
    pub(super) fn next(self) -> Self {
        let Self { disk, is_full, failures, .. } = self;
        Self { disk, is_full, failures, ..Self::new() }
    }

    pub(super) fn remove(&mut self, job: JobId) {
        self.disk.remove(&job);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.disk.is_empty()
    }
}
