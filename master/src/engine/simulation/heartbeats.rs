//! Heartbeats of the simulation: those of the sessions, and the question that a master asks all of its nodes
//! by the tree, for half of the seeds. As `dispatcher::sessions` and the daemon's control loop have them.

use std::collections::BTreeSet;

use coswitch_daemon::{
    node_clock::{Boot, Reading},
    protocol::{DaemonEvent, Request},
};
use coswitch_dispatcher::watch::{ANSWER_LIMIT, Answered};
use coswitch_policies::{NodeId, primitives::Operation};

use super::{
    HEARTBEAT,
    context::{Context, Event},
    daemon::Daemon,
    head::{Head, Master},
    network::{Message, Wire},
};

impl Head {
    /// The heartbeat of the session with a node, if it is not left out.
    pub(super) fn beat(&mut self, node: NodeId) -> Option<Message> {
        let Some(master) = &mut self.master else { return None };
        let every = master.watch.on_beat(node)?;
        Some(master.alive(node, every))
    }

    pub(super) fn on_period(&mut self, ctx: &mut Context) {
        let Some(master) = &mut self.master else { return };
        ctx.after(HEARTBEAT, Event::Period(master.generation));
        ctx.after(ANSWER_LIMIT, Event::Answers(master.generation));
        let members = master.operations.members();
        let on_tree = master.ways.on_tree().into_iter();
        let nodes: BTreeSet<NodeId> = on_tree.filter(|node| members.contains_key(node)).collect();
        let singly = master.watch.on_period(&nodes);
        master.ask_singly(ctx, singly);
        if !nodes.is_empty() {
            let question = Operation::follows(master.generation);
            let (number, sent) = master.operations.start(nodes.clone(), question);
            master.watch.on_asked(ctx.instant(), number, nodes);
            master.by_operations(ctx, |_| sent);
        }
    }

    /// The time for answers is over.
    pub(super) fn on_answers(&mut self, ctx: &mut Context) {
        let Some(master) = &mut self.master else { return };
        let Some(number) = master.watch.question() else { return };
        master.by_operations(ctx, |operations| operations.give_up(number));
        let outcome = master.operations.test_event(number).expect("it is over");
        if let Some(Answered { by, asked, singly }) = master.watch.on_outcome(&outcome) {
            master.ways.on_answered(&by, asked);
            master.ask_singly(ctx, singly);
        }
    }
}

impl Master {
    fn alive(&self, node: NodeId, every: u32) -> Message {
        let (heard, clock) = (self.ways.heard_of(node), Reading::own(&Boot::default()));
        Message::ToDaemon(Request::Alive { heard, clock, every })
    }

    fn ask_singly(&self, ctx: &mut Context, nodes: BTreeSet<NodeId>) {
        for node in nodes {
            ctx.say(|| format!("{node} has not answered with the others"));
            if let Some(wire) = self.wires.get(&node) {
                ctx.send(*wire, self.alive(node, 1));
            }
        }
    }
}

impl Daemon {
    /// The heartbeat of a session, if it is not left out.
    pub(super) fn beat(&mut self, session: Wire) -> Option<Message> {
        if self.machine.session != Some(session) {
            return Some(Message::ToHead(DaemonEvent::Alive { heard: 0 }));
        }
        self.beats += 1;
        (self.beats >= self.every).then(|| self.alive())
    }

    fn alive(&mut self) -> Message {
        self.beats = 0;
        Message::ToHead(DaemonEvent::Alive { heard: self.asked.heard() })
    }

    /// How many of its heartbeats the session has from now on.
    pub(super) fn on_rate(&mut self, ctx: &mut Context, every: u32) {
        if std::mem::replace(&mut self.every, every) > every
            && let Some(session) = self.machine.session
        {
            let alive = self.alive();
            ctx.send(session, alive);
        }
    }
}
