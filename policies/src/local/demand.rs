//! DCS, demand-based dynamic coscheduling (testbed §2.2; the algorithm of Sobalvarro as told in thesis §2.3).
//!
//! A message says that its sender runs now; so its receiver should run now. It gets the processor if it used at least
//! `share` less of it than the running task since each reached the ready queue: `receiver.c + share < running.c`. A task
//! that waits spins and never blocks. `share` is the only brake: two tasks that write to each other can pass the
//! processor between them and leave a third waiting, which is what the thesis holds against it.

use std::time::Duration;

use super::{Model, Task, Wait};

/// A message calls its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Slice of each task.
    pub slice: Duration,
    /// How much more than the receiver the running task must have used.
    pub share: Duration,
}

impl Model for Demand {
    fn slice(&self, _task: &Task) -> Duration {
        self.slice
    }

    fn is_called_by_message(&self, receiver: &Task, running: &Task) -> bool {
        receiver.since_queued.executed + self.share < running.since_queued.executed
    }

    fn wait(&self, _task: &Task) -> Wait {
        Wait::SpinOn
    }
}
