//! DYN: dynamic coscheduling by the algorithm DCA (thesis §2.3, §3.6).
//!
//! DCA is PCA with another coscheduling condition: only received messages count. It is not DCS of the testbed
//! ([`super::demand`]), which acts when a message arrives and not when a task enters the queue.

use std::time::Duration;

use super::{Frequency, Model, Task};

/// Tasks that receive more messages go first, within the starvation bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dynamic {
    pub slice: Duration,
    /// `MCO`: how often a task may be overtaken between two runs.
    pub overtakes_max: u32,
    /// `P`: weight of past frequencies, in 0..=1.
    pub past_weight: f64,
    /// Whether a sent message makes a task potential too. The thesis says no ("only `freq_r` and `cur_freq_r`
    /// must be considered"), so the degree of this model counts less than that of the others; with yes they
    /// compare.
    pub is_judged_by_sent: bool,
}

impl Model for Dynamic {
    fn slice(&self, _task: &Task) -> Duration {
        self.slice
    }

    fn overtakes(&self, newcomer: &Task, other: &Task) -> bool {
        other.overtaken < self.overtakes_max && newcomer.frequency.received() > other.frequency.received()
    }

    fn is_potential(&self, frequency: &Frequency) -> bool {
        frequency.waiting > 0 || self.is_judged_by_sent && frequency.sent > 0
    }

    fn past_weight(&self) -> f64 {
        self.past_weight
    }
}
