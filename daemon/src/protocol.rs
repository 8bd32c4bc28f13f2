//! What a dispatcher may say to a daemon, and what a daemon reports: the control protocol.
//!
//! One authenticated connection runs from the head node to each daemon ([`crate::wire`] frames it). A [`Request`] asks;
//! the matching [`DaemonEvent`] says that it has happened, or that it could not. Nothing is answered in between, so a
//! dispatcher arms a time-out for each request that it sends.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use coswitch_policies::{Bytes, Epoch, JobId, NodeId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Offered by the head node in its first frame; a daemon that speaks another version refuses the connection.
pub const VERSION: u32 = 3;

/// How many sealed snapshots of an application a node keeps: the last, and the one to go back to.
pub const SNAPSHOTS_KEPT: usize = coswitch_ckpt::store::KEPT;

/// From the head node to a daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// The first frame of a connection.
    Hello {
        /// [`VERSION`] of the head node.
        version: u32,
    },
    /// Connect the data links to these nodes; answered by [`DaemonEvent::Joined`].
    Join {
        /// Every node of the cluster, this one included.
        members: Vec<Member>,
    },
    /// Something about one application.
    App {
        /// Which.
        job: JobId,
        /// What.
        request: AppRequest,
    },
    /// End every application, remove what is left of them, and exit.
    Shutdown,
    /// Said when nothing else has been for a heartbeat.
    Alive,
}

/// What the head node may ask of one application's part on a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum AppRequest {
    /// Start the ranks that live here; answered by [`AppEvent::Launched`].
    Launch(Box<LaunchRequest>),
    /// The marker of the checkpoint scheduler: begin the cut; answered by [`AppEvent::Flushed`].
    Cut(Epoch),
    /// Give the cut up and let the ranks run on; answered by [`AppEvent::Resumed`].
    AbortCut(Epoch),
    /// Write the images, end the processes, give their memory back; answered by [`AppEvent::Dumped`], later by
    /// [`AppEvent::Sealed`]. Only after every node has flushed.
    Dump(Epoch),
    /// Bring the processes back, stopped; answered by [`AppEvent::Restored`].
    Restore(Epoch),
    /// End the processes but keep the snapshots: to try a restore again, or because the snapshot that they came from
    /// is as good as they are; answered by [`AppEvent::Discarded`].
    Discard,
    /// Let the ranks compute: after a restore, or after a cut that was not followed by a dump; answered by
    /// [`AppEvent::Resumed`].
    Resume(Epoch),
    /// All nodes have reached fence `sequence`; these are everybody's puts.
    FenceDone {
        /// Which fence.
        sequence: u64,
        /// Key and value of every put since the last fence.
        puts: Vec<(String, String)>,
    },
    /// End the processes and remove everything of the application; answered by [`AppEvent::Released`].
    Release,
}

/// What a daemon needs to know to start its part of an application.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LaunchRequest {
    /// For messages and file names.
    pub name: String,
    /// The node of each rank, in the order of the ranks.
    pub placement: Vec<NodeId>,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Added to the environment of each rank.
    pub env: Vec<(String, String)>,
    /// Working directory.
    pub cwd: PathBuf,
    /// Where `rank-N.out` and `rank-N.err` go.
    pub output: PathBuf,
    /// How a rank waits for messages.
    pub wait: Wait,
    /// How the application leaves memory.
    pub park: Park,
}

/// How an application leaves memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Park {
    /// CRIU writes images and the processes end.
    #[default]
    Criu,
    /// The processes stay, frozen, and their pages go to swap. There is no snapshot then: [`AppEvent::Sealed`] does not
    /// follow the dump.
    PageOut,
}

/// How a rank waits for messages (DESIGN §6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wait {
    /// Poll without pause.
    Spin,
    /// Poll, giving the core away in between.
    Yield,
    /// Sleep at once.
    Block,
    /// Poll for about the cost of a sleep, then sleep.
    #[default]
    SpinBlock,
}

/// A node and where its daemon listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Which node.
    pub node: NodeId,
    /// Of its data links.
    pub data: SocketAddr,
}

/// From a daemon to the head node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum DaemonEvent {
    /// The first frame back.
    Welcome {
        /// Who speaks.
        node: NodeId,
    },
    /// Data links to all members are up.
    Joined,
    /// They are not.
    JoinFailed {
        /// Why.
        reason: String,
    },
    /// A data link broke; no application that spans both nodes can go on.
    LinkLost {
        /// The node at its other end.
        peer: NodeId,
    },
    /// Something about one application.
    App {
        /// Which.
        job: JobId,
        /// What.
        event: AppEvent,
    },
    /// Memory of the node's jobs at one moment, from its cgroup.
    Memory(MemoryUse),
    /// Said at least every [`HEARTBEAT`], so that silence means death.
    Alive,
}

/// How often each side says something. Silence of five times this means death: on a machine that is busy to the brim a
/// living daemon was once silent for three.
pub const HEARTBEAT: Duration = Duration::from_secs(1);

/// Memory of a node's jobs at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemoryUse {
    /// Charged to all jobs together.
    pub used: Bytes,
    /// How long some process of theirs has stalled for memory so far; `None` where the kernel does not tell.
    pub stall: Option<Duration>,
    /// Each job that has a group here.
    pub jobs: Vec<JobMemory>,
}

/// What one job holds of a node's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobMemory {
    /// The job.
    pub job: JobId,
    /// Charged to its group.
    pub used: Bytes,
    /// Of that what is no cache of files, and what it has in swap: its working set.
    pub held: Bytes,
    /// Page faults so far that had to wait for a disk.
    pub major_faults: u64,
}

/// What a daemon reports of one application's part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum AppEvent {
    /// The ranks have been started.
    Launched,
    /// The ranks here have reached fence `sequence` of the PMI exchange.
    Fence {
        /// Which fence.
        sequence: u64,
        /// Their puts since the last one.
        puts: Vec<(String, String)>,
    },
    /// The ranks are frozen, and the network holds nothing for this part any more.
    Flushed {
        /// Of the cut.
        epoch: Epoch,
        /// How long freezing the ranks took.
        freeze: Duration,
        /// From frozen to the last marker.
        flush: Duration,
        /// Taken from the channels after the ranks had been frozen.
        drained: Bytes,
    },
    /// The images are written, the processes gone, their memory is free.
    Dumped {
        /// Of the snapshot.
        epoch: Epoch,
        /// In the images.
        bytes: Bytes,
        /// How long writing them took.
        dump: Duration,
        /// From then to the memory being free.
        release: Duration,
    },
    /// A dump or restore is under way; said a few times a second, for whoever watches.
    Progress {
        /// Which of the two.
        step: Step,
        /// Moved so far.
        bytes: Bytes,
        /// To be moved in all, as far as known.
        total: Bytes,
    },
    /// The snapshot is durable: from now on it may be restored.
    Sealed {
        /// Of the snapshot.
        epoch: Epoch,
        /// How long hashing and syncing took.
        seal: Duration,
        /// The directory of the store that took it, as the node was given it.
        tier: PathBuf,
        /// What it takes there.
        bytes: Bytes,
    },
    /// The snapshot could not be made durable, and is removed.
    SealFailed {
        /// Of the snapshot.
        epoch: Epoch,
        /// Why.
        reason: String,
    },
    /// The processes are back, stopped.
    Restored {
        /// Of the snapshot.
        epoch: Epoch,
        /// In the images.
        bytes: Bytes,
        /// How long it took.
        restore: Duration,
    },
    /// The processes are gone, the snapshots are not.
    Discarded,
    /// The ranks compute again.
    Resumed {
        /// Of the cut or snapshot.
        epoch: Epoch,
        /// How long letting them go on took; `None` where the cut had been given up.
        thaw: Option<Duration>,
    },
    /// Everything of the application is gone from this node.
    Released,
    /// A rank has ended.
    RankExited {
        /// Which.
        rank: u32,
        /// How.
        exit: Exit,
        /// The end of what it wrote to stderr, or else to stdout; empty where it ended well.
        last_output: String,
    },
    /// All ranks here have ended, and so has their launcher.
    Exited,
    /// Counters of the driver, per rank here.
    Traffic(Vec<RankTraffic>),
    /// A request could not be carried out.
    Failed { during: Step, failure: Failure },
}

/// Why a request could not be carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum Failure {
    /// The store, or the swap, has no room for the job: its ranks are still frozen.
    #[error("{reason}")]
    StoreFull { reason: String },
    /// `alive`: the ranks are still there and may be resumed.
    #[error("{reason}")]
    Other { reason: String, alive: bool },
}

impl Failure {
    pub fn store_full(reason: impl ToString) -> Self {
        Self::StoreFull { reason: reason.to_string() }
    }

    pub fn alive(reason: impl ToString) -> Self {
        Self::Other { reason: reason.to_string(), alive: true }
    }

    pub fn dead(reason: impl ToString) -> Self {
        Self::Other { reason: reason.to_string(), alive: false }
    }
}

/// What a daemon was doing for an application when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Starting ranks.
    Launch,
    /// Freezing and flushing.
    Cut,
    /// Writing images.
    Dump,
    /// Reading images.
    Restore,
    /// Ending the processes of a restore.
    Discard,
    /// Letting ranks compute.
    Resume,
    /// Running, outside of any request.
    Run,
}

/// How a rank ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// By itself, with this status.
    Status(i32),
    /// By this signal.
    Signal(i32),
    /// By the kernel: there was no memory left on its node.
    OutOfMemory,
    /// It never began.
    NotStarted(String),
    /// It called `MPI_Abort` with this code.
    Aborted(i32),
}

/// What a rank's driver has counted since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankTraffic {
    /// Global rank.
    pub rank: u32,
    /// Messages it has sent.
    pub messages: u64,
    /// Payload bytes it has sent.
    pub bytes: u64,
    /// Time it has waited for messages.
    pub waiting: Duration,
}
