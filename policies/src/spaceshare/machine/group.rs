//! Node sets, and node groups made of them (paper 002 §2.2).

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Period;
use crate::spaceshare::allocate::Allocator;

/// The index of a node set in the list given to [`Machine::new`](super::Machine::new).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SetId(pub u16);

/// The index of a node group in the list given to [`Machine::new`](super::Machine::new).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GroupId(pub u16);

/// Equal nodes that are allocated together.
#[derive(Clone, Debug)]
pub struct NodeSet {
    pub name: String,
    pub allocator: Box<dyn Allocator>,
}

/// The sets that the jobs of a queue may use, by period, each in the order of preference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeGroup {
    pub name: String,
    pub prime: Vec<SetId>,
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

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MachineError {
    /// A job's sets are kept as bits of a `u64`.
    #[error("there are {0} node sets, more than 64")]
    TooManySets(usize),
    #[error("node group `{group}` names node set {set}, and there are {sets}")]
    UnknownSet {
        group: String,
        /// Counted from 0.
        set: u16,
        sets: usize,
    },
    #[error("node group `{group}` names node set {set} twice")]
    SetTwice { group: String, set: u16 },
}

/// Checks that `list` names only existing sets, each at most once.
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
