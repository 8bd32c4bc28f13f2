//! Residency (DESIGN §3): a job out of its turn stays in memory, suspended, while there is room, and leaves when the coming
//! turn needs the room.
//!
//! Rows take turns in a fixed cycle, so it is known whose next turn is farthest away: evicting that job moves the fewest bytes
//! possible (Belady's rule) where jobs are of one size, and where not, whoever turns out to fit after all stays.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{Assignment, Bytes, Cluster, JobId, JobMap, NodeId, Placement};

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

/// Bytes of jobs by node, in the order of nodes.
pub(super) type Need = Vec<(NodeId, u64)>;

/// What a job holds: so much for each rank.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held(Placement, Bytes);

impl Held {
    fn by_node(&self) -> impl Iterator<Item = (NodeId, u64)> + '_ {
        by_node(&self.0, self.1)
    }
}

fn by_node(placement: &Placement, rank: Bytes) -> impl Iterator<Item = (NodeId, u64)> + '_ {
    placement.blocks().map(move |block| (block.node, rank.times(block.ranks).0))
}

impl From<&Assignment> for Held {
    fn from(assignment: &Assignment) -> Self {
        Self(assignment.placement.clone(), assignment.spec.memory_per_rank)
    }
}

/// Which job holds how much on which node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// By node; nodes that nobody was on may be missing.
    used: Vec<u64>,
    held: JobMap<Held>,
}

impl Memory {
    pub(super) fn enter(&mut self, assignment: &Assignment) {
        let held = Held::from(assignment);
        for (node, bytes) in held.by_node() {
            let node = node.0 as usize;
            if node >= self.used.len() {
                self.used.resize(node + 1, 0);
            }
            self.used[node] += bytes;
        }
        self.held.insert(assignment.spec.id, held);
    }

    pub(super) fn leave(&mut self, job: JobId) {
        let held = self.held.remove(job);
        for (node, bytes) in held.iter().flat_map(Held::by_node) {
            self.used[node.0 as usize] -= bytes;
        }
    }

    /// A job, in memory or not, is as large as its assignment says now.
    pub(super) fn resize(&mut self, assignment: &Assignment) {
        if self.holds(assignment.spec.id) {
            self.leave(assignment.spec.id);
            self.enter(assignment);
        }
    }

    /// The nodes that hold more than they offer, each with nothing more to come: what has to leave makes room there, too.
    pub(super) fn overfull(&self, cluster: &Cluster) -> Need {
        let over = cluster.nodes().zip(&self.used).filter(|((_, capacity), used)| **used > capacity.0);
        over.map(|((node, _), _)| (node, 0)).collect()
    }

    pub(super) fn holds(&self, job: JobId) -> bool {
        self.held.contains(job)
    }

    /// What these hold on the node where they hold most.
    pub(super) fn most(&self, jobs: impl IntoIterator<Item = JobId>) -> u64 {
        let held = jobs.into_iter().filter_map(|job| self.held.get(job));
        most_of(&summed(held.flat_map(Held::by_node).collect()))
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
        let over = |(node, bytes): &(NodeId, u64)| {
            let used = self.used.get(node.0 as usize).copied().unwrap_or_default();
            (*node, i128::from(used) + i128::from(*bytes) - i128::from(cluster.capacity(*node).0))
        };
        let mut excess = Excess(need.iter().map(over).collect());
        for job in go {
            excess.shift(&self.held[job], -1);
        }
        let mut leaving = Vec::new();
        for job in candidates {
            let holds = &self.held[*job];
            if holds.by_node().any(|(node, _)| excess.of(node).is_some_and(|excess| *excess > 0)) {
                excess.shift(holds, -1);
                leaving.push(*job);
            }
        }
        if excess.0.iter().any(|(_, excess)| *excess > 0) {
            return None;
        }
        // A larger one that left later may have made room for a smaller one that left before.
        let mut stay = BTreeSet::new();
        for job in leaving.iter().rev() {
            let holds = &self.held[*job];
            let room = |(node, bytes): (NodeId, u64)| {
                excess.of(node).is_none_or(|excess| *excess + i128::from(bytes) <= 0)
            };
            if holds.by_node().all(room) {
                excess.shift(holds, 1);
                stay.insert(*job);
            }
        }
        leaving.retain(|job| !stay.contains(job));
        Some(leaving.into_iter().collect())
    }
}

/// What a set of assignments takes, by node.
pub(super) fn need_of<'a>(assignments: impl Iterator<Item = &'a Assignment> + Clone) -> Need {
    let mut need =
        Vec::with_capacity(assignments.clone().map(|assignment| assignment.placement.width()).sum());
    need.extend(
        assignments.flat_map(|assignment| by_node(&assignment.placement, assignment.spec.memory_per_rank)),
    );
    summed(need)
}

/// What the node that takes most takes.
pub(super) fn most_of(need: &Need) -> u64 {
    need.iter().map(|(_, bytes)| *bytes).max().unwrap_or_default()
}

/// One sum for each node, of parts in any order.
pub(super) fn summed(mut need: Need) -> Need {
    need.sort_unstable_by_key(|(node, _)| *node);
    need.dedup_by(|(node, bytes), (kept, sum)| {
        let same = node == kept;
        *sum += if same { *bytes } else { 0 };
        same
    });
    need
}

/// By how much nodes are too full, or not full yet; in the order of nodes.
struct Excess(Vec<(NodeId, i128)>);

impl Excess {
    fn of(&mut self, node: NodeId) -> Option<&mut i128> {
        let at = self.0.binary_search_by_key(&node, |(node, _)| *node).ok()?;
        Some(&mut self.0[at].1)
    }

    fn shift(&mut self, held: &Held, sign: i128) {
        for (node, bytes) in held.by_node() {
            if let Some(excess) = self.of(node) {
                *excess += sign * i128::from(bytes);
            }
        }
    }
}
