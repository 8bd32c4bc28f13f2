//! Residency (DESIGN §3): a job out of its turn stays in memory, suspended, while there is room, and is dumped when the coming turn
//! needs the room.
//!
//! Rows take turns in a fixed cycle, so the job that was suspended last is the one whose next turn is farthest away: evicting it
//! moves the fewest bytes possible (Belady's rule on a cycle).

use std::time::Duration;

use coswitch_policies::{JobId, NodeId};
use serde::{Deserialize, Serialize};

/// How switches are carried out (paper 003, §3.3.2.2 and Fig. 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carrying {
    /// In which order jobs leave and come.
    pub order: Order,
    /// Whether jobs stay in memory while there is room.
    pub resident: bool,
}

/// The order on every node. Where the memory does not hold both sets, a switch is carried out sequentially.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Stop and flush out, dump out, restore in, run in.
    #[default]
    Sequential,
    /// Stop and flush out, dump out while in is restored, run in.
    Overlapped,
    /// Restore in while out still runs, stop and flush out, run in while out is dumped. The oracle is exact: the restore is
    /// over when the turn ends, unless the turn was shorter than it. What it costs the running jobs is not modelled, nor
    /// is its memory before the flush.
    Prefetch,
}

impl Order {
    /// What is left of a restore when the turn before it lasted so long.
    pub(crate) const fn left_of(self, restore: Duration, turn: Duration) -> Duration {
        match self {
            Self::Prefetch => restore.saturating_sub(turn),
            Self::Sequential | Self::Overlapped => restore,
        }
    }
}

/// Of `candidates` (in the order of suspension), those that leave, the last first: each that lies on a node with too much.
/// `excess` is by node; `of` says what a job has on which nodes.
pub(crate) fn evictions(
    candidates: &[JobId],
    excess: &mut [i128],
    of: impl Fn(JobId) -> Vec<(NodeId, u64)>,
) -> Vec<JobId> {
    let mut leaving = Vec::new();
    for &job in candidates.iter().rev() {
        let has = of(job);
        if has.iter().any(|(node, _)| excess[node.0 as usize] > 0) {
            has.iter().for_each(|(node, bytes)| excess[node.0 as usize] -= i128::from(*bytes));
            leaving.push(job);
        }
    }
    leaving
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_suspended_last_leaves_first_and_only_from_full_nodes() {
        // Job 0 on node 0, job 1 on node 1, job 2 on both; each takes 10.
        let of = |job: JobId| match job.0 {
            0 => vec![(NodeId(0), 10)],
            1 => vec![(NodeId(1), 10)],
            _ => vec![(NodeId(0), 10), (NodeId(1), 10)],
        };
        let jobs = [JobId(0), JobId(1), JobId(2)];
        assert_eq!(evictions(&jobs, &mut [0, 0], of), []);
        assert_eq!(evictions(&jobs, &mut [5, 0], of), [JobId(2)]);
        assert_eq!(evictions(&jobs, &mut [15, 0], of), [JobId(2), JobId(0)]);
        assert_eq!(evictions(&[JobId(2), JobId(1)], &mut [0, 3], of), [JobId(1)]);
    }
}
