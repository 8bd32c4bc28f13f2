//! The sessions of a master of the simulation with its daemons, as `dispatcher::sessions` has them: who is
//! connected, joins, is silent, is lost, or is back.

use std::collections::VecDeque;

use coswitch_daemon::{
    protocol::{AppRequest, Asked, DaemonEvent, Held, Member, Request, Said, VERSION},
    session::rules::Lull,
};
use coswitch_dispatcher::{app, protocol::NodeEvent, ways::Sent};
use coswitch_policies::{
    JobId, NodeId,
    local::explicit::{CommonSlices, Slices},
    strobe::{Rows, Strobe},
};

use super::{
    context::{Context, Event},
    dispatchers::Note,
    head::{Head, Master},
    network::{Message, Purpose, Wire},
    plan::millis,
};
use crate::engine::run::Input;

/// For a connection to one daemon, and for all daemons to join.
const CONNECT_MS: u64 = 10_000;

impl Head {
    /// Masters connect to one node after the other.
    pub(super) fn connect_next(&mut self, ctx: &mut Context) {
        let Some(master) = &mut self.master else { return };
        let generation = master.generation;
        let next = (0..ctx.plan.nodes).map(NodeId).find(|node| !master.wires.contains_key(node));
        match next {
            Some(node) => {
                master.connect(ctx, node);
                master.wait(ctx);
            }
            None => {
                master.to_join = master.living();
                // Later masters find links to daemons that were replaced.
                let at_once = if generation == 1 { master.to_join.len() } else { 1 };
                (0..at_once).for_each(|_| master.ask_next_to_join(ctx));
            }
        }
    }

    /// A step of the start has taken too long, perhaps: the master gives up, and its operator tries again.
    pub(super) fn on_too_late(&mut self, ctx: &mut Context, stage: u32) {
        let Some(master) = self.master.as_ref().filter(|master| master.stage == stage) else { return };
        match master.run {
            None => self.fail_start(ctx, "a node does not answer"),
            Some(_) => self.fail_rejoin(ctx, "no answer in time"),
        }
    }

    fn fail_start(&mut self, ctx: &mut Context, why: &str) {
        ctx.say(|| format!("the master cannot start: {why}"));
        self.master_ends(ctx, false);
        ctx.soon(200_000, 2_000_000, Event::Operator);
    }

    pub(super) fn on_message(&mut self, ctx: &mut Context, wire: Wire, message: Message) {
        let Purpose::Control(generation, node) = ctx.net.purpose(wire) else { unreachable!("no data here") };
        let Some(master) = self.master.as_mut().filter(|master| master.generation == generation) else {
            return;
        };
        if master.wires.get(&node) != Some(&wire.other()) {
            return;
        }
        let (is_welcome, present) = (master.welcome.contains(&node), master.members.get(&node).copied());
        if is_welcome && let Some(silence) = ctx.heard(wire) {
            master.silent.remove(&node);
            master.ways.on_heard_again(node);
            master.note_all(ctx, || Note::Heard(node));
            self.on_node(ctx, NodeEvent::Heard { node, silence });
        }
        match message {
            Message::ToHead(DaemonEvent::Welcome { incarnation, .. }) => {
                self.on_welcome(ctx, node, wire, incarnation)
            }
            Message::ToHead(DaemonEvent::Refused { reason }) => self.fail_connection(ctx, node, &reason),
            Message::ToHead(DaemonEvent::Said(said)) => {
                said.into_iter().for_each(|said| self.on_said(ctx, node, said));
            }
            Message::ToHead(event) => self.route(ctx, node, event),
            Message::Closed if !is_welcome => self.fail_connection(ctx, node, "it hangs up"),
            Message::Closed => {
                ctx.close(wire.other());
                self.lose(ctx, node, present, "peer closed the control connection");
            }
            Message::ToDaemon(_)
            | Message::PassedOn(_)
            | Message::PassedUp(_)
            | Message::Record(..)
            | Message::Marker(..) => unreachable!("daemons send events"),
        }
    }

    fn on_welcome(&mut self, ctx: &mut Context, node: NodeId, wire: Wire, incarnation: u64) {
        let Some(master) = &mut self.master else { return };
        master.welcome.insert(node);
        master.members.insert(node, incarnation);
        master.ways.listen(node);
        master.watch.forget(node);
        master.inventories.remove(&node);
        master.lost_again.remove(&node);
        ctx.listen(wire, ctx.plan.lost_after);
        ctx.after(super::HEARTBEAT, Event::Beats(wire.other()));
        ctx.send(wire.other(), Message::ToDaemon(Request::Inventory));
        if master.run.is_none() {
            return self.connect_next(ctx);
        }
        master.rejoining.push_back(node);
        if master.rejoining.len() == 1 {
            self.rejoin_next(ctx);
        }
    }

    /// The next node with a new daemon joins.
    fn rejoin_next(&mut self, ctx: &mut Context) {
        let Some(master) = &mut self.master else { return };
        let Some(node) = master.rejoining.front().copied() else { return };
        if let Some(why) = master.lost_again.remove(&node) {
            return self.fail_rejoin(ctx, &why);
        }
        // The others first: they let go of their links to the daemon before.
        master.to_join = master.living().into_iter().filter(|other| *other != node).chain([node]).collect();
        master.ask_next_to_join(ctx);
    }

    /// A node has not welcomed the master in time, perhaps.
    pub(super) fn on_not_reached(&mut self, ctx: &mut Context, node: NodeId, wire: Wire) {
        let Some(master) = &mut self.master else { return };
        if master.wires.get(&node) == Some(&wire) && !master.welcome.contains(&node) {
            self.fail_connection(ctx, node, "no answer in time");
        }
    }

    fn fail_connection(&mut self, ctx: &mut Context, node: NodeId, why: &str) {
        let Some(master) = self.master.as_mut().filter(|master| master.run.is_some()) else {
            return self.fail_start(ctx, why);
        };
        // It may answer later.
        if let Some(wire) = master.wires.remove(&node) {
            ctx.close(wire);
        }
        self.not_back(ctx, node, why);
    }

    /// What was waited for has failed.
    fn fail(&mut self, ctx: &mut Context, why: &str) {
        match self.master.as_ref().is_some_and(|master| master.run.is_some()) {
            true => self.fail_rejoin(ctx, why),
            false => self.fail_start(ctx, why),
        }
    }

    /// A node has another daemon. As `Sessions::connect_again`.
    pub(super) fn connect_again(&mut self, ctx: &mut Context, node: NodeId) {
        let Some(master) = &mut self.master else { return };
        let wire = master.connect(ctx, node);
        ctx.after(millis(CONNECT_MS), Event::NotReached(master.generation, node, wire));
    }

    fn end_rejoin(&mut self) -> Option<NodeId> {
        let master = self.master.as_mut()?;
        let node = master.rejoining.pop_front()?;
        master.stage += 1;
        master.to_join.clear();
        master.joining.clear();
        Some(node)
    }

    fn fail_rejoin(&mut self, ctx: &mut Context, why: &str) {
        let Some(node) = self.end_rejoin() else { return };
        self.not_back(ctx, node, why);
        self.rejoin_next(ctx);
    }

    fn not_back(&mut self, ctx: &mut Context, node: NodeId, why: &str) {
        ctx.say(|| format!("{node} is not back: {why}"));
        self.feed(ctx, Input::Node(NodeEvent::NotBack { node, reason: why.into() }));
    }

    /// A node could not be given another daemon.
    pub(super) fn on_not_restarted(&mut self, ctx: &mut Context, node: NodeId) {
        self.feed(ctx, Input::Node(NodeEvent::NotBack { node, reason: "it does not start".into() }));
    }

    fn welcome_back(&mut self, ctx: &mut Context) {
        let Some(master) = &mut self.master else { return };
        let lost_again = master.rejoining.front().and_then(|node| master.lost_again.remove(node));
        if let Some(why) = lost_again {
            return self.fail_rejoin(ctx, &why);
        }
        let Some(node) = self.end_rejoin() else { return };
        let Some(master) = &mut self.master else { return };
        ctx.say(|| format!("{node} is back"));
        master.lost.remove(&node);
        master.open(ctx, node);
        let held = master.inventories.get(&node).map(|inventory| inventory.held.clone()).unwrap_or_default();
        for Held { job, .. } in held {
            let is_known = master.dispatchers.get(&job).is_some_and(|app| app.nodes.contains(&node));
            if !is_known {
                master.release(ctx, node, job);
            }
        }
        self.feed(ctx, Input::Node(NodeEvent::Back { node }));
        if let Some(master) = &mut self.master {
            master.note_all(ctx, || Note::Input(app::Input::NodeBack(node)));
        }
        self.rejoin_next(ctx);
    }

    /// A node has joined.
    fn on_joined(&mut self, ctx: &mut Context, node: NodeId) {
        let Some(master) = &mut self.master else { return };
        if !master.joining.remove(&node) {
            return;
        }
        master.stage += 1;
        self.go_on_joining(ctx);
    }

    fn go_on_joining(&mut self, ctx: &mut Context) {
        let Some(master) = &mut self.master else { return };
        master.ask_next_to_join(ctx);
        if master.joining.is_empty() && master.to_join.is_empty() {
            match master.run {
                None => {
                    master.living().into_iter().for_each(|node| master.open(ctx, node));
                    self.begin(ctx);
                }
                Some(_) => self.welcome_back(ctx),
            }
        }
    }

    pub(super) fn on_lull(&mut self, ctx: &mut Context, wire: Wire, lull: Lull) {
        let Purpose::Control(generation, node) = ctx.net.purpose(wire) else { return };
        let Some(master) = self.master.as_mut().filter(|master| master.generation == generation) else {
            return;
        };
        match lull {
            Lull::Short => {}
            Lull::Silent => {
                ctx.say(|| format!("the master does not hear {node}"));
                master.silent.insert(node);
                let around = master.ways.on_silent(node);
                master.send(ctx, around);
                master.note_all(ctx, || Note::Silent(node));
                self.on_node(ctx, NodeEvent::Silent { node });
            }
            Lull::GivenUp => {
                ctx.close(wire.other());
                let incarnation = master.members.get(&node).copied();
                self.lose(ctx, node, incarnation, "peer was silent for too long");
            }
        }
    }

    /// The session with node `from` brings what its daemon says, or one that has it as its way up.
    fn on_said(&mut self, ctx: &mut Context, from: NodeId, said: Said) {
        let Some(master) = &mut self.master else { return };
        assert!(master.ways.is_genuine(from, &said), "no daemon of the simulation forges anything");
        let Said { node, incarnation, number, event, .. } = said;
        if master.members.get(&node) != Some(&incarnation) || node != from && master.lost.contains_key(&node)
        {
            return;
        }
        let events = master.ways.on_said(node, number, event);
        events.into_iter().for_each(|event| self.route(ctx, node, event));
    }

    fn route(&mut self, ctx: &mut Context, node: NodeId, event: DaemonEvent) {
        let Some(master) = &mut self.master else { return };
        match event {
            DaemonEvent::Inventory(inventory) => drop(master.inventories.insert(node, inventory)),
            DaemonEvent::Alive { heard } => {
                let again = master.ways.on_heard(ctx.instant(), node, heard);
                if !again.is_empty() {
                    ctx.say(|| format!("{node} has not heard what is after {heard}"));
                }
                master.send(ctx, again);
            }
            DaemonEvent::NotPassedOn { to, incarnation } => {
                let around = master.ways.on_not_passed(to, incarnation);
                master.send(ctx, around);
            }
            DaemonEvent::Joined => self.on_joined(ctx, node),
            DaemonEvent::JoinFailed { reason } if master.joining.contains(&node) => self.fail(ctx, &reason),
            DaemonEvent::LinkLost { peer, incarnation, reason, .. } => {
                self.lose(ctx, peer, Some(incarnation), &format!("{node} lost its link to it: {reason}"));
            }
            DaemonEvent::StoodStill(stood_still) => {
                self.on_node(ctx, NodeEvent::StoodStill { node, stood_still });
            }
            DaemonEvent::Allowed { exceeded } => self.on_node(ctx, NodeEvent::Allowed { node, exceeded }),
            DaemonEvent::Primitive(answer) => {
                master.by_operations(ctx, |operations| operations.on_answer(node, answer));
            }
            DaemonEvent::Memory(memory) => self.on_node(ctx, NodeEvent::Memory { node, memory }),
            DaemonEvent::Load { index } => self.on_node(ctx, NodeEvent::Load { node, index }),
            DaemonEvent::App { job, event } => {
                master.note(ctx, job, Note::Input(app::Input::Event(node, event)))
            }
            _ => {}
        }
    }

    /// A daemon is lost: tells every application and the run, once.
    fn lose(&mut self, ctx: &mut Context, node: NodeId, incarnation: Option<u64>, reason: &str) {
        let Some(master) = &mut self.master else { return };
        if incarnation != master.members.get(&node).copied() {
            return;
        }
        master.watch.forget(node);
        let around = master.ways.on_lost(node);
        master.send(ctx, around);
        master.by_operations(ctx, |operations| operations.on_lost(node));
        let was_awaited = master.joining.remove(&node);
        if master.lost.contains_key(&node) {
            master.lost_again.insert(node, reason.into());
            if was_awaited {
                master.lost_again.remove(&node);
                self.fail(ctx, reason);
            }
            return;
        }
        if master.run.is_none() {
            return self.fail_start(ctx, reason);
        }
        master.lost.insert(node, reason.into());
        ctx.say(|| format!("the master has lost {node}: {reason}"));
        let reason = reason.to_string();
        self.on_node(ctx, NodeEvent::Lost { node, reason: reason.clone() });
        let Some(master) = &mut self.master else { return };
        master.silent.remove(&node);
        master.note_all(ctx, || Note::Heard(node));
        master.note_all(ctx, || Note::Input(app::Input::NodeLost(node, reason.clone())));
        // One that is lost meanwhile joins when it is back.
        if was_awaited {
            master.stage += 1;
            self.go_on_joining(ctx);
        }
    }
}

impl Master {
    fn connect(&mut self, ctx: &mut Context, node: NodeId) -> Wire {
        let generation = self.generation;
        let wire = Wire { link: ctx.net.link(Purpose::Control(generation, node)), back: false };
        self.wires.insert(node, wire);
        self.welcome.remove(&node);
        ctx.send(wire, Message::ToDaemon(Request::Hello { version: VERSION, generation }));
        let first = self.ways.begin(node);
        ctx.send(wire, Message::ToDaemon(first));
        wire
    }

    /// Minds the time-out of what is waited for from now on.
    fn wait(&mut self, ctx: &mut Context) {
        self.stage += 1;
        ctx.after(millis(CONNECT_MS), Event::TooLate(self.generation, self.stage));
    }

    /// Nodes that are not lost.
    fn living(&self) -> VecDeque<NodeId> {
        self.members.keys().filter(|node| !self.lost.contains_key(node)).copied().collect()
    }

    pub(super) fn release(&mut self, ctx: &mut Context, node: NodeId, job: JobId) {
        self.ask(ctx, &[node], job, &AppRequest::Release { last_word: None });
    }

    pub(super) fn ask(&mut self, ctx: &mut Context, nodes: &[NodeId], job: JobId, request: &AppRequest) {
        let asked = Asked::App { job, request: request.clone() };
        let sent = self.ways.send(ctx.instant(), nodes, &asked);
        self.send(ctx, sent);
    }

    /// Gives jobs their slices, on all nodes.
    pub(super) fn strobe(&mut self, ctx: &mut Context, rows: Rows) {
        self.rows = Some(rows.clone());
        self.ask_all(ctx, &Asked::Strobe(Strobe { rows, begin: 0 }));
    }

    /// Sets the slices of ranks and local tasks, on all nodes.
    pub(super) fn set_slices(&mut self, ctx: &mut Context, slices: Slices) {
        self.common = Some(slices);
        self.ask_all(ctx, &Asked::Slices(CommonSlices { slices, begin: 0 }));
    }

    fn ask_all(&mut self, ctx: &mut Context, asked: &Asked) {
        let nodes = Vec::from(self.living());
        let sent = self.ways.send(ctx.instant(), &nodes, asked);
        self.send(ctx, sent);
    }

    /// The daemon of a node has joined.
    fn open(&mut self, ctx: &mut Context, node: NodeId) {
        let incarnation = self.members[&node];
        self.ways.open(node, incarnation);
        self.by_operations(ctx, |operations| operations.on_daemon(node, incarnation));
    }

    pub(super) fn send(&self, ctx: &mut Context, sent: Sent) {
        for (node, request) in sent {
            if let Some(wire) = self.wires.get(&node) {
                ctx.send(*wire, Message::ToDaemon(request));
            }
        }
    }

    fn ask_next_to_join(&mut self, ctx: &mut Context) {
        let Some(node) = self.to_join.pop_front() else { return };
        let back = self.rejoining.front().copied();
        let here = |node: &NodeId| !self.lost.contains_key(node) || Some(*node) == back;
        let members = self.members.iter().filter(|(node, _)| here(node));
        let data = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let member =
            |(node, incarnation): (&NodeId, &u64)| Member { node: *node, incarnation: *incarnation, data };
        let members = members.map(member).collect();
        self.joining.insert(node);
        ctx.send(self.wires[&node], Message::ToDaemon(Request::Join { members }));
        self.wait(ctx);
    }
}
