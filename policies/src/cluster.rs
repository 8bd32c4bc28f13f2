//! The cluster: the columns of the matrix and the memory that each offers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Bytes, NodeId};

/// The nodes of the cluster, numbered from zero, each with the memory it offers to a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cluster {
    capacities: Vec<Bytes>,
}

impl Cluster {
    /// A cluster whose node `i` offers `capacities[i]`.
    #[must_use]
    pub const fn new(capacities: Vec<Bytes>) -> Self {
        Self { capacities }
    }

    /// `nodes` nodes of equal capacity.
    #[must_use]
    pub fn uniform(nodes: u32, capacity: Bytes) -> Self {
        Self::new(vec![capacity; nodes as usize])
    }

    /// Number of nodes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.capacities.len()
    }

    /// Whether there is no node at all.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.capacities.is_empty()
    }

    /// The nodes in order, each with its capacity.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, Bytes)> + '_ {
        (0..).map(NodeId).zip(self.capacities.iter().copied())
    }

    /// The memory that `node` offers; 0 where there is no node of this number.
    #[must_use]
    pub fn capacity(&self, node: NodeId) -> Bytes {
        self.capacities.get(node.0 as usize).copied().unwrap_or_default()
    }

    /// How many nodes there are of each capacity, the smallest first.
    pub(crate) fn kinds(&self) -> Vec<(Bytes, u32)> {
        let mut kinds = BTreeMap::new();
        for capacity in &self.capacities {
            *kinds.entry(*capacity).or_default() += 1;
        }
        kinds.into_iter().collect()
    }

    /// The capacity of the largest node.
    #[must_use]
    pub fn largest(&self) -> Bytes {
        self.capacities.iter().copied().max().unwrap_or_default()
    }
}
