//! One application in the data plane: rings, channels, credits, inbox, cut.
//!
//! Outgoing records go from a rank's ring to the link of the destination's node while the channel has credit; incoming
//! ones go to the rank's ring, or, where that is full or the cut forbids it, to the inbox, whose size the credit
//! bounds. From the freeze of a cut until the ranks are let run, the rings are neither read nor written: they are
//! part of the snapshot.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::Arc,
};

use coswitch_policies::{Epoch, NodeId};
use coswitch_ring::{Corrupt, DaemonPort, Header, INLINE_MAX, MessagePort, Record, Segment};
use serde::{Deserialize, Serialize};

use super::{apps::cost, incoming::Incoming, link::Link, moved::Moved};
use crate::cut::{Arrival, Cut, Inbox, Input, Output};

/// What one node may have sent to another for one application without the receiver having passed it on. Large enough
/// for the bandwidth of a link times its delay, small enough that a cut is quickly flushed.
const WINDOW_BYTES: u64 = 2 << 20;
/// Credit goes back in steps of this.
const CREDIT_STEP: u64 = WINDOW_BYTES / 2;
/// Records taken from one ring before the next one has its turn.
const BATCH: usize = 16;

/// What can go wrong between a ring and a link: the two are answered differently.
pub(crate) enum Fault {
    /// The application has damaged its segment.
    Corrupt(String),
    /// The link is broken.
    Link(io::Error),
}

impl From<Corrupt> for Fault {
    fn from(corrupt: Corrupt) -> Self {
        Self::Corrupt(corrupt.to_string())
    }
}

/// A record that waits in the inbox.
struct Kept {
    header: Header,
    payload: Incoming,
}

/// Flow control of the ordered streams to and from one other node.
struct Channel {
    /// What may still be sent.
    credit: u64,
    /// Passed on, but not yet returned to the sender as credit.
    owed: u64,
}

/// Channel states as they travel with a snapshot.
#[derive(Serialize, Deserialize)]
struct ChannelStates {
    /// Peer, header and payload of each message, in the order of its channel.
    inbox: Vec<(NodeId, Vec<u8>, Vec<u8>)>,
    to_launcher: VecDeque<Vec<u8>>,
}

/// See the module's description.
pub(crate) struct App {
    segment: Arc<Segment>,
    ports: Vec<DaemonPort>,
    launcher: MessagePort,
    to_launcher: VecDeque<Vec<u8>>,
    /// The node of each rank.
    placement: Vec<NodeId>,
    channels: BTreeMap<NodeId, Channel>,
    inbox: Inbox<NodeId, Kept>,
    cut: Cut,
    drained: u64,
    broken: bool,
}

fn ports(segment: &Arc<Segment>) -> Vec<DaemonPort> {
    (0..segment.local_ranks()).map(|local| DaemonPort::new(Arc::clone(segment), local)).collect()
}

impl App {
    pub(crate) fn new(own: NodeId, segment: Arc<Segment>, placement: Vec<NodeId>) -> Self {
        let peers = placement.iter().filter(|node| **node != own);
        let channels: BTreeMap<NodeId, Channel> =
            peers.map(|peer| (*peer, Channel { credit: WINDOW_BYTES, owed: 0 })).collect();
        Self {
            ports: ports(&segment),
            launcher: MessagePort::daemon_side(Arc::clone(&segment)),
            to_launcher: VecDeque::new(),
            cut: Cut::new(channels.keys().copied()),
            channels,
            inbox: Inbox::default(),
            drained: 0,
            broken: false,
            segment,
            placement,
        }
    }

    pub(crate) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    pub(crate) fn set_broken(&mut self) {
        self.broken = true;
    }

    pub(crate) fn tell_launcher(&mut self, message: Vec<u8>) {
        self.to_launcher.push_back(message);
    }

    /// What the channels held when the ranks had been frozen.
    pub(crate) fn drained(&self) -> u64 {
        self.drained
    }

    pub(crate) fn on_cut(&mut self, input: Input) -> Vec<Output> {
        let outputs = self.cut.on(input);
        if outputs.iter().any(|output| matches!(output, Output::FreezeRanks { .. })) {
            self.drained = 0;
        }
        outputs
    }

    /// Moves what can be moved, of chunks one from each ring.
    pub(crate) fn pump(
        &mut self,
        job: coswitch_policies::JobId,
        links: &mut BTreeMap<NodeId, Link>,
        from_launcher: impl FnMut(Vec<u8>),
    ) -> Result<Moved, Fault> {
        if self.broken || self.cut.epoch().is_some() {
            return Ok(Moved::Nothing);
        }
        let out = self.pump_out(job, links)?;
        let inbox = self.pump_inbox()?;
        let launcher = self.pump_launcher(from_launcher)?;
        Ok(out.max(Moved::some_if(inbox | launcher)))
    }

    fn pump_out(
        &mut self,
        job: coswitch_policies::JobId,
        links: &mut BTreeMap<NodeId, Link>,
    ) -> Result<Moved, Fault> {
        let mut moved = Moved::Nothing;
        for port in &mut self.ports {
            for _ in 0..BATCH {
                let Some(Record { header, payload }) = port.peek()? else { break };
                let node = self.placement.get(header.dst as usize);
                let channel = node.and_then(|node| self.channels.get_mut(node));
                let (Some(node), Some(channel)) = (node, channel) else {
                    return Err(Fault::Corrupt(format!(
                        "record for rank {}, which is not remote",
                        header.dst
                    )));
                };
                let Some(link) = links.get_mut(node) else { break };
                if !link.has_room() || channel.credit < cost(&header) {
                    break;
                }
                link.send_record(job, &header, payload).map_err(Fault::Link)?;
                channel.credit -= cost(&header);
                port.pop(1)?;
                moved.note(Moved::Something);
                if header.len as usize > INLINE_MAX {
                    moved = Moved::Chunk;
                    break;
                }
            }
        }
        Ok(moved)
    }

    fn pump_inbox(&mut self) -> Result<bool, Fault> {
        if self.inbox.is_empty() {
            return Ok(false);
        }
        let lanes: Vec<NodeId> = self.inbox.lanes().copied().collect();
        let mut moved = false;
        for lane in lanes {
            while let Some((sent_after, kept)) = self.inbox.take(&lane, &self.cut) {
                let header = kept.header;
                if let Some(kept) = self.deliver(kept)? {
                    self.inbox.put_back(lane, sent_after, kept);
                    break;
                }
                self.owe(lane, &header);
                moved = true;
            }
        }
        Ok(moved)
    }

    fn pump_launcher(&mut self, mut from_launcher: impl FnMut(Vec<u8>)) -> Result<bool, Fault> {
        let mut moved = false;
        while self.to_launcher.front().is_some_and(|message| self.launcher.send(message)) {
            self.to_launcher.pop_front();
            moved = true;
        }
        let mut message = Vec::new();
        while self.launcher.recv(&mut message)? {
            from_launcher(std::mem::take(&mut message));
            moved = true;
        }
        Ok(moved)
    }

    /// Credit that has become worth a frame.
    pub(crate) fn credit_due(&mut self) -> impl Iterator<Item = (NodeId, u64)> {
        let due = self.channels.iter_mut().filter(|(_, channel)| channel.owed >= CREDIT_STEP);
        due.map(|(peer, channel)| (*peer, std::mem::take(&mut channel.owed)))
    }

    pub(crate) fn on_credit(&mut self, from: NodeId, bytes: u64) {
        if let Some(channel) = self.channels.get_mut(&from) {
            channel.credit = channel.credit.saturating_add(bytes).min(WINDOW_BYTES);
        }
    }

    fn owe(&mut self, from: NodeId, header: &Header) {
        if let Some(channel) = self.channels.get_mut(&from) {
            channel.owed += cost(header);
        }
    }

    /// Order within a channel: nothing overtakes what already waits.
    fn may_pass(&self, from: NodeId) -> bool {
        !self.broken && self.cut.arrival(from) == Some(Arrival::Deliver) && self.inbox.is_clear(&from)
    }

    fn port_of(&mut self, header: &Header) -> Result<&mut DaemonPort, String> {
        let local = self.segment.local_of(header.dst);
        local
            .map(|local| &mut self.ports[local as usize])
            .ok_or_else(|| format!("record for rank {}, which does not live here", header.dst))
    }

    /// A chunk to receive a large payload into, where the rank may have it at once.
    pub(crate) fn lease(&mut self, from: NodeId, header: &Header) -> Option<Incoming> {
        if !self.may_pass(from) || header.len as usize > self.segment.chunk_bytes() {
            return None;
        }
        self.port_of(header).ok()?.lease_chunk().map(Incoming::Leased)
    }

    pub(crate) fn on_small_record(
        &mut self,
        from: NodeId,
        header: Header,
        payload: &[u8],
    ) -> Result<(), String> {
        let delivered = self.may_pass(from)
            && self.port_of(&header)?.try_deliver(&header, payload).map_err(|error| error.to_string())?;
        if delivered {
            self.owe(from, &header);
        } else {
            self.keep(from, Kept { header, payload: Incoming::Heap(payload.to_vec()) });
        }
        Ok(())
    }

    pub(crate) fn on_record(
        &mut self,
        from: NodeId,
        header: Header,
        payload: Incoming,
    ) -> Result<(), String> {
        let mut kept = Some(Kept { header, payload });
        if self.may_pass(from) {
            kept = self.deliver(kept.expect("set above")).map_err(|error| match error {
                Fault::Corrupt(reason) => reason,
                Fault::Link(error) => error.to_string(),
            })?;
        }
        match kept {
            None => self.owe(from, &header),
            Some(kept) => self.keep(from, kept),
        }
        Ok(())
    }

    fn keep(&mut self, from: NodeId, kept: Kept) {
        if self.cut.arrival(from) == Some(Arrival::Record) {
            self.drained += cost(&kept.header);
        }
        if let Some(sent_after) = self.cut.sent_after(from) {
            self.inbox.push(from, sent_after, kept);
        }
    }

    /// Gives a record to its rank, or gives it back where there is no room.
    fn deliver(&mut self, Kept { header, payload }: Kept) -> Result<Option<Kept>, Fault> {
        let chunk_bytes = self.segment.chunk_bytes();
        let port = self.port_of(&header).map_err(Fault::Corrupt)?;
        let lease = match payload {
            Incoming::Leased(lease) => lease,
            Incoming::Heap(bytes) if bytes.len() <= INLINE_MAX => {
                let delivered = port.try_deliver(&header, &bytes)?;
                return Ok((!delivered).then_some(Kept { header, payload: Incoming::Heap(bytes) }));
            }
            Incoming::Heap(bytes) if bytes.len() > chunk_bytes => {
                return Err(Fault::Corrupt(format!(
                    "record of {} bytes is larger than a chunk",
                    bytes.len()
                )));
            }
            Incoming::Heap(bytes) => match port.lease_chunk() {
                None => return Ok(Some(Kept { header, payload: Incoming::Heap(bytes) })),
                Some(mut lease) => {
                    lease.bytes_mut()[..bytes.len()].copy_from_slice(&bytes);
                    lease
                }
            },
        };
        let refused = port.deliver_leased(&header, lease)?.err();
        Ok(refused.map(|lease| Kept { header, payload: Incoming::Leased(lease) }))
    }

    /// What the channels held at the cut of `epoch`, for the snapshot; it stays in place as well.
    pub(crate) fn channel_states(&mut self, epoch: Epoch) -> Vec<u8> {
        let inbox = self.inbox.before_mut(epoch).map(|(peer, Kept { header, payload })| {
            let length = header.len as usize;
            (*peer, header.as_bytes().to_vec(), payload.bytes_mut()[..length].to_vec())
        });
        let states = ChannelStates { inbox: inbox.collect(), to_launcher: self.to_launcher.clone() };
        postcard::to_stdvec(&states).expect("plain data encodes")
    }

    /// After a restore: rings as they were at the cut, and the inbox too. Leases of another time are given back
    /// first, so that none of them names a chunk that the refilled segment uses otherwise.
    pub(crate) fn settle(&mut self, epoch: Epoch, states: &[u8]) -> Result<(), postcard::Error> {
        let states: ChannelStates = postcard::from_bytes(states)?;
        self.inbox = Inbox::default();
        self.segment.free_orphan_leases();
        self.ports = ports(&self.segment);
        self.launcher = MessagePort::daemon_side(Arc::clone(&self.segment));
        self.to_launcher = states.to_launcher;
        if !self.cut.is_flushed(epoch) {
            // Back to an older cut: whatever waited here since, and its credit, are void on both sides.
            let anew = || Channel { credit: WINDOW_BYTES, owed: 0 };
            self.channels.values_mut().for_each(|channel| *channel = anew());
        }
        self.cut = Cut::restored(self.channels.keys().copied(), epoch);
        for (peer, header, payload) in states.inbox {
            let Ok(header) = <&[u8; coswitch_ring::HEADER_BYTES]>::try_from(header.as_slice()) else {
                return Err(postcard::Error::DeserializeUnexpectedEnd);
            };
            let kept = Kept { header: Header::from_bytes(header), payload: Incoming::Heap(payload) };
            self.inbox.push(peer, Epoch(epoch.0.saturating_sub(1)), kept);
        }
        Ok(())
    }
}
