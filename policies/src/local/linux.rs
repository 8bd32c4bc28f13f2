//! LIN: the plain scheduler of the node, round robin with equal slices (thesis ch. 4; testbed §2.5, local scheduling).

use std::time::Duration;

use super::{Model, Task};

/// Nobody is preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linux {
    /// Slice of each task.
    pub slice: Duration,
}

impl Model for Linux {
    fn slice(&self, _task: &Task) -> Duration {
        self.slice
    }
}
