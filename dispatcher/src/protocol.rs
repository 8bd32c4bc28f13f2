//! The dispatcher's protocol: what the master may order, and what it hears of applications and nodes.

use std::{fmt, path::PathBuf, time::Duration};

pub use coswitch_daemon::protocol::{
    Exit, Held, Inventory, JobMemory, JobUser, MemoryUse, Park, RankTraffic, SliceUse, StoodStill, Wait,
};
use coswitch_policies::{Bytes, CopyRule, Epoch, NodeId, local::ByKind};
/// `Order` comes from the master; each is answered by a [`Report`] when the application rests again.
pub use coswitch_policies::{Order, SwitchStep};
use serde::{Deserialize, Serialize};

pub use crate::sessions::replace::Replaced;

/// How the ranks of an application are started.
#[derive(Clone, Debug)]
pub struct LaunchSpec {
    /// For messages and file names.
    pub name: String,
    /// The node of each rank, in the order of the ranks.
    pub placement: Vec<NodeId>,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Added to what the launcher itself sets for each rank.
    pub env: Vec<(String, String)>,
    pub cwd: PathBuf,
    /// The umask of the ranks.
    pub umask: u32,
    /// Whose the ranks and what they write are; `None`: root's.
    pub user: Option<JobUser>,
    /// What each rank is said to take; 0: nothing is said.
    pub memory: Bytes,
    /// The directory of `rank-N.out` and `rank-N.err`.
    pub output: PathBuf,
    pub wait: Wait,
    pub park: Park,
    /// How its snapshots are copied to other nodes.
    pub copies: CopyRule,
    pub delivery: Delivery,
}

/// How a program comes to the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// They see it at its path.
    #[default]
    Shared,
    /// The master reads it there and sends it to them.
    Sent,
}

/// To the master, about one application.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// All nodes have the program of a launch, which follows.
    Sent { bytes: Bytes, took: Duration },
    /// All ranks on all nodes compute.
    Running,
    /// All ranks on all nodes are in memory and stopped, and the network holds none of their messages.
    Suspended,
    /// The memory is free on all nodes: images are written, or the pages are in swap.
    Parked,
    /// The application could not be suspended or parked and computes on.
    StillRunning { cause: StayCause },
    /// The application was suspended, could not be parked, and is suspended still.
    StillSuspended { cause: StayCause },
    /// Nothing of it is on any node, and this dispatcher ends: another one launches it.
    Unlaunched,
    /// It is over, and nothing of it is left on any node.
    Ended(AppOutcome),
    /// A node has carried out a step of the last order.
    StepDone(StepDone),
    /// A node is in the middle of a dump or restore; `total` is an estimate.
    Progress { node: NodeId, step: SwitchStep, bytes: Bytes, total: Bytes },
    /// A node has sealed a snapshot of `bytes` below `root`, a directory of `cluster.store`.
    Stored { node: NodeId, root: PathBuf, bytes: Bytes, epoch: Epoch },
    /// A node's snapshot of `bytes` is on its partners as well.
    Copied { node: NodeId, epoch: Epoch, to: Vec<NodeId>, bytes: Bytes, took: Duration },
    /// A node's snapshot could not be copied, or could not be had from its copies.
    NotCopied { node: NodeId, epoch: Epoch, reason: String },
    /// The driver's counters of the ranks on one node.
    Traffic { node: NodeId, ranks: Vec<RankTraffic> },
    /// The processor time that a control group on one node has counted.
    Processed { node: NodeId, group: u64, used: Duration },
    /// What the scheduler of one node has added to the accounts of its tasks there since the report before.
    Scheduled { node: NodeId, counted: Box<ByKind> },
    /// A node was lost: nothing of the application runs any more, and it rests at its snapshots until all of
    /// its nodes are back. Tells why.
    Displaced { why: String },
    /// The application computes on, and can go back to here: every node has sealed its snapshot of this
    /// epoch.
    Checkpointed {
        epoch: Epoch,
        /// Size of the images.
        bytes: Bytes,
        /// For how long no rank has computed; zero where an earlier master has ordered the checkpoint.
        stood_still: Duration,
    },
    /// The application computes on, without a new snapshot.
    NotCheckpointed { cause: StayCause },
    /// The daemon of a node was lost, and the processes there were not: the next daemon has adopted them.
    Survived { node: NodeId },
    /// The application has gone back to the snapshot of this epoch, and repeats the work since then.
    WentBack { epoch: Epoch, why: String },
    /// The part of a lost node is on another one from now on; with the node of each rank.
    Moved { from: NodeId, to: NodeId, placement: Vec<NodeId> },
    /// The part of a lost node waits for that.
    NotMoved { from: NodeId, why: String },
    /// Something failed and was repaired: `what` says both.
    Mended { what: String },
}

/// Why an application that was to leave is where it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StayCause {
    /// The store of some node has no room for it, which is no fault of the application.
    StoreFull {
        reason: String,
    },
    Failed {
        reason: String,
    },
    /// Some of its ranks have ended, and a gang is never split: it stays until the others have, too. That is
    /// no fault of the application.
    Ending,
}

impl fmt::Display for StayCause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::StoreFull { reason } | Self::Failed { reason } => reason,
            Self::Ending => "its ranks are ending",
        })
    }
}

/// How an application ended. Daemons keep it for a new master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AppOutcome {
    /// Every rank ended with status 0.
    Succeeded,
    /// The first rank that ended otherwise; `last_output` is the end of its standard error or output.
    RankFailed { rank: u32, exit: Exit, last_output: String },
    /// coswitch could not keep it running.
    Lost { reason: String },
    /// The master ordered its end.
    Stopped,
}

/// One timed step of a switch on one node; it ended when it was reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepDone {
    pub node: NodeId,
    pub step: SwitchStep,
    pub took: Duration,
    /// Moved to or from images, or out of the network.
    pub bytes: Bytes,
}

/// To the master, about one node as a whole.
#[derive(Clone, Debug)]
pub enum NodeEvent {
    /// Memory of its jobs.
    Memory { node: NodeId, memory: MemoryUse },
    /// It goes by its new allowance; `exceeded`: its jobs hold more already.
    Allowed { node: NodeId, exceeded: bool },
    /// The warm switches of the node since the event before.
    Slices { node: NodeId, slices: SliceUse },
    /// DTS in balanced mode: how many local tasks want a processor of the node, on average.
    Load { node: NodeId, index: f64 },
    /// Its daemon is not heard, but its connection is open.
    Silent { node: NodeId },
    /// Its daemon is heard again, after so long.
    Heard { node: NodeId, silence: Duration },
    /// Its jobs waited for a head node that was silent.
    StoodStill { node: NodeId, stood_still: StoodStill },
    /// It cannot be reached any more. What ran there has ended, or will be.
    Lost { node: NodeId, reason: String },
    /// It has another daemon, with what the one before had sealed.
    Back { node: NodeId },
    /// It could not be given another daemon.
    NotBack { node: NodeId, reason: String },
    /// Another program is its daemon, and its applications go on.
    Replaced { node: NodeId, replaced: Replaced },
    /// Its daemon was not replaced.
    NotReplaced { node: NodeId, reason: String },
}
