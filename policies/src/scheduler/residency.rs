//! Residency (DESIGN §3): a job out of its turn stays in memory, suspended, while there is room, and leaves when the coming
//! turn needs the room.
//!
//! Rows take turns in a fixed cycle, so it is known whose next turn is farthest away: evicting that job moves the fewest bytes
//! possible (Belady's rule) where jobs are of one size, and where not, whoever turns out to fit after all stays.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{Cluster, JobId, NodeId, Seat};

/// Where jobs wait for their turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Residency {
    /// In the store, all of them (paper 003, §3.3.2.2).
    #[default]
    None,
    /// In memory while there is room.
    Planned,
}

/// Bytes of jobs by node.
pub(super) type Need = BTreeMap<NodeId, u64>;

/// Which job holds how much on which node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    used: Need,
    held: BTreeMap<JobId, Vec<(NodeId, u64)>>,
}

impl Memory {
    pub(super) fn enter(&mut self, seat: &Seat) {
        let holds = holdings(seat);
        for (node, bytes) in &holds {
            *self.used.entry(*node).or_default() += bytes;
        }
        self.held.insert(seat.spec.id, holds);
    }

    pub(super) fn leave(&mut self, job: JobId) {
        for (node, bytes) in self.held.remove(&job).unwrap_or_default() {
            *self.used.get_mut(&node).expect("whoever leaves has entered") -= bytes;
        }
    }

    pub(super) fn holds(&self, job: JobId) -> bool {
        self.held.contains_key(&job)
    }

    /// What these hold on the node where they hold most.
    pub(super) fn most(&self, jobs: impl IntoIterator<Item = JobId>) -> u64 {
        let all = jobs.into_iter().filter_map(|job| self.held.get(&job)).flatten();
        let mut sum = Need::new();
        all.for_each(|(node, bytes)| *sum.entry(*node).or_default() += bytes);
        sum.into_values().max().unwrap_or_default()
    }

    /// Who of the candidates leaves, those farthest from their turn first, so that `need` fits beside the others once those
    /// that `go` anyway have gone; `None` where it does not fit even so.
    pub(super) fn evictions(
        &self,
        cluster: &Cluster,
        need: &Need,
        go: impl IntoIterator<Item = JobId>,
        candidates: &[JobId],
    ) -> Option<BTreeSet<JobId>> {
        let over = |(node, bytes): (&NodeId, &u64)| {
            let used = self.used.get(node).copied().unwrap_or_default();
            (*node, i128::from(used) + i128::from(*bytes) - i128::from(cluster.capacity(*node).0))
        };
        let mut excess: BTreeMap<NodeId, i128> = need.iter().map(over).collect();
        for job in go {
            shift(&mut excess, &self.held[&job], -1);
        }
        let mut leaving = Vec::new();
        for job in candidates {
            let holds = &self.held[job];
            if holds.iter().any(|(node, _)| excess.get(node).is_some_and(|excess| *excess > 0)) {
                shift(&mut excess, holds, -1);
                leaving.push(*job);
            }
        }
        if excess.values().any(|excess| *excess > 0) {
            return None;
        }
        // A larger one that left later may have made room for a smaller one that left before.
        let mut stay = BTreeSet::new();
        for job in leaving.iter().rev() {
            let holds = &self.held[job];
            let room = |(node, bytes): &(NodeId, u64)| {
                excess.get(node).is_none_or(|excess| excess + i128::from(*bytes) <= 0)
            };
            if holds.iter().all(room) {
                shift(&mut excess, holds, 1);
                stay.insert(*job);
            }
        }
        leaving.retain(|job| !stay.contains(job));
        Some(leaving.into_iter().collect())
    }
}

/// What a set of seats takes, by node.
pub(super) fn need_of<'a>(seats: impl IntoIterator<Item = &'a Seat>) -> Need {
    let mut need = Need::new();
    for (node, bytes) in seats.into_iter().flat_map(holdings) {
        *need.entry(node).or_default() += bytes;
    }
    need
}

fn holdings(seat: &Seat) -> Vec<(NodeId, u64)> {
    seat.placement.blocks().iter().map(|block| (block.node, seat.spec.memory_of(block.ranks).0)).collect()
}

fn shift(excess: &mut BTreeMap<NodeId, i128>, holds: &[(NodeId, u64)], sign: i128) {
    for (node, bytes) in holds {
        if let Some(excess) = excess.get_mut(node) {
            *excess += sign * i128::from(*bytes);
        }
    }
}
