//! The cut: Chandy-Lamport for one application's part on one node, pure (DESIGN §5).
//!
//! The *process* of the algorithm is the daemon's part for the application on this node: its ranks, their rings and the
//! inbox. Its *channels* are the ordered streams between that part and the parts on the other nodes, and one to the
//! checkpoint scheduler: [`Input::Begin`] is the marker that arrives on it, [`Report::Flushed`] the one that leaves.
//! The data plane feeds inputs and carries out the outputs in the order given; nothing here waits or does IO.
//!
//! ```text
//!               first marker of a new epoch, from anyone        Frozen: own state recorded,
//!               / FreezeRanks                                   / SendMarker down every channel
//!   Running ─────────────────────────────────────> Freezing ───────────────────────────────────> Draining
//!    ^  ^                                            │  ^                                         │  │  │
//!    │  │                                            │  └── marker of a newer epoch / FreezeRanks ┘  │  │ markers in from
//!    │  └── FreezeFailed, PeerLost / ThawRanks, ─────┴───────────────────────────────────────────────┤  │ all channels
//!    │       Report::Failed; Abort / ThawRanks, Report::Aborted                                      │  │ / Report::Flushed
//!    │                                                                                               │  v
//!    └────────────── Resumed;  Abort / ThawRanks, Report::Aborted ──────────────────────────────── Flushed
//! ```
//!
//! A marker of a newer epoch proves that the scheduler has given the older one up, unless this part had reported
//! `Flushed`: then only the scheduler's word (`Resumed` or `Abort`) ends the epoch, and the newer one begins after it.
//! A peer may resume before this part does. Its messages then follow its marker, lie *after* the cut, and are held in
//! the [`Inbox`] until this part runs again.
//!
//! Invariants: an epoch number is never used twice; an epoch at or below `over` is never begun again; from the recording
//! of the own state until the epoch ends nothing is delivered to a rank; each marker is sent once, behind everything
//! that was sent before the freeze.

mod inbox;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use coswitch_policies::{Epoch, NodeId};
use thiserror::Error;

pub use inbox::Inbox;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// The marker of the checkpoint scheduler.
    Begin {
        /// Of this cut.
        epoch: Epoch,
    },
    /// A marker on the channel from a peer.
    Marker {
        /// The peer.
        from: NodeId,
        /// Of this cut.
        epoch: Epoch,
    },
    /// The ranks here stand still, and nothing more will be taken out of their rings.
    Frozen {
        /// As asked for by [`Output::FreezeRanks`].
        epoch: Epoch,
    },
    /// The ranks here could not be frozen in time.
    FreezeFailed {
        /// As asked for by [`Output::FreezeRanks`].
        epoch: Epoch,
    },
    /// The checkpoint scheduler gives this cut up.
    Abort {
        /// Of the cut.
        epoch: Epoch,
    },
    /// The ranks have been let run again, by order of the checkpoint scheduler after a complete flush.
    Resumed {
        /// Of the cut or snapshot.
        epoch: Epoch,
    },
    /// The stream to or from a peer broke: messages may be lost, no cut can succeed any more.
    PeerLost {
        /// The peer.
        node: NodeId,
    },
}

/// What is to be done, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// Freeze the ranks here, also where they are frozen already; answer with `Frozen` or `FreezeFailed`.
    FreezeRanks {
        /// For this cut.
        epoch: Epoch,
    },
    /// Let the ranks run: the cut did not come about.
    ThawRanks {
        /// Of the cut.
        epoch: Epoch,
    },
    /// Send a marker down the channel to a peer, behind every message already taken for it.
    SendMarker {
        /// The peer.
        to: NodeId,
        /// Of this cut.
        epoch: Epoch,
    },
    /// Tell the checkpoint scheduler.
    Report(Report),
}

/// What the checkpoint scheduler is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Report {
    /// Markers are in from all channels: the network holds nothing for this part.
    Flushed {
        /// Of the cut.
        epoch: Epoch,
    },
    /// This part could not take part in the cut; its ranks run on. The scheduler aborts the epoch everywhere.
    Failed {
        /// Of the cut.
        epoch: Epoch,
        /// Why.
        reason: CutError,
    },
    /// The cut is given up here, as asked; also the answer to a repeated or late `Abort`.
    Aborted {
        /// Of the cut.
        epoch: Epoch,
    },
}

/// Why a part could not take part in a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum CutError {
    /// May succeed in a later epoch.
    #[error("freeze the ranks in time")]
    FreezeFailed,
    /// No later epoch can succeed: the application restarts from its last valid snapshot.
    #[error("drain the channel from {0}: the link broke")]
    PeerLost(NodeId),
    /// The ranks were let run before the flush was complete: an order of the scheduler came out of turn.
    #[error("keep the ranks frozen until the flush was complete")]
    ResumedEarly,
}

/// Where a message that has just come in lies with respect to the cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arrival {
    /// No cut concerns it: it goes to its rank, unless older ones wait in the inbox before it.
    Deliver,
    /// Sent before the cut and received after it: channel state, kept in the inbox and saved with the snapshot.
    Record,
    /// Sent after the cut by a peer that has resumed: kept in the inbox, not part of the snapshot.
    Hold,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Running,
    Freezing { epoch: Epoch },
    Draining { epoch: Epoch },
    Flushed { epoch: Epoch },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Channel {
    /// The newest marker received; whatever arrives now was sent after it.
    marker: Epoch,
    lost: bool,
}

/// One application's part on this node, through all of its epochs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cut {
    peers: BTreeMap<NodeId, Channel>,
    /// The newest marker of the checkpoint scheduler.
    begun: Epoch,
    /// The newest epoch that is known to have ended, well or not.
    over: Epoch,
    phase: Phase,
}

impl Cut {
    /// The part of an application that is about to be launched: no epoch has been yet, the first one is 1.
    pub fn new(peers: impl IntoIterator<Item = NodeId>) -> Self {
        Self::at(peers, Epoch(0), Phase::Running)
    }

    /// The part of an application as the snapshot of `epoch` left it: flushed, waiting for `Resumed`.
    pub fn restored(peers: impl IntoIterator<Item = NodeId>, epoch: Epoch) -> Self {
        Self::at(peers, epoch, Phase::Flushed { epoch })
    }

    fn at(peers: impl IntoIterator<Item = NodeId>, epoch: Epoch, phase: Phase) -> Self {
        let channel = Channel { marker: epoch, lost: false };
        let peers = peers.into_iter().map(|peer| (peer, channel)).collect();
        let over = if phase == Phase::Running { epoch } else { Epoch(epoch.0.saturating_sub(1)) };
        Self { peers, begun: epoch, over, phase }
    }

    /// Takes what happened and says what to do about it.
    #[must_use]
    pub fn on(&mut self, input: Input) -> Vec<Output> {
        match input {
            Input::Begin { epoch } => {
                self.begun = self.begun.max(epoch);
                self.on_marker()
            }
            Input::Marker { from, epoch } => match self.peers.get_mut(&from) {
                Some(channel) => {
                    channel.marker = channel.marker.max(epoch);
                    self.on_marker()
                }
                None => Vec::new(),
            },
            Input::Frozen { epoch } if self.phase == (Phase::Freezing { epoch }) => self.on_frozen(epoch),
            Input::FreezeFailed { epoch } if self.phase == (Phase::Freezing { epoch }) => {
                self.fail(epoch, CutError::FreezeFailed)
            }
            Input::Frozen { .. } | Input::FreezeFailed { .. } => Vec::new(),
            Input::Abort { epoch } => self.on_abort(epoch),
            Input::Resumed { epoch } => self.on_resumed(epoch),
            Input::PeerLost { node } => self.on_peer_lost(node),
        }
    }

    /// Where a message that has just come in from `from` lies; `None` where that is no peer of this application.
    pub fn arrival(&self, from: NodeId) -> Option<Arrival> {
        let sent_after = self.sent_after(from)?;
        Some(match self.phase {
            Phase::Running => Arrival::Deliver,
            Phase::Freezing { epoch } if sent_after < epoch => Arrival::Deliver,
            Phase::Draining { epoch } if sent_after < epoch => Arrival::Record,
            Phase::Freezing { .. } | Phase::Draining { .. } | Phase::Flushed { .. } => Arrival::Hold,
        })
    }

    /// The newest marker on the channel from `from`: what arrives now was sent after it. The inbox keeps it with
    /// each message, so that any later cut knows on which side the message lies.
    pub fn sent_after(&self, from: NodeId) -> Option<Epoch> {
        self.peers.get(&from).map(|channel| channel.marker)
    }

    /// Whether a message from the inbox, sent after the marker of epoch `sent_after`, may go to its rank now.
    pub fn may_deliver(&self, sent_after: Epoch) -> bool {
        match self.phase {
            Phase::Running => true,
            Phase::Freezing { epoch } => sent_after < epoch,
            Phase::Draining { .. } | Phase::Flushed { .. } => false,
        }
    }

    /// The epoch of the cut in hand, if there is one.
    pub fn epoch(&self) -> Option<Epoch> {
        match self.phase {
            Phase::Running => None,
            Phase::Freezing { epoch } | Phase::Draining { epoch } | Phase::Flushed { epoch } => Some(epoch),
        }
    }

    /// Whether the network holds nothing for this part: its images of `epoch` may be taken, or are.
    pub fn is_flushed(&self, epoch: Epoch) -> bool {
        self.phase == Phase::Flushed { epoch }
    }

    fn newest_marker(&self) -> Epoch {
        self.peers.values().map(|channel| channel.marker).fold(self.begun, Epoch::max)
    }

    /// A marker has been noted: it begins an epoch, or may complete one, or is late and means nothing.
    fn on_marker(&mut self) -> Vec<Output> {
        let newest = self.newest_marker();
        match self.phase {
            Phase::Running if newest > self.over => self.begin(newest),
            Phase::Freezing { epoch } | Phase::Draining { epoch } if newest > epoch => {
                self.over = self.over.max(epoch);
                self.begin(newest)
            }
            Phase::Draining { epoch } => self.settle(epoch),
            Phase::Running | Phase::Freezing { .. } | Phase::Flushed { .. } => Vec::new(),
        }
    }

    fn begin(&mut self, epoch: Epoch) -> Vec<Output> {
        if let Some((peer, _)) = self.peers.iter().find(|(_, channel)| channel.lost) {
            return self.fail(epoch, CutError::PeerLost(*peer));
        }
        self.phase = Phase::Freezing { epoch };
        vec![Output::FreezeRanks { epoch }]
    }

    fn on_frozen(&mut self, epoch: Epoch) -> Vec<Output> {
        self.phase = Phase::Draining { epoch };
        let mut outputs: Vec<_> = self.peers.keys().map(|&to| Output::SendMarker { to, epoch }).collect();
        outputs.extend(self.settle(epoch));
        outputs
    }

    fn settle(&mut self, epoch: Epoch) -> Vec<Output> {
        if self.begun < epoch || self.peers.values().any(|channel| channel.marker < epoch) {
            return Vec::new();
        }
        self.phase = Phase::Flushed { epoch };
        vec![Output::Report(Report::Flushed { epoch })]
    }

    /// Ends the epoch in hand without a cut; the ranks run on.
    fn fail(&mut self, epoch: Epoch, reason: CutError) -> Vec<Output> {
        let mut outputs = self.end(epoch);
        outputs.push(Output::Report(Report::Failed { epoch, reason }));
        outputs
    }

    /// Ends the epoch in hand, if it is this one, and thaws what it froze.
    fn end(&mut self, epoch: Epoch) -> Vec<Output> {
        self.over = self.over.max(epoch);
        if self.epoch() != Some(epoch) {
            return Vec::new();
        }
        self.phase = Phase::Running;
        vec![Output::ThawRanks { epoch }]
    }

    fn on_abort(&mut self, epoch: Epoch) -> Vec<Output> {
        let mut outputs = Vec::new();
        match self.epoch() {
            // The order to begin the aborted epoch proves that an older one, still unfinished here, was given up.
            Some(current) if current < epoch && !self.is_flushed(current) => {
                outputs.extend(self.end(current))
            }
            _ => {}
        }
        outputs.extend(self.end(epoch));
        outputs.push(Output::Report(Report::Aborted { epoch }));
        outputs.extend(self.on_marker());
        outputs
    }

    fn on_resumed(&mut self, epoch: Epoch) -> Vec<Output> {
        match self.phase {
            Phase::Flushed { epoch: current } if current == epoch => {
                self.over = self.over.max(epoch);
                self.phase = Phase::Running;
                self.on_marker()
            }
            Phase::Freezing { epoch: current } | Phase::Draining { epoch: current } if current == epoch => {
                self.fail(epoch, CutError::ResumedEarly)
            }
            _ => Vec::new(),
        }
    }

    fn on_peer_lost(&mut self, node: NodeId) -> Vec<Output> {
        match self.peers.get_mut(&node) {
            Some(channel) => channel.lost = true,
            None => return Vec::new(),
        }
        match self.phase {
            Phase::Freezing { epoch } | Phase::Draining { epoch } => {
                self.fail(epoch, CutError::PeerLost(node))
            }
            Phase::Running | Phase::Flushed { .. } => Vec::new(),
        }
    }
}
