//! Model of a cluster for the tests of the cut: nodes with FIFO links between them, and a checkpoint
//! scheduler. A test chooses each step; the model checks after each step that no message overtakes another
//! and, at each complete flush, that the cut is consistent.

use std::{
    collections::{BTreeSet, VecDeque},
    rc::Rc,
};

use coswitch_policies::{Epoch, NodeId};

use super::{Arrival, Cut, CutReport, Inbox, Input, Output};

/// Faults, delays and traffic of a world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Rules {
    pub(super) nodes: usize,
    /// Number of messages on each ordered pair of nodes, row by row.
    pub(super) messages: Vec<u8>,
    pub(super) epochs: u64,
    /// Freezing takes a step of its own, in which the ranks still send.
    pub(super) slow_freeze: bool,
    /// A rank's ring may be full, so that a message waits in the inbox.
    pub(super) full_rings: bool,
    /// Number of failed freezes and of epochs that the scheduler gives up.
    pub(super) faults: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Send(usize, usize),
    Receive(usize, usize),
    ReceiveFullRing(usize, usize),
    Drain(usize, usize),
    Freeze(usize),
    FailFreeze(usize),
    Order(usize),
    Begin,
    Abort,
    Resume,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Wire {
    Message(u8),
    Marker(Epoch),
}

/// Numbers of messages that a node's ranks have sent to and received from each node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Ranks {
    sent: Vec<u8>,
    received: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Node {
    cut: Cut,
    inbox: Inbox<usize, u8>,
    ranks: Ranks,
    freeze_wanted: Option<Epoch>,
    frozen: bool,
    /// The node's own state in the cut of this epoch.
    recorded: Option<(Epoch, Ranks)>,
    orders: VecDeque<Input>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Scheduler {
    Idle,
    Flushing { flushed: BTreeSet<usize> },
    Flushed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    /// Shared between worlds until one changes it: a step touches one node and one link of many.
    nodes: Vec<Rc<Node>>,
    links: Vec<Rc<VecDeque<Wire>>>,
    scheduler: Scheduler,
    epoch: Epoch,
    faults_left: u8,
    /// Number of complete, consistent cuts.
    pub(super) snapshots: u64,
}

fn id(node: usize) -> NodeId {
    NodeId(u32::try_from(node).expect("few nodes"))
}

impl World {
    pub(super) fn new(rules: &Rules) -> Self {
        let node = |me| Node {
            cut: Cut::new((0..rules.nodes).filter(|&peer| peer != me).map(id)),
            inbox: Inbox::default(),
            ranks: Ranks { sent: vec![0; rules.nodes], received: vec![0; rules.nodes] },
            freeze_wanted: None,
            frozen: false,
            recorded: None,
            orders: VecDeque::new(),
        };
        Self {
            nodes: (0..rules.nodes).map(|me| Rc::new(node(me))).collect(),
            links: vec![Rc::default(); rules.nodes * rules.nodes],
            scheduler: Scheduler::Idle,
            epoch: Epoch(0),
            faults_left: rules.faults,
            snapshots: 0,
        }
    }

    fn node(&mut self, at: usize) -> &mut Node {
        Rc::make_mut(&mut self.nodes[at])
    }

    fn link(&mut self, rules: &Rules, from: usize, to: usize) -> &mut VecDeque<Wire> {
        Rc::make_mut(&mut self.links[from * rules.nodes + to])
    }

    /// All possible steps, in a fixed order.
    pub(super) fn steps(&self, rules: &Rules, into: &mut Vec<Step>) {
        into.clear();
        for at in 0..rules.nodes {
            let node = &self.nodes[at];
            for peer in (0..rules.nodes).filter(|&peer| peer != at) {
                if !node.frozen && node.ranks.sent[peer] < rules.messages[at * rules.nodes + peer] {
                    into.push(Step::Send(at, peer));
                }
                match self.links[peer * rules.nodes + at].front() {
                    Some(Wire::Message(_)) if rules.full_rings => {
                        into.extend([Step::Receive(peer, at), Step::ReceiveFullRing(peer, at)]);
                    }
                    Some(_) => into.push(Step::Receive(peer, at)),
                    None => {}
                }
                if node.inbox.front(&peer, &node.cut).is_some() {
                    into.push(Step::Drain(peer, at));
                }
            }
            if node.freeze_wanted.is_some() {
                into.push(Step::Freeze(at));
                if self.faults_left > 0 {
                    into.push(Step::FailFreeze(at));
                }
            }
            if !node.orders.is_empty() {
                into.push(Step::Order(at));
            }
        }
        match &self.scheduler {
            Scheduler::Idle if self.epoch.0 < rules.epochs => into.push(Step::Begin),
            Scheduler::Idle => {}
            Scheduler::Flushing { .. } if self.faults_left > 0 => into.push(Step::Abort),
            Scheduler::Flushing { .. } => {}
            Scheduler::Flushed => {
                into.push(Step::Resume);
                if self.faults_left > 0 {
                    into.push(Step::Abort);
                }
            }
        }
    }

    pub(super) fn take(&mut self, rules: &Rules, step: Step) {
        match step {
            Step::Send(from, to) => {
                let sent = &mut self.node(from).ranks.sent[to];
                *sent += 1;
                let message = *sent;
                self.link(rules, from, to).push_back(Wire::Message(message));
            }
            Step::Receive(from, to) => self.receive(rules, from, to, true),
            Step::ReceiveFullRing(from, to) => self.receive(rules, from, to, false),
            Step::Drain(from, to) => {
                let message = self.node(to).inbox.pop(&from).expect("offered only where one waits");
                self.deliver(from, to, message);
            }
            Step::Freeze(at) => self.freeze(rules, at),
            Step::FailFreeze(at) => {
                self.faults_left -= 1;
                let epoch = self.node(at).freeze_wanted.take().expect("offered only where wanted");
                self.feed(rules, at, Input::FreezeFailed { epoch });
            }
            Step::Order(at) => {
                let order = self.node(at).orders.pop_front().expect("offered only where one waits");
                if let Input::Resumed { .. } = order {
                    self.thaw(at);
                }
                self.feed(rules, at, order);
            }
            Step::Begin => {
                self.epoch.0 += 1;
                self.scheduler = Scheduler::Flushing { flushed: BTreeSet::new() };
                self.order_all(Input::Begin { epoch: self.epoch });
            }
            Step::Abort => {
                self.faults_left -= 1;
                self.give_up();
            }
            Step::Resume => {
                self.snapshots += 1;
                self.scheduler = Scheduler::Idle;
                self.order_all(Input::Resumed { epoch: self.epoch });
            }
        }
    }

    fn order_all(&mut self, order: Input) {
        (0..self.nodes.len()).for_each(|at| self.node(at).orders.push_back(order));
    }

    fn give_up(&mut self) {
        self.scheduler = Scheduler::Idle;
        self.order_all(Input::Abort { epoch: self.epoch });
    }

    fn receive(&mut self, rules: &Rules, from: usize, to: usize, is_free: bool) {
        let wire = self.link(rules, from, to).pop_front().expect("offered only where one waits");
        match wire {
            Wire::Marker(epoch) => self.feed(rules, to, Input::Marker { from: id(from), epoch }),
            Wire::Message(message) => {
                let node = self.node(to);
                let arrival = node.cut.arrival(id(from)).expect("every node is a peer");
                let sent_after = node.cut.sent_after(id(from)).expect("every node is a peer");
                assert_eq!(arrival == Arrival::Deliver, node.cut.may_deliver(sent_after));
                if arrival == Arrival::Deliver && is_free && node.inbox.is_clear(&from) {
                    self.deliver(from, to, message);
                } else {
                    node.inbox.push(from, sent_after, message);
                }
            }
        }
    }

    fn deliver(&mut self, from: usize, to: usize, message: u8) {
        let node = self.node(to);
        assert!(
            !node.frozen || node.freeze_wanted.is_some(),
            "no message is delivered once the state is recorded"
        );
        node.ranks.received[from] += 1;
        assert_eq!(node.ranks.received[from], message, "messages arrive once and in order");
    }

    fn freeze(&mut self, rules: &Rules, at: usize) {
        let node = self.node(at);
        let epoch = node.freeze_wanted.take().expect("offered only where wanted");
        node.frozen = true;
        node.recorded = Some((epoch, node.ranks.clone()));
        self.feed(rules, at, Input::Frozen { epoch });
    }

    fn thaw(&mut self, at: usize) {
        let node = self.node(at);
        (node.freeze_wanted, node.frozen, node.recorded) = (None, false, None);
    }

    fn feed(&mut self, rules: &Rules, at: usize, input: Input) {
        for output in self.node(at).cut.on(input) {
            match output {
                Output::FreezeRanks { epoch } => {
                    self.node(at).freeze_wanted = Some(epoch);
                    if !rules.slow_freeze {
                        self.freeze(rules, at);
                    }
                }
                Output::ThawRanks { .. } => self.thaw(at),
                Output::SendMarker { to, epoch } => {
                    self.link(rules, at, to.0 as usize).push_back(Wire::Marker(epoch));
                }
                Output::Report(report) => self.on_report(at, report),
            }
        }
    }

    fn on_report(&mut self, at: usize, report: CutReport) {
        match (&mut self.scheduler, report) {
            (Scheduler::Flushing { flushed }, CutReport::Flushed { epoch }) if epoch == self.epoch => {
                assert!(flushed.insert(at), "a flush is reported once");
                if flushed.len() == self.nodes.len() {
                    self.check_cut();
                    self.scheduler = Scheduler::Flushed;
                }
            }
            (Scheduler::Flushing { .. }, CutReport::Failed { epoch, .. }) if epoch == self.epoch => {
                self.give_up()
            }
            (
                _,
                CutReport::Flushed { epoch } | CutReport::Aborted { epoch } | CutReport::Failed { epoch, .. },
            ) => {
                assert!(epoch <= self.epoch, "no node is ahead of the scheduler");
            }
        }
    }

    /// On every channel: received before the cut + channel state = sent before the cut.
    fn check_cut(&self) {
        let own = |node: &Node| match &node.recorded {
            Some((epoch, ranks)) if *epoch == self.epoch => ranks.clone(),
            other => panic!("flushed {} with the state of {other:?}", self.epoch),
        };
        for (to, receiver) in self.nodes.iter().enumerate() {
            assert!(
                receiver.frozen && receiver.cut.is_flushed(self.epoch),
                "frozen until the scheduler's order"
            );
            for (from, sender) in self.nodes.iter().enumerate().filter(|(from, _)| *from != to) {
                let waiting = receiver.inbox.before(self.epoch).filter(|(lane, _)| **lane == from);
                let state: Vec<u8> = waiting.map(|(_, message)| *message).collect();
                let expected: Vec<u8> = (own(receiver).received[from] + 1..=own(sender).sent[to]).collect();
                assert_eq!(state, expected, "channel state {from} -> {to}");
                assert!(own(receiver).received[from] <= own(sender).sent[to], "received before it was sent");
            }
        }
    }

    /// After the last step: all messages have arrived, and all nodes run.
    pub(super) fn check_end(&self, rules: &Rules) {
        assert!(self.links.iter().all(|link| link.is_empty()), "no message is in flight: {self:?}");
        assert_eq!(
            (&self.scheduler, self.epoch.0),
            (&Scheduler::Idle, rules.epochs),
            "every epoch has ended: {self:?}"
        );
        for (at, node) in self.nodes.iter().enumerate() {
            assert!(!node.frozen && node.cut.epoch().is_none() && node.inbox.is_empty(), "runs on: {node:?}");
            for peer in 0..rules.nodes {
                assert_eq!(
                    node.ranks.received[peer],
                    rules.messages[peer * rules.nodes + at],
                    "{peer} -> {at}"
                );
            }
        }
        if rules.faults == 0 {
            assert_eq!(self.snapshots, rules.epochs, "without faults every epoch ends in a snapshot");
        }
    }
}
