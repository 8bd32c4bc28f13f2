//! Identifiers shared by all crates: jobs, nodes, cuts, and the scheduler's slots, switches and timers.

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

/// Counts the cuts of one application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch-{}", self.0)
    }
}

id!(
    /// A row of the matrix. A row keeps its number while its place in the order of turns changes.
    SlotId,
    "slot-"
);
id!(
    /// A plan that changes which jobs are in memory.
    SwitchId,
    "switch-"
);
id!(
    /// A requested timer; each is used once.
    TimerId,
    "timer-"
);
