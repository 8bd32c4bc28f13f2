//! The cluster: the columns of the matrix and the memory that each offers.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{Bytes, NodeId};

/// The nodes of the cluster, numbered from zero, each with the memory it offers to a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cluster {
    capacities: Vec<Bytes>,
}

/// The memory that nodes offer to jobs. Where it is the same of all, it is written as one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Capacity {
    OfAll(Bytes),
    /// Node `i` offers item `i`.
    OfEach(Vec<Bytes>),
}

impl Capacity {
    /// Of nodes that offer this much each.
    #[must_use]
    pub fn of(nodes: Vec<Bytes>) -> Self {
        match nodes.first() {
            Some(first) if nodes.iter().all(|node| node == first) => Self::OfAll(*first),
            _ => Self::OfEach(nodes),
        }
    }

    /// What `node` offers; 0 where there is no node of this number.
    #[must_use]
    pub fn on(&self, node: NodeId) -> Bytes {
        match self {
            Self::OfAll(each) => *each,
            Self::OfEach(all) => all.get(node.0 as usize).copied().unwrap_or_default(),
        }
    }

    /// So many nodes together.
    #[must_use]
    pub fn total(&self, nodes: u32) -> Bytes {
        (0..nodes).map(|node| self.on(NodeId(node))).fold(Bytes(0), Bytes::saturating_add)
    }

    /// A cluster of so many nodes.
    #[must_use]
    pub fn cluster(&self, nodes: u32) -> Cluster {
        Cluster::new((0..nodes).map(|node| self.on(NodeId(node))).collect())
    }

    /// The largest node.
    #[must_use]
    pub fn largest(&self) -> Bytes {
        match self {
            Self::OfAll(each) => *each,
            Self::OfEach(all) => all.iter().copied().max().unwrap_or_default(),
        }
    }
}

impl Default for Capacity {
    fn default() -> Self {
        Self::OfAll(Bytes(0))
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfAll(each) => each.fmt(f),
            Self::OfEach(all) => {
                let least = all.iter().copied().min().unwrap_or_default();
                write!(f, "{least} to {}", self.largest())
            }
        }
    }
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

    /// Whether all nodes have the same capacity.
    #[must_use]
    pub fn is_uniform(&self) -> bool {
        self.kinds().len() < 2
    }

    /// The capacity of the largest node.
    #[must_use]
    pub fn largest(&self) -> Bytes {
        self.capacities.iter().copied().max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capacity_is_one_size_where_all_nodes_are_alike_and_a_list_where_not() {
        let alike = Capacity::of(vec![Bytes::mib(64); 2]);
        assert_eq!(serde_json::to_string(&alike).unwrap(), serde_json::to_string(&Bytes::mib(64)).unwrap());
        assert_eq!((alike.total(2), alike.to_string()), (Bytes::mib(128), "64MiB".into()));
        let unlike = Capacity::of(vec![Bytes::mib(64), Bytes::mib(32)]);
        let text = serde_json::to_string(&unlike).unwrap();
        assert_eq!(serde_json::from_str::<Capacity>(&text).unwrap(), unlike);
        assert_eq!((unlike.on(NodeId(1)), unlike.on(NodeId(2))), (Bytes::mib(32), Bytes(0)));
        assert_eq!((unlike.largest(), unlike.to_string()), (Bytes::mib(64), "32MiB to 64MiB".into()));
    }
}
