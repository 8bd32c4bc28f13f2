//! The daemon's port of one local rank: takes the records that the rank sends and delivers those of other
//! nodes.
//!
//! A port can be created from the shared indexes at any time, also after the segment was refilled from a
//! snapshot. At most one port per rank lives at a time, and none while the segment is being refilled.

use crate::header::{Header, NO_CHUNK};
use crate::layout::INLINE_MAX;
use crate::segment::Segment;
use crate::shared::SharedBytes;
use crate::slab::{SlabId, SlabKind};
use crate::spsc::{Consumer, Corrupt, Producer, RawRecord, Record};
use std::sync::Arc;

/// A leased chunk of a rank's in slab, into which the daemon receives a payload. Dropping it frees the chunk.
#[derive(Debug)]
pub struct Lease {
    segment: Arc<Segment>,
    local: u32,
    chunk: u32,
}

impl Lease {
    pub fn bytes(&self) -> SharedBytes<'_> {
        self.segment.slab(SlabId { local: self.local, kind: SlabKind::In }).chunk(self.chunk)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.segment.slab(SlabId { local: self.local, kind: SlabKind::In }).release(self.chunk);
    }
}

/// The daemon's side of the ring pair of one local rank.
#[derive(Debug)]
pub struct DaemonPort {
    segment: Arc<Segment>,
    local: u32,
    out: Consumer,
    inward: Producer,
}

impl DaemonPort {
    /// The port of local rank `local`. Panics if the index is out of range.
    pub fn new(segment: Arc<Segment>, local: u32) -> DaemonPort {
        assert!(local < segment.local_ranks(), "local index {local} outside the segment");
        let out = Consumer::new(segment.clone(), segment.out_ring(local), INLINE_MAX);
        let inward = Producer::new(segment.clone(), segment.in_ring(local));
        DaemonPort { segment, local, out, inward }
    }

    pub fn local(&self) -> u32 {
        self.local
    }

    /// The oldest record that the rank has sent. [`DaemonPort::pop`] releases it as it was read here.
    pub fn peek(&mut self) -> Result<Option<Record<'_>>, Corrupt> {
        let Some(record) = self.out.first()? else { return Ok(None) };
        self.resolve(&record).map(Some)
    }

    /// The records that the rank has sent, oldest first, without releasing them. Ends at the first corrupt
    /// one.
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
        let slab = self.segment.slab(SlabId { local: self.local, kind: SlabKind::Out });
        let payload = slab.published(chunk, len).ok_or(Corrupt::Chunk { chunk, len })?;
        Ok(Record { header, payload })
    }

    /// Releases the oldest record, if there is one, with its ring space and its chunk. Rings the rank's
    /// bell if it waits for either.
    pub fn pop(&mut self) -> Result<(), Corrupt> {
        let Some(record) = self.out.first()? else { return Ok(()) };
        let (chunk, len) = (record.header.slot, record.header.len);
        let mut wanted = false;
        if chunk != NO_CHUNK {
            let slab = self.segment.slab(SlabId { local: self.local, kind: SlabKind::Out });
            slab.published(chunk, len).ok_or(Corrupt::Chunk { chunk, len })?;
            wanted = slab.free(chunk);
        }
        wanted |= self.out.release_to(record.end);
        if wanted {
            self.segment.rank_bell(self.local).ring();
        }
        Ok(())
    }

    /// Delivers a record with an inline payload of at most [`INLINE_MAX`] bytes and rings the rank's bell.
    /// `false`: the ring is full; the daemon's bell will be rung when there is free space.
    pub fn try_deliver(&mut self, header: &Header, payload: &[u8]) -> Result<bool, Corrupt> {
        assert!(payload.len() <= INLINE_MAX, "larger payloads are delivered in chunks");
        let header = Header { slot: NO_CHUNK, len: payload.len() as u32, ..*header };
        let delivered = self.inward.push(&header, &[payload])?;
        if delivered {
            self.segment.ring_for_record(self.local);
        }
        Ok(delivered)
    }

    /// Leases a chunk into which a larger payload is received. `None` while the rank holds all of them; the
    /// daemon's bell is rung when it frees one.
    pub fn lease_chunk(&self) -> Option<Lease> {
        let chunk = self.segment.slab(SlabId { local: self.local, kind: SlabKind::In }).lease()?;
        Some(Lease { segment: self.segment.clone(), local: self.local, chunk })
    }

    /// Delivers a record whose `header.len` payload bytes lie in the lease, and rings the rank's bell.
    /// Returns the lease if the ring is full.
    pub fn deliver_leased(&mut self, header: &Header, lease: Lease) -> Result<Result<(), Lease>, Corrupt> {
        assert!(
            lease.local == self.local && Arc::ptr_eq(&lease.segment, &self.segment),
            "the lease belongs to this port"
        );
        assert!(header.len as usize <= self.segment.chunk_bytes(), "a payload fits its chunk");
        let slab = SlabId { local: self.local, kind: SlabKind::In };
        // The chunk is published before the record that names it; if the ring is full, no record names it
        // yet.
        self.segment.slab(slab).publish(lease.chunk);
        let header = Header { slot: lease.chunk, ..*header };
        match self.inward.push(&header, &[]) {
            Ok(true) => {
                // The chunk is published, so dropping the lease does not free it.
                drop(lease);
                self.segment.ring_for_record(self.local);
                Ok(Ok(()))
            }
            Ok(false) => {
                self.segment.slab(slab).unpublish(lease.chunk);
                Ok(Err(lease))
            }
            Err(corrupt) => Err(corrupt),
        }
    }
}
