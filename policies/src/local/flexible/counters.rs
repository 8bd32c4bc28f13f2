//! The four counters of FCS (testbed §2.4.4): `C_CS`, `C_DC` attempts, `W_CS`, `W_DC` time waited.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ProcessClass;
use crate::SimTime;

/// Attempts to communicate, and the time they took to complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    pub attempts: u32,
    /// Time until they completed.
    pub waited: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// While scheduled as CS or F: `C_CS`, `W_CS`.
    pub coscheduled: Tally,
    /// While scheduled as DC: `C_DC`, `W_DC`.
    pub uncoordinated: Tally,
    waits_since: Option<SimTime>,
}

impl Counters {
    #[must_use]
    pub const fn of(coscheduled: Tally, uncoordinated: Tally) -> Self {
        Self { coscheduled, uncoordinated, waits_since: None }
    }

    /// Mean wait per attempt; none before the first.
    #[must_use]
    pub fn mean_wait(&self) -> Option<Duration> {
        let attempts = self.coscheduled.attempts + self.uncoordinated.attempts;
        (self.coscheduled.waited + self.uncoordinated.waited).checked_div(attempts)
    }

    pub(super) fn count(&mut self, class: ProcessClass) {
        self.tally(class).attempts += 1;
    }

    /// Begins a wait; a wait that is under way keeps its beginning.
    pub(super) fn begin_wait(&mut self, now: SimTime) {
        self.waits_since.get_or_insert(now);
    }

    pub(super) fn end_wait(&mut self, now: SimTime, class: ProcessClass) {
        if let Some(since) = self.waits_since.take() {
            self.tally(class).waited += now.since(since);
        }
    }

    pub(super) fn halve(&mut self) {
        for tally in [&mut self.coscheduled, &mut self.uncoordinated] {
            tally.attempts /= 2;
            tally.waited /= 2;
        }
    }

    const fn tally(&mut self, class: ProcessClass) -> &mut Tally {
        match class {
            ProcessClass::Coscheduled | ProcessClass::Frustrated => &mut self.coscheduled,
            ProcessClass::DontCare => &mut self.uncoordinated,
        }
    }
}
