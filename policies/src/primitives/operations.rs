//! The master's side of the primitives: starts one operation after the other, decides each, and minds which
//! nodes count.
//!
//! ```text
//!   queued ─▶ asked ─all have answered, are lost, or it is given up─▶ decided ─all living have it─▶ over
//!     └─ a node of its set is not on the roster ─────────────────────────────────────────────────────▲
//! ```
//! The next operation is asked once the one before is decided. Each call returns what is to be sent, in
//! order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Answer, Members, Message, Number, Operation, Outcome, Report, Request, Roster, Sent};
use crate::NodeId;

/// How many outcomes wait to be taken; the oldest one is forgotten.
const OUTCOMES_MAX: usize = 4096;

/// See the module.
#[derive(Clone, Debug)]
pub struct Operations {
    pub(super) generation: u64,
    sequence: u64,
    /// Daemons that have been asked what they hold, and that are not on the roster.
    pub(super) newcomers: BTreeMap<NodeId, Newcomer>,
    /// No node of the cluster is missing among the newcomers: the last master's operations can be settled.
    pub(super) all_are_known: bool,
    pub(super) has_taken_over: bool,
    pub(super) roster: Roster,
    /// Decisions that these nodes, which are lost, may not know.
    kept: BTreeMap<Number, BTreeSet<NodeId>>,
    queue: VecDeque<(Number, Call)>,
    asked: Option<Asked>,
    pub(super) decided: BTreeMap<Number, Decided>,
    over: BTreeMap<Number, Outcome>,
    pub(super) sent: Vec<Sent>,
}

#[derive(Clone, Debug)]
pub(super) struct Newcomer {
    pub(super) incarnation: u64,
    pub(super) report: Option<Report>,
}

#[derive(Clone, Debug)]
struct Call {
    nodes: BTreeSet<NodeId>,
    operation: Operation,
}

/// An operation on its way to its decision.
#[derive(Clone, Debug)]
struct Asked {
    number: Number,
    call: Call,
    /// Nodes that have not answered.
    open: BTreeSet<NodeId>,
    refused: BTreeSet<NodeId>,
    lost: BTreeSet<NodeId>,
}

/// An operation whose decision is on its way.
#[derive(Clone, Debug)]
pub(super) struct Decided {
    /// Nodes that have not confirmed it.
    pub(super) open: BTreeSet<NodeId>,
    pub(super) outcome: Outcome,
}

impl Operations {
    /// Of the master of this generation.
    #[must_use]
    pub fn new(generation: u64) -> Self {
        Self {
            generation,
            sequence: 0,
            newcomers: BTreeMap::new(),
            all_are_known: false,
            has_taken_over: false,
            roster: Roster { generation, ..Roster::default() },
            kept: BTreeMap::new(),
            queue: VecDeque::new(),
            asked: None,
            decided: BTreeMap::new(),
            over: BTreeMap::new(),
            sent: Vec::new(),
        }
    }

    /// The nodes that count at the moment.
    #[must_use]
    pub const fn members(&self) -> &Members {
        &self.roster.members
    }

    /// A session with the daemon of a node begins.
    #[must_use]
    pub fn on_daemon(&mut self, node: NodeId, incarnation: u64) -> Vec<Sent> {
        self.lose(node);
        self.newcomers.insert(node, Newcomer { incarnation, report: None });
        self.send([node], Request::Describe);
        self.go_on()
    }

    /// Sessions with the daemons of all nodes have begun, but for those that count as lost: a new master goes
    /// on with what the one before has left when all of them have answered.
    #[must_use]
    pub fn on_all_known(&mut self) -> Vec<Sent> {
        self.all_are_known = true;
        self.welcome();
        self.go_on()
    }

    /// A node is lost, with its daemon.
    #[must_use]
    pub fn on_lost(&mut self, node: NodeId) -> Vec<Sent> {
        self.lose(node);
        self.welcome();
        self.go_on()
    }

    /// Starts an operation on these nodes. The number is its place in the order, and its local event.
    #[must_use]
    pub fn start(&mut self, nodes: BTreeSet<NodeId>, operation: Operation) -> (Number, Vec<Sent>) {
        let number = self.next();
        self.queue.push_back((number, Call { nodes, operation }));
        (number, self.go_on())
    }

    /// TEST-EVENT: takes the outcome of an operation, if that is over.
    #[must_use]
    pub fn test_event(&mut self, number: Number) -> Option<Outcome> {
        self.over.remove(&number)
    }

    /// Whether an operation was started and is not over.
    #[must_use]
    pub fn is_on_its_way(&self, number: Number) -> bool {
        let is_asked = self.asked.as_ref().is_some_and(|asked| asked.number == number);
        let is_queued = || self.queue.iter().any(|(queued, _)| *queued == number);
        is_asked || self.decided.contains_key(&number) || is_queued()
    }

    /// The caller waits no longer for nodes that have not answered: an operation that is not decided is
    /// dropped.
    #[must_use]
    pub fn give_up(&mut self, number: Number) -> Vec<Sent> {
        if let Some(index) = self.queue.iter().position(|(queued, _)| *queued == number)
            && let Some((_, call)) = self.queue.remove(index)
        {
            self.over.insert(number, dropped_by(BTreeSet::new(), call.nodes));
        } else if let Some(asked) = self.asked.take_if(|asked| asked.number == number) {
            self.decide(asked);
        }
        self.go_on()
    }

    /// A daemon with which a session has begun has answered.
    #[must_use]
    pub fn on_answer(&mut self, node: NodeId, answer: Answer) -> Vec<Sent> {
        match answer {
            Answer::Holds(report) => {
                if let Some(newcomer) = self.newcomers.get_mut(&node) {
                    newcomer.report = Some(*report);
                    self.welcome();
                }
            }
            Answer::Answered { number, holds } => {
                if let Some(asked) = self.asked.as_mut().filter(|asked| asked.number == number)
                    && asked.open.remove(&node)
                    && !holds
                {
                    asked.refused.insert(node);
                }
            }
            Answer::Decided { number } => {
                if let Some(decided) = self.decided.get_mut(&number) {
                    decided.open.remove(&node);
                }
            }
        }
        self.go_on()
    }

    /// All that follows from the loss of a node.
    fn lose(&mut self, node: NodeId) {
        self.newcomers.remove(&node);
        if self.roster.members.remove(&node).is_none() {
            return;
        }
        if let Some(asked) = &mut self.asked
            && asked.call.nodes.contains(&node)
        {
            asked.open.remove(&node);
            asked.lost.insert(node);
            self.kept.entry(asked.number).or_default().insert(node);
        }
        let members: BTreeSet<NodeId> = self.roster.members.keys().copied().collect();
        let mut dropped = Vec::new();
        for (number, decided) in &mut self.decided {
            if !decided.open.remove(&node) {
                continue;
            }
            self.kept.entry(*number).or_default().insert(node);
            let (Outcome::CarriedOut { lost } | Outcome::Dropped { lost, .. }) = &mut decided.outcome;
            lost.insert(node);
            if !decided.outcome.is_carried_out() {
                decided.open.clone_from(&members);
                dropped.push(*number);
            }
        }
        for number in dropped {
            self.send(members.clone(), Request::Decide { number, carries_out: false });
        }
    }

    /// Lost nodes have other daemons now, whose memories are empty, or have forgotten theirs.
    pub(super) fn forget_losses(&mut self, nodes: &BTreeSet<NodeId>) {
        self.kept.retain(|_, lost| {
            lost.retain(|node| !nodes.contains(node));
            !lost.is_empty()
        });
    }

    pub(super) fn send(&mut self, nodes: impl IntoIterator<Item = NodeId>, request: Request) {
        let nodes: Vec<NodeId> = nodes.into_iter().collect();
        if !nodes.is_empty() {
            self.sent.push((nodes, Message { generation: self.generation, request }));
        }
    }

    /// Decides, ends and asks whatever can be by now.
    fn go_on(&mut self) -> Vec<Sent> {
        if let Some(asked) = self.asked.take_if(|asked| asked.open.is_empty()) {
            self.decide(asked);
        }
        self.end();
        while self.over.len() > OUTCOMES_MAX {
            self.over.pop_first();
        }
        while self.can_ask_next()
            && let Some((number, call)) = self.queue.pop_front()
        {
            self.ask(number, call);
        }
        std::mem::take(&mut self.sent)
    }

    /// A daemon that is about to count is waited for.
    fn can_ask_next(&self) -> bool {
        let awaits =
            |(_, call): &(Number, Call)| call.nodes.iter().any(|node| self.newcomers.contains_key(node));
        self.has_taken_over && self.asked.is_none() && !self.queue.front().is_some_and(awaits)
    }

    fn ask(&mut self, number: Number, call: Call) {
        let members = &self.roster.members;
        let member = |node: &NodeId| members.get(node).map(|incarnation| (*node, *incarnation));
        let nodes: Members = call.nodes.iter().filter_map(member).collect();
        let absent = call.nodes.iter().filter(|node| !nodes.contains_key(node)).copied();
        let lost: BTreeSet<NodeId> = absent.collect();
        if !lost.is_empty() || nodes.is_empty() {
            let outcome = if lost.is_empty() {
                Outcome::CarriedOut { lost }
            } else {
                dropped_by(lost, BTreeSet::new())
            };
            self.over.insert(number, outcome);
            return;
        }
        let open_from = self.decided.keys().next().copied().unwrap_or(number);
        let operation = call.operation.clone();
        let kept = self.kept.keys().copied().collect();
        self.send(call.nodes.clone(), Request::Ask { number, nodes, operation, open_from, kept });
        let (open, refused) = (call.nodes.clone(), BTreeSet::new());
        self.asked = Some(Asked { number, call, open, refused, lost });
    }

    fn decide(&mut self, asked: Asked) {
        let Asked { number, call, open: late, refused, lost } = asked;
        let carries_out = refused.is_empty() && lost.is_empty() && late.is_empty();
        let has_lost = !lost.is_empty();
        // Where a node is lost, all have to know that it is dropped.
        let open: BTreeSet<NodeId> =
            if has_lost { self.roster.members.keys().copied().collect() } else { call.nodes };
        let outcome = match carries_out {
            true => Outcome::CarriedOut { lost },
            false => Outcome::Dropped { refused, lost, late },
        };
        if !call.operation.changes_memory() {
            self.over.insert(number, outcome);
            return;
        }
        self.send(open.clone(), Request::Decide { number, carries_out });
        self.decided.insert(number, Decided { open, outcome });
    }

    /// The operations whose decisions are known everywhere.
    fn end(&mut self) {
        let is_open = |decided: &Decided| !decided.open.is_empty();
        let decided = std::mem::take(&mut self.decided).into_iter();
        let (open, over): (BTreeMap<_, _>, BTreeMap<_, _>) = decided.partition(|(_, one)| is_open(one));
        self.decided = open;
        // The caller of an earlier master's operation has died with that one.
        let own = over.into_iter().filter(|(number, _)| number.generation == self.generation);
        self.over.extend(own.map(|(number, decided)| (number, decided.outcome)));
    }

    pub(super) const fn next(&mut self) -> Number {
        self.sequence += 1;
        Number { generation: self.generation, sequence: self.sequence }
    }
}

fn dropped_by(lost: BTreeSet<NodeId>, late: BTreeSet<NodeId>) -> Outcome {
    Outcome::Dropped { refused: BTreeSet::new(), lost, late }
}
