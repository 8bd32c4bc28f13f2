//! The control protocol: what a dispatcher may ask of a daemon, and what a daemon reports.
//!
//! One authenticated connection runs from the head node to each daemon ([`crate::wire`] frames it). A
//! [`DaemonEvent`] answers each [`Request`] once it has been carried out, or has failed. A dispatcher arms a
//! time-out for each request.

mod app;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use coswitch_policies::{Allowance, Bytes, Epoch, JobId, NodeId, Scatter, primitives};
use serde::{Deserialize, Serialize};

pub use self::app::{
    AppEvent, AppRequest, Exit, Failure, FetchRequest, Holding, LaunchRequest, Park, PartState, Puts,
    RankEnd, RankTraffic, ReceiveRequest, SentProgram, Step, Wait, moving_time,
};
pub use coswitch_ckpt::{Checksum, Checksummer, JobUser};
pub use coswitch_launcher::protocol::{FENCES_MAX, PUTS_BYTES_MAX, put_bytes};

pub use crate::{
    answers::Said,
    handover::Programs,
    multicast::{Asked, Multicast},
    node_clock::{Boot, Reading},
    running::SliceUse,
    tag::TagKey,
};

/// Offered by the head node in its first frame; a daemon that speaks another version refuses the connection.
pub const VERSION: u32 = 28;

/// How many sealed snapshots of an application a node keeps: the last one, and one to fall back to.
pub const SNAPSHOTS_KEPT: usize = coswitch_ckpt::store::KEPT;

/// From the head node to a daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// The first frame of a connection.
    Hello {
        version: u32,
        /// Which master of the cluster this is, from 1. A daemon follows the one with the highest number and
        /// refuses the others.
        generation: u64,
    },
    /// Asked by a new master; answered by [`DaemonEvent::Inventory`].
    Inventory,
    /// These nodes are all that are up, and their daemons listen there: data links are opened when an
    /// application needs them. Said again where a node has another daemon than before: the link to the old
    /// one is dropped. Answered by [`DaemonEvent::Joined`].
    Join { members: Vec<Member> },
    /// The requests with lower numbers are void, or were carried out: sent before the first one. What goes by
    /// the tree is tagged with this key from now on.
    NumbersFrom { number: u64, key: TagKey },
    Ask {
        /// By whatever way they come, requests are carried out in this order, each once.
        number: u64,
        asked: Asked,
    },
    /// The same for many nodes: pass it on to those below this one.
    PassOn(Box<Multicast>),
    /// End every application, remove what is left of them, and exit.
    Shutdown,
    /// Sent every [`HEARTBEAT`], unless the session rests.
    Alive {
        /// The number of the last event of this daemon that has reached the master, with all before it.
        heard: u64,
        /// For the [`Asked::Strobe`]s and [`Asked::Slices`].
        clock: Reading,
        /// Until the next one, both ends send one in so many of their heartbeats. Where this is less than
        /// before, the daemon answers with one at once.
        every: u32,
    },
    /// A limit for the memory that the node's jobs hold together; `None` lifts it. While the jobs hold more,
    /// the ranks of the running ones are stopped on this node. Answered by [`DaemonEvent::Allowed`].
    Allow { allowance: Option<Allowance> },
    /// Exit, and leave the snapshots of the applications that are parked for another daemon of this node,
    /// with [`NodeConfig::resumes`](crate::node::NodeConfig::resumes). The others end.
    Leave,
    /// Find out whether this program can take the place of the daemon's own. Answered by
    /// [`DaemonEvent::Examined`].
    Examine { program: PathBuf },
    /// Execute another program, which goes on with the applications; none of their ranks may compute.
    /// Answered by [`DaemonEvent::NotReplaced`] or [`DaemonEvent::HandsOver`].
    Replace(Programs),
}

/// A node and where its daemon listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub node: NodeId,
    /// Of its daemon; see [`DaemonEvent::Welcome`].
    pub incarnation: u64,
    /// For data links.
    pub data: SocketAddr,
}

/// From a daemon to the head node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum DaemonEvent {
    /// The first frame back.
    Welcome {
        node: NodeId,
        /// Tells the daemon from those that the node has had before, and will have.
        incarnation: u64,
    },
    /// The first and only frame back to a master that is not followed.
    Refused {
        reason: String,
    },
    Inventory(Inventory),
    /// The node knows the members.
    Joined,
    JoinFailed {
        reason: String,
    },
    /// The data link to `peer` broke, and may have held messages for these applications, which cannot go on
    /// as they are; or it could not be opened for one. A link that breaks while none needs it is not
    /// reported.
    LinkLost {
        peer: NodeId,
        /// Of the peer's daemon.
        incarnation: u64,
        reason: String,
        jobs: Vec<JobId>,
    },
    App {
        job: JobId,
        event: AppEvent,
    },
    Primitive(primitives::Answer),
    /// Sent where it has changed, and about once a second otherwise; see [`MemoryUse::looks`].
    Memory(MemoryUse),
    /// Sent once a second while jobs take slices: the warm switches of the node since the event before.
    Slices(SliceUse),
    /// Sent every [`HEARTBEAT`], or as seldom as [`Request::Alive`] says.
    Alive {
        /// The number of the last request that has reached an application here, with all before it.
        heard: u64,
    },
    /// All other events: of this daemon, and of those below it in the tree of daemons.
    Said(Vec<Said>),
    /// What was to be passed on to the daemon of this node has not reached it, perhaps.
    NotPassedOn {
        to: NodeId,
        incarnation: u64,
    },
    /// The node goes by its new allowance.
    Allowed {
        /// Its jobs exceed it already.
        exceeded: bool,
    },
    /// The head node was silent and is heard again; meanwhile the ranks on this node stood still.
    StoodStill(StoodStill),
    /// The version of the program, or why it cannot be used.
    Examined(Result<String, String>),
    /// Nothing has changed.
    NotReplaced {
        reason: String,
    },
    /// The last event of a daemon: when the head node has closed the connection, the next program takes over
    /// and accepts the same master once more. That begins with [`DaemonEvent::TookOver`].
    HandsOver,
    /// The first event of a daemon to which another one has handed over.
    TookOver {
        /// It is the program of the daemon before: why the other one has not gone on.
        given_up: Option<String>,
    },
    /// DTS in balanced mode: how many local tasks want a processor of the node, on average. Sent where it has
    /// changed by the threshold, and to each new master.
    Load {
        index: f64,
    },
}

/// The applications of a node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Inventory {
    pub held: Vec<Held>,
    /// Released ones, with the last word on each.
    pub released: Vec<(JobId, String)>,
    /// Copies of other nodes' snapshots.
    pub copies: Vec<(JobId, HeldCopy)>,
}

/// The copy of a snapshot, or the part of it that a node holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldCopy {
    /// The node that has sealed the snapshot.
    pub owner: NodeId,
    pub epoch: Epoch,
    /// The life that the launch of the application began: copies of another launch are void.
    pub launched: u32,
    pub scatter: Scatter,
}

/// An application of which a node has a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    pub job: JobId,
    /// The life that its launch began: the greater number is of the later launch. `None` where the part has
    /// come from a copy: it is of the last launch.
    pub launched: Option<u32>,
    /// The node of each rank.
    pub placement: Vec<NodeId>,
}

impl Held {
    #[must_use]
    pub fn by(job: JobId, launch: &LaunchRequest) -> Self {
        Self { job, launched: Some(launch.life), placement: launch.placement.clone() }
    }
}

/// How long a node's jobs waited for a head node that was silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoodStill {
    /// The silence of the head node.
    pub silence: Duration,
    /// How long the ranks were frozen because of it.
    pub frozen: Duration,
}

/// The longest pause between two frames of a peer that runs. It counts as silent after five: on a machine
/// under full load a daemon was once silent for three.
pub const HEARTBEAT: Duration = Duration::from_secs(1);

/// Memory of a node's jobs at one moment, from its cgroup.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemoryUse {
    /// Charged to all jobs together.
    pub used: Bytes,
    /// How long some process of theirs has stalled for memory so far; `None` where the kernel does not say.
    pub stall: Option<Duration>,
    pub jobs: Vec<JobMemory>,
    /// The jobs exceed their allowance, and the running ones are stopped.
    pub stopped: bool,
    /// How often the node has looked since it told this last; it looks ten times a second.
    pub looks: u32,
    /// The most that was charged to all jobs together at any of these looks.
    pub peak: Bytes,
}

/// Memory of one job on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobMemory {
    pub job: JobId,
    /// Charged to its group, the cache of its files included.
    pub used: Bytes,
    /// Its working set: resident without the cache of files, and in swap.
    pub held: Bytes,
    /// Of these, in swap.
    pub swapped: Bytes,
    /// Page faults so far that had to wait for a disk.
    pub major_faults: u64,
}
