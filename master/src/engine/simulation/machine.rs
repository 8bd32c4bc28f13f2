//! What a node of the simulation has besides parts: a disk, which outlives its daemon, and wires.

use std::collections::BTreeMap;

use coswitch_daemon::{
    answers::{Answers, Gathering, Onward, Said, Saying, Way},
    multicast::Multicast,
    protocol::{AppEvent, DaemonEvent, SNAPSHOTS_KEPT},
};
use coswitch_policies::{Epoch, JobId, NodeId, control_tree as tree};

use super::{
    context::{Context, Event},
    network::{Message, Purpose, Wire},
    part::Snapshot,
    plan::FailingStep,
};

pub(super) struct Machine {
    node: NodeId,
    /// Which daemon of this node it is.
    life: u64,
    /// Of the master that the daemon follows.
    generation: u64,
    pub(super) saying: Saying,
    gathering: Gathering,
    /// To the master that the daemon follows.
    pub(super) session: Option<Wire>,
    /// Data links.
    pub(super) wires: BTreeMap<NodeId, Wire>,
    /// To daemons next to this one in the tree, each with what it was then.
    pub(super) next: BTreeMap<NodeId, (u64, Wire)>,
    /// The daemon of each other node.
    pub(super) known: BTreeMap<NodeId, u64>,
    disk: BTreeMap<JobId, BTreeMap<Epoch, Snapshot>>,
    pub(super) is_full: bool,
    /// Steps that are to fail.
    pub(super) failures: Vec<FailingStep>,
}

impl Machine {
    pub(super) fn new(node: NodeId, life: u64) -> Self {
        Self {
            node,
            life,
            generation: 0,
            saying: Saying::new(node, life),
            gathering: Gathering::new(node),
            session: None,
            wires: BTreeMap::new(),
            next: BTreeMap::new(),
            known: BTreeMap::new(),
            disk: BTreeMap::new(),
            is_full: false,
            failures: Vec::new(),
        }
    }

    /// Returns the session before.
    pub(super) fn follow(&mut self, session: Wire, generation: u64) -> Option<Wire> {
        self.generation = generation;
        self.saying.begin();
        self.gathering = Gathering::new(self.node);
        self.session.replace(session)
    }

    /// Without a master, events are dropped.
    pub(super) fn tell(&mut self, ctx: &mut Context, event: DaemonEvent) {
        if self.session.is_none() {
            return;
        }
        match self.saying.say(ctx.instant(), event) {
            Way::Session(said) => self.by_session(ctx, vec![said]),
            Way::Tree(said) => self.gather(ctx, vec![said]),
        }
    }

    pub(super) fn by_session(&self, ctx: &mut Context, said: Vec<Said>) {
        if let Some(session) = self.session.filter(|_| !said.is_empty()) {
            ctx.send(session, Message::ToHead(DaemonEvent::Said(said)));
        }
    }

    /// A request goes down the tree: answers come up.
    pub(super) fn on_multicast(&mut self, ctx: &mut Context, request: &Multicast) {
        let before = self.gathering.on_request(request);
        self.send_on(ctx, before);
    }

    /// Answers that go up the tree.
    pub(super) fn gather(&mut self, ctx: &mut Context, said: Vec<Said>) {
        let onward = self.gathering.on_answers(ctx.instant(), said);
        self.send_on(ctx, onward);
        if let Some(due) = self.gathering.due() {
            ctx.at_instant(due, Event::Gathered(self.node, self.life));
        }
    }

    pub(super) fn on_gathered(&mut self, ctx: &mut Context) {
        let onward = self.gathering.on_due(ctx.instant());
        self.send_on(ctx, onward);
    }

    fn send_on(&mut self, ctx: &mut Context, onward: impl IntoIterator<Item = Onward>) {
        for (place, said) in onward {
            match place {
                tree::Place::Master => self.by_session(ctx, said),
                tree::Place::Node(up) => {
                    let answers = Answers { generation: self.generation, said };
                    self.pass_on(ctx, up, Message::PassedUp(answers));
                }
            }
        }
    }

    pub(super) fn pass_on(&mut self, ctx: &mut Context, to: NodeId, message: Message) {
        let Some(incarnation) = self.known.get(&to).copied() else { return };
        let present = self.next.get(&to).filter(|(there, _)| *there == incarnation);
        let wire = present.map(|(_, wire)| *wire).unwrap_or_else(|| {
            let link = ctx.net.link(Purpose::Requests(self.node, to));
            Wire { link, back: false }
        });
        self.next.insert(to, (incarnation, wire));
        ctx.send(wire, message);
    }

    pub(super) fn tell_of(&mut self, ctx: &mut Context, job: JobId, event: AppEvent) {
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
        let Self { node, life, disk, is_full, failures, .. } = self;
        Self { disk, is_full, failures, ..Self::new(node, life + 1) }
    }

    pub(super) fn remove(&mut self, job: JobId) {
        self.disk.remove(&job);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.disk.is_empty()
    }
}
