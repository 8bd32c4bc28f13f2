//! IMP, implicit coscheduling: two-phase spin-block (thesis §3.4, Algorithm 7, formula 3.5; testbed §2.2,
//! ICS).
//!
//! A task that lacks a message spins for the spin time and then blocks. Spinning pays as long as it costs no
//! more than the two context switches of leaving and coming back ([`Implicit::spin_limit`]).
//!
//! The round trip of a message is not in that limit: in formula 3.4 (`2L + 4o + spin < 2L + 4o + 5C`, from
//! LogP) it is on both sides, because the message takes as long to a task that spins as to one that is
//! blocked. What is left there is `5C`, for both nodes together; formula 3.5 counts the waiting node alone.

use std::time::Duration;

use super::{Model, Task, WaitPolicy};

/// Round robin; waiting tasks spin, then block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Implicit {
    pub slice: Duration,
    /// How long a task spins before it blocks.
    pub spin: Duration,
    /// Whether a task whose message arrived runs at once, as in ICS (testbed §2.2) but not in the thesis.
    pub is_woken_first: bool,
}

impl Implicit {
    /// The longest spin that cannot cost more than blocking: `2 · C` (formula 3.5).
    #[must_use]
    pub const fn spin_limit(context_switch: Duration) -> Duration {
        context_switch.saturating_mul(2)
    }
}

impl Model for Implicit {
    fn slice(&self, _task: &Task) -> Duration {
        self.slice
    }

    fn precedence(&self, task: &Task) -> u8 {
        u8::from(self.is_woken_first && task.is_woken)
    }

    fn precedes_when_woken(&self, _task: &Task) -> bool {
        self.is_woken_first
    }

    fn wait(&self, _task: &Task) -> WaitPolicy {
        if self.spin.is_zero() { WaitPolicy::Block } else { WaitPolicy::Spin(self.spin) }
    }
}
