//! By which way a request reaches the daemons for which it is: by the session with each of them, or, where
//! they are many, down the tree of daemons. Pure; `sessions` and the simulation of the control plane carry it
//! out.
//!
//! Requests to a node are numbered, so that those that go by different ways keep their order, and one that
//! goes twice is carried out once. A session loses nothing while it lasts. What went by the tree is kept
//! until the node says that it has it, and goes by the session where
//!
//! - the node says with a heartbeat that it has not got it, [`AGAIN_AFTER`] after it was sent;
//! - a node on its way is lost or silent, or cannot be reached by the one before it.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter::Peekable,
    sync::Arc,
    time::{Duration, Instant},
};

use coswitch_daemon::{
    answers::Said,
    multicast::{InOrder, Multicast, Target},
    protocol::{AppRequest, Asked, DaemonEvent, Request},
    tag::{Digest, TagKey},
};
use coswitch_policies::{
    NodeId,
    control_tree::{ControlTree, Place},
};

use crate::app::Output;

/// The number of nodes to which the master and each daemon pass a request on. A request to more nodes goes by
/// the tree.
pub const RADIX: u32 = 8;
/// The time that a request may take through the tree.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// See the module.
pub struct Ways {
    radix: u32,
    generation: u64,
    /// Known to this master alone.
    secret: TagKey,
    lines: BTreeMap<NodeId, Line>,
}

/// What is known of one node.
struct Line {
    /// The number of the next request.
    next: u64,
    /// Its daemon, where that may pass requests on.
    daemon: Option<u64>,
    is_silent: bool,
    /// Another daemon has not reached it.
    is_out_of_reach: bool,
    /// Requests that went by the tree and are not confirmed, by number.
    unheard: BTreeMap<u64, Unheard>,
    /// Its last heartbeat, since its session began and unless it is lost.
    beat: Option<Instant>,
    /// What its daemon says, by whatever way.
    said: InOrder<DaemonEvent>,
}

struct Unheard {
    sent: Instant,
    tree: Arc<ControlTree>,
    asked: Asked,
}

/// Requests, each for the session with a node.
pub type Sent = Vec<(NodeId, Request)>;

impl Default for Line {
    fn default() -> Self {
        Self {
            next: 1,
            daemon: None,
            is_silent: false,
            is_out_of_reach: false,
            unheard: BTreeMap::new(),
            beat: None,
            said: InOrder::default(),
        }
    }
}

impl Line {
    /// The daemon, if the tree may lead through it.
    fn passing(&self) -> Option<u64> {
        self.daemon.filter(|_| !self.is_silent && !self.is_out_of_reach)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// All that is not confirmed goes by the session from now on, in order.
    fn again(&mut self, node: NodeId) -> impl Iterator<Item = (NodeId, Request)> + use<> {
        let unheard = std::mem::take(&mut self.unheard).into_iter();
        unheard.map(move |(number, Unheard { asked, .. })| (node, Request::Ask { number, asked }))
    }
}

impl Ways {
    /// Of the master of this generation; see [`RADIX`].
    #[must_use]
    pub const fn new(radix: u32, generation: u64, secret: TagKey) -> Self {
        Self { radix, generation, secret, lines: BTreeMap::new() }
    }

    fn line(&mut self, node: NodeId) -> &mut Line {
        self.lines.entry(node).or_default()
    }

    /// A session with the daemon of a node begins: what is to be sent before anything that is numbered.
    #[must_use]
    pub fn begin(&mut self, node: NodeId) -> Request {
        let key = self.secret.for_node(node);
        let line = self.line(node);
        let said = std::mem::take(&mut line.said);
        *line = Line { next: line.next, beat: line.beat, said, ..Line::default() };
        Request::NumbersFrom { number: line.next, key }
    }

    /// The node has another daemon, which counts what it says anew.
    pub fn listen(&mut self, node: NodeId) {
        let line = self.line(node);
        (line.beat, line.said) = (None, InOrder::default());
        line.said.begin(1);
    }

    /// Whether the daemon of the node has said this, whichever session has brought it.
    #[must_use]
    pub fn is_genuine(&self, from: NodeId, said: &Said) -> bool {
        said.node == from || said.is_genuine(&self.secret.for_node(said.node))
    }

    /// The daemon of a node has said something, by whatever way; returns what can be read now, in order.
    #[must_use]
    pub fn on_said(&mut self, node: NodeId, number: u64, event: DaemonEvent) -> Vec<DaemonEvent> {
        let said = &mut self.line(node).said;
        said.push(number, event);
        std::iter::from_fn(|| said.pop()).collect()
    }

    /// Up to which number all that the daemon of a node has said was read.
    #[must_use]
    pub fn heard_of(&self, node: NodeId) -> u64 {
        self.lines.get(&node).map_or(0, |line| line.said.heard())
    }

    /// The daemon has answered: it may pass requests on.
    pub fn open(&mut self, node: NodeId, incarnation: u64) {
        self.line(node).daemon = Some(incarnation);
    }

    /// The daemon is going to be replaced, or to end: all that was sent goes by the session, at once.
    #[must_use]
    pub fn close(&mut self, node: NodeId) -> Sent {
        let line = self.line(node);
        line.daemon = None;
        line.again(node).collect()
    }

    /// Sends the same request to all of `nodes`.
    #[must_use]
    pub fn send(&mut self, now: Instant, nodes: &[NodeId], asked: &Asked) -> Sent {
        let passing = |node: &NodeId| Some((*node, self.lines.get(node)?.passing()?));
        let mut by_tree: BTreeMap<NodeId, u64> = nodes.iter().filter_map(passing).collect();
        if by_tree.len() <= self.radix as usize {
            by_tree.clear();
        }
        let mut sent = Sent::new();
        for node in nodes.iter().filter(|node| !by_tree.contains_key(node)) {
            let number = self.line(*node).number();
            sent.push((*node, Request::Ask { number, asked: asked.clone() }));
        }
        if !by_tree.is_empty() {
            sent.extend(self.multicast(now, &by_tree, asked));
        }
        sent
    }

    fn multicast(&mut self, now: Instant, by_tree: &BTreeMap<NodeId, u64>, asked: &Asked) -> Sent {
        let nodes = self.lines.keys().next_back().map_or(0, |last| last.0 + 1);
        let passes = |node: &NodeId| self.lines.get(node).is_some_and(|line| line.passing().is_some());
        let failed: BTreeSet<NodeId> = (0..nodes).map(NodeId).filter(|node| !passes(node)).collect();
        let tree = Arc::new(ControlTree::new(self.radix, nodes, failed.clone()));
        let (secret, digest) = (self.secret.clone(), Digest::of(asked));
        let target = |(node, incarnation): (&NodeId, &u64)| {
            let line = self.lines.get_mut(node).expect("it passes requests on");
            let (number, tree) = (line.number(), Arc::clone(&tree));
            line.unheard.insert(number, Unheard { sent: now, tree, asked: asked.clone() });
            (*node, Target::new(&secret.for_node(*node), *incarnation, number, digest))
        };
        let to = by_tree.iter().map(target).collect();
        let (generation, radix, asked) = (self.generation, self.radix, asked.clone());
        let whole = Multicast { generation, radix, nodes, failed, to, asked };
        let parts = whole.parts_below(Place::Master).into_iter();
        parts.map(|(next, part)| (next, Request::PassOn(Box::new(part)))).collect()
    }

    /// A node confirms all requests up to the number `heard`.
    #[must_use]
    pub fn on_heard(&mut self, now: Instant, node: NodeId, heard: u64) -> Sent {
        let line = self.line(node);
        line.beat = Some(now);
        line.unheard = line.unheard.split_off(&(heard + 1));
        let is_late = line.unheard.values().any(|unheard| now.duration_since(unheard.sent) >= AGAIN_AFTER);
        if is_late { line.again(node).collect() } else { Sent::new() }
    }

    /// The nodes that the tree reaches, where they are too many to be asked one by one.
    #[must_use]
    pub fn on_tree(&self) -> BTreeSet<NodeId> {
        let passing = self.lines.iter().filter(|(_, line)| line.passing().is_some());
        let nodes: BTreeSet<NodeId> = passing.map(|(node, _)| *node).collect();
        if nodes.len() > self.radix as usize { nodes } else { BTreeSet::new() }
    }

    /// These nodes have answered something that they were asked at this time: as good as a heartbeat of then.
    pub fn on_answered(&mut self, nodes: &BTreeSet<NodeId>, asked: Instant) {
        for node in nodes {
            let line = self.line(*node);
            line.beat = line.beat.map(|beat| beat.max(asked));
        }
    }

    /// Whether all of these nodes, but for lost ones, have given a heartbeat since then.
    #[must_use]
    pub fn are_heard<'a>(&self, nodes: impl IntoIterator<Item = &'a NodeId>, since: Instant) -> bool {
        let beat = |node| self.lines.get(node).and_then(|line| line.beat);
        nodes.into_iter().all(|node| beat(node).is_none_or(|beat| beat >= since))
    }

    /// A node is lost.
    #[must_use]
    pub fn on_lost(&mut self, node: NodeId) -> Sent {
        let line = self.line(node);
        (line.daemon, line.beat) = (None, None);
        line.unheard.clear();
        self.around(node)
    }

    /// Nothing is heard of a node.
    #[must_use]
    pub fn on_silent(&mut self, node: NodeId) -> Sent {
        self.line(node).is_silent = true;
        self.around(node)
    }

    /// A silent node is heard again.
    pub fn on_heard_again(&mut self, node: NodeId) {
        self.line(node).is_silent = false;
    }

    /// A daemon has not reached that of another node. The tree leaves it out until it has another one.
    #[must_use]
    pub fn on_not_passed(&mut self, node: NodeId, incarnation: u64) -> Sent {
        let line = self.line(node);
        if line.daemon != Some(incarnation) {
            return Sent::new();
        }
        line.is_out_of_reach = true;
        self.around(node)
    }

    /// What was to pass this node, or to reach it, goes by the sessions.
    fn around(&mut self, lost: NodeId) -> Sent {
        let is_concerned = |(node, line): &(&NodeId, &mut Line)| {
            line.unheard.values().any(|unheard| unheard.tree.passes(lost, **node))
        };
        let concerned = self.lines.iter_mut().filter(is_concerned);
        concerned.flat_map(|(node, line)| line.again(*node)).collect()
    }
}

/// The nodes that the next outputs ask the same as `node`, which is the first of them.
pub fn asked_as_well(
    node: NodeId,
    request: &AppRequest,
    outputs: &mut Peekable<impl Iterator<Item = Output>>,
) -> Vec<NodeId> {
    let mut nodes = vec![node];
    let is_same = |output: &Output| matches!(output, Output::Ask(_, other) if other == request);
    while let Some(Output::Ask(node, _)) = outputs.next_if(is_same) {
        nodes.push(node);
    }
    nodes
}

#[cfg(test)]
mod tests;
