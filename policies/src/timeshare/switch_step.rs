//! The steps of a switch that a node carries out for one job: one name from the dispatcher to the report.

use serde::{Deserialize, Serialize};

/// A step of a switch, for one job on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwitchStep {
    /// Start the processes for the first time.
    Launch,
    /// Stop the ranks.
    Freeze,
    /// Drain the network with markers.
    Flush,
    /// Write the image; the job leaves memory.
    Dump,
    /// Wait until the memory is free again.
    Release,
    /// Make the snapshot durable, after the switch.
    Seal,
    /// Read the image; the job is back in memory, stopped.
    Restore,
    /// Let the ranks continue.
    Thaw,
}

impl SwitchStep {
    /// The step as a participle, for messages and tables.
    #[must_use]
    pub const fn doing(self) -> &'static str {
        match self {
            Self::Launch => "launching",
            Self::Freeze => "freezing",
            Self::Flush => "flushing",
            Self::Dump => "dumping",
            Self::Release => "releasing",
            Self::Seal => "sealing",
            Self::Restore => "restoring",
            Self::Thaw => "thawing",
        }
    }
}
