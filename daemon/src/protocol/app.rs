//! What a dispatcher may ask of an application's part on a node, and what the daemon reports of it.

use std::{path::PathBuf, time::Duration};

use coswitch_ckpt::{Checksum, JobUser};
use coswitch_policies::{
    Bytes, Epoch, NodeId, Scatter,
    local::{ByKind, Waiting},
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What the head node may ask of one application's part on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AppRequest {
    /// Start the ranks that live here; answered by [`AppEvent::Launched`].
    Launch(Box<LaunchRequest>),
    /// Begin the cut (the marker of the checkpoint scheduler); answered by [`AppEvent::Flushed`].
    Cut(Epoch),
    /// Abort the cut and let the ranks run on; answered by [`AppEvent::Resumed`].
    AbortCut(Epoch),
    /// Write the images, end the processes, free their memory; answered by [`AppEvent::Dumped`], later by
    /// [`AppEvent::Sealed`]. Only after every node has flushed.
    Dump(Epoch),
    /// Bring the processes back, stopped; answered by [`AppEvent::Restored`].
    Restore(Epoch),
    /// End the processes but keep the snapshots: before a restore is tried again, or where the processes have
    /// not run since their snapshot; answered by [`AppEvent::Discarded`].
    Discard,
    /// Let the ranks compute: after a restore, or after a cut that was not followed by a dump; answered by
    /// [`AppEvent::Resumed`].
    Resume(Epoch),
    /// All nodes have reached fence `sequence`; `puts` are the keys and values that all of them put since the
    /// last one. Under buffered coscheduling the ranks go on with the first exchange at or after `begin`, in
    /// nanoseconds of the master's clock. The sender of the request sets that time.
    FenceDone { sequence: u64, puts: Vec<(String, String)>, begin: i64 },
    /// End the processes and remove everything of the application; answered by [`AppEvent::Released`].
    Release {
        /// How the application has ended, in the dispatcher's words; the daemon keeps it for a new master.
        /// `None` where it is to be launched again.
        last_word: Option<String>,
    },
    /// Say what the node holds of the application; answered by [`AppEvent::Holds`]. The generation of the
    /// master that asks comes back with the answer: an earlier one may have asked as well.
    Describe { generation: u64 },
    /// A node of the application was lost, which goes back to a sealed snapshot without a cut: end the
    /// processes, keep the snapshots, and take all that is on the way as void. From now on the application is
    /// in this life, and its ranks on these nodes. Answered by [`AppEvent::WentBack`].
    GoBack { life: u32, placement: Vec<NodeId> },
    /// Write the images, but leave the processes where they are, frozen; answered by
    /// [`AppEvent::Checkpointed`], later by [`AppEvent::Sealed`]. Only after every node has flushed.
    Checkpoint(Epoch),
    /// Remove the snapshot of a checkpoint that another node could not make, now or when it is sealed. It is
    /// not answered, and no [`AppEvent::Sealed`] follows any more.
    DropSnapshot(Epoch),
    /// Send the node's sealed snapshot of this epoch to its partners, below all that runs; answered by
    /// [`AppEvent::Copied`] or [`AppEvent::CopyFailed`]. That snapshot and the `needed` one, of which all
    /// nodes have copies, stay until the next request of this kind names others.
    Copy { epoch: Epoch, scatter: Scatter, needed: Option<Epoch> },
    /// Get the part's snapshot of this epoch from the copies that its partners hold, and then as
    /// [`AppRequest::GoBack`]: answered by [`AppEvent::WentBack`], and before that by
    /// [`AppEvent::FetchFailed`] where the node has not got it.
    FetchCopy(Box<FetchRequest>),
    /// Remove what the node holds of other nodes' snapshots of this application, of the epochs from the first
    /// to the last. There is no answer.
    DropCopies { from: Epoch, to: Epoch },
    /// Keep a program that comes in fragments through the node's global memory
    /// ([`coswitch_policies::launching`]), for the launch in this life, which follows. It is answered by what
    /// the node writes there, or by a failure of [`Step::Launch`].
    Receive(Box<ReceiveRequest>),
}

/// A program that comes to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiveRequest {
    pub program: SentProgram,
    pub life: u32,
    /// The node of each rank.
    pub placement: Vec<NodeId>,
}

/// A program that nodes do not see at its path: it is sent to them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentProgram {
    /// Of its file.
    pub name: String,
    pub bytes: u64,
    pub checksum: Checksum,
}

/// Which snapshot a node is to get from copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchRequest {
    /// The life that the application is in from now on.
    pub life: u32,
    pub epoch: Epoch,
    /// The node that has sealed it.
    pub owner: NodeId,
    /// The life that the launch began.
    pub launched: u32,
    pub scatter: Scatter,
    /// The node of each rank from now on.
    pub placement: Vec<NodeId>,
}

/// How a daemon starts its part of an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchRequest {
    /// For messages and file names.
    pub name: String,
    /// The node of each rank, in the order of the ranks.
    pub placement: Vec<NodeId>,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Added to the environment of each rank.
    pub env: Vec<(String, String)>,
    pub cwd: PathBuf,
    /// The umask of the ranks.
    pub umask: u32,
    /// Whose the ranks and what they write are; `None`: root's.
    #[serde(default)]
    pub user: Option<JobUser>,
    /// What each rank is said to take; 0: nothing is said.
    #[serde(default)]
    pub memory: Bytes,
    /// The directory of `rank-N.out` and `rank-N.err`.
    pub output: PathBuf,
    pub wait: Wait,
    pub park: Park,
    /// Which of its lives this is: nodes take no messages from another one. An application begins a life
    /// where it is launched or goes back without a cut; no two have the same number.
    #[serde(default)]
    pub life: u32,
    /// The program has come to the node, which executes it in place of the one at the path in `command`.
    #[serde(default)]
    pub program: Option<SentProgram>,
}

/// The time in which any storage and network that is not broken moves so much memory: 64 MiB a second. The
/// limits of steps that move memory are longer by it, up to a day.
#[must_use]
pub fn moving_time(bytes: Bytes) -> Duration {
    const SLOWEST: u64 = 64 << 20;
    const MOST: u64 = 24 * 3600;
    Duration::from_secs((bytes.0 / SLOWEST).min(MOST))
}

/// How an application leaves memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Park {
    /// CRIU writes images and the processes end.
    #[default]
    Criu,
    /// The processes stay, frozen, and their pages go to swap. There is no snapshot: [`AppEvent::Sealed`]
    /// does not follow the dump.
    PageOut,
}

/// How a rank waits for messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// Poll without pause.
    Spin,
    /// Poll, yielding the core in between.
    Yield,
    /// Sleep at once.
    Block,
    /// Poll for about the cost of a sleep, then sleep.
    #[default]
    SpinBlock,
}

impl From<Waiting> for Wait {
    fn from(waiting: Waiting) -> Self {
        match waiting {
            Waiting::Spins => Self::Spin,
            Waiting::SpinsThenBlocks => Self::SpinBlock,
            Waiting::Blocks => Self::Block,
        }
    }
}

/// What a node holds of an application, when nothing of it is on the way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// Of the master that has asked.
    pub generation: u64,
    pub state: PartState,
    /// Of the last cut that has begun here, or of the snapshot that was restored last.
    pub epoch: Epoch,
    /// The newest epoch that has begun here.
    pub cuts: Epoch,
    /// The sealed snapshots.
    pub sealed: Vec<Epoch>,
    /// Snapshots that are being sealed: [`AppEvent::Sealed`] or [`AppEvent::SealFailed`] will follow.
    pub sealing: Vec<Epoch>,
    /// The fence of the PMI exchange that the ranks here have reached and that was not answered.
    pub reached: Option<(u64, Puts)>,
    /// The answers to earlier fences.
    pub fences: Vec<(u64, Puts)>,
    /// The first rank that has ended otherwise than with status 0.
    pub failed_rank: Option<RankEnd>,
    /// Why the ranks could not be kept running.
    pub failure: Option<Failure>,
    /// See [`LaunchRequest::life`]; 0 where another daemon has launched it, and it has not gone back since.
    pub life: u32,
    /// The life that the launch began.
    pub launched: u32,
    /// Size of the last image that was written here, or of the memory that it is of; 0 where there is none.
    pub image_bytes: Bytes,
}

/// Keys and values of the PMI exchange.
pub type Puts = Vec<(String, String)>;

/// How a rank has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankEnd {
    pub rank: u32,
    pub exit: Exit,
    /// The end of what it wrote to stderr, or else to stdout.
    pub last_output: String,
}

/// Where the processes of a part are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartState {
    /// Never launched here.
    #[default]
    Absent,
    Running,
    /// Frozen for a cut; `flushed` where that is complete here.
    Frozen {
        flushed: bool,
    },
    /// Frozen, with its pages in swap.
    PagedOut,
    /// No processes: there are snapshots.
    Parked,
    /// Restored, and not resumed.
    Stopped,
    /// All ranks have ended.
    Ended,
}

/// What a daemon reports of its part of an application.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum AppEvent {
    /// The ranks have been started.
    Launched,
    /// The ranks here have reached fence `sequence` of the PMI exchange; `puts` since the last one.
    Fence {
        sequence: u64,
        puts: Vec<(String, String)>,
    },
    /// The ranks are frozen, and the network holds no message for this part any more.
    Flushed {
        epoch: Epoch,
        freeze: Duration,
        /// From frozen to the last marker.
        flush: Duration,
        /// Taken from the channels after the ranks had been frozen.
        drained: Bytes,
    },
    /// The images are written, the processes gone, their memory is free.
    Dumped {
        epoch: Epoch,
        /// Size of the images.
        bytes: Bytes,
        /// Until the images were written.
        dump: Duration,
        /// From then until the memory was free.
        release: Duration,
    },
    /// A dump or restore is under way; sent a few times a second. `total` is an estimate. While a snapshot
    /// comes from copies, `total` is its size as soon as that is known, and `bytes` is 0.
    Progress {
        step: Step,
        bytes: Bytes,
        total: Bytes,
    },
    /// The snapshot is durable: from now on it may be restored.
    Sealed {
        epoch: Epoch,
        seal: Duration,
        /// The directory that took it, of those in the node's configuration.
        tier: PathBuf,
        /// Size on disk.
        bytes: Bytes,
        /// Snapshots that can be restored here.
        sealed: Vec<Epoch>,
    },
    /// The snapshot could not be made durable, and is removed.
    SealFailed {
        epoch: Epoch,
        reason: String,
    },
    /// The processes are back, stopped; `bytes` is the size of their images.
    Restored {
        epoch: Epoch,
        bytes: Bytes,
        restore: Duration,
    },
    /// The processes are gone, the snapshots are not.
    Discarded,
    /// The ranks compute again; `thaw` is `None` where the cut was aborted.
    Resumed {
        epoch: Epoch,
        thaw: Option<Duration>,
        /// For how long the ranks had been frozen; zero after a restore or where the cut was aborted.
        stood_still: Duration,
    },
    /// Everything of the application is gone from this node.
    Released,
    Holds(Box<Holding>),
    /// Otherwise than with status 0. `last_output`: the end of what the rank wrote to stderr, or else to
    /// stdout.
    RankExited {
        rank: u32,
        exit: Exit,
        last_output: String,
    },
    /// All ranks here have ended, and so has their launcher.
    Exited,
    /// Counters of the driver, per rank here.
    Traffic(Vec<RankTraffic>),
    /// A request could not be carried out, or ([`Step::Run`]) the ranks could not be kept running.
    Failed {
        during: Step,
        failure: Failure,
    },
    /// Nothing of the application runs here, and nothing of an earlier life will be told.
    WentBack {
        life: u32,
        /// Snapshots that can be restored here.
        sealed: Vec<Epoch>,
    },
    /// The images are written; the processes are there, frozen.
    Checkpointed {
        epoch: Epoch,
        /// Size of the images.
        bytes: Bytes,
    },
    /// The partners hold the snapshot of this epoch.
    Copied {
        epoch: Epoch,
        scatter: Scatter,
        /// Size of one copy.
        bytes: Bytes,
        took: Duration,
    },
    /// The partners do not hold the snapshot.
    CopyFailed {
        epoch: Epoch,
        reason: String,
    },
    /// The snapshot could not be had from the copies: they are not there, or damaged.
    FetchFailed {
        epoch: Epoch,
        reason: String,
    },
    /// The processor time that the control group of the application has counted here: every ten seconds, when
    /// it is frozen, and when it has ended.
    Processed {
        /// The number of the group. After a restore it is another one, which counts from zero.
        group: u64,
        used: Duration,
    },
    /// What the node scheduler has added to the accounts of the application's tasks here since the event
    /// before: every ten seconds, when they are frozen, when they have ended, and before the application is
    /// released.
    Scheduled(Box<ByKind>),
}

/// Why a request could not be carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum Failure {
    /// The store, or the swap, has no room for the job: its ranks are still frozen.
    #[error("{reason}")]
    StoreFull { reason: String },
    /// All ranks here have ended, or are about to: nothing can be made of them that goes on later.
    #[error("its ranks have ended")]
    Ending,
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
    /// Removing everything of it, for the second time. It is the last word of the application there.
    Release,
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
