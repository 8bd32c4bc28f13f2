//! Residency planning: which jobs out of their turn stay in memory, and which are evicted when a turn needs
//! the room.
//!
//! Rows take turns in a fixed cycle, so the job whose next turn is farthest away is known: evicting that one
//! moves the fewest bytes possible where jobs are of one size (Belady's rule). Where they are not, a job that
//! fits after all stays.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{Assignment, Bytes, Cluster, JobId, NodeId, Placement};

/// Where jobs wait for their turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Residency {
    /// All in the store (paper 003, §3.3.2.2).
    #[default]
    None,
    /// In memory, while they fit.
    Planned,
    /// All in memory, whether they fit or not: the kernel swaps (the baseline of paper 003, gang scheduling
    /// by signals).
    Always,
}

/// Bytes by node, in the order of nodes.
pub(super) type Need = Vec<(NodeId, u64)>;

/// The estimated memory of a job: so many bytes for each rank.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Footprint(Placement, Bytes);

impl Footprint {
    fn by_node(&self) -> impl Iterator<Item = (NodeId, u64)> + '_ {
        by_node(&self.0, self.1)
    }
}

fn by_node(placement: &Placement, rank: Bytes) -> impl Iterator<Item = (NodeId, u64)> + '_ {
    placement.blocks().map(move |block| (block.node, rank.times(block.ranks).0))
}

impl From<&Assignment> for Footprint {
    fn from(assignment: &Assignment) -> Self {
        Self(assignment.placement.clone(), assignment.spec.memory_per_rank)
    }
}

/// Estimated memory in use, by node and by job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// By node; nodes that never held a job may be missing.
    used: Vec<u64>,
    footprints: BTreeMap<JobId, Footprint>,
}

impl Memory {
    pub(super) fn enter(&mut self, assignment: &Assignment) {
        let footprint = Footprint::from(assignment);
        for (node, bytes) in footprint.by_node() {
            let node = node.0 as usize;
            if node >= self.used.len() {
                self.used.resize(node + 1, 0);
            }
            self.used[node] += bytes;
        }
        self.footprints.insert(assignment.spec.id, footprint);
    }

    pub(super) fn leave(&mut self, job: JobId) {
        let footprint = self.footprints.remove(&job);
        for (node, bytes) in footprint.iter().flat_map(Footprint::by_node) {
            self.used[node.0 as usize] -= bytes;
        }
    }

    /// Takes over a new estimate, if the job is in memory.
    pub(super) fn resize(&mut self, assignment: &Assignment) {
        if self.holds(assignment.spec.id) {
            self.leave(assignment.spec.id);
            self.enter(assignment);
        }
    }

    /// Nodes whose jobs exceed their capacity, each with no further need: evictions make room there as well.
    pub(super) fn overfull(&self, cluster: &Cluster) -> Need {
        let over = cluster.nodes().zip(&self.used).filter(|((_, capacity), used)| **used > capacity.0);
        over.map(|((node, _), _)| (node, 0)).collect()
    }

    pub(super) fn holds(&self, job: JobId) -> bool {
        self.footprints.contains_key(&job)
    }

    /// What these jobs hold on the node where they hold most.
    pub(super) fn most(&self, jobs: impl IntoIterator<Item = JobId>) -> u64 {
        let footprint = jobs.into_iter().filter_map(|job| self.footprints.get(&job));
        most_of(&summed(footprint.flat_map(Footprint::by_node).collect()))
    }

    /// Which candidates leave, those farthest from their turn first, so that `need` fits beside the others
    /// once the jobs that `go` anyway have gone; `None` where it does not fit even so.
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
            excess.shift(&self.footprints[&job], -1);
        }
        let mut leaving = Vec::new();
        for job in candidates {
            let holds = &self.footprints[job];
            if holds.by_node().any(|(node, _)| excess.of(node).is_some_and(|excess| *excess > 0)) {
                excess.shift(holds, -1);
                leaving.push(*job);
            }
        }
        if excess.0.iter().any(|(_, excess)| *excess > 0) {
            return None;
        }
        // A larger job that was chosen later may have made room for a smaller one that was chosen before.
        let mut stay = BTreeSet::new();
        for job in leaving.iter().rev() {
            let holds = &self.footprints[job];
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

/// What a set of assignments needs, by node.
pub(super) fn need_of<'a>(assignments: impl Iterator<Item = &'a Assignment> + Clone) -> Need {
    let mut need =
        Vec::with_capacity(assignments.clone().map(|assignment| assignment.placement.width()).sum());
    need.extend(
        assignments.flat_map(|assignment| by_node(&assignment.placement, assignment.spec.memory_per_rank)),
    );
    summed(need)
}

/// The need of the node that needs most.
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

/// Excess of each node over its capacity, negative where there is room; in the order of nodes.
struct Excess(Vec<(NodeId, i128)>);

impl Excess {
    fn of(&mut self, node: NodeId) -> Option<&mut i128> {
        let at = self.0.binary_search_by_key(&node, |(node, _)| *node).ok()?;
        Some(&mut self.0[at].1)
    }

    fn shift(&mut self, footprint: &Footprint, sign: i128) {
        for (node, bytes) in footprint.by_node() {
            if let Some(excess) = self.of(node) {
                *excess += sign * i128::from(bytes);
            }
        }
    }
}
