//! DYN, dynamic coscheduling: the algorithm DCA (thesis §2.3, §3.6).
//!
//! PCA with another coscheduling condition: only messages received count. Not to be confused with DCS of the testbed
//! ([`super::demand`]), which acts when a message arrives rather than when a task enters the queue.

use std::time::Duration;

use super::{Frequency, Model, Task};

/// Who receives more goes first, within the starvation bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dynamic {
    /// Slice of each task.
    pub slice: Duration,
    /// `MCO`: how often a task may be overtaken between two runs.
    pub overtakes_max: u32,
    /// `P`: weight of past frequencies, in 0..=1.
    pub past_weight: f64,
    /// Whether a message sent makes a task potential too. The thesis says no: "only `freq_r` and `cur_freq_r` must be
    /// considered". Then the degree of this model counts less than that of the others; with yes it counts the same.
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
