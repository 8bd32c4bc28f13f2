//! LIN: the plain scheduler of the node, round robin with equal slices (thesis ch. 4; testbed §2.5, local
//! scheduling).

use std::time::Duration;

use super::{Model, Task};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linux {
    pub slice: Duration,
}

impl Model for Linux {
    fn slice(&self, _task: &Task) -> Duration {
        self.slice
    }
}
