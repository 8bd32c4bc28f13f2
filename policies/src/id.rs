//! Identifiers that only the scheduler gives out.

use std::fmt;

use serde::{Deserialize, Serialize};

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
