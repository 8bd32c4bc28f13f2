//! Identifiers that every crate shares: jobs, nodes, cuts, and what the scheduler numbers.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// What the user submitted; also names its running incarnation, the application.
    JobId,
    "job-"
);
id!(
    /// A machine of the cluster, by its column in the Ousterhout matrix.
    NodeId,
    "node-"
);

/// The number of a cut: it counts up by one for each cut of one application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch-{}", self.0)
    }
}

id!(
    /// A row of the matrix. It keeps its number while it moves in the order of turns.
    SlotId,
    "slot-"
);
id!(
    /// One plan to change who is in memory.
    SwitchId,
    "switch-"
);
id!(
    /// A timer asked for; each is used once.
    TimerId,
    "timer-"
);
