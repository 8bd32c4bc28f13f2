//! The steps of a job's part in the simulation: each takes its time, may fail, and is answered.

use std::time::Duration;

use coswitch_daemon::{
    cut::{Cut, Inbox, Input},
    protocol::{AppEvent, DaemonEvent, Failure, PartState, Step},
};
use coswitch_policies::{Epoch, NodeId};

use super::{
    context::{Context, Event},
    machine::Machine,
    part::{Doing, Note, Part, Snapshot},
    plan::FailingStep,
};

impl Part {
    /// Begins a step. It will fail where its kind of failure is due on this node.
    pub(super) fn begin(
        &mut self,
        ctx: &mut Context,
        machine: &mut Machine,
        doing: Doing,
        may: Option<FailingStep>,
    ) {
        let (low_us, high_us) = match doing {
            Doing::Launch => (3_000, 60_000),
            Doing::Freeze(_) => (50, 5_000),
            Doing::Dump(_) | Doing::Checkpoint(_) => (5_000, 200_000),
            Doing::Restore(_) => (5_000, 300_000),
            Doing::Discard | Doing::GoBack(_) => (500, 20_000),
            Doing::Release => (500, 50_000),
        };
        let is_dump = matches!(doing, Doing::Dump(_) | Doing::Checkpoint(_));
        // The failure of a dump was taken before.
        self.fails = may.is_some_and(|kind| is_dump || machine.next_failure(&[kind]).is_some());
        if self.fails {
            ctx.audit.wound(self.job);
        }
        let slow = ctx.slowness.get(&self.node).copied().unwrap_or(1);
        // Daemons have limits of their own, which are shorter than those of the dispatchers.
        let wait = (ctx.dice.between(low_us, high_us) * slow).min(4_000_000);
        (self.doing, self.step) = (Some(doing), ctx.audit.number());
        ctx.after(Duration::from_micros(wait), Event::Step(self.node, self.job, self.step));
    }

    /// As [`Part::on_step`], of the part that has to go first, if there is one.
    pub(super) fn on_first_step(&mut self, ctx: &mut Context, machine: &mut Machine, step: u64) -> bool {
        let Some(before) = &mut self.before else { return self.on_step(ctx, machine, step) };
        if before.on_first_step(ctx, machine, step) {
            self.before = None;
            self.proceed(ctx, machine);
        }
        false
    }

    /// The step under way is over, unless `step` is one of before. Returns whether the part is gone.
    fn on_step(&mut self, ctx: &mut Context, machine: &mut Machine, step: u64) -> bool {
        if step != self.step {
            return false;
        }
        let Some(doing) = self.doing.take() else { return false };
        if doing == Doing::Release {
            machine.remove(self.job);
            machine.tell_of(ctx, self.job, AppEvent::Released);
            return true;
        }
        match (doing, std::mem::take(&mut self.fails)) {
            (Doing::Release, _) => {}
            (Doing::Launch, false) if self.lacks_link(ctx, machine, Step::Launch) => {}
            (Doing::Launch, false) => {
                self.state = PartState::Running;
                self.tell(ctx, machine, AppEvent::Launched);
            }
            (Doing::Launch, true) => self.fail(ctx, machine, Step::Launch, Failure::dead("killed")),
            (Doing::Freeze(epoch), false) => {
                if matches!(self.state, PartState::Running | PartState::Frozen { .. }) {
                    self.state = PartState::Frozen { flushed: false };
                    self.stop_working();
                }
                self.on_cut(ctx, machine, Input::Frozen { epoch });
            }
            (Doing::Freeze(epoch), true) => self.on_cut(ctx, machine, Input::FreezeFailed { epoch }),
            (Doing::Dump(epoch), fails) => self.on_dump(ctx, machine, epoch, fails, false),
            (Doing::Checkpoint(epoch), fails) => self.on_dump(ctx, machine, epoch, fails, true),
            (Doing::Restore(epoch), fails) => self.on_restore(ctx, machine, epoch, fails),
            (Doing::Discard, _) => {
                if self.state != PartState::Absent {
                    self.state = PartState::Parked;
                    self.stop_working();
                }
                self.tell(ctx, machine, AppEvent::Discarded);
            }
            (Doing::GoBack(life), _) => self.go_back(ctx, machine, life),
        }
        self.pump(ctx, machine);
        self.proceed(ctx, machine);
        false
    }

    /// Whether a link that is this node's to open cannot be opened: the other daemon has died, perhaps,
    /// before the master knows of it. Then the step fails.
    pub(super) fn lacks_link(&self, ctx: &mut Context, machine: &mut Machine, during: Step) -> bool {
        let is_missing = |node: &&NodeId| **node < self.node && !machine.wires.contains_key(node);
        let Some(peer) = self.launch.placement.iter().find(is_missing).copied() else { return false };
        let incarnation = machine.known.get(&peer).copied().unwrap_or_default();
        let (reason, jobs) = ("it cannot be opened".to_owned(), Vec::new());
        machine.tell(ctx, DaemonEvent::LinkLost { peer, incarnation, reason: reason.clone(), jobs });
        self.fail(ctx, machine, during, Failure::dead(reason));
        true
    }

    /// The processes are gone, and all that is on the way to them is void.
    fn go_back(&mut self, ctx: &mut Context, machine: &mut Machine, life: u32) {
        self.stop_working();
        ctx.audit.void(self);
        (self.state, self.all_exited, self.exit_in_ring) = (PartState::Parked, false, false);
        (self.frame_life, self.flushed, self.reached) = (life, None, false);
        self.inbox = Inbox::default();
        self.to_launcher.clear();
        self.cut = Cut::restored(self.ranks.sent.keys().copied(), Epoch(0));
        let is_of_plane = |note: &Note| {
            matches!(
                note,
                Note::Freeze(_) | Note::Thaw | Note::Flushed(_) | Note::Aborted(_) | Note::CutFailed(_)
            )
        };
        self.notes.retain(|note| !is_of_plane(note));
        self.went_back = Some(life);
        self.answer_went_back(ctx, machine);
    }

    pub(super) fn answer_went_back(&mut self, ctx: &mut Context, machine: &mut Machine) {
        if self.sealing.is_empty()
            && let Some(life) = self.went_back.take()
        {
            let sealed = machine.sealed(self.job).collect();
            self.tell(ctx, machine, AppEvent::WentBack { life, sealed });
        }
    }

    fn on_dump(&mut self, ctx: &mut Context, machine: &mut Machine, epoch: Epoch, fails: bool, stays: bool) {
        if fails {
            let is_alive = self.state != PartState::Parked;
            let failure = if is_alive { Failure::alive("a test") } else { Failure::dead("a test") };
            return self.fail(ctx, machine, Step::Dump, failure);
        }
        let inbox = self.inbox.before(epoch).map(|(from, number)| (*from, *number)).collect();
        let to_launcher = self.to_launcher.clone();
        let snapshot = Snapshot {
            ranks: self.ranks.clone(),
            inbox,
            to_launcher,
            launch: self.launch.clone(),
            reached: self.reached,
            fences: self.fences.clone(),
        };
        self.unsealed.insert(epoch, snapshot);
        self.sealing.insert(epoch);
        let slow = ctx.slowness.get(&self.node).copied().unwrap_or(1);
        ctx.soon(1_000, 200_000 * slow, Event::Sealed(self.node, self.job, self.number, epoch));
        let (bytes, zero) = (self.memory, Duration::ZERO);
        if stays {
            return self.tell(ctx, machine, AppEvent::Checkpointed { epoch, bytes });
        }
        self.state = PartState::Parked;
        self.tell(ctx, machine, AppEvent::Dumped { epoch, bytes, dump: zero, release: zero });
    }

    /// Sealing, in the background, is over.
    pub(super) fn on_sealed(&mut self, ctx: &mut Context, machine: &mut Machine, epoch: Epoch) {
        let Some(snapshot) = self.unsealed.remove(&epoch) else { return };
        let fails = machine.next_failure(&[FailingStep::Seal]).is_some();
        if fails {
            ctx.audit.wound(self.job);
        } else {
            machine.keep(self.job, epoch, snapshot);
        }
        self.note(ctx, machine, Note::Sealed(epoch, !fails));
    }

    fn on_restore(&mut self, ctx: &mut Context, machine: &mut Machine, epoch: Epoch, fails: bool) {
        let snapshot = machine.snapshot(self.job, epoch).cloned();
        let Some(Snapshot { ranks, inbox, to_launcher, reached, fences, .. }) = snapshot.filter(|_| !fails)
        else {
            ctx.audit.bad.insert((self.job, epoch));
            return self.fail(ctx, machine, Step::Restore, Failure::dead("a test, or no such snapshot"));
        };
        (self.state, self.epoch, self.all_exited, self.exit_in_ring) =
            (PartState::Stopped, epoch, false, false);
        (self.ranks, self.to_launcher, self.reached) = (ranks, to_launcher, reached);
        self.fences.extend(fences);
        self.cut = Cut::restored(self.ranks.sent.keys().copied(), epoch);
        self.inbox = Inbox::default();
        let sent_after = Epoch(epoch.0.saturating_sub(1));
        inbox.into_iter().for_each(|(from, number)| self.inbox.push(from, sent_after, number));
        let (bytes, restore) = (self.memory, Duration::ZERO);
        ctx.audit.restored.push((self.job, epoch));
        machine.remove_newer(self.job, epoch);
        self.tell(ctx, machine, AppEvent::Restored { epoch, bytes, restore });
    }
}
