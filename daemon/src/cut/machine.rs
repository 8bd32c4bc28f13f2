//! State machine of the cut; see [`crate::cut`].

use std::collections::BTreeMap;

use coswitch_policies::{Epoch, NodeId};

use super::events::{Arrival, CutError, CutReport, Input, Output};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum CutState {
    Running,
    Freezing { epoch: Epoch },
    Draining { epoch: Epoch },
    Flushed { epoch: Epoch },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct PeerChannel {
    /// The newest marker received; a message that arrives now was sent after it.
    marker: Epoch,
    lost: bool,
}

/// One application's part on this node, through all of its epochs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cut {
    peers: BTreeMap<NodeId, PeerChannel>,
    /// The newest marker of the checkpoint scheduler.
    begun: Epoch,
    /// The newest epoch that is known to have ended, with or without success.
    over: Epoch,
    state: CutState,
}

impl Cut {
    /// For an application that is about to be launched; its first epoch is 1.
    pub fn new(peers: impl IntoIterator<Item = NodeId>) -> Self {
        Self::at(peers, Epoch(0), CutState::Running)
    }

    /// For an application restored from the snapshot of `epoch`: flushed, waiting for `Resumed`.
    pub fn restored(peers: impl IntoIterator<Item = NodeId>, epoch: Epoch) -> Self {
        Self::at(peers, epoch, CutState::Flushed { epoch })
    }

    fn at(peers: impl IntoIterator<Item = NodeId>, epoch: Epoch, state: CutState) -> Self {
        let channel = PeerChannel { marker: epoch, lost: false };
        let peers = peers.into_iter().map(|peer| (peer, channel)).collect();
        let over = if state == CutState::Running { epoch } else { Epoch(epoch.0.saturating_sub(1)) };
        Self { peers, begun: epoch, over, state }
    }

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
            Input::Frozen { epoch } if self.state == (CutState::Freezing { epoch }) => self.on_frozen(epoch),
            Input::FreezeFailed { epoch } if self.state == (CutState::Freezing { epoch }) => {
                self.fail(epoch, CutError::FreezeFailed)
            }
            Input::Frozen { .. } | Input::FreezeFailed { .. } => Vec::new(),
            Input::Abort { epoch } => self.on_abort(epoch),
            Input::Resumed { epoch } => self.on_resumed(epoch),
            Input::PeerLost { node } => self.on_peer_lost(node),
        }
    }

    /// Position of a message that arrives now from `from`; `None` where that is no peer of this application.
    pub fn arrival(&self, from: NodeId) -> Option<Arrival> {
        let sent_after = self.sent_after(from)?;
        Some(match self.state {
            CutState::Running => Arrival::Deliver,
            CutState::Freezing { epoch } if sent_after < epoch => Arrival::Deliver,
            CutState::Draining { epoch } if sent_after < epoch => Arrival::Record,
            CutState::Freezing { .. } | CutState::Draining { .. } | CutState::Flushed { .. } => Arrival::Hold,
        })
    }

    /// The newest marker on the channel from `from`: a message that arrives now was sent after it. The inbox
    /// keeps this epoch with each message, so that any later cut knows on which side the message lies.
    pub fn sent_after(&self, from: NodeId) -> Option<Epoch> {
        self.peers.get(&from).map(|channel| channel.marker)
    }

    /// Whether a message that was sent after the marker of epoch `sent_after` may leave the inbox now.
    pub fn may_deliver(&self, sent_after: Epoch) -> bool {
        match self.state {
            CutState::Running => true,
            CutState::Freezing { epoch } => sent_after < epoch,
            CutState::Draining { .. } | CutState::Flushed { .. } => false,
        }
    }

    /// The epoch of the current cut, if there is one.
    pub fn epoch(&self) -> Option<Epoch> {
        match self.state {
            CutState::Running => None,
            CutState::Freezing { epoch } | CutState::Draining { epoch } | CutState::Flushed { epoch } => {
                Some(epoch)
            }
        }
    }

    /// Whether the network holds no message for this part, so that its images of `epoch` may be taken.
    pub fn is_flushed(&self, epoch: Epoch) -> bool {
        self.state == CutState::Flushed { epoch }
    }

    fn newest_marker(&self) -> Epoch {
        self.peers.values().map(|channel| channel.marker).fold(self.begun, Epoch::max)
    }

    /// After a marker: it begins an epoch, or may complete one, or is late and ignored.
    fn on_marker(&mut self) -> Vec<Output> {
        let newest = self.newest_marker();
        match self.state {
            CutState::Running if newest > self.over => self.begin(newest),
            CutState::Freezing { epoch } | CutState::Draining { epoch } if newest > epoch => {
                self.over = self.over.max(epoch);
                self.begin(newest)
            }
            CutState::Draining { epoch } => self.flush_if_complete(epoch),
            CutState::Running | CutState::Freezing { .. } | CutState::Flushed { .. } => Vec::new(),
        }
    }

    fn begin(&mut self, epoch: Epoch) -> Vec<Output> {
        if let Some((peer, _)) = self.peers.iter().find(|(_, channel)| channel.lost) {
            return self.fail(epoch, CutError::PeerLost(*peer));
        }
        self.state = CutState::Freezing { epoch };
        vec![Output::FreezeRanks { epoch }]
    }

    fn on_frozen(&mut self, epoch: Epoch) -> Vec<Output> {
        self.state = CutState::Draining { epoch };
        let mut outputs: Vec<_> = self.peers.keys().map(|&to| Output::SendMarker { to, epoch }).collect();
        outputs.extend(self.flush_if_complete(epoch));
        outputs
    }

    fn flush_if_complete(&mut self, epoch: Epoch) -> Vec<Output> {
        if self.begun < epoch || self.peers.values().any(|channel| channel.marker < epoch) {
            return Vec::new();
        }
        self.state = CutState::Flushed { epoch };
        vec![Output::Report(CutReport::Flushed { epoch })]
    }

    /// Ends the current epoch without a cut; the ranks run on.
    fn fail(&mut self, epoch: Epoch, reason: CutError) -> Vec<Output> {
        let mut outputs = self.end(epoch);
        outputs.push(Output::Report(CutReport::Failed { epoch, reason }));
        outputs
    }

    /// Ends the current epoch, if it is this one, and thaws its ranks.
    fn end(&mut self, epoch: Epoch) -> Vec<Output> {
        self.over = self.over.max(epoch);
        if self.epoch() != Some(epoch) {
            return Vec::new();
        }
        self.state = CutState::Running;
        vec![Output::ThawRanks { epoch }]
    }

    fn on_abort(&mut self, epoch: Epoch) -> Vec<Output> {
        let mut outputs = Vec::new();
        match self.epoch() {
            // The scheduler began the aborted epoch after it had given up the older one, unfinished here.
            Some(current) if current < epoch && !self.is_flushed(current) => {
                outputs.extend(self.end(current))
            }
            _ => {}
        }
        outputs.extend(self.end(epoch));
        outputs.push(Output::Report(CutReport::Aborted { epoch }));
        outputs.extend(self.on_marker());
        outputs
    }

    fn on_resumed(&mut self, epoch: Epoch) -> Vec<Output> {
        match self.state {
            CutState::Flushed { epoch: current } if current == epoch => {
                self.over = self.over.max(epoch);
                self.state = CutState::Running;
                self.on_marker()
            }
            CutState::Freezing { epoch: current } | CutState::Draining { epoch: current }
                if current == epoch =>
            {
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
        match self.state {
            CutState::Freezing { epoch } | CutState::Draining { epoch } => {
                self.fail(epoch, CutError::PeerLost(node))
            }
            CutState::Running | CutState::Flushed { .. } => Vec::new(),
        }
    }
}
