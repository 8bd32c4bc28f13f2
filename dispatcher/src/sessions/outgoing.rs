//! What goes to the daemons, by whatever way.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use coswitch_daemon::protocol::{Asked, Member, Request};
use coswitch_policies::{
    NodeId,
    primitives::{self, Operations},
};
use tokio::sync::{Notify, mpsc::UnboundedSender};

use crate::ways::{RADIX, Sent, Ways};

/// Locked after [`super::Inboxes`] where both are.
pub(super) struct Outgoing {
    pub(super) requests: BTreeMap<NodeId, UnboundedSender<Request>>,
    pub(super) ways: Ways,
    pub(super) operations: Operations,
    /// An operation may be over.
    pub(super) over: Arc<Notify>,
}

impl Outgoing {
    pub(super) fn new(generation: u64) -> Self {
        let (ways, operations) = (Ways::new(RADIX, generation), Operations::new(generation));
        Self { requests: BTreeMap::new(), ways, operations, over: Arc::default() }
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

    pub(super) fn lose(&mut self, node: NodeId) {
        self.by_ways(|ways| ways.on_lost(node));
        self.by_operations(|operations| operations.on_lost(node));
    }

    /// Before a request that ends the daemon.
    pub(super) fn close_all(&mut self) {
        let nodes: Vec<NodeId> = self.requests.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.by_ways(|ways| ways.close(node)));
    }
}
