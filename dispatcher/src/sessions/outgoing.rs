//! What goes to the daemons, by whatever way.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use coswitch_daemon::{
    node_clock::{Boot, Reading},
    protocol::{Asked, Member, Request},
    tag::TagKey,
};
use coswitch_policies::{
    NodeId,
    primitives::{self, Operation, Operations},
};
use tokio::sync::{Notify, mpsc::UnboundedSender};

use crate::{
    watch::{Answered, Watch},
    ways::{RADIX, Sent, Ways},
};

/// Locked after [`super::Inboxes`] where both are.
pub(super) struct Outgoing {
    pub(super) requests: BTreeMap<NodeId, UnboundedSender<Request>>,
    pub(super) ways: Ways,
    pub(super) operations: Operations,
    pub(super) watch: Watch,
    generation: u64,
    boot: Boot,
    /// An operation may be over.
    pub(super) over: Arc<Notify>,
}

impl Outgoing {
    pub(super) fn new(generation: u64) -> Self {
        let ways = Ways::new(RADIX, generation, TagKey::random());
        let operations = Operations::new(generation);
        let (watch, boot, over) = (Watch::default(), Boot::own(), Arc::default());
        Self { requests: BTreeMap::new(), ways, operations, watch, generation, boot, over }
    }

    pub(super) fn send(&self, requests: Sent) {
        for (node, request) in requests {
            if let Some(session) = self.requests.get(&node) {
                let _ = session.send(request);
            }
        }
    }

    pub(super) fn by_ways(&mut self, act: impl FnOnce(&mut Ways) -> Sent) {
        let sent = act(&mut self.ways);
        self.send(sent);
    }

    pub(super) fn by_operations(&mut self, act: impl FnOnce(&mut Operations) -> Vec<primitives::Sent>) {
        for (nodes, message) in act(&mut self.operations) {
            self.by_ways(|ways| ways.send(Instant::now(), &nodes, &Asked::Primitive(message)));
        }
        self.over.notify_waiters();
    }

    /// The daemon has joined.
    pub(super) fn open(&mut self, Member { node, incarnation, .. }: Member) {
        self.ways.open(node, incarnation);
        self.by_operations(|operations| operations.on_daemon(node, incarnation));
    }

    /// The node has another daemon.
    pub(super) fn listen(&mut self, node: NodeId) {
        self.ways.listen(node);
        self.watch.forget(node);
    }

    /// The heartbeat of a session, whose time has come.
    pub(super) fn beat(&mut self, node: NodeId) -> Option<Request> {
        let every = self.watch.on_beat(node)?;
        Some(self.alive(node, every))
    }

    fn alive(&self, node: NodeId, every: u32) -> Request {
        Request::Alive { heard: self.ways.heard_of(node), clock: Reading::own(&self.boot), every }
    }

    fn ask_singly(&self, nodes: BTreeSet<NodeId>) {
        self.send(nodes.into_iter().map(|node| (node, self.alive(node, 1))).collect());
    }

    /// A period begins: asks all nodes that the tree reaches, if they are many.
    pub(super) fn ask_all(&mut self) {
        let members = self.operations.members();
        let nodes: BTreeSet<NodeId> =
            self.ways.on_tree().into_iter().filter(|node| members.contains_key(node)).collect();
        let singly = self.watch.on_period(&nodes);
        self.ask_singly(singly);
        if !nodes.is_empty() {
            let (number, sent) = self.operations.start(nodes.clone(), Operation::follows(self.generation));
            self.watch.on_asked(Instant::now(), number, nodes);
            self.by_operations(|_| sent);
        }
    }

    /// The time for answers is over.
    pub(super) fn end_question(&mut self) {
        let Some(number) = self.watch.question() else { return };
        self.by_operations(|operations| operations.give_up(number));
        let outcome = self.operations.test_event(number);
        if let Some(Answered { by, asked, singly }) =
            outcome.and_then(|outcome| self.watch.on_outcome(&outcome))
        {
            self.ways.on_answered(&by, asked);
            self.ask_singly(singly);
        }
    }

    pub(super) fn lose(&mut self, node: NodeId) {
        self.watch.forget(node);
        self.by_ways(|ways| ways.on_lost(node));
        self.by_operations(|operations| operations.on_lost(node));
    }

    /// Before a request that ends the daemon.
    pub(super) fn close_all(&mut self) {
        let nodes: Vec<NodeId> = self.requests.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.by_ways(|ways| ways.close(node)));
    }
}
