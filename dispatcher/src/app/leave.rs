//! Suspend and park: the cut, the dump, and how both are undone.

use coswitch_daemon::protocol::AppRequest;
use coswitch_policies::{Epoch, NodeId, Residence};

use super::{App, Back, DumpFailure, Nodes, Output, State, Then};
use crate::protocol::{Report, StayCause};

impl App {
    pub(super) fn cut(&mut self, then: Then) {
        self.cuts += 1;
        self.epoch = Epoch(self.cuts);
        self.imaged.clear();
        let waiting = self.ask_all(&AppRequest::Cut(self.epoch));
        self.arm(self.timeouts.cut);
        self.state = State::Cutting { waiting, then };
    }

    pub(super) fn on_flushed(&mut self, node: NodeId) {
        let State::Cutting { waiting, then } = &mut self.state else { return };
        waiting.remove(&node);
        if !waiting.is_empty() {
            return;
        }
        match *then {
            // Some ranks ended before the cut reached them, and the others are about to: a gang is never
            // split.
            _ if !self.exited.is_empty() => self.abort_cut(StayCause::Ending),
            Then::Stay => self.rest(State::Suspended, Report::Suspended),
            Then::Leave => self.dump(Residence::Running),
            Then::Pause => {
                self.outputs.push(Output::Arm(None));
                self.state = State::Paused;
                self.on_paused();
            }
            Then::Checkpoint => self.write_checkpoint(),
        }
    }

    pub(super) fn abort_cut(&mut self, cause: StayCause) {
        if matches!(self.state, State::Cutting { then: Then::Pause, .. }) {
            self.on_pause_failed(&cause);
        }
        if matches!(self.state, State::Cutting { then: Then::Checkpoint, .. }) {
            self.give_checkpoint_up(cause.clone());
        }
        let waiting = self.ask_all(&AppRequest::AbortCut(self.epoch));
        self.arm(self.timeouts.resume);
        self.state = State::Resuming { waiting, undone: Some(cause) };
    }

    /// Takes the application out of memory, on the line where all ranks are. A node that has an image of that
    /// line only ends its processes.
    pub(super) fn dump(&mut self, from: Residence) {
        // A node keeps two snapshots: with this one and that, it would remove the last that all nodes have.
        self.give_checkpoint_up(StayCause::Failed {
            reason: "it leaves memory before that is sealed".into(),
        });
        let (imaged, others): (Nodes, Nodes) = self.nodes.iter().partition(|node| self.imaged.contains(node));
        self.ask(&imaged, &AppRequest::Discard);
        self.ask(&others, &AppRequest::Dump(self.epoch));
        self.arm(self.timeouts.dump);
        let waiting = self.nodes.clone();
        self.state = State::Dumping { waiting, parked: Nodes::new(), from, failure: None };
    }

    pub(super) fn on_dump_answer(&mut self, node: NodeId, failed: Option<DumpFailure>) {
        let State::Dumping { waiting, parked, from, failure } = &mut self.state else { return };
        if !waiting.remove(&node) {
            return;
        }
        match failed {
            None => drop(parked.insert(node)),
            Some(failed) => DumpFailure::note(failure, failed),
        }
        if !waiting.is_empty() {
            return;
        }
        let (to, restoring) = (*from, std::mem::take(parked));
        match failure.take() {
            None => self.rest(State::Parked, Report::Parked),
            Some(DumpFailure { cause, dead: true }) => {
                self.fall_back(cause.to_string(), Back { to, undone: Some(cause) });
            }
            Some(DumpFailure { cause, dead: false }) => {
                let back = Back { to, undone: Some(cause) };
                self.state = State::Undoing { restoring, failure: None, back };
                self.arm_for(self.timeouts.restore, self.image_bytes);
                self.undo();
            }
        }
    }

    /// Restores the dumps once they are sealed.
    pub(super) fn undo(&mut self) {
        let State::Undoing { restoring, back, .. } = &self.state else { return };
        if restoring.is_empty() {
            let back = back.clone();
            self.arrive(back);
        } else if self.unsealed.is_empty() {
            let nodes = restoring.clone();
            self.ask(&nodes, &AppRequest::Restore(self.epoch));
            // The limit for the seal is over.
            self.arm_for(self.timeouts.restore, self.image_bytes);
        }
    }
}

impl DumpFailure {
    /// One more node has failed.
    pub(super) fn note(first: &mut Option<Self>, another: Self) {
        match first {
            Some(first) => first.add(another),
            None => *first = Some(another),
        }
    }

    fn add(&mut self, another: Self) {
        self.dead |= another.dead;
        if let (StayCause::Failed { .. }, StayCause::StoreFull { .. } | StayCause::Ending) =
            (&self.cause, &another.cause)
        {
            self.cause = another.cause;
        }
    }
}
