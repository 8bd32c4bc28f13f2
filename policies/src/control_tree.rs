//! The tree by which requests reach many nodes: to which nodes the master and each daemon pass a request on.
//!
//! A function of (radix, nodes, failed nodes) and of nothing else, so that all who know these agree without a
//! message. The master is the root; the nodes follow in the order of their numbers, each position's children
//! at the next `radix` positions, as in a heap. A failed node's children go to its nearest living ancestor
//! and nobody else moves (PRRTE heals its tree in this way; paper 004, STORM, sends orders by multicast and
//! combines the answers on the way up).
//!
//! Each living node is reached once, in at most [`ControlTree::depth`] steps. A position hands on to `radix`
//! others, and to `radix - 1` more for each failed one below it that it stands in for.

use std::collections::{BTreeMap, BTreeSet};

use crate::NodeId;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlTree {
    radix: u32,
    nodes: u32,
    failed: BTreeSet<NodeId>,
}

/// Who hands an order on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Master,
    Node(NodeId),
}

impl Place {
    /// Counted from the master.
    fn position(self) -> u64 {
        match self {
            Self::Master => 0,
            Self::Node(node) => u64::from(node.0) + 1,
        }
    }

    fn at(position: u64) -> Self {
        match position.checked_sub(1) {
            None => Self::Master,
            Some(node) => {
                Self::Node(NodeId(u32::try_from(node).expect("a position is a node's number and 1")))
            }
        }
    }
}

impl ControlTree {
    /// Of `nodes` nodes numbered from 0. A radix of 0 counts as 1, a chain.
    #[must_use]
    pub fn new(radix: u32, nodes: u32, failed: BTreeSet<NodeId>) -> Self {
        Self { radix: radix.max(1), nodes, failed }
    }

    /// Whether the node is of the tree and lives.
    #[must_use]
    pub fn is_living(&self, node: NodeId) -> bool {
        node.0 < self.nodes && !self.failed.contains(&node)
    }

    /// Who hands orders on to `node`: its nearest living ancestor.
    #[must_use]
    pub fn parent(&self, node: NodeId) -> Place {
        let mut position = Place::Node(node).position();
        loop {
            position = (position - 1) / u64::from(self.radix);
            match Place::at(position) {
                Place::Node(node) if self.failed.contains(&node) => {}
                place => return place,
            }
        }
    }

    /// To whom `place` hands orders on, in the order of their numbers: its living children, and the children
    /// of those that have failed.
    #[must_use]
    pub fn children(&self, place: Place) -> Vec<NodeId> {
        let mut children = Vec::new();
        let mut below = vec![place];
        while let Some(place) = below.pop() {
            for node in self.positions_below(place) {
                if self.failed.contains(&node) {
                    below.push(Place::Node(node));
                } else {
                    children.push(node);
                }
            }
        }
        children.sort_unstable();
        children
    }

    /// The nodes at the positions of its children, failed or not.
    fn positions_below(&self, place: Place) -> impl Iterator<Item = NodeId> + use<> {
        let first = place.position() * u64::from(self.radix);
        let nodes = u64::from(self.nodes);
        let range = first.min(nodes)..(first + u64::from(self.radix)).min(nodes);
        range.map(|node| NodeId(u32::try_from(node).expect("fewer than the nodes")))
    }

    /// Divides the targets of an order that has come to `place` between those to whom it hands it on. Nodes
    /// without a target below them, and targets that do not live, are left out.
    #[must_use]
    pub fn hand_on(&self, place: Place, targets: &BTreeSet<NodeId>) -> BTreeMap<NodeId, BTreeSet<NodeId>> {
        let mut parts: BTreeMap<NodeId, BTreeSet<NodeId>> = BTreeMap::new();
        for target in targets.iter().filter(|target| self.is_living(**target)) {
            if let Some(next) = self.next_on_the_way(place, *target) {
                parts.entry(next).or_default().insert(*target);
            }
        }
        parts
    }

    /// The child of `place` that is, or has below it, the living node `target`.
    fn next_on_the_way(&self, place: Place, target: NodeId) -> Option<NodeId> {
        let mut node = target;
        loop {
            match self.parent(node) {
                parent if parent == place => return Some(node),
                Place::Master => return None,
                Place::Node(parent) => node = parent,
            }
        }
    }

    /// Whether a request of the master to `node` goes through the living node `ancestor`, or to it.
    #[must_use]
    pub fn passes(&self, ancestor: NodeId, node: NodeId) -> bool {
        let mut place = Place::Node(node);
        while let Place::Node(node) = place {
            if node == ancestor {
                return true;
            }
            place = self.parent(node);
        }
        false
    }

    /// The most steps from the master to a node, if none has failed; failures make no way longer.
    #[must_use]
    pub fn depth(&self) -> u32 {
        let mut position = u64::from(self.nodes);
        let mut depth = 0;
        while position > 0 {
            position = (position - 1) / u64::from(self.radix);
            depth += 1;
        }
        depth
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn nodes(numbers: impl IntoIterator<Item = u32>) -> BTreeSet<NodeId> {
        numbers.into_iter().map(NodeId).collect()
    }

    fn list(numbers: impl IntoIterator<Item = u32>) -> Vec<NodeId> {
        numbers.into_iter().map(NodeId).collect()
    }

    #[test]
    fn a_small_tree_and_how_it_heals() {
        let whole = ControlTree::new(2, 7, BTreeSet::new());
        assert_eq!(whole.children(Place::Master), list([0, 1]));
        assert_eq!(whole.children(Place::Node(NodeId(0))), list([2, 3]));
        assert_eq!(whole.children(Place::Node(NodeId(2))), list([6]));
        assert_eq!(whole.depth(), 3);
        let healed = ControlTree::new(2, 7, nodes([0, 2]));
        assert_eq!(healed.children(Place::Master), list([1, 3, 6]), "grandchildren move up");
        assert_eq!(healed.parent(NodeId(6)), Place::Master);
        assert_eq!(healed.children(Place::Node(NodeId(1))), list([4, 5]), "others stay where they are");
        assert!(whole.passes(NodeId(2), NodeId(6)) && whole.passes(NodeId(6), NodeId(6)));
        assert!(!whole.passes(NodeId(1), NodeId(6)) && !healed.passes(NodeId(2), NodeId(6)));
        let parts = whole.hand_on(Place::Master, &nodes([1, 5, 6]));
        assert_eq!(parts, BTreeMap::from([(NodeId(0), nodes([6])), (NodeId(1), nodes([1, 5]))]));
    }

    #[test]
    fn an_order_to_256_nodes_leaves_the_master_16_times() {
        let tree = ControlTree::new(16, 256, BTreeSet::new());
        assert_eq!(tree.hand_on(Place::Master, &nodes(0..256)).len(), 16);
        assert_eq!(tree.depth(), 2);
    }

    #[test]
    fn no_node_and_a_radix_of_none_are_no_trouble() {
        let empty = ControlTree::new(8, 0, BTreeSet::new());
        assert_eq!((empty.depth(), empty.children(Place::Master)), (0, vec![]));
        let chain = ControlTree::new(0, 3, nodes([1]));
        assert_eq!((chain.parent(NodeId(2)), chain.depth()), (Place::Node(NodeId(0)), 3));
        assert!(chain.hand_on(Place::Master, &nodes([1, 9])).is_empty(), "neither of them lives");
    }

    /// Hands an order on until nobody is left: how often each node got it, and after how many steps.
    fn multicast(tree: &ControlTree, targets: &BTreeSet<NodeId>) -> BTreeMap<NodeId, Vec<u32>> {
        let mut reached: BTreeMap<NodeId, Vec<u32>> = BTreeMap::new();
        let mut on_the_way = vec![(Place::Master, targets.clone(), 0)];
        while let Some((place, targets, steps)) = on_the_way.pop() {
            for (next, part) in tree.hand_on(place, &targets) {
                reached.entry(next).or_default().push(steps + 1);
                on_the_way.push((Place::Node(next), part, steps + 1));
            }
        }
        reached
    }

    fn trees() -> impl Strategy<Value = (ControlTree, BTreeSet<NodeId>)> {
        (1u32..40, 0u32..600).prop_flat_map(|(radix, count)| {
            let some = || prop::collection::btree_set(0..count.max(1), 0..=count as usize / 3);
            (some(), some()).prop_map(move |(failed, targets)| {
                (ControlTree::new(radix, count, nodes(failed)), nodes(targets))
            })
        })
    }

    proptest! {
        #[test]
        fn every_living_target_is_reached_exactly_once_and_soon((tree, targets) in trees()) {
            let reached = multicast(&tree, &targets);
            for target in targets.iter().filter(|target| tree.is_living(**target)) {
                prop_assert!(reached.contains_key(target), "{target} is reached");
            }
            for (node, steps) in &reached {
                prop_assert!(tree.is_living(*node) && steps.len() == 1 && steps[0] <= tree.depth());
            }
            let all = multicast(&tree, &nodes(0..tree.nodes));
            let failed = tree.failed.iter().filter(|node| node.0 < tree.nodes).count();
            prop_assert_eq!(all.len(), tree.nodes as usize - failed);
        }

        #[test]
        fn parents_and_children_agree_and_few_are_asked((tree, _) in trees()) {
            let living = (0..tree.nodes).map(NodeId).filter(|node| tree.is_living(*node));
            for place in living.map(Place::Node).chain([Place::Master]) {
                let children = tree.children(place);
                let is_right = |child: &NodeId| tree.is_living(*child) && tree.parent(*child) == place;
                prop_assert!(children.iter().all(is_right));
                let most = tree.radix as usize + (tree.radix as usize - 1) * tree.failed.len();
                prop_assert!(children.len() <= most);
            }
        }

        #[test]
        fn a_failure_moves_only_the_children_of_the_failed_node(
            (tree, _) in trees(),
            which in any::<prop::sample::Index>(),
        ) {
            prop_assume!(tree.nodes > 0);
            let lost = NodeId(which.index(tree.nodes as usize) as u32);
            let mut failed = tree.failed.clone();
            failed.insert(lost);
            let healed = ControlTree { failed, ..tree.clone() };
            for node in (0..tree.nodes).map(NodeId).filter(|node| healed.is_living(*node)) {
                let before = tree.parent(node);
                prop_assert!(healed.parent(node) == before || before == Place::Node(lost));
            }
        }
    }
}
