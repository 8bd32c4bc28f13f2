//! A ring of records in shared memory, with one producer and one consumer.
//!
//! ```text
//! control (4 cache lines): tail (producer writes) | head (consumer writes) | starved | unused
//! data: [header 64 B][inline payload, rounded up to 64 B] ... never wrapping, see `place`
//! ```
//!
//! Each side also keeps a private copy of its own index, and the producer the last head it saw. That copy can
//! be outdated but never wrong. Both are read from shared memory when a side is created, so a side can be
//! created again at any time at which no other instance of it lives.

use crate::header::{HEADER_BYTES, Header, NO_CHUNK};
use crate::layout::{RING_CONTROL_BYTES, RingAt};
use crate::place::{ALIGN, extent, place, plausible};
use crate::segment::Segment;
use crate::shared::SharedBytes;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use std::ptr::NonNull;
use std::sync::Arc;

const TAIL: usize = 0;
const HEAD: usize = 64;
const STARVED: usize = 128;

/// Impossible contents of shared memory: the other side is broken or hostile. Retrying does not help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Corrupt {
    #[error("impossible ring indexes: head {head}, tail {tail}")]
    Indexes { head: u64, tail: u64 },
    #[error("record of {len} bytes at {position} leaves its ring")]
    Length { position: u64, len: u32 },
    #[error("record names chunk {chunk} for {len} bytes, which is not published or too small")]
    Chunk { chunk: u32, len: u32 },
}

/// What a ring lies in: a mapped segment, or the memory of a model. No two threads access the same record at
/// once.
pub(crate) trait Memory {
    /// A power of two.
    fn capacity(&self) -> u64;
    fn tail(&self) -> &AtomicU64;
    fn head(&self) -> &AtomicU64;
    fn starved(&self) -> &AtomicU32;
    /// Reads a header once. Positions are multiples of `ALIGN`, so that it does not wrap.
    fn read_header(&self, position: u64) -> Header;
    fn write_header(&self, position: u64, header: &Header);
    fn write_payload(&self, position: u64, bytes: &[u8]);
}

/// A ring in a mapped segment; keeps the mapping alive.
#[derive(Debug)]
pub(crate) struct Ring {
    _mapped: Arc<Segment>,
    control: NonNull<u8>,
    data: NonNull<u8>,
    capacity: u64,
}

// SAFETY: the pointers lead into the mapping, which is valid in all threads; the Arc keeps it alive.
unsafe impl Send for Ring {}
// SAFETY: control words and data are accessed by atomics only.
unsafe impl Sync for Ring {}

impl Ring {
    fn new(segment: Arc<Segment>, at: RingAt) -> Ring {
        let control = segment.mapping().at(at.offset, RING_CONTROL_BYTES);
        let data = segment.mapping().at(at.offset + RING_CONTROL_BYTES, at.capacity as usize);
        Ring { control, data, capacity: at.capacity.into(), _mapped: segment }
    }

    /// `len` bytes from a position on. Panics where they leave the ring: nothing wraps.
    fn at(&self, position: u64, len: usize) -> SharedBytes<'_> {
        // The capacity is a power of two.
        let offset = (position & (self.capacity - 1)) as usize;
        self.all().skip(offset).first(len)
    }

    fn all(&self) -> SharedBytes<'_> {
        // SAFETY: the data is `capacity` bytes long and lives as long as self; no reference to the
        // data is ever made.
        unsafe { SharedBytes::new(self.data, self.capacity as usize) }
    }
}

impl Memory for Ring {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn tail(&self) -> &AtomicU64 {
        // SAFETY: the control block is RING_CONTROL_BYTES long, cache-line aligned, and lives as long as
        // self.
        unsafe { self.control.add(TAIL).cast().as_ref() }
    }

    fn head(&self) -> &AtomicU64 {
        // SAFETY: as in `tail`.
        unsafe { self.control.add(HEAD).cast().as_ref() }
    }

    fn starved(&self) -> &AtomicU32 {
        // SAFETY: as in `tail`.
        unsafe { self.control.add(STARVED).cast().as_ref() }
    }

    fn read_header(&self, position: u64) -> Header {
        let mut bytes = [0; HEADER_BYTES];
        self.at(position, HEADER_BYTES).copy_to(&mut bytes);
        Header::from_bytes(&bytes)
    }

    fn write_header(&self, position: u64, header: &Header) {
        self.at(position, HEADER_BYTES).copy_from(header.as_bytes());
    }

    fn write_payload(&self, position: u64, bytes: &[u8]) {
        self.at(position, bytes.len()).copy_from(bytes);
    }
}

#[derive(Debug)]
pub(crate) struct Producer<M = Ring> {
    ring: M,
    tail: u64,
    head_seen: u64,
}

impl Producer {
    pub(crate) fn new(segment: Arc<Segment>, at: RingAt) -> Producer {
        Producer::of(Ring::new(segment, at))
    }
}

impl<M: Memory> Producer<M> {
    pub(crate) fn of(ring: M) -> Producer<M> {
        let tail = ring.tail().load(Ordering::Acquire);
        let head_seen = ring.head().load(Ordering::Acquire);
        Producer { ring, tail, head_seen }
    }

    /// Appends a record whose payload is in `parts` (inline) or in the chunk that `header.slot` names (no
    /// parts). `Ok(false)`: the ring is full; the consumer rings the producer's bell when it has released
    /// space.
    pub(crate) fn push(&mut self, header: &Header, parts: &[&[u8]]) -> Result<bool, Corrupt> {
        let inline = if header.slot == NO_CHUNK { header.len } else { 0 };
        assert_eq!(
            parts.iter().map(|part| part.len()).sum::<usize>(),
            inline as usize,
            "the header gives the length of the payload"
        );
        let need = extent(inline);
        assert!(need <= self.ring.capacity() / 2, "a record takes at most half a ring");
        let Some(placement) = self.find_space(need)? else { return Ok(false) };
        if let Some(pad) = placement.pad {
            self.ring.write_header(pad, &Header { kind: Header::PAD, ..Header::EMPTY });
        }
        let mut at = placement.start + HEADER_BYTES as u64;
        for part in parts {
            if !part.is_empty() {
                self.ring.write_payload(at, part);
                at += part.len() as u64;
            }
        }
        self.ring.write_header(placement.start, header);
        self.tail = placement.end;
        self.ring.tail().store(self.tail, Ordering::Release);
        Ok(true)
    }

    fn find_space(&mut self, need: u64) -> Result<Option<crate::place::Placement>, Corrupt> {
        let capacity = self.ring.capacity();
        if plausible(self.head_seen, self.tail, capacity)
            && let Some(placement) = place(self.head_seen, self.tail, capacity, need)
        {
            return Ok(Some(placement));
        }
        if let Some(placement) = place(self.reload_head()?, self.tail, capacity, need) {
            return Ok(Some(placement));
        }
        self.ring.starved().store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Ok(place(self.reload_head()?, self.tail, capacity, need))
    }

    fn reload_head(&mut self) -> Result<u64, Corrupt> {
        let head = self.ring.head().load(Ordering::Acquire);
        if !plausible(head, self.tail, self.ring.capacity()) {
            return Err(Corrupt::Indexes { head, tail: self.tail });
        }
        self.head_seen = head;
        Ok(head)
    }
}

/// A record as the consumer sees it. The payload stays in place until the record is released.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// With `slot` cleared.
    pub header: Header,
    /// Lies in the ring or in a slab chunk.
    pub payload: SharedBytes<'a>,
}

/// A checked record whose payload has not been looked up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawRecord {
    pub(crate) header: Header,
    start: u64,
    pub(crate) end: u64,
}

#[derive(Debug)]
pub(crate) struct Consumer<M = Ring> {
    ring: M,
    head: u64,
    max_inline: u32,
    /// The record at the head, once it was read and checked: it is not read again.
    first: Option<RawRecord>,
}

impl Consumer {
    pub(crate) fn new(segment: Arc<Segment>, at: RingAt, max_inline: usize) -> Consumer {
        Consumer::of(Ring::new(segment, at), max_inline)
    }

    /// The inline payload of a record that has not been released.
    pub(crate) fn inline_payload(&self, record: &RawRecord) -> SharedBytes<'_> {
        // `record_at` has checked that both lie in the ring without wrapping.
        let len = record.header.len as usize;
        self.ring.at(record.start, HEADER_BYTES + len).skip(HEADER_BYTES)
    }
}

impl<M: Memory> Consumer<M> {
    pub(crate) fn of(ring: M, max_inline: usize) -> Consumer<M> {
        let head = ring.head().load(Ordering::Acquire);
        Consumer { ring, head, max_inline: max_inline as u32, first: None }
    }

    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    /// Whether the tail differs from the head. Only `record_at` finds out whether a valid record lies there.
    pub(crate) fn may_have_record(&self) -> bool {
        self.ring.tail().load(Ordering::Relaxed) != self.head
    }

    /// The oldest record, the same until it is released.
    pub(crate) fn first(&mut self) -> Result<Option<RawRecord>, Corrupt> {
        if self.first.is_none() {
            self.first = self.record_at(self.head)?;
        }
        Ok(self.first)
    }

    /// The record at `position`, which is the head or the end of a record; skips a pad.
    pub(crate) fn record_at(&self, position: u64) -> Result<Option<RawRecord>, Corrupt> {
        let tail = self.ring.tail().load(Ordering::Acquire);
        if !plausible(self.head, tail, self.ring.capacity()) {
            return Err(Corrupt::Indexes { head: self.head, tail });
        }
        let mut start = position;
        if start == tail {
            return Ok(None);
        }
        let mut header = self.ring.read_header(start);
        if header.kind == Header::PAD {
            start = (start / self.ring.capacity() + 1) * self.ring.capacity();
            if start.wrapping_add(ALIGN) > tail {
                return Err(Corrupt::Indexes { head: self.head, tail });
            }
            header = self.ring.read_header(start);
        }
        let inline = if header.slot == NO_CHUNK { header.len } else { 0 };
        let bad = Corrupt::Length { position: start, len: header.len };
        if inline > self.max_inline || header.kind == Header::PAD {
            return Err(bad);
        }
        let end = start + extent(inline);
        let wraps = start % self.ring.capacity() + extent(inline) > self.ring.capacity();
        if end > tail || wraps {
            return Err(bad);
        }
        Ok(Some(RawRecord { header, start, end }))
    }

    /// Releases everything before `position`. True if the producer waits for space, so that its bell must be
    /// rung.
    pub(crate) fn release_to(&mut self, position: u64) -> bool {
        (self.head, self.first) = (position, None);
        self.ring.head().store(position, Ordering::Release);
        fence(Ordering::SeqCst);
        let starved = self.ring.starved();
        starved.load(Ordering::Relaxed) != 0 && starved.swap(0, Ordering::SeqCst) != 0
    }
}
