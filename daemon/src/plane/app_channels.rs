//! Data plane of one application: rings, channels, flow control, inbox, cut.
//!
//! An outgoing record goes from a rank's ring to the link of the destination's node while the channel has
//! credit. An incoming record goes to the rank's ring or, where the ring is full or the cut forbids it, to
//! the inbox, whose size the credit bounds. The inbox has a lane for each node and receiving rank, so records
//! for a rank that does not read hold up no record for another rank. From the freeze of a cut until the ranks
//! run again, the rings are neither read nor written: they are part of the snapshot.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use coswitch_policies::{Epoch, NodeId};
use coswitch_ring::{Corrupt, DaemonPort, Header, INLINE_MAX, MessagePort, Record, Segment};

use super::{
    backlog::{Backlog, Unread},
    channel_states::{ChannelStates, ChannelStatesError},
    flow::{FlowControl, cost},
    frame::AppLife,
    incoming::Incoming,
    link::Link,
    moved::Moved,
};
use crate::cut::{Arrival, Cut, Inbox, Input, Output};

/// Records taken from one ring in succession, before the next ring.
const BATCH: usize = 16;
/// Messages of the launcher that are heard in succession: a flood of them delays no other application.
const HEARD_AT_ONCE: usize = 8;
/// No slot is longer.
const SLOT_MAX: Duration = Duration::from_secs(11);

/// Failure between a ring and a link.
pub(crate) enum Fault {
    /// The application has damaged its segment.
    Corrupt(String),
    Link(io::Error),
}

impl From<Corrupt> for Fault {
    fn from(corrupt: Corrupt) -> Self {
        Self::Corrupt(corrupt.to_string())
    }
}

/// A record that waits in the inbox.
struct Waiting {
    header: Header,
    payload: Incoming,
    arrived: Instant,
}

impl Waiting {
    fn now(header: Header, payload: Incoming) -> Self {
        Self { header, payload, arrived: Instant::now() }
    }
}

/// A lane of the inbox. The records of a pair of ranks are all in one lane and keep their order; records for
/// different ranks need no order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Lane {
    from: NodeId,
    /// The receiving rank.
    to: u32,
}

impl Lane {
    fn of(from: NodeId, header: &Header) -> Self {
        Self { from, to: header.dst }
    }
}

pub(crate) struct AppChannels {
    segment: Arc<Segment>,
    ports: Vec<DaemonPort>,
    launcher: MessagePort,
    from_launcher: Backlog,
    /// With the time from which on each may go.
    to_launcher: VecDeque<(Vec<u8>, i64)>,
    /// The node of each rank.
    placement: Vec<NodeId>,
    channels: BTreeMap<NodeId, FlowControl>,
    inbox: Inbox<Lane, Waiting>,
    cut: Cut,
    drained: u64,
    broken: bool,
    life: u32,
    /// Under buffered coscheduling, where messages wait for exchanges.
    slot: Option<Slot>,
}

/// The time between two exchanges under buffered coscheduling (BCS-MPI; paper 004, §4.5): what ranks send to
/// other nodes in it goes over the links after the next exchange, and is there after the one that follows, in
/// the order of its nodes and ranks.
///
/// Nodes do not exchange at quite the same time. So a message counts to the time before only where it arrives
/// in the first half of that; one that is later waits for another exchange.
struct Slot {
    began: Instant,
    /// The same by the master's clock, as nanoseconds; `None` before the first exchange.
    begin: Option<i64>,
    /// Records of each local rank's out ring that may go.
    leaving: Vec<usize>,
    /// Records of each lane of the inbox that may go to their ranks.
    arriving: BTreeMap<Lane, usize>,
}

impl Slot {
    /// Nothing may go before the next exchange.
    fn closed(local_ranks: usize) -> Self {
        let (leaving, arriving) = (vec![0; local_ranks], BTreeMap::new());
        Self { began: Instant::now(), begin: None, leaving, arriving }
    }

    /// Where exchanges no longer come, messages go as without them.
    fn is_over(&self) -> bool {
        self.began.elapsed() > SLOT_MAX
    }

    /// Whether it began at this time or later. A time that is far ahead was given by another master's clock.
    fn has_reached(&self, time: i64) -> bool {
        self.begin.is_some_and(|begin| {
            let ahead = u64::try_from(time.saturating_sub(begin)).unwrap_or_default();
            ahead == 0 || Duration::from_nanos(ahead) > SLOT_MAX
        })
    }
}

fn ports(segment: &Arc<Segment>) -> Vec<DaemonPort> {
    (0..segment.local_ranks()).map(|local| DaemonPort::new(Arc::clone(segment), local)).collect()
}

impl AppChannels {
    pub(crate) fn new(
        own: NodeId,
        segment: Arc<Segment>,
        placement: Vec<NodeId>,
        from_launcher: Backlog,
    ) -> Self {
        let peers = placement.iter().filter(|node| **node != own);
        let channels: BTreeMap<NodeId, FlowControl> = peers.map(|peer| (*peer, FlowControl::new())).collect();
        Self {
            ports: ports(&segment),
            launcher: MessagePort::daemon_side(Arc::clone(&segment)),
            from_launcher,
            to_launcher: VecDeque::new(),
            cut: Cut::new(channels.keys().copied()),
            channels,
            inbox: Inbox::default(),
            drained: 0,
            broken: false,
            life: 0,
            slot: None,
            segment,
            placement,
        }
    }

    /// The segment, while its rings are in use.
    pub(crate) fn heard_segment(&self) -> Option<&Arc<Segment>> {
        (!self.broken && self.cut.epoch().is_none()).then_some(&self.segment)
    }

    /// Frames of another life are not for this application.
    pub(crate) const fn life(&self) -> u32 {
        self.life
    }

    pub(crate) const fn set_life(&mut self, life: u32) {
        self.life = life;
    }

    /// See [`Slot`].
    pub(crate) fn exchange(&mut self, begin: i64) {
        if self.broken || self.cut.epoch().is_some() {
            return;
        }
        let leaving = self.ports.iter().map(|port| port.records().count()).collect();
        let began = Instant::now();
        let half = self.slot.as_ref().map_or(began, |before| before.began + (began - before.began) / 2);
        let arriving =
            self.inbox.lanes().map(|lane| (*lane, self.inbox.leading(lane, |record| record.arrived < half)));
        self.slot = Some(Slot { began, begin: Some(begin), leaving, arriving: arriving.collect() });
    }

    /// Messages wait from now on, as those of an application that began between two exchanges.
    pub(crate) fn await_exchange(&mut self) {
        self.slot = Some(Slot::closed(self.ports.len()));
    }

    pub(crate) fn send_at_once(&mut self) {
        self.slot = None;
    }

    /// The present slot, under buffered coscheduling.
    fn slot(&self) -> Option<&Slot> {
        self.slot.as_ref().filter(|slot| !slot.is_over())
    }

    /// Forgets all messages, and leaves the rings alone until [`Self::restore`].
    pub(crate) fn rewind(&mut self, life: u32) {
        self.life = life;
        self.inbox = Inbox::default();
        self.to_launcher.clear();
        self.channels.values_mut().for_each(|channel| *channel = FlowControl::new());
        self.cut = Cut::restored(self.channels.keys().copied(), Epoch(0));
        self.broken = false;
    }

    pub(crate) fn set_broken(&mut self) {
        self.broken = true;
    }

    pub(crate) fn tell_launcher(&mut self, message: Vec<u8>, due: i64) {
        self.to_launcher.push_back((message, due));
    }

    /// Bytes that arrived on the channels after the freeze, before their markers.
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

    /// The link to `peer` is gone, with all that was in it. False where it held nothing for this part: there
    /// is no channel to that node, or the part rests at a complete cut, for which all that the peer had sent
    /// is here, and nothing was sent from here since. The peer judges for itself whether it misses something.
    pub(crate) fn on_link_lost(&mut self, peer: NodeId) -> bool {
        let Some(channel) = self.channels.get_mut(&peer) else { return false };
        // Credit that was on its way is gone on both sides: the channel begins anew with another link.
        *channel = FlowControl::new();
        !self.cut.epoch().is_some_and(|epoch| self.cut.is_flushed(epoch))
    }

    /// Moves records, at most [`BATCH`] and at most one chunk from each ring.
    pub(crate) fn pump(
        &mut self,
        app: AppLife,
        links: &mut BTreeMap<NodeId, Link>,
        from_launcher: impl FnMut(Vec<u8>, u64, Unread),
    ) -> Result<Moved, Fault> {
        if !self.broken && self.segment.is_damaged() {
            let reason = "pages are missing: its file was cut, or there was no free memory in /dev/shm";
            return Err(Fault::Corrupt(reason.into()));
        }
        if self.broken || self.cut.epoch().is_some() {
            return Ok(Moved::Nothing);
        }
        let out = self.pump_out(app, links)?;
        let inbox = self.pump_inbox()?;
        let launcher = self.pump_launcher(from_launcher)?;
        Ok(out.max(Moved::some_if(inbox | launcher)))
    }

    fn pump_out(&mut self, app: AppLife, links: &mut BTreeMap<NodeId, Link>) -> Result<Moved, Fault> {
        let mut moved = Moved::Nothing;
        let is_buffered = self.slot().is_some();
        let mut slot = self.slot.as_mut().filter(|_| is_buffered);
        'ports: for (local, port) in self.ports.iter_mut().enumerate() {
            let mut left = slot.as_mut().and_then(|slot| slot.leaving.get_mut(local));
            for _ in 0..left.as_deref().copied().unwrap_or(BATCH) {
                let Some(Record { header, payload }) = port.peek()? else { break };
                let node = self.placement.get(header.dst as usize);
                let channel = node.and_then(|node| self.channels.get_mut(node));
                let (Some(node), Some(channel)) = (node, channel) else {
                    return Err(Fault::Corrupt(format!(
                        "record for rank {}, which is not remote",
                        header.dst
                    )));
                };
                let link = links.get_mut(node).filter(|link| link.may_send_record());
                let Some(link) = link.filter(|_| channel.may_send(&header)) else {
                    // In a slot the ranks go one after the other.
                    if is_buffered { break 'ports } else { break }
                };
                link.send_record(app, &header, payload).map_err(Fault::Link)?;
                channel.on_sent(&header);
                port.pop()?;
                if let Some(left) = &mut left {
                    **left -= 1;
                }
                moved.note(Moved::Something);
                if header.len as usize > INLINE_MAX {
                    moved = Moved::Chunk;
                    if is_buffered { break 'ports } else { break }
                }
            }
        }
        Ok(moved)
    }

    fn pump_inbox(&mut self) -> Result<bool, Fault> {
        if self.inbox.is_empty() {
            return Ok(false);
        }
        let is_buffered = self.slot().is_some();
        let lanes: Vec<Lane> = self.inbox.lanes().copied().collect();
        let mut full = BTreeSet::new();
        let mut moved = false;
        for lane in lanes {
            // In a slot the records for a rank come from one node after the other.
            if is_buffered && full.contains(&lane.to) {
                continue;
            }
            while self.may_arrive(&lane, is_buffered)
                && let Some((sent_after, record)) = self.inbox.take(&lane, &self.cut)
            {
                let header = record.header;
                if let Some(record) = self.deliver(record)? {
                    self.inbox.put_back(lane, sent_after, record);
                    full.insert(lane.to);
                    break;
                }
                if let Some(left) = self.slot.as_mut().and_then(|slot| slot.arriving.get_mut(&lane)) {
                    *left = left.saturating_sub(1);
                }
                self.on_passed_on(lane.from, &header);
                moved = true;
            }
        }
        Ok(moved)
    }

    fn may_arrive(&self, lane: &Lane, is_buffered: bool) -> bool {
        let left = self.slot.as_ref().and_then(|slot| slot.arriving.get(lane));
        !is_buffered || left.is_some_and(|left| *left > 0)
    }

    fn pump_launcher(&mut self, mut from_launcher: impl FnMut(Vec<u8>, u64, Unread)) -> Result<bool, Fault> {
        let mut moved = false;
        while let Some((message, due)) = self.to_launcher.front()
            && self.slot().is_none_or(|slot| slot.has_reached(*due))
            && self.launcher.send(message)
        {
            self.to_launcher.pop_front();
            moved = true;
        }
        for _ in 0..HEARD_AT_ONCE {
            if !self.from_launcher.has_room() || !self.hear_launcher(&mut from_launcher)? {
                break;
            }
            moved = true;
        }
        Ok(moved)
    }

    /// Hears one message; false where there is none.
    fn hear_launcher(
        &mut self,
        from_launcher: &mut impl FnMut(Vec<u8>, u64, Unread),
    ) -> Result<bool, Corrupt> {
        let mut message = Vec::new();
        let heard = self.launcher.recv(&mut message)?;
        if heard {
            from_launcher(message, self.launcher.position(), self.from_launcher.add());
        }
        Ok(heard)
    }

    /// The launcher and its ranks are frozen, or have ended: reads what the launcher sent before.
    pub(crate) fn hear_frozen_launcher(
        &mut self,
        epoch: Epoch,
        mut from_launcher: impl FnMut(Vec<u8>, u64, Unread),
    ) -> Result<(), Corrupt> {
        if self.broken || self.cut.epoch() != Some(epoch) {
            return Ok(());
        }
        while self.hear_launcher(&mut from_launcher)? {}
        Ok(())
    }

    /// The credit to return to each peer now.
    pub(crate) fn credit_due(&mut self) -> impl Iterator<Item = (NodeId, u64)> {
        // At a cut records wait for all ranks, and credit would help none.
        let records_wait = !self.inbox.is_empty() && self.cut.epoch().is_none();
        let channels = self.channels.iter_mut();
        channels.filter_map(move |(peer, channel)| Some((*peer, channel.take_due(records_wait)?)))
    }

    pub(crate) fn on_credit(&mut self, from: NodeId, bytes: u64) {
        if let Some(channel) = self.channels.get_mut(&from) {
            channel.on_credit(bytes);
        }
    }

    fn on_passed_on(&mut self, from: NodeId, header: &Header) {
        if let Some(channel) = self.channels.get_mut(&from) {
            channel.on_passed_on(header);
        }
    }

    /// Whether a record may go to its rank now: no record overtakes a waiting one of its lane.
    fn may_pass(&self, from: NodeId, header: &Header) -> bool {
        !self.broken
            && self.cut.arrival(from) == Some(Arrival::Deliver)
            && self.inbox.is_clear(&Lane::of(from, header))
            && self.slot().is_none()
    }

    fn port_of(&mut self, header: &Header) -> Result<&mut DaemonPort, String> {
        let local = self.segment.local_of(header.dst);
        local
            .map(|local| &mut self.ports[local as usize])
            .ok_or_else(|| format!("record for rank {}, which does not live here", header.dst))
    }

    /// A chunk for a large payload, where the record may go to its rank now.
    pub(crate) fn lease(&mut self, from: NodeId, header: &Header) -> Option<Incoming> {
        if !self.may_pass(from, header) || header.len as usize > self.segment.chunk_bytes() {
            return None;
        }
        self.port_of(header).ok()?.lease_chunk().map(Incoming::Leased)
    }

    /// A node sends what its own ranks have sent, and no more than it has credit for.
    fn examine(&mut self, from: NodeId, header: &Header) -> Result<(), String> {
        if self.placement.get(header.src as usize) != Some(&from) {
            return Err(format!("{from} sends a record of rank {}, which is not there", header.src));
        }
        match self.channels.get_mut(&from).is_some_and(|channel| channel.on_received(header)) {
            true => Ok(()),
            false => Err(format!("{from} sends more than it has credit for")),
        }
    }

    pub(crate) fn on_small_record(
        &mut self,
        from: NodeId,
        header: Header,
        payload: &[u8],
    ) -> Result<(), String> {
        self.examine(from, &header)?;
        let delivered = self.may_pass(from, &header)
            && self.port_of(&header)?.try_deliver(&header, payload).map_err(|error| error.to_string())?;
        if delivered {
            self.on_passed_on(from, &header);
        } else {
            let payload = Incoming::Heap(payload.to_vec());
            self.put_in_inbox(from, Waiting::now(header, payload));
        }
        Ok(())
    }

    pub(crate) fn on_record(
        &mut self,
        from: NodeId,
        header: Header,
        payload: Incoming,
    ) -> Result<(), String> {
        self.examine(from, &header)?;
        let record = Waiting::now(header, payload);
        let refused = if self.may_pass(from, &header) {
            self.deliver(record).map_err(|error| match error {
                Fault::Corrupt(reason) => reason,
                Fault::Link(error) => error.to_string(),
            })?
        } else {
            Some(record)
        };
        match refused {
            None => self.on_passed_on(from, &header),
            Some(record) => self.put_in_inbox(from, record),
        }
        Ok(())
    }

    fn put_in_inbox(&mut self, from: NodeId, record: Waiting) {
        if self.cut.arrival(from) == Some(Arrival::Record) {
            self.drained += cost(&record.header);
        }
        if let Some(sent_after) = self.cut.sent_after(from) {
            self.inbox.push(Lane::of(from, &record.header), sent_after, record);
        }
    }

    /// Gives a record to its rank, or returns it where the rank's ring is full.
    fn deliver(&mut self, Waiting { header, payload, arrived }: Waiting) -> Result<Option<Waiting>, Fault> {
        let chunk_bytes = self.segment.chunk_bytes();
        let port = self.port_of(&header).map_err(Fault::Corrupt)?;
        let lease = match payload {
            Incoming::Leased(lease) => lease,
            Incoming::Heap(bytes) if bytes.len() <= INLINE_MAX => {
                let delivered = port.try_deliver(&header, &bytes)?;
                let payload = Incoming::Heap(bytes);
                return Ok((!delivered).then_some(Waiting { header, payload, arrived }));
            }
            Incoming::Heap(bytes) if bytes.len() > chunk_bytes => {
                return Err(Fault::Corrupt(format!(
                    "record of {} bytes is larger than a chunk",
                    bytes.len()
                )));
            }
            Incoming::Heap(bytes) => match port.lease_chunk() {
                None => return Ok(Some(Waiting { header, payload: Incoming::Heap(bytes), arrived })),
                Some(lease) => {
                    lease.bytes().first(bytes.len()).copy_from(&bytes);
                    lease
                }
            },
        };
        let refused = port.deliver_leased(&header, lease)?.err();
        Ok(refused.map(|lease| Waiting { header, payload: Incoming::Leased(lease), arrived }))
    }

    /// Encodes the content of the channels at the cut of `epoch`, which stays in the inbox as well.
    pub(crate) fn channel_states(&self, epoch: Epoch) -> Vec<u8> {
        let inbox = self.inbox.before(epoch).map(|(lane, Waiting { header, payload, .. })| {
            (lane.from, *header, payload.first(header.len as usize))
        });
        let to_launcher = self.to_launcher.iter().map(|(message, _)| message.clone()).collect();
        ChannelStates { inbox: inbox.collect(), to_launcher }.encode()
    }

    /// After a restore of the segment: restores the channels to the cut. Older leases are given back first,
    /// because they may name a chunk that the refilled segment uses for another record.
    pub(crate) fn restore(&mut self, epoch: Epoch, states: &[u8]) -> Result<(), ChannelStatesError> {
        let states = ChannelStates::decode(states, self.segment.chunk_bytes())?;
        self.inbox = Inbox::default();
        self.segment.free_orphan_leases();
        self.ports = ports(&self.segment);
        self.launcher = MessagePort::daemon_side(Arc::clone(&self.segment));
        self.to_launcher = states.to_launcher.into_iter().map(|message| (message, i64::MIN)).collect();
        if !self.cut.is_flushed(epoch) {
            // Back to an older cut: later messages, and their credit, are void on both sides.
            self.channels.values_mut().for_each(|channel| *channel = FlowControl::new());
        }
        self.cut = Cut::restored(self.channels.keys().copied(), epoch);
        for (peer, header, payload) in states.inbox {
            let record = Waiting::now(header, Incoming::Heap(payload));
            // The rank may be on another node than then.
            let peer = self.placement.get(record.header.src as usize).copied().unwrap_or(peer);
            let lane = Lane::of(peer, &record.header);
            self.inbox.push(lane, Epoch(epoch.0.saturating_sub(1)), record);
        }
        if self.slot.is_some() {
            self.await_exchange();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
