//! The primitives in the simulation: the master starts operations on the global memory all the time, and the
//! audit looks which nodes carry them out. Each leaves a mark at an address of its own.

use std::collections::{BTreeMap, BTreeSet};

use coswitch_daemon::protocol::{Asked, DaemonEvent};
use coswitch_policies::{
    NodeId,
    primitives::{
        Address, Answer, Comparison, Members, Message, Number, Operation, Operations, Outcome, Report,
        Request, Sent, Value,
    },
};

use super::{
    context::{Context, Event},
    daemon::Daemon,
    head::{Head, Master},
    plan::millis,
};

/// How often an operation is started: seldom, to save events.
const EVERY_MS: u64 = 500;
/// After so many later ones an operation is given up.
const PATIENCE: usize = 4;
/// Words that operations share.
const WORDS: usize = 2;
/// The mark of an operation lies here or at a later address.
const MARKS: u32 = 1000;

/// All operations so far.
#[derive(Default)]
pub(super) struct Ledger {
    started: Vec<Started>,
    /// Daemons that were void, each with the number of operations that had been started by then.
    void: BTreeMap<(NodeId, u64), usize>,
    /// Outcomes that the audit has not seen, and the nodes that count.
    fresh: Vec<(usize, Outcome, Members)>,
}

struct Started {
    number: Number,
    /// Those that were asked.
    nodes: Members,
    is_over: bool,
}

impl Ledger {
    fn on_sent(&mut self, message: &Message) {
        if let Request::Ask { number, nodes, .. } = &message.request
            && let Some(started) = self.started.iter_mut().rev().find(|started| started.number == *number)
        {
            started.nodes.clone_from(nodes);
        }
    }

    fn is_void(&self, node: NodeId, life: u64, index: usize) -> bool {
        self.void.get(&(node, life)).is_some_and(|by_then| index < *by_then)
    }

    /// Whether each of these daemons that were asked has carried out the operation.
    fn marks(&self, index: usize, daemons: &[Daemon], members: &Members) -> Vec<(NodeId, bool)> {
        let Started { number, nodes, .. } = &self.started[index];
        let counts = |(node, life): &(&NodeId, &u64)| {
            let is_same = members.get(node) == Some(life) && daemons[node.0 as usize].life == **life;
            is_same && !self.is_void(**node, **life, index)
        };
        let mark = |(node, _): (&NodeId, &u64)| {
            let signals = daemons[node.0 as usize].global.word(Address(MARKS + index as u32));
            assert!(matches!(signals, None | Some(1)), "{number:?} is carried out once on {node}");
            (*node, signals.is_some())
        };
        nodes.iter().filter(counts).map(mark).collect()
    }

    /// An outcome is true when it is seen.
    pub(super) fn look(&mut self, daemons: &[Daemon]) {
        for (index, outcome, members) in std::mem::take(&mut self.fresh) {
            for (node, has) in self.marks(index, daemons, &members) {
                let number = self.started[index].number;
                assert_eq!(has, outcome.is_carried_out(), "{node} has carried {number:?} out: {outcome:?}");
            }
        }
    }

    /// At the end of a run: all operations are over, on all of their nodes or on none.
    pub(super) fn check_end(&self, daemons: &[Daemon], master: &Master) {
        let living = master.members.iter().filter(|(node, _)| !master.lost.contains_key(node));
        let living: Members = living.map(|(node, life)| (*node, *life)).collect();
        assert_eq!(*master.operations.members(), living, "all living nodes count");
        for (index, started) in self.started.iter().enumerate() {
            let marks = self.marks(index, daemons, &living);
            let is_one = marks.iter().all(|(_, has)| *has == marks[0].1);
            assert!(is_one, "all nodes or none carry {:?} out: {marks:?}", started.number);
            let is_own = started.number.generation == master.generation;
            assert!(started.is_over || !is_own, "{:?} has no end", started.number);
        }
    }
}

impl Head {
    /// Starts the next operation, and gives an old one up.
    pub(super) fn on_operation(&mut self, ctx: &mut Context) {
        let Some(master) = &mut self.master else { return };
        if ctx.now.since(coswitch_policies::SimTime(0)) >= ctx.plan.calm {
            return;
        }
        ctx.after(millis(EVERY_MS), Event::Operation(master.generation));
        let index = ctx.ledger.started.len();
        if let Some(old) = index.checked_sub(PATIENCE).map(|old| ctx.ledger.started[old].number) {
            master.by_operations(ctx, |operations| operations.give_up(old));
        }
        let is_in = |node: &NodeId| index.is_multiple_of(3) || (index >> node.0) & 1 == 1;
        let nodes: BTreeSet<NodeId> = master.members.keys().copied().filter(is_in).collect();
        let (word, mark) = (Address((index % WORDS) as u32), Address(MARKS + index as u32));
        let operation = match index % 2 {
            0 => Operation::Transfer { to: word, value: Value::Word(index as i64), signal: Some(mark) },
            _ => Operation::Compare {
                variable: Address(0),
                comparison: Comparison::AtLeast,
                value: index as i64 - 2,
                write: Some((mark, 1)),
            },
        };
        let (number, sent) = master.operations.start(nodes, operation);
        ctx.say(|| format!("the master starts {number:?}"));
        ctx.ledger.started.push(Started { number, nodes: Members::new(), is_over: false });
        master.by_operations(ctx, |_| sent);
    }
}

impl Master {
    pub(super) fn by_operations(
        &mut self,
        ctx: &mut Context,
        act: impl FnOnce(&mut Operations) -> Vec<Sent>,
    ) {
        let sent = act(&mut self.operations);
        for (nodes, message) in sent {
            ctx.ledger.on_sent(&message);
            let sent = self.ways.send(ctx.instant(), &nodes, &Asked::Primitive(message));
            self.send(ctx, sent);
        }
        for (index, started) in ctx.ledger.started.iter_mut().enumerate() {
            if started.is_over || started.number.generation != self.generation {
                continue;
            }
            if let Some(outcome) = self.operations.test_event(started.number) {
                started.is_over = true;
                ctx.ledger.fresh.push((index, outcome, self.operations.members().clone()));
            }
        }
    }
}

impl Daemon {
    pub(super) fn on_primitive(&mut self, ctx: &mut Context, message: Message) {
        let is_forget = matches!(message.request, Request::Forget { .. });
        let Some(answer) = self.global.on_message(message) else { return };
        // A node that was never admitted has nothing to forget.
        let is_as_new = matches!(&answer, Answer::Holds(report) if **report == Report::default());
        if is_forget || is_as_new {
            ctx.ledger.void.insert((self.node, self.life), ctx.ledger.started.len());
        }
        self.machine.tell(ctx, DaemonEvent::Primitive(answer));
    }
}
