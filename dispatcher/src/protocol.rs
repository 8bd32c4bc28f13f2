//! What the master may say to a dispatcher, and what a dispatcher reports.

use std::{path::PathBuf, time::Duration};

use coswitch_daemon::protocol::{Exit, RankTraffic};
use coswitch_policies::{Bytes, NodeId};

/// From the master. An order asks; the matching [`Report`] says that it is so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Start the ranks; answered by [`Report::Running`].
    Launch,
    /// From running: stop the ranks and empty the network, and leave them in memory; answered by
    /// [`Report::Suspended`], [`Report::StillRunning`] or [`Report::Ended`].
    Suspend,
    /// From running or suspended: take the application out of memory; answered by [`Report::Parked`] or
    /// [`Report::Ended`], or by [`Report::StillRunning`] or [`Report::StillSuspended`] where it could not be done.
    Park,
    /// From parked: bring it back into memory, stopped; answered by [`Report::Suspended`] or [`Report::Ended`].
    Fetch,
    /// From suspended: let it compute; answered by [`Report::Running`] or [`Report::Ended`].
    Resume,
    /// From parked or suspended: bring it back and let it compute; answered by [`Report::Running`] or [`Report::Ended`].
    Restore,
    /// End it; answered by [`Report::Ended`].
    End,
}

/// To the master.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// All ranks on all nodes compute.
    Running,
    /// All ranks on all nodes are in memory and stopped, and the network holds nothing of them.
    Suspended,
    /// Images are written on all nodes, or the memory paged out, and the memory is free.
    Parked,
    /// The application could not be suspended or parked and computes on.
    StillRunning {
        /// Why.
        reason: String,
    },
    /// The application was suspended, could not be parked, and is suspended still.
    StillSuspended {
        /// Why.
        reason: String,
    },
    /// It is over, and nothing of it is left on any node.
    Ended(Outcome),
    /// A node has carried out a part of the last order.
    Phase(Phase),
    /// A node is in the middle of a dump or restore.
    Progress {
        /// Which node.
        node: NodeId,
        /// Which of the two.
        kind: PhaseKind,
        /// Moved so far.
        bytes: Bytes,
        /// To be moved in all, as far as known.
        total: Bytes,
    },
    /// A node has sealed a snapshot.
    Stored {
        /// Which node.
        node: NodeId,
        /// The directory of `cluster.store` that took it.
        root: PathBuf,
        /// What it takes there.
        bytes: Bytes,
    },
    /// The driver's counters of the ranks on one node.
    Traffic {
        /// Which node.
        node: NodeId,
        /// One entry per rank there.
        ranks: Vec<RankTraffic>,
    },
    /// A node has no room for what is to leave its memory, which is no fault of the application;
    /// [`Report::StillRunning`] or [`Report::StillSuspended`] follows.
    NoRoom,
    /// Something went wrong and was mended.
    Mended {
        /// What, and how.
        what: String,
    },
}

/// How an application ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every rank ended with status 0.
    Succeeded,
    /// A rank ended otherwise; the first one to do so.
    RankFailed {
        /// Which rank.
        rank: u32,
        /// How.
        exit: Exit,
        /// The end of what it had written.
        last_output: String,
    },
    /// coswitch could not keep it running.
    Lost {
        /// Why.
        reason: String,
    },
    /// The master wanted it to end.
    Stopped,
}

/// One timed piece of a switch on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Where.
    pub node: NodeId,
    /// What.
    pub kind: PhaseKind,
    /// How long it took; it ended when it was reported.
    pub took: Duration,
    /// What it moved.
    pub bytes: Bytes,
}

/// The pieces of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhaseKind {
    /// Stopping the ranks.
    Freeze,
    /// Emptying the network.
    Flush,
    /// Writing images.
    Dump,
    /// From images written to memory free.
    Release,
    /// Hashing and syncing the snapshot, in the background.
    Seal,
    /// Reading images.
    Restore,
    /// Letting the ranks go on.
    Thaw,
}
