//! Pause: the application stands still while the daemon of one of its nodes is replaced. The master is told
//! nothing: for it the application is where it was, and orders wait.
//!
//! ```text
//!   Settle ─▶ Settling ─at rest, all sealed─▶ Settled ─Pause─▶ Pausing ─▶ Paused      the ranks of a running
//!                                                                 │                  application are cut
//!                                              cut failed─▶ NotPaused
//!   any ─Continue─▶ None
//! ```
//! It settles first because another application may be in the middle of a long step: nobody stands still
//! meanwhile.

use super::{App, Output, State, Then};
use crate::protocol::StayCause;

/// Where an application is in the replacement of a daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pause {
    #[default]
    None,
    /// To take no further order once the last one is carried out.
    Settling,
    Settled,
    /// The ranks are being stopped.
    Pausing,
    /// None of its ranks computes.
    Paused,
}

impl App {
    /// An earlier pause ends by that.
    pub(super) fn on_settle(&mut self) {
        self.on_continue();
        self.pause = Pause::Settling;
    }

    /// Whether orders wait.
    pub(super) fn is_held(&self) -> bool {
        self.pause != Pause::None
    }

    /// After each input.
    pub(super) fn check_settled(&mut self) {
        if self.pause == Pause::Settling && self.is_settled() {
            self.pause = Pause::Settled;
            self.outputs.push(Output::Settled);
        }
    }

    /// Nothing is on its way between the application and its nodes.
    fn is_settled(&self) -> bool {
        if self.checkpoint.is_some() {
            return false;
        }
        match &self.state {
            State::Idle => self.adoption.is_none(),
            State::Running => self.exited.is_empty() && self.unsealed.is_empty(),
            State::Suspended | State::Parked => self.unsealed.is_empty(),
            State::Stranded { waiting, .. } => waiting.is_empty(),
            _ => false,
        }
    }

    pub(super) fn on_pause(&mut self) {
        if self.pause != Pause::Settled || !self.is_settled() {
            return self.not_paused("it has not stayed at rest".into());
        }
        if matches!(self.state, State::Running) {
            self.pause = Pause::Pausing;
            self.is_unnoticed = true;
            return self.cut(Then::Pause);
        }
        self.on_paused();
    }

    pub(super) fn on_paused(&mut self) {
        self.pause = Pause::Paused;
        self.outputs.push(Output::Paused { ran: matches!(self.state, State::Paused) });
    }

    /// The ranks cannot be stopped, and run on.
    pub(super) fn on_pause_failed(&mut self, cause: &StayCause) {
        self.not_paused(cause.to_string());
        self.pause = Pause::None;
    }

    fn not_paused(&mut self, reason: String) {
        self.outputs.push(Output::NotPaused(reason));
    }

    /// The application goes on where it was.
    pub(super) fn on_continue(&mut self) {
        match (std::mem::take(&mut self.pause), &self.state) {
            (Pause::Paused, State::Paused) => self.resume(None),
            (Pause::Pausing, State::Cutting { then: Then::Pause, .. }) => {
                self.abort_cut(StayCause::Failed { reason: "it is not to be stopped any more".into() });
            }
            _ => self.take_next(),
        }
    }

    /// The ranks run again. Whether the master does not know that they did not.
    pub(super) fn has_gone_on(&mut self) -> bool {
        if !std::mem::take(&mut self.is_unnoticed) {
            return false;
        }
        self.outputs.push(Output::Arm(None));
        self.state = State::Running;
        self.on_checkpoint_over();
        self.on_exited();
        self.take_next();
        true
    }

    fn take_next(&mut self) {
        if let Some(order) = self.next.take() {
            self.on_order(order);
        }
    }
}
