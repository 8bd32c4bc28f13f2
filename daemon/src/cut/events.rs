//! Inputs and outputs of the cut.

use coswitch_policies::{Epoch, NodeId};
use thiserror::Error;

/// An event that the cut must know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// The marker of the checkpoint scheduler.
    Begin { epoch: Epoch },
    /// A marker on the channel from a peer.
    Marker { from: NodeId, epoch: Epoch },
    /// Answers [`Output::FreezeRanks`]: the ranks are frozen, and their rings are no longer read.
    Frozen { epoch: Epoch },
    /// Answers [`Output::FreezeRanks`]: the ranks did not freeze in time.
    FreezeFailed { epoch: Epoch },
    /// The checkpoint scheduler gives up this cut.
    Abort { epoch: Epoch },
    /// The ranks run again, by order of the checkpoint scheduler after a complete flush.
    Resumed { epoch: Epoch },
    /// The stream to or from a peer broke: messages may be lost, and no later cut can succeed.
    PeerLost { node: NodeId },
}

/// An action for the data plane, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// Freeze the ranks here, even if they are frozen already; answer with `Frozen` or `FreezeFailed`.
    FreezeRanks {
        epoch: Epoch,
    },
    /// Let the ranks run: the cut has failed or was given up.
    ThawRanks {
        epoch: Epoch,
    },
    /// Send a marker to a peer, behind every message already taken for it.
    SendMarker {
        to: NodeId,
        epoch: Epoch,
    },
    Report(CutReport),
}

/// A message to the checkpoint scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CutReport {
    /// Markers have come from all channels: the network holds no message for this part.
    Flushed { epoch: Epoch },
    /// The cut failed here, and the ranks run on. The scheduler aborts the epoch everywhere.
    Failed { epoch: Epoch, reason: CutError },
    /// Answers `Abort`, also a repeated or late one.
    Aborted { epoch: Epoch },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum CutError {
    /// A later epoch may succeed.
    #[error("freeze the ranks in time")]
    FreezeFailed,
    /// No later epoch can succeed: the application restarts from its last valid snapshot.
    #[error("drain the channel from {0}: the link broke")]
    PeerLost(NodeId),
    /// The order to resume came before the flush was complete.
    #[error("keep the ranks frozen until the flush was complete")]
    ResumedEarly,
}

/// Position of an arriving message relative to the cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arrival {
    /// Before any cut: it goes to its rank, unless older messages of its lane wait in the inbox.
    Deliver,
    /// Sent before the cut, received after it: channel state, which waits in the inbox, part of the snapshot.
    Record,
    /// Sent after the cut by a peer that has resumed: it waits in the inbox, not part of the snapshot.
    Hold,
}
