//! Slowdown of a node whose tasks do not fit in its memory together (thrashing by paging, not that of CMC).
//!
//! A task cycles through all of its memory, so with least-recently-used paging the part that does not fit is
//! missed in every round: work slows down by `1 + penalty · (used - capacity) / used`. Measured on two ranks
//! sweeping 400 MiB each beside two other jobs on nodes of 1 GiB: 34 times slower at 15 % over capacity, a
//! penalty of 230; on FT.A, four jobs on 560 MiB: 11 times slower at 18 % over, a penalty of 57.

use serde::{Deserialize, Serialize};

use crate::Seed;
use coswitch_policies::Bytes;

/// Memory of the nodes and of their tasks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeMemory {
    pub capacity: Bytes,
    /// The memory of a task is uniform from this to `task_max`.
    pub task_min: Bytes,
    pub task_max: Bytes,
    /// Slowdown factor for each missing byte, as above.
    pub penalty: f64,
}

impl NodeMemory {
    pub(super) const fn draw(&self, seed: &mut Seed) -> Bytes {
        Bytes(seed.between(self.task_min.0, self.task_max.0))
    }

    /// The part of full speed, above 0 and up to 1, of a node whose tasks use `used`.
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
