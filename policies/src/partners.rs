//! Partners: the nodes that hold the copy of a node's snapshots, and what of it is left when some are lost.
//!
//! A copy is cut into chunks, which go round a ring of partners: chunk `i` lies on the partners `i`, `i + 1`,
//! … of the ring, as many as there are copies. So each partner takes about as much, and a node that gets its
//! snapshots back reads from all of them at once (RAMCloud scatters for the same reason, SOSP 2011).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::NodeId;

/// How a snapshot is copied to other nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyRule {
    /// Nodes of the cluster.
    pub nodes: u32,
    /// How many other nodes hold each chunk; 0: there are no copies.
    pub copies: u32,
}

/// Where the chunks of a copy lie.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Scatter {
    /// The partners, in the order of the chunks.
    pub ring: Vec<NodeId>,
    /// How many of them hold each chunk: from 1 to the length of the ring.
    pub copies: u32,
}

impl CopyRule {
    /// Where the copy of `owner`'s snapshots goes while the nodes of `down` are lost; `None` where no node is
    /// left for it, or there are no copies. The ring begins behind the owner, so that the nodes of a cluster
    /// do not all begin with the same partner.
    #[must_use]
    pub fn partners(&self, owner: NodeId, down: &BTreeSet<NodeId>) -> Option<Scatter> {
        let after = (1..self.nodes).map(|step| NodeId((owner.0 + step) % self.nodes));
        let ring: Vec<NodeId> = after.filter(|node| !down.contains(node)).collect();
        let copies = self.copies.min(u32::try_from(ring.len()).unwrap_or(u32::MAX));
        (copies > 0 && owner.0 < self.nodes).then_some(Scatter { ring, copies })
    }
}

impl Scatter {
    /// The holders of a chunk.
    pub fn holders(&self, chunk: u32) -> impl Iterator<Item = NodeId> + '_ {
        let length = self.ring.len().max(1);
        let copies = (self.copies as usize).min(self.ring.len());
        (0..copies).map(move |copy| self.ring[(chunk as usize + copy) % length])
    }

    /// Whether every chunk is on one of these nodes, however many chunks there are.
    #[must_use]
    pub fn is_whole_on(&self, has: impl Fn(NodeId) -> bool) -> bool {
        let kinds = u32::try_from(self.ring.len()).unwrap_or(u32::MAX);
        kinds > 0 && (0..kinds).all(|chunk| self.holders(chunk).any(&has))
    }
}

/// The node that takes the place of one that stays away: it must not have a part of the job, and must hold
/// the part; one that has some of the copy already moves the fewest bytes, and of these the one with the most
/// memory left, then the first.
pub fn successor(
    candidates: impl IntoIterator<Item = (NodeId, u64)>,
    holders: Option<&[NodeId]>,
) -> Option<NodeId> {
    let has_some = |node: NodeId| holders.is_some_and(|holders| holders.contains(&node));
    let best =
        candidates.into_iter().max_by_key(|(node, free)| (has_some(*node), *free, std::cmp::Reverse(*node)));
    best.map(|(node, _)| node)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(nodes: &[u32]) -> BTreeSet<NodeId> {
        nodes.iter().copied().map(NodeId).collect()
    }

    #[test]
    fn two_nodes_hold_the_copies_of_each_other() {
        let rule = CopyRule { nodes: 2, copies: 1 };
        let partners = |owner| rule.partners(NodeId(owner), &set(&[])).unwrap().ring;
        assert_eq!((partners(0), partners(1)), (vec![NodeId(1)], vec![NodeId(0)]));
        assert_eq!(rule.partners(NodeId(0), &set(&[1])), None);
        assert_eq!(CopyRule { nodes: 2, copies: 0 }.partners(NodeId(0), &set(&[])), None);
    }

    #[test]
    fn a_holder_of_the_copy_takes_the_place_of_a_lost_node_before_others() {
        let holders = [NodeId(2), NodeId(3)];
        let free = [(NodeId(1), 9), (NodeId(2), 4), (NodeId(3), 5)];
        assert_eq!(successor(free, Some(&holders)), Some(NodeId(3)));
        assert_eq!(successor(free, None), Some(NodeId(1)));
        assert_eq!(successor([], None), None);
    }

    proptest! {
        #[test]
        fn chunks_are_on_living_partners_each_on_as_many_and_evenly(
            nodes in 2u32..20,
            copies in 1u32..5,
            owner in 0u32..20,
            down in 0u32..1 << 20,
            chunks in 0u32..200,
        ) {
            let owner = NodeId(owner % nodes);
            let down = (0..nodes).filter(|node| down >> node & 1 == 1).map(NodeId);
            let down: BTreeSet<NodeId> = down.collect();
            let rule = CopyRule { nodes, copies };
            let living = (0..nodes).map(NodeId).filter(|node| *node != owner && !down.contains(node)).count();
            let Some(scatter) = rule.partners(owner, &down) else {
                prop_assert_eq!(living, 0);
                return Ok(());
            };
            prop_assert_eq!(&Some(scatter.clone()), &rule.partners(owner, &down));
            prop_assert_eq!(scatter.copies as usize, living.min(copies as usize));
            let mut load = std::collections::BTreeMap::new();
            for chunk in 0..chunks {
                let holders: BTreeSet<NodeId> = scatter.holders(chunk).collect();
                prop_assert_eq!(holders.len(), scatter.copies as usize);
                prop_assert!(!holders.contains(&owner) && holders.is_disjoint(&down));
                holders.into_iter().for_each(|node| *load.entry(node).or_insert(0u32) += 1);
            }
            let (least, most) = (load.values().min(), load.values().max());
            if load.len() == living {
                prop_assert!(most.unwrap() - least.unwrap() <= scatter.copies);
            }
        }

        #[test]
        fn a_copy_is_whole_where_no_chunk_has_lost_all_its_holders(
            nodes in 2u32..12, copies in 1u32..4, gone in 0u32..1 << 12,
        ) {
            let rule = CopyRule { nodes, copies };
            let scatter = rule.partners(NodeId(0), &BTreeSet::new()).unwrap();
            let has = |node: NodeId| gone >> node.0 & 1 == 0;
            let all = (0..100).all(|chunk| scatter.holders(chunk).any(has));
            prop_assert_eq!(scatter.is_whole_on(has), all);
        }
    }
}
