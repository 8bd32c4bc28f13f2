//! A rank's port: its ring pair with the daemon and the direct ring pairs with the other local ranks.
//!
//! A process has one port, which one thread uses at a time. Each ring pair is named by its [`Peer`]; the port
//! knows nothing of global ranks. All outgoing chunks come from the rank's own slab, whichever peer they go
//! to. Therefore one peer, which may be asleep, can hold at most half of them.

use crate::activity::{Activity, Ask, Doing};
use crate::bell::Bell;
use crate::counters::Counters;
use crate::header::{Header, NO_CHUNK};
use crate::layout::INLINE_MAX;
use crate::segment::Segment;
use crate::shared::SharedBytes;
use crate::slab::{Slab, SlabId, SlabKind};
use crate::spsc::{Consumer, Corrupt, Producer, Record};
use std::sync::Arc;

/// The other process of a ring pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peer {
    /// The daemon, which relays to every rank of another node.
    Daemon,
    /// The rank with this local index.
    Rank(u32),
}

/// A leased chunk of the rank's own slab. The holder must push or release it: a chunk that is only dropped
/// stays leased for the rest of the run.
#[must_use]
#[derive(Debug)]
pub struct OutChunk {
    chunk: u32,
    peer: Peer,
}

#[derive(Debug)]
struct RingPair {
    out: Producer,
    inward: Consumer,
    /// Slab of the chunks that records of `inward` name.
    in_slab: SlabId,
}

/// A rank's side of all its rings.
#[derive(Debug)]
pub struct RankPort {
    segment: Arc<Segment>,
    local: u32,
    /// Ring pairs by local index of the other rank (the rank's own entry is unused), then that of the daemon.
    pairs: Vec<RingPair>,
    /// For each chunk, the index of the ring pair that last took it.
    taken_by: Vec<u32>,
    /// The rank that was woken last of those for which the scheduler has asked quietly.
    woken: Option<u32>,
}

impl RankPort {
    /// The port of local rank `local`. Panics if the index is out of range.
    pub fn new(segment: Arc<Segment>, local: u32) -> RankPort {
        let locals = segment.local_ranks();
        assert!(local < locals, "local index {local} outside the segment");
        let rank = |other| RingPair {
            out: Producer::new(segment.clone(), segment.direct_ring(local, other)),
            inward: Consumer::new(segment.clone(), segment.direct_ring(other, local), INLINE_MAX),
            in_slab: SlabId { local: other, kind: SlabKind::Out },
        };
        let daemon = RingPair {
            out: Producer::new(segment.clone(), segment.out_ring(local)),
            inward: Consumer::new(segment.clone(), segment.in_ring(local), INLINE_MAX),
            in_slab: SlabId { local, kind: SlabKind::In },
        };
        let pairs = (0..locals).map(rank).chain([daemon]).collect();
        let taken_by = vec![0; segment.chunks_per_rank() as usize];
        RankPort { segment, local, pairs, taken_by, woken: None }
    }

    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    pub fn local(&self) -> u32 {
        self.local
    }

    /// The bell that other processes ring for this rank.
    pub fn bell(&self) -> &Bell {
        self.segment.rank_bell(self.local)
    }

    /// The rank is about to sleep on its bell. Where a rank that it has woken is about to run, its processor
    /// has a successor without the scheduler.
    pub fn on_sleep(&mut self) {
        let woken = self.woken.take();
        let has_successor = woken.is_some_and(|local| self.segment.activity(local).has_arrival());
        let activity = self.activity();
        activity.set_doing(Doing::Sleeps);
        if activity.note_sleep(has_successor) {
            self.segment.scheduler_bell().ring();
        }
    }

    /// What this rank does.
    pub fn activity(&self) -> &Activity {
        self.segment.activity(self.local)
    }

    pub fn counters(&self) -> &Counters {
        self.segment.rank_counters(self.local)
    }

    fn index(&self, peer: Peer) -> usize {
        match peer {
            Peer::Rank(local) => local as usize,
            Peer::Daemon => self.pairs.len() - 1,
        }
    }

    fn bell_of(&self, peer: Peer) -> &Bell {
        match peer {
            Peer::Rank(local) => self.segment.rank_bell(local),
            Peer::Daemon => self.segment.daemon_bell(),
        }
    }

    fn ring_for_record(&mut self, peer: Peer) {
        match peer {
            Peer::Rank(local) => {
                let is_quiet = self.segment.ring_for_record(local) == Some(Ask::Quietly);
                self.woken = is_quiet.then_some(local).or(self.woken);
            }
            Peer::Daemon => self.segment.daemon_bell().ring(),
        }
    }

    fn out_slab(&self) -> Slab<'_> {
        self.segment.slab(SlabId { local: self.local, kind: SlabKind::Out })
    }

    /// Sends a record whose payload is the concatenation of `parts`, at most [`INLINE_MAX`] bytes, and rings
    /// the peer's bell. `false`: the ring is full; this rank's bell will be rung when there is free space.
    pub fn push(&mut self, peer: Peer, header: &Header, parts: &[&[u8]]) -> Result<bool, Corrupt> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        assert!(len <= INLINE_MAX, "larger payloads are sent in chunks");
        let header = Header { slot: NO_CHUNK, len: len as u32, ..*header };
        let index = self.index(peer);
        let pushed = self.pairs[index].out.push(&header, parts)?;
        if pushed {
            self.ring_for_record(peer);
        }
        Ok(pushed)
    }

    /// Leases a chunk for a payload to this peer. `None` while the peer holds too many of them; this rank's
    /// bell is rung when one becomes free.
    pub fn lease_chunk(&mut self, peer: Peer) -> Option<OutChunk> {
        let index = self.index(peer) as u32;
        let slab = self.out_slab();
        let limit = if self.pairs.len() > 2 { self.taken_by.len() / 2 } else { self.taken_by.len() };
        let held = || {
            (0u32..).zip(&self.taken_by).filter(|&(chunk, &by)| by == index && !slab.is_free(chunk)).count()
        };
        if held() >= limit {
            slab.mark_starved();
            // A chunk may have become free before its reader could see the request.
            if held() >= limit {
                return None;
            }
        }
        let chunk = slab.lease()?;
        self.taken_by[chunk as usize] = index;
        Some(OutChunk { chunk, peer })
    }

    /// The place for the payload.
    pub fn chunk(&self, chunk: &OutChunk) -> SharedBytes<'_> {
        self.out_slab().chunk(chunk.chunk)
    }

    /// Sends a record whose `header.len` payload bytes lie in the chunk, and rings the peer's bell. Returns
    /// the chunk if the ring is full.
    pub fn push_chunk(&mut self, header: &Header, chunk: OutChunk) -> Result<Result<(), OutChunk>, Corrupt> {
        assert!(header.len as usize <= self.segment.chunk_bytes(), "a payload fits its chunk");
        self.out_slab().publish(chunk.chunk);
        let header = Header { slot: chunk.chunk, ..*header };
        let index = self.index(chunk.peer);
        if self.pairs[index].out.push(&header, &[])? {
            self.ring_for_record(chunk.peer);
            return Ok(Ok(()));
        }
        self.out_slab().unpublish(chunk.chunk);
        Ok(Err(chunk))
    }

    /// Frees a leased chunk that was not sent.
    pub fn release(&self, chunk: OutChunk) {
        self.out_slab().release(chunk.chunk);
    }

    /// Whether a record from this peer may have arrived: a single load, for polling.
    pub fn may_have_record(&self, peer: Peer) -> bool {
        self.pairs[self.index(peer)].inward.may_have_record()
    }

    /// The oldest record from this peer. [`RankPort::pop`] releases it as it was read here.
    pub fn peek(&mut self, peer: Peer) -> Result<Option<Record<'_>>, Corrupt> {
        let index = self.index(peer);
        let pair = &mut self.pairs[index];
        let Some(raw) = pair.inward.first()? else { return Ok(None) };
        let header = Header { slot: NO_CHUNK, ..raw.header };
        let (chunk, len) = (raw.header.slot, raw.header.len);
        let payload = match chunk {
            NO_CHUNK => pair.inward.inline_payload(&raw),
            _ => {
                self.segment.slab(pair.in_slab).published(chunk, len).ok_or(Corrupt::Chunk { chunk, len })?
            }
        };
        Ok(Some(Record { header, payload }))
    }

    /// Releases the oldest record from this peer with its ring space and its chunk, and rings the peer's bell
    /// if it waits for either.
    pub fn pop(&mut self, peer: Peer) -> Result<(), Corrupt> {
        let index = self.index(peer);
        let pair = &mut self.pairs[index];
        let Some(raw) = pair.inward.first()? else { return Ok(()) };
        let mut wanted = false;
        let (chunk, len) = (raw.header.slot, raw.header.len);
        if chunk != NO_CHUNK {
            let slab = self.segment.slab(pair.in_slab);
            slab.published(chunk, len).ok_or(Corrupt::Chunk { chunk, len })?;
            wanted = slab.free(chunk);
        }
        wanted |= pair.inward.release_to(raw.end);
        if wanted {
            self.bell_of(peer).ring();
        }
        Ok(())
    }
}
