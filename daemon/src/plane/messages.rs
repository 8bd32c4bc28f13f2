//! Messages between the control side and the data plane.

use std::{collections::BTreeSet, sync::Arc};

use coswitch_policies::{Bytes, Epoch, JobId, NodeId};
use coswitch_ring::Segment;
use tokio::sync::oneshot;

use super::{backlog::Unread, connect::Connection};

/// From the control side to the data plane.
pub enum Command {
    /// Also in the place of a link to the same node, which counts as lost.
    AddLink(Connection),
    /// Gives up the link to a node, if it leads to another daemon than that of this incarnation.
    DropOtherLink(NodeId, u64),
    /// Answers which of these nodes have no link.
    MissingLinks(BTreeSet<NodeId>, oneshot::Sender<BTreeSet<NodeId>>),
    /// Answers when all of these nodes have a link.
    AwaitLinks(BTreeSet<NodeId>, oneshot::Sender<()>),
    /// Before an application starts here; the last field is the node of each rank.
    AddApp(JobId, Arc<Segment>, Vec<NodeId>),
    /// An application whose processes are here already, in this life; its channels are restored to this cut,
    /// as by [`Command::RestoreChannels`].
    AddAtCut(JobId, Arc<Segment>, Vec<NodeId>, u32, Epoch, Vec<u8>, oneshot::Sender<bool>),
    /// Before an application runs here for the first time: which of its lives this is.
    SetLife(JobId, u32),
    /// The processes of an application were ended without a cut, and it begins this life: everything of the
    /// one before is void, and its rings are left alone until they are restored. Answered by
    /// [`AppPlaneEvent::Rewound`].
    Rewind(JobId, u32),
    RemoveApp(JobId, oneshot::Sender<()>),
    /// The checkpoint scheduler's marker.
    BeginCut(JobId, Epoch),
    /// Answers [`AppPlaneEvent::Freeze`]; false where the ranks did not freeze.
    Frozen(JobId, Epoch, bool),
    /// The checkpoint scheduler gives up the cut.
    AbortCut(JobId, Epoch),
    /// The ranks may run again after a complete flush: their rings are in use from now on.
    Resume(JobId, Epoch),
    /// A message for the application's launcher; it waits while a cut forbids the use of the rings, and under
    /// buffered coscheduling for the first exchange from this time on, by the master's clock.
    ToLauncher(JobId, Vec<u8>, i64),
    /// Asks for the channel states of a flushed application.
    ChannelStates(JobId, Epoch, oneshot::Sender<Vec<u8>>),
    /// Restores the channels to the cut, after the segment; answers false where the states do not decode.
    RestoreChannels(JobId, Epoch, Vec<u8>, oneshot::Sender<bool>),
    /// Buffered coscheduling: the time for an exchange, by the master's clock.
    Exchange(i64),
    /// Messages no longer wait for exchanges.
    SendAtOnce,
    /// Ends the thread.
    Stop,
}

/// From the data plane to the control side.
#[derive(Debug)]
pub enum PlaneEvent {
    App {
        job: JobId,
        event: AppPlaneEvent,
    },
    LinkLost {
        peer: NodeId,
        /// Of the peer's daemon.
        incarnation: u64,
        reason: String,
        /// Applications here for which the link may have held messages.
        jobs: Vec<JobId>,
    },
}

/// From the data plane to the part of one application.
#[derive(Debug)]
pub enum AppPlaneEvent {
    /// Freeze the ranks, then answer with [`Command::Frozen`].
    Freeze { epoch: Epoch },
    /// Markers have come from all channels; `drained`: content of the channels after the freeze.
    Flushed { epoch: Epoch, drained: Bytes },
    /// Let the ranks run: the cut has failed or was given up.
    Thaw { epoch: Epoch },
    /// The cut failed here; the ranks run on.
    CutFailed { epoch: Epoch, reason: String },
    /// Answers [`Command::AbortCut`].
    Aborted { epoch: Epoch },
    /// A part of a message, as the launcher encoded it, and the place in the ring up to which this daemon has
    /// read with it.
    FromLauncher { message: Vec<u8>, read_to: u64, unread: Unread },
    /// The application has damaged its segment, which the data plane no longer touches.
    Corrupt { reason: String },
    /// Nothing of an earlier life follows.
    Rewound { life: u32 },
}
