//! What a daemon of the simulation is connected to: the master that it follows, and the daemons of other
//! nodes.

use std::time::Duration;

use coswitch_daemon::{
    answers::Answers,
    cut::Input,
    following::Then,
    multicast::{InOrder, Multicast},
    protocol::{DaemonEvent, Member, StoodStill},
    session::rules,
};
use coswitch_policies::{JobId, NodeId, control_tree as tree};

use super::{
    HEARTBEAT,
    context::{Context, Event},
    daemon::Daemon,
    network::{Message, Purpose, Wire},
    part::{Note, Part},
};

impl Daemon {
    pub(super) fn mind_solitude(&self, ctx: &mut Context) {
        if let Some(due) = self.following.due() {
            ctx.at_instant(due, Event::Alone(self.node, self.life));
        }
    }

    /// No master has come, perhaps.
    pub(super) fn on_alone(&mut self, ctx: &mut Context) {
        if self.following.due().is_some_and(|due| due <= ctx.instant()) {
            ctx.say(|| format!("{} has no master and gives up", self.node));
            self.end(ctx);
        }
    }

    /// The other end of a data link, if that is of this daemon's life.
    pub(super) fn sender(&self, ctx: &Context, wire: Wire) -> Option<NodeId> {
        let Purpose::Data(a, b) = ctx.net.purpose(wire) else { return None };
        let from = if wire.back { b } else { a };
        (self.machine.wires.get(&from) == Some(&wire.other())).then_some(from)
    }

    pub(super) fn on_hello(&mut self, ctx: &mut Context, wire: Wire, generation: u64) {
        let answer = wire.other();
        if let Err(refused) = rules::admit(generation, &mut self.generation) {
            let reason = refused.to_string();
            ctx.say(|| format!("{} refuses a master: {reason}", self.node));
            ctx.send(answer, Message::ToHead(DaemonEvent::Refused { reason }));
            return ctx.close(answer);
        }
        ctx.say(|| format!("{} follows master {generation}", self.node));
        ctx.audit.on_followed(self.node, self.life, generation);
        let then = self.following.on_master(ctx.instant());
        self.thaw(ctx, then);
        if let Some(before) = self.machine.follow(answer, generation) {
            ctx.close(before);
        }
        (self.asked, self.every, self.beats) = (InOrder::default(), 1, 0);
        self.load = None;
        ctx.send(answer, Message::ToHead(DaemonEvent::Welcome { node: self.node, incarnation: self.life }));
        ctx.listen(wire, ctx.plan.stop_after);
        ctx.after(HEARTBEAT, Event::Beats(answer));
    }

    pub(super) fn on_closed(&mut self, ctx: &mut Context, wire: Wire) {
        ctx.close(wire.other());
        if let Some(peer) = self.sender(ctx, wire) {
            let spans = |part: &&Part| part.launch.placement.contains(&peer);
            let jobs: Vec<JobId> = self.parts.values().filter(spans).map(|part| part.job).collect();
            let incarnation = self.machine.known[&peer];
            self.drop_link(ctx, peer);
            // A link that held no messages is opened again when one is needed.
            if !jobs.is_empty() {
                let reason = "the peer has closed it".into();
                self.machine.tell(ctx, DaemonEvent::LinkLost { peer, incarnation, reason, jobs });
            }
        }
        if self.machine.session == Some(wire.other()) {
            ctx.say(|| format!("{} has lost its master", self.node));
            self.machine.session = None;
            let then = self.following.on_session_end(ctx.instant());
            self.thaw(ctx, then);
            self.mind_solitude(ctx);
        }
    }

    fn drop_link(&mut self, ctx: &mut Context, peer: NodeId) {
        if let Some(wire) = self.machine.wires.remove(&peer) {
            ctx.close(wire);
        }
        for part in self.parts.values_mut() {
            part.on_cut(ctx, &mut self.machine, Input::PeerLost { node: peer });
        }
    }

    /// Lets go of links to daemons that were replaced. Links are opened when they are needed: here, at once.
    pub(super) fn on_join(&mut self, ctx: &mut Context, members: &[Member]) {
        let mut connects = Vec::new();
        let own = self.node;
        for Member { node: peer, incarnation, .. } in members.iter().filter(|member| member.node != own) {
            if self.machine.known.insert(*peer, *incarnation) != Some(*incarnation) {
                self.drop_link(ctx, *peer);
            }
            if !self.machine.wires.contains_key(peer) {
                connects.push((*peer, *incarnation));
            }
        }
        ctx.joining = Some((self.node, connects));
        self.machine.tell(ctx, DaemonEvent::Joined);
    }

    /// Nothing has come from the master for long.
    pub(super) fn on_lull(&mut self, ctx: &mut Context, wire: Wire, lull: rules::Lull) {
        if self.machine.session != Some(wire.other()) {
            return;
        }
        match lull {
            rules::Lull::Short => {}
            rules::Lull::Silent => {
                ctx.say(|| format!("{} hears no master: its jobs stand still", self.node));
                self.following.on_silence(ctx.instant());
                self.note_all(ctx, &Note::StandStill);
            }
            rules::Lull::GivenUp => {
                ctx.say(|| format!("{} gives its master up", self.node));
                self.on_closed(ctx, wire);
            }
        }
    }

    pub(super) fn on_heard_again(&mut self, ctx: &mut Context, silence: Duration) {
        let then = self.following.on_heard_again(ctx.instant());
        self.thaw(ctx, then);
        if let Then::Thaw { frozen } = then {
            self.machine.tell(ctx, DaemonEvent::StoodStill(StoodStill { silence, frozen }));
        }
    }

    fn thaw(&mut self, ctx: &mut Context, then: Then) {
        if let Then::Thaw { .. } = then {
            self.note_all(ctx, &Note::GoOn);
        }
    }

    pub(super) fn hang_up(&mut self, ctx: &mut Context) {
        std::mem::take(&mut self.machine.wires).into_values().for_each(|wire| ctx.cut_off(wire));
        let next = std::mem::take(&mut self.machine.next).into_values();
        next.for_each(|(_, wire)| ctx.cut_off(wire));
    }

    /// A request that another daemon has passed on: only the master that is followed, and heard, is obeyed.
    pub(super) fn on_passed_on(&mut self, ctx: &mut Context, multicast: Multicast) {
        let is_followed = self.machine.session.is_some() && !self.following.is_silent();
        if is_followed && multicast.generation == self.generation {
            self.on_multicast(ctx, multicast);
        }
    }

    /// Answers to another master go nowhere.
    pub(super) fn on_passed_up(&mut self, ctx: &mut Context, answers: Answers) {
        if self.machine.session.is_some() && answers.generation == self.generation {
            self.machine.gather(ctx, answers.said);
        }
    }

    pub(super) fn on_gathered(&mut self, ctx: &mut Context) {
        self.machine.on_gathered(ctx);
    }

    pub(super) fn on_multicast(&mut self, ctx: &mut Context, multicast: Multicast) {
        let Some(key) = self.machine.saying.key() else { return };
        let number = multicast.number_for(self.node, self.life, key);
        let number = number.expect("no daemon of the simulation forges anything");
        for (next, part) in multicast.parts_below(tree::Place::Node(self.node)) {
            self.machine.pass_on(ctx, next, Message::PassedOn(Box::new(part)));
        }
        self.machine.on_multicast(ctx, &multicast);
        if let Some(number) = number {
            for subject in multicast.asked.subjects() {
                self.machine.saying.on_asked(subject);
            }
            self.asked.push(number, multicast.asked);
            self.carry_out(ctx);
        }
    }
}
