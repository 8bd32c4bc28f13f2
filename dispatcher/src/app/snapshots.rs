//! Index of an application's sealed snapshots: which epochs each node still has.
//!
//! A node keeps the last few that it has sealed, also where the dump of that epoch failed on another node,
//! and says which. A gang goes back only to an epoch that every node has.

use std::collections::{BTreeMap, BTreeSet};

use coswitch_policies::{Epoch, NodeId};

#[derive(Clone, Debug)]
pub(super) struct Snapshots {
    sealed: BTreeMap<NodeId, BTreeSet<Epoch>>,
    /// Epochs that could not be restored; nodes keep them all the same.
    bad: BTreeSet<Epoch>,
    /// Epochs that all nodes have been asked to remove.
    dropped: BTreeSet<Epoch>,
}

impl Snapshots {
    pub(super) fn new(nodes: impl IntoIterator<Item = NodeId>) -> Self {
        let sealed = nodes.into_iter().map(|node| (node, BTreeSet::new())).collect();
        Self { sealed, bad: BTreeSet::new(), dropped: BTreeSet::new() }
    }

    /// Some node cannot restore this epoch.
    pub(super) fn give_up(&mut self, epoch: Epoch) {
        self.bad.insert(epoch);
    }

    /// Some node has no snapshot of this epoch, and the others remove theirs.
    pub(super) fn drop_epoch(&mut self, epoch: Epoch) {
        self.dropped.insert(epoch);
        for epochs in self.sealed.values_mut() {
            epochs.remove(&epoch);
        }
    }

    /// What a node says that it has.
    pub(super) fn set(&mut self, node: NodeId, sealed: impl IntoIterator<Item = Epoch>) {
        if let Some(epochs) = self.sealed.get_mut(&node) {
            *epochs = sealed.into_iter().filter(|epoch| !self.dropped.contains(epoch)).collect();
        }
    }

    /// The newest that every node has.
    pub(super) fn newest(&self) -> Option<Epoch> {
        self.newest_where(|_, _| false, [])
    }

    pub(super) fn has(&self, node: NodeId, epoch: Epoch) -> bool {
        self.sealed.get(&node).is_some_and(|epochs| epochs.contains(&epoch))
    }

    /// The newest that every node has or may have; `also` are epochs that perhaps no node has any more.
    pub(super) fn newest_where(
        &self,
        may_have: impl Fn(NodeId, Epoch) -> bool,
        also: impl IntoIterator<Item = Epoch>,
    ) -> Option<Epoch> {
        let has = |node: &NodeId, epochs: &BTreeSet<Epoch>, epoch: Epoch| {
            epochs.contains(&epoch) || may_have(*node, epoch)
        };
        let mut known: BTreeSet<Epoch> = self.sealed.values().flatten().copied().collect();
        known.extend(also);
        let mut good = known.into_iter().rev().filter(|epoch| !self.bad.contains(epoch));
        good.find(|epoch| self.sealed.iter().all(|(node, epochs)| has(node, epochs, *epoch)))
    }

    /// The newest that every node has, where the node `without` has none but those of `may_have`.
    pub(super) fn newest_without(
        &self,
        without: NodeId,
        may_have: impl Fn(NodeId, Epoch) -> bool,
        also: impl IntoIterator<Item = Epoch>,
    ) -> Option<Epoch> {
        let mut others = self.clone();
        others.set(without, []);
        others.newest_where(may_have, also)
    }

    /// A node takes the place of another one, and has nothing yet.
    pub(super) fn rename(&mut self, from: NodeId, to: NodeId) {
        if self.sealed.remove(&from).is_some() {
            self.sealed.insert(to, BTreeSet::new());
        }
    }

    /// The newest that any node has.
    pub(super) fn last(&self) -> Epoch {
        self.sealed.values().filter_map(|epochs| epochs.last().copied()).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_that_only_one_node_has_counts_there_and_is_not_gone_back_to() {
        let [a, b] = [NodeId(0), NodeId(1)];
        let mut snapshots = Snapshots::new([a, b]);
        [a, b].into_iter().for_each(|node| snapshots.set(node, [1, 2].map(Epoch)));
        snapshots.set(a, [2, 3].map(Epoch));
        assert_eq!(snapshots.newest(), Some(Epoch(2)));
        snapshots.set(a, [3, 4].map(Epoch));
        snapshots.set(b, [2, 4].map(Epoch));
        snapshots.give_up(Epoch(4));
        assert_eq!(snapshots.newest(), None, "a has removed 2 for 3");
    }
}
