//! The data plane of a job's part in the simulation: rings, links and inbox around the daemon's own cut.

use coswitch_daemon::{
    cut::{Arrival, CutReport, Input, Output},
    protocol::{AppEvent, Exit, PartState},
};
use coswitch_policies::NodeId;

use super::{
    context::Context,
    machine::Machine,
    network::Message,
    part::{Note, Part},
};

impl Part {
    pub(super) fn on_cut(&mut self, ctx: &mut Context, machine: &mut Machine, input: Input) {
        for output in self.cut.on(input) {
            let note = match output {
                Output::SendMarker { to, epoch } => {
                    if let Some(wire) = machine.wires.get(&to) {
                        ctx.send(*wire, Message::Marker(self.job, self.frame_life, epoch));
                    }
                    continue;
                }
                Output::FreezeRanks { epoch } => Note::Freeze(epoch),
                Output::ThawRanks { .. } => Note::Thaw,
                Output::Report(CutReport::Flushed { epoch }) => Note::Flushed(epoch),
                Output::Report(CutReport::Aborted { epoch }) => Note::Aborted(epoch),
                Output::Report(CutReport::Failed { reason, .. }) => Note::CutFailed(reason.to_string()),
            };
            self.note(ctx, machine, note);
        }
        self.pump(ctx, machine);
    }

    /// A record has come from another node.
    pub(super) fn on_record(&mut self, ctx: &mut Context, machine: &mut Machine, from: NodeId, number: u64) {
        let Some(sent_after) = self.cut.sent_after(from) else { return };
        if self.cut.arrival(from) == Some(Arrival::Deliver) && self.inbox.is_clear(&from) {
            self.deliver(from, number);
        } else {
            self.inbox.push(from, sent_after, number);
        }
        self.pump(ctx, machine);
    }

    /// Into the ring of its rank.
    fn deliver(&mut self, from: NodeId, number: u64) {
        self.ranks.receive(from, number);
    }

    /// Moves what can move between rings, links and inbox, and lets the ranks work.
    pub(super) fn pump(&mut self, ctx: &mut Context, machine: &mut Machine) {
        if self.cut.epoch().is_none() && !matches!(self.state, PartState::Absent | PartState::Parked) {
            // What has no link waits in its ring.
            let ring = std::mem::take(&mut self.ranks.ring);
            for to in ring {
                let Some(wire) = machine.wires.get(&to) else {
                    self.ranks.ring.push_back(to);
                    continue;
                };
                let number = self.ranks.send(to);
                ctx.send(*wire, Message::Record(self.job, self.frame_life, number));
            }
            let lanes: Vec<NodeId> = self.inbox.lanes().copied().collect();
            for lane in lanes {
                while let Some((_, number)) = self.inbox.take(&lane, &self.cut) {
                    self.deliver(lane, number);
                }
            }
            self.pump_launcher(ctx, machine);
        }
        self.start_working(ctx);
        self.exit(ctx, machine);
    }

    fn pump_launcher(&mut self, ctx: &mut Context, machine: &mut Machine) {
        if self.state == PartState::Running && !std::mem::replace(&mut self.ranks.has_asked, true) {
            self.reached = true;
            self.tell(ctx, machine, AppEvent::Fence { sequence: 0, puts: Vec::new() });
        }
        if self.ranks.has_asked && self.to_launcher.drain(..).count() > 0 {
            self.ranks.has_begun = true;
        }
        if std::mem::take(&mut self.exit_in_ring) {
            self.all_exited = true;
            self.tell(ctx, machine, AppEvent::Exited);
        }
    }

    /// Ranks that have done all end, on this node.
    fn exit(&mut self, ctx: &mut Context, machine: &mut Machine) {
        if !self.computes() || !self.ranks.are_done() {
            return;
        }
        ctx.say(|| format!("{} has done its work on {}", self.job, self.node));
        self.state = PartState::Ended;
        self.exit_in_ring = true;
        self.tell(
            ctx,
            machine,
            AppEvent::RankExited { rank: 0, exit: Exit::Status(0), last_output: "".into() },
        );
        if self.cut.epoch().is_none() {
            self.pump_launcher(ctx, machine);
        }
    }
}
