//! What it costs when the tasks of a node do not fit in its memory together: the other thrashing, not that of CMC.
//!
//! A task works on all of its memory over and over, so with least-recently-used paging the part that does not fit is
//! missed again in every round: work slows down by `1 + penalty · (used - capacity) / used`. Measured here on two ranks
//! sweeping 400 MiB each beside two other jobs on nodes of 1 GiB: 34 times slower at 15 % over, which is a penalty of 230;
//! FT.A, four jobs on 560 MiB: 11 times at 18 % over, a penalty of 57.

use serde::{Deserialize, Serialize};

use crate::Seed;
use coswitch_policies::Bytes;

/// Memory of the nodes and of their tasks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeMemory {
    pub capacity: Bytes,
    /// A task needs at least this; uniform up to `task_max`.
    pub task_min: Bytes,
    /// A task needs at most this.
    pub task_max: Bytes,
    /// How dear a missing byte is, as above.
    pub penalty: f64,
}

impl NodeMemory {
    pub(super) const fn draw(&self, seed: &mut Seed) -> Bytes {
        Bytes(seed.between(self.task_min.0, self.task_max.0))
    }

    /// The part of full speed, above 0 and up to 1, at which a node works whose tasks need `used`.
    #[must_use]
    pub fn speed(&self, used: Bytes) -> f64 {
        let over = used.0.saturating_sub(self.capacity.0);
        if over == 0 { 1.0 } else { 1.0 / (1.0 + self.penalty * over as f64 / used.0 as f64) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_slows_down_only_when_its_tasks_do_not_fit() {
        let memory = NodeMemory {
            capacity: Bytes::mib(1024),
            task_min: Bytes::mib(400),
            task_max: Bytes::mib(400),
            penalty: 230.0,
        };
        assert!((memory.speed(Bytes::mib(1024)) - 1.0).abs() < f64::EPSILON);
        let slower = 1.0 / memory.speed(Bytes::mib(1200));
        assert!((30.0..40.0).contains(&slower), "{slower} times slower with three sweeping programs");
    }
}
