//! Restore and resume: the second attempt, and the fall-back to an older snapshot.

use coswitch_daemon::protocol::AppRequest;
use coswitch_policies::{NodeId, Residence};

use super::{App, Back, DumpFailure, State};
use crate::protocol::{AppOutcome, Park, Report, StayCause};

impl App {
    /// From parked. Only a sealed snapshot is restored.
    pub(super) fn come_back(&mut self, back: Back) {
        if self.unsealed.is_empty() {
            self.restore(None, back);
        } else {
            self.arm_for(self.timeouts.restore, self.image_bytes);
            self.state = State::AwaitingSeal { back };
        }
    }

    pub(super) fn on_sealed(&mut self) {
        if !self.unsealed.is_empty() {
            return;
        }
        match &self.state {
            State::AwaitingSeal { back } => {
                let back = back.clone();
                self.restore(None, back);
            }
            _ => self.undo(),
        }
    }

    fn restore(&mut self, before: Option<String>, back: Back) {
        let waiting = self.ask_all(&AppRequest::Restore(self.epoch));
        self.arm_for(self.timeouts.restore, self.image_bytes);
        self.state = State::Restoring { waiting, before, failure: None, back };
    }

    pub(super) fn on_restore_answer(&mut self, node: NodeId, failed: Option<String>) {
        let (State::Undoing { restoring: waiting, failure, back }
        | State::Restoring { waiting, failure, back, .. }) = &mut self.state
        else {
            return;
        };
        waiting.remove(&node);
        if let Some(reason) = failed {
            failure.get_or_insert(reason);
        }
        if !waiting.is_empty() {
            return;
        }
        let (failure, back) = (failure.take(), back.clone());
        match (failure, &self.state) {
            (None, _) => self.arrive(back),
            // There is a second attempt and no third one.
            (Some(reason), State::Restoring { before: None, .. }) if self.launch.park == Park::Criu => {
                self.ask_all(&AppRequest::Discard);
                self.tell(Report::Mended { what: format!("a restore failed and is tried again: {reason}") });
                self.restore(Some(reason), back);
            }
            (Some(reason), State::Restoring { before: Some(first), .. }) => {
                let reason =
                    format!("it could not be restored: {first}; nor at the second attempt: {reason}");
                self.fall_back(reason, back);
            }
            (Some(reason), State::Undoing { .. }) => {
                let first = back.undone.as_ref().expect("a failed dump is undone");
                self.fall_back(format!("{first}; and it could not be undone: {reason}"), back);
            }
            (Some(reason), _) => self.fall_back(format!("it could not be restored: {reason}"), back),
        }
    }

    /// All ranks are in memory on one line.
    pub(super) fn arrive(&mut self, Back { to, undone }: Back) {
        match (to, undone) {
            (Residence::Running, undone) => self.resume(undone),
            (_, None) => self.rest(State::Suspended, Report::Suspended),
            (_, Some(cause)) => self.rest(State::Suspended, Report::StillSuspended { cause }),
        }
    }

    /// Some node has lost the last line: the whole gang goes back to the newest line that all nodes still
    /// have.
    pub(super) fn fall_back(&mut self, reason: String, back: Back) {
        if self.forget_line(reason) {
            self.ask_all(&AppRequest::Discard);
            self.restore(None, back);
        }
    }

    /// A node cannot restore its dump: the gang will be restored from the snapshot before it.
    pub(super) fn on_seal_failed(&mut self, node: NodeId, reason: String) {
        if !self.unsealed.remove(&node) {
            return;
        }
        match &mut self.state {
            State::Parked => drop(self.forget_line(reason)),
            State::Dumping { failure, .. } => {
                let cause = StayCause::Failed { reason };
                failure.get_or_insert(DumpFailure { cause, dead: true }).dead = true
            }
            State::AwaitingSeal { back } | State::Undoing { back, .. } => {
                let back = back.clone();
                self.fall_back(reason, back);
            }
            _ => self.end(AppOutcome::Lost { reason }),
        }
    }

    /// Falls back to the newest snapshot that is left; without one the application is lost, or begins again
    /// where it is here because a node was lost: files that it has written since may not be what CRIU
    /// expects.
    pub(super) fn forget_line(&mut self, reason: String) -> bool {
        self.snapshots.give_up(self.epoch);
        let Some(older) = self.snapshots.newest() else {
            match self.went_back {
                true => self.clear(&reason),
                false => self.end(AppOutcome::Lost { reason }),
            }
            return false;
        };
        self.tell(Report::Mended { what: format!("{reason}; the snapshot before it is used") });
        self.epoch = older;
        self.imaged = self.nodes.clone();
        self.unsealed.clear();
        true
    }

    pub(super) fn resume(&mut self, undone: Option<StayCause>) {
        let waiting = self.ask_all(&AppRequest::Resume(self.epoch));
        // Ranks that were waiting for a fence in the older snapshot wait for it again.
        if self.epoch.0 < self.cuts {
            self.outputs
                .extend(self.fences.repeat().map(|(node, request)| super::Output::Ask(node, request)));
        }
        self.arm(self.timeouts.resume);
        self.state = State::Resuming { waiting, undone };
    }

    pub(super) fn on_resumed(&mut self, node: NodeId) {
        let State::Resuming { waiting, undone } = &mut self.state else { return };
        waiting.remove(&node);
        if waiting.is_empty() {
            let undone = undone.take();
            if self.has_gone_on() {
                return;
            }
            let report = match undone {
                None => Report::Running,
                Some(cause) => Report::StillRunning { cause },
            };
            self.rest(State::Running, report);
        }
    }
}
