//! HPDT: distributed tasks always run before local ones (thesis §3.3, Algorithm 6).
//!
//! The loss of local tasks is not bounded: while a distributed task is ready, none of them runs.

use std::time::Duration;

use super::{Model, Task};

/// Distributed before local tasks, round robin inside each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HighPriority {
    pub slice: Duration,
}

impl Model for HighPriority {
    fn slice(&self, _task: &Task) -> Duration {
        self.slice
    }

    fn precedence(&self, task: &Task) -> u8 {
        u8::from(task.is_distributed())
    }
}
