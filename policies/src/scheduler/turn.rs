//! The turn of the front row: when it began, when it ends, what was told of it.

use std::time::Duration;

use crate::{Decision, SimTime, SlotId, TimerId, Turn};

/// Whether and when the turn ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strobe {
    /// No other row waits.
    Never,
    /// A timer was set.
    Set { timer: TimerId, at: SimTime },
    /// It fired; the turn ends as soon as no switch is under way.
    Due { at: SimTime },
}

/// A turn that began.
#[derive(Clone, Debug)]
pub(super) struct Running {
    slot: SlotId,
    since: SimTime,
    strobe: Strobe,
    told: Option<Turn>,
}

impl Running {
    pub(super) const fn new(slot: SlotId, since: SimTime) -> Self {
        Self { slot, since, strobe: Strobe::Never, told: None }
    }

    pub(super) fn on_timer(&mut self, timer: TimerId) {
        if let Strobe::Set { timer: set, at } = self.strobe
            && set == timer
        {
            self.strobe = Strobe::Due { at };
        }
    }

    pub(super) const fn is_over(&self) -> bool {
        matches!(self.strobe, Strobe::Due { .. })
    }

    /// Whether less than half of the quantum is left: too little for a job that joins now to have had a turn.
    pub(super) fn is_late(&self, now: SimTime, quantum: Duration) -> bool {
        now.since(self.since) * 2 > quantum
    }

    /// Nobody waits: a timer that was set means nothing any more.
    pub(super) const fn forget_strobe(&mut self) {
        self.strobe = Strobe::Never;
    }

    /// Others wait: sets the timer that ends the turn unless there is one.
    pub(super) fn set_strobe(&mut self, now: SimTime, quantum: Duration, next: &mut u32) -> Option<Decision> {
        if self.strobe != Strobe::Never {
            return None;
        }
        let (timer, at) = (TimerId(*next), self.since.after(quantum).max(now));
        *next += 1;
        self.strobe = Strobe::Set { timer, at };
        Some(Decision::SetTimer { timer, at })
    }

    /// What is to be told about the turn, if it is not as last told.
    pub(super) fn tell(&mut self, jobs: Vec<crate::JobId>) -> Option<Decision> {
        let ends = match self.strobe {
            Strobe::Never => None,
            Strobe::Set { at, .. } | Strobe::Due { at } => Some(at),
        };
        let turn = Turn { slot: self.slot, jobs, ends };
        let first = self.told.is_none();
        if self.told.as_ref() == Some(&turn) {
            return None;
        }
        self.told = Some(turn.clone());
        Some(if first { Decision::SlotStarted(turn) } else { Decision::SlotChanged(turn) })
    }
}
