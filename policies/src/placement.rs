//! Placement of ranks on nodes: block-wise (neighbouring ranks share a node) and balanced (no node has two
//! ranks more than another unless a small node forces it).
//!
//! The [`Shape`] of a job (how many nodes it spans, how many ranks one of them may get) is that of the empty
//! cluster. *Which* nodes it gets is found per row, the emptiest first. So a gang is never squeezed on to
//! fewer nodes because a row happens to be half full.

use std::{cmp::Reverse, iter, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{Bytes, Cluster, JobSpec, MemoryRule, NodeId};

/// The ranks of a job on one node: those that follow the ranks of the block before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    pub node: NodeId,
    /// At least one.
    pub ranks: u32,
}

/// Where each rank of one job runs. Blocks are in the order of both ranks and nodes, and leave no gap. Clones
/// share their blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Placement {
    blocks: Arc<[Block]>,
}

impl From<Vec<Block>> for Placement {
    fn from(blocks: Vec<Block>) -> Self {
        Self { blocks: blocks.into() }
    }
}

impl FromIterator<Block> for Placement {
    fn from_iter<I: IntoIterator<Item = Block>>(blocks: I) -> Self {
        Self { blocks: blocks.into_iter().collect() }
    }
}

impl Placement {
    /// Gives each node of `shares`, in order of nodes, that many ranks; nodes with none are left out.
    #[must_use]
    pub fn from_shares(shares: &[u32]) -> Self {
        let used = (0..).zip(shares).filter(|(_, ranks)| **ranks > 0);
        used.map(|(node, &ranks)| Block { node: NodeId(node), ranks }).collect()
    }

    /// Gives each of these nodes, in any order, at least one rank.
    fn from_nodes(mut nodes: Vec<(NodeId, u32)>) -> Self {
        nodes.sort_unstable();
        nodes.into_iter().map(|(node, ranks)| Block { node, ranks }).collect()
    }

    /// How many nodes the job spans.
    #[must_use]
    pub fn width(&self) -> usize {
        self.blocks.len()
    }

    /// One block for each node of the job.
    pub fn blocks(&self) -> impl DoubleEndedIterator<Item = Block> + Clone + '_ {
        self.blocks.iter().copied()
    }

    /// The nodes of the job, in order.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.blocks().map(|block| block.node)
    }

    /// How many ranks the job has in all.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.blocks().map(|block| block.ranks).sum()
    }

    /// How many ranks run on `node`.
    #[must_use]
    pub fn count_on(&self, node: NodeId) -> u32 {
        self.blocks.binary_search_by_key(&node, |block| block.node).map_or(0, |at| self.blocks[at].ranks)
    }

    /// The node of each rank, from the lowest rank on.
    pub fn by_rank(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.blocks().flat_map(|block| iter::repeat_n(block.node, block.ranks as usize))
    }
}

/// How a job spreads over nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shape {
    /// Nodes it spans.
    pub width: u32,
    /// Ranks that one node gets at most.
    pub most: u32,
}

impl Shape {
    /// The most even spread of `job` over the empty `cluster`; `None` where even that does not hold the job.
    #[must_use]
    pub fn on_empty(job: &JobSpec, cluster: &Cluster, rule: MemoryRule) -> Option<Self> {
        Self::on_kinds(job, &cluster.kinds(), rule)
    }

    /// The same, from the number of nodes of each capacity.
    pub(crate) fn on_kinds(job: &JobSpec, kinds: &[(Bytes, u32)], rule: MemoryRule) -> Option<Self> {
        let fit = |&(capacity, nodes): &(Bytes, u32)| (ranks_that_fit(job, capacity, rule), nodes);
        let limits: Vec<(u32, u32)> = kinds.iter().map(fit).filter(|(ranks, _)| *ranks > 0).collect();
        let width = limits.iter().map(|(_, nodes)| *nodes).sum::<u32>().min(job.ranks);
        if width == 0 {
            return None;
        }
        let held = |most: u32| -> u64 {
            limits.iter().map(|(ranks, nodes)| u64::from(*ranks.min(&most)) * u64::from(*nodes)).sum()
        };
        // `held` grows with `most`.
        let (mut low, mut high) = (job.ranks.div_ceil(width), job.ranks);
        if held(high) < u64::from(job.ranks) {
            return None;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if held(middle) < u64::from(job.ranks) { low = middle + 1 } else { high = middle }
        }
        Some(Self { width, most: low })
    }
}

/// How many ranks of `job` fit in `free`.
#[must_use]
pub fn ranks_that_fit(job: &JobSpec, free: Bytes, rule: MemoryRule) -> u32 {
    match rule {
        MemoryRule::Ignored => job.ranks,
        MemoryRule::MustFit => free
            .0
            .checked_div(job.memory_per_rank.0)
            .map_or(job.ranks, |n| u32::try_from(n).unwrap_or(u32::MAX).min(job.ranks)),
    }
}

/// What a cell has left for one more job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeCapacity {
    /// Whether one more job may enter the cell.
    pub open: bool,
    /// Jobs already there.
    pub jobs: u32,
    /// Memory left.
    pub free: Bytes,
}

/// Spreads `job` over `nodes` (by their numbers) in its `shape`, the emptiest first; `None` where it does not
/// fit so.
#[must_use]
pub fn plan_placement(
    job: &JobSpec,
    shape: Shape,
    nodes: &[FreeCapacity],
    rule: MemoryRule,
) -> Option<Placement> {
    let open = (0..).map(NodeId).zip(nodes).filter(|(_, left)| left.open);
    let mut nodes: Vec<(NodeId, &FreeCapacity)> = open.collect();
    nodes.sort_by_key(|(node, left)| (left.jobs, Reverse(left.free), *node));
    let fit = |(node, left): (NodeId, &FreeCapacity)| (node, ranks_that_fit(job, left.free, rule));
    let nodes = nodes.into_iter().map(fit).filter(|(_, ranks)| *ranks > 0);
    spread(job, shape, nodes.take(shape.width as usize).collect())
}

/// Spreads `job` over `nodes`, the emptiest first, each with the ranks it holds at most; `None` where they
/// are too few.
pub(crate) fn spread(job: &JobSpec, shape: Shape, mut nodes: Vec<(NodeId, u32)>) -> Option<Placement> {
    if nodes.len() < shape.width as usize {
        return None;
    }
    let held: Vec<u32> = nodes.iter_mut().map(|(_, ranks)| std::mem::take(ranks)).collect();
    let mut left = job.ranks;
    // Every node gets its first rank before any gets its second.
    for level in 1..=shape.most {
        for ((_, ranks), held) in nodes.iter_mut().zip(&held) {
            if left > 0 && *held >= level {
                *ranks = level;
                left -= 1;
            }
        }
    }
    (left == 0).then(|| Placement::from_nodes(nodes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JobId, SimTime};

    fn job(ranks: u32, mib: u64) -> JobSpec {
        let memory_per_rank = Bytes::mib(mib);
        JobSpec { id: JobId(0), name: "j".into(), ranks, memory_per_rank, arrival: SimTime(0) }
    }

    fn place(job: &JobSpec, cluster: &Cluster) -> Option<Vec<u32>> {
        let rule = MemoryRule::MustFit;
        let empty = cluster.nodes().map(|(_, free)| FreeCapacity { open: true, jobs: 0, free });
        let empty: Vec<FreeCapacity> = empty.collect();
        let placement = plan_placement(job, Shape::on_empty(job, cluster, rule)?, &empty, rule)?;
        Some(cluster.nodes().map(|(node, _)| placement.count_on(node)).collect())
    }

    #[test]
    fn ranks_spread_block_wise_and_evenly() {
        let cluster = Cluster::uniform(3, Bytes::mib(1000));
        assert_eq!(place(&job(7, 100), &cluster), Some(vec![3, 2, 2]));
        assert_eq!(place(&job(2, 100), &cluster), Some(vec![1, 1, 0]));
        let placement = Placement::from_shares(&[3, 0, 2]);
        assert_eq!(placement.by_rank().map(|node| node.0).collect::<Vec<_>>(), [0, 0, 0, 2, 2]);
        assert_eq!(placement.ranks(), 5);
        let counts: Vec<u32> = cluster.nodes().map(|(node, _)| placement.count_on(node)).collect();
        assert_eq!((counts, placement.width()), (vec![3, 0, 2], 2));
        let even = Placement::from_shares(&[2, 0, 2]);
        assert_eq!((even.count_on(NodeId(1)), even.count_on(NodeId(2)), even.ranks()), (0, 2, 4));
    }

    #[test]
    fn a_small_node_gets_fewer_ranks_and_a_tiny_one_none() {
        let cluster = Cluster::new(vec![Bytes::mib(200), Bytes::mib(1000), Bytes::mib(50)]);
        assert_eq!(place(&job(6, 100), &cluster), Some(vec![2, 4, 0]));
        assert_eq!(place(&job(13, 100), &cluster), None);
    }

    #[test]
    fn a_gang_is_not_squeezed_on_to_fewer_nodes() {
        // Four ranks on three nodes are 2 + 1 + 1; they could be 2 + 2 where a node is full, and must not.
        let (job, rule) = (job(4, 100), MemoryRule::MustFit);
        let shape = Shape::on_empty(&job, &Cluster::uniform(3, Bytes::mib(1000)), rule).unwrap();
        let open = FreeCapacity { open: true, jobs: 0, free: Bytes::mib(1000) };
        assert!(plan_placement(&job, shape, &[open, open, open], rule).is_some());
        for full in [FreeCapacity { open: false, ..open }, FreeCapacity { free: Bytes::mib(99), ..open }] {
            assert_eq!(plan_placement(&job, shape, &[open, full, open], rule), None);
        }
    }

    #[test]
    fn without_the_memory_rule_anything_fits() {
        let (job, cluster) = (job(5, 4000), Cluster::uniform(2, Bytes::mib(1)));
        assert_eq!(Shape::on_empty(&job, &cluster, MemoryRule::MustFit), None);
        let spread = Shape::on_empty(&job, &cluster, MemoryRule::Ignored);
        assert_eq!(spread, Some(Shape { width: 2, most: 3 }));
    }
}
