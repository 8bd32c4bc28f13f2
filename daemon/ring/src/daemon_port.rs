//! The daemon's end of one local rank: takes what the rank sends, delivers what other nodes sent to it.
//!
//! A port can be made at any time from the shared indexes, also after the segment was refilled from a snapshot; at
//! most one port per rank lives at a time, and none while the segment is being refilled.

use crate::header::{Header, NO_CHUNK};
use crate::layout::INLINE_MAX;
use crate::segment::Segment;
use crate::slab::{SlabKind, SlabOf};
use crate::spsc::{Consumer, Corrupt, Producer, RawRecord, Record};
use std::sync::Arc;

/// A free chunk of a rank's in slab, lent to the daemon to receive a payload into. Dropping it gives it back.
#[derive(Debug)]
pub struct Lease {
    segment: Arc<Segment>,
    local: u32,
    chunk: u32,
}

impl Lease {
    /// The whole chunk.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let slab = self.segment.slab(SlabOf { local: self.local, kind: SlabKind::In });
        // SAFETY: a leased chunk belongs to the holder of the lease alone, and `&mut self` makes this the only
        // reference; the chunk lies in the mapping, which the lease keeps alive.
        unsafe { std::slice::from_raw_parts_mut(slab.chunk(self.chunk).as_ptr(), slab.chunk_bytes) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.segment.slab(SlabOf { local: self.local, kind: SlabKind::In }).give_up(self.chunk);
    }
}

/// The daemon's end of one local rank.
#[derive(Debug)]
pub struct DaemonPort {
    segment: Arc<Segment>,
    local: u32,
    out: Consumer,
    inward: Producer,
}

impl DaemonPort {
    /// The port of local rank `local`. Panics on an index outside the segment.
    pub fn new(segment: Arc<Segment>, local: u32) -> DaemonPort {
        assert!(local < segment.local_ranks(), "local index {local} outside the segment");
        let out = Consumer::new(segment.clone(), segment.out_ring(local), INLINE_MAX);
        let inward = Producer::new(segment.clone(), segment.in_ring(local));
        DaemonPort { segment, local, out, inward }
    }

    /// Local index of the rank.
    pub fn local(&self) -> u32 {
        self.local
    }

    /// The next record the rank has sent.
    pub fn peek(&self) -> Result<Option<Record<'_>>, Corrupt> {
        self.peek_at(0)
    }

    /// The record `n` places behind the next one. Walks the ring: for a whole batch use [`DaemonPort::records`].
    pub fn peek_at(&self, n: usize) -> Result<Option<Record<'_>>, Corrupt> {
        self.records().nth(n).transpose()
    }

    /// The records the rank has sent, oldest first, without releasing them. Ends at the first corrupt one.
    pub fn records(&self) -> impl Iterator<Item = Result<Record<'_>, Corrupt>> {
        let mut position = Some(self.out.head());
        std::iter::from_fn(move || match self.out.record_at(position?) {
            Ok(record) => {
                position = record.map(|record| record.end);
                record.map(|record| self.resolve(&record))
            }
            Err(corrupt) => {
                position = None;
                Some(Err(corrupt))
            }
        })
    }

    fn resolve(&self, record: &RawRecord) -> Result<Record<'_>, Corrupt> {
        let header = Header { slot: NO_CHUNK, ..record.header };
        let (chunk, len) = (record.header.slot, record.header.len);
        if chunk == NO_CHUNK {
            return Ok(Record { header, payload: self.out.inline_payload(record) });
        }
        let slab = self.segment.slab(SlabOf { local: self.local, kind: SlabKind::Out });
        let payload = slab.published(chunk, len).ok_or(Corrupt::Chunk { chunk, len })?;
        Ok(Record { header, payload })
    }

    /// Releases the next `n` records with their ring space and chunks, and tells the rank if it waits for room.
    /// Fewer records than `n` are released if fewer are there.
    pub fn pop(&mut self, n: usize) -> Result<(), Corrupt> {
        let slab = SlabOf { local: self.local, kind: SlabKind::Out };
        let mut wanted = false;
        let mut position = self.out.head();
        for _ in 0..n {
            let Some(record) = self.out.record_at(position)? else { break };
            let (chunk, len) = (record.header.slot, record.header.len);
            if chunk != NO_CHUNK {
                slab.view(&self.segment).published(chunk, len).ok_or(Corrupt::Chunk { chunk, len })?;
                wanted |= slab.view(&self.segment).free(chunk);
            }
            position = record.end;
        }
        wanted |= self.out.release_to(position);
        if wanted {
            self.segment.rank_bell(self.local).ring();
        }
        Ok(())
    }

    /// Delivers a record with an inline payload of at most [`INLINE_MAX`] bytes and rings the rank. `false`: no room
    /// now; the daemon's bell is rung when there is.
    pub fn try_deliver(&mut self, header: &Header, payload: &[u8]) -> Result<bool, Corrupt> {
        assert!(payload.len() <= INLINE_MAX, "larger payloads are delivered in chunks");
        let header = Header { slot: NO_CHUNK, len: payload.len() as u32, ..*header };
        let delivered = self.inward.push(&header, &[payload])?;
        if delivered {
            self.segment.rank_bell(self.local).ring();
        }
        Ok(delivered)
    }

    /// A chunk to receive a larger payload into, or `None` while the rank still holds them all; the daemon's bell is
    /// rung when it gives one back.
    pub fn lease_chunk(&self) -> Option<Lease> {
        let chunk = self.segment.slab(SlabOf { local: self.local, kind: SlabKind::In }).lease()?;
        Some(Lease { segment: self.segment.clone(), local: self.local, chunk })
    }

    /// The bytes of a leased chunk; the same as [`Lease::bytes_mut`].
    pub fn lease_mut<'a>(&self, lease: &'a mut Lease) -> &'a mut [u8] {
        lease.bytes_mut()
    }

    /// Delivers a record whose first `header.len` payload bytes lie in the lease, and rings the rank. The lease comes
    /// back if there is no room now.
    pub fn deliver_leased(&mut self, header: &Header, lease: Lease) -> Result<Result<(), Lease>, Corrupt> {
        assert!(
            lease.local == self.local && Arc::ptr_eq(&lease.segment, &self.segment),
            "a lease of this port"
        );
        assert!(header.len as usize <= self.segment.chunk_bytes(), "a payload fits its chunk");
        let slab = SlabOf { local: self.local, kind: SlabKind::In };
        // Published before the record that names it; if the record finds no room the chunk is simply not named yet.
        slab.view(&self.segment).publish(lease.chunk);
        let header = Header { slot: lease.chunk, ..*header };
        match self.inward.push(&header, &[]) {
            Ok(true) => {
                // The chunk is published, so dropping the lease gives nothing back.
                drop(lease);
                self.segment.rank_bell(self.local).ring();
                Ok(Ok(()))
            }
            Ok(false) => {
                slab.view(&self.segment).unpublish(lease.chunk);
                Ok(Err(lease))
            }
            Err(corrupt) => Err(corrupt),
        }
    }

    /// Gives a lease back unused.
    pub fn release(&self, lease: Lease) {
        drop(lease);
    }
}
