//! PRE: predictive coscheduling by the algorithm PCA (thesis §2.2.4, Algorithm 4).
//!
//! A task that enters the ready queue passes those that send and receive less than it, but passes each of
//! them only while that task was overtaken fewer than `MCO` times since it last reached the queue. This
//! bounds every wait: a task that enters at place `p` is overtaken at most `MCO` times before it runs.

use std::time::Duration;

use super::{Model, Task};

/// Tasks that communicate more go first, within the starvation bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predictive {
    pub slice: Duration,
    /// `MCO`: how often a task may be overtaken between two runs. The paper's default is 2.
    pub overtakes_max: u32,
    /// `P`: weight of past frequencies, in 0..=1.
    pub past_weight: f64,
}

impl Model for Predictive {
    fn slice(&self, _task: &Task) -> Duration {
        self.slice
    }

    fn overtakes(&self, newcomer: &Task, other: &Task) -> bool {
        other.overtaken < self.overtakes_max && newcomer.frequency.both() > other.frequency.both()
    }

    fn past_weight(&self) -> f64 {
        self.past_weight
    }
}
