//! Node sets and the groups made of them (paper 002 §2.2).

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Period;
use crate::spaceshare::allocate::Allocator;

/// A node set, by its place in the list given to [`Machine::new`](super::Machine::new).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SetId(pub u16);

/// A node group, by its place in the list given to [`Machine::new`](super::Machine::new).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GroupId(pub u16);

/// Equal nodes that are allocated together.
#[derive(Debug)]
pub struct NodeSet {
    pub name: String,
    /// Who chooses among its nodes.
    pub allocator: Box<dyn Allocator>,
}

/// The sets that the jobs of a queue may use, each list in the order of preference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeGroup {
    pub name: String,
    /// In prime time.
    pub prime: Vec<SetId>,
    /// In non-prime time.
    pub non_prime: Vec<SetId>,
}

impl NodeGroup {
    #[must_use]
    pub fn sets(&self, period: Period) -> &[SetId] {
        match period {
            Period::Prime => &self.prime,
            Period::NonPrime => &self.non_prime,
        }
    }
}

/// Why a machine makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MachineError {
    /// More sets than are told apart.
    #[error("there are {0} node sets, more than 64")]
    TooManySets(usize),
    /// A group names a set that is not there.
    #[error("node group `{group}` names node set {set}, and there are {sets}")]
    UnknownSet {
        group: String,
        /// What it names, counted from 0.
        set: u16,
        sets: usize,
    },
    /// A group names a set twice.
    #[error("node group `{group}` names node set {set} twice")]
    SetTwice { group: String, set: u16 },
}

/// Whether `list` names each set once, and only those there are.
pub(super) fn check_sets(group: &str, list: &[SetId], sets: usize) -> Result<(), MachineError> {
    for (index, set) in list.iter().enumerate() {
        if usize::from(set.0) >= sets {
            return Err(MachineError::UnknownSet { group: group.into(), set: set.0, sets });
        }
        if list[..index].contains(set) {
            return Err(MachineError::SetTwice { group: group.into(), set: set.0 });
        }
    }
    Ok(())
}
