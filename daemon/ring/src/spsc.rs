//! One ring of records with one producer and one consumer, over shared memory.
//!
//! ```text
//! control (4 cache lines): tail (producer writes) | head (consumer writes) | starved | unused
//! data: [header 64 B][inline payload, rounded up to 64 B] ... never wrapping, see `place`
//! ```
//!
//! Each side keeps its own index privately too, and the last value it saw of the other one, which can only be too
//! old and never wrong. Both are read from shared memory when the side is made, so a side can be made again at any
//! time (while no other instance of it lives).

use crate::header::{HEADER_BYTES, Header, NO_CHUNK};
use crate::layout::RING_CONTROL_BYTES;
use crate::place::{ALIGN, extent, place, plausible};
use crate::segment::Segment;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

const TAIL: usize = 0;
const HEAD: usize = 64;
const STARVED: usize = 128;

/// Shared memory says something that cannot be: the other side is broken or hostile. Retrying does not help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Corrupt {
    /// Head and tail cannot both be true.
    #[error("ring indexes make no sense: head {head}, tail {tail}")]
    Indexes {
        /// Consumer's index.
        head: u64,
        /// Producer's index.
        tail: u64,
    },
    /// A record is longer than its ring, or than a payload may be.
    #[error("record of {len} bytes at {position} leaves its ring")]
    Length {
        /// Where it begins.
        position: u64,
        /// Its claimed length.
        len: u32,
    },
    /// A record names a chunk that does not exist, is not published or is shorter than the payload.
    #[error("record names chunk {chunk} for {len} bytes, which is not published or too small")]
    Chunk {
        /// The chunk named.
        chunk: u32,
        /// Payload bytes claimed.
        len: u32,
    },
}

/// Where a ring lies in its segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingAt {
    pub(crate) offset: usize,
    pub(crate) capacity: u32,
}

/// A ring in a mapped segment; keeps the mapping alive.
#[derive(Debug)]
struct Ring {
    _mapped: Arc<Segment>,
    control: NonNull<u8>,
    data: NonNull<u8>,
    capacity: u64,
}

// SAFETY: the pointers lead into the mapping, which is valid in all threads and kept alive by the Arc.
unsafe impl Send for Ring {}
// SAFETY: shared methods only use atomics; the data bytes are touched by the one producer and the one consumer.
unsafe impl Sync for Ring {}

impl Ring {
    fn new(segment: Arc<Segment>, at: RingAt) -> Ring {
        let control = segment.mapping().at(at.offset, RING_CONTROL_BYTES);
        let data = segment.mapping().at(at.offset + RING_CONTROL_BYTES, at.capacity as usize);
        Ring { control, data, capacity: at.capacity.into(), _mapped: segment }
    }

    fn tail(&self) -> &AtomicU64 {
        // SAFETY: the control block is RING_CONTROL_BYTES long, cache-line aligned, and lives as long as self.
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

    /// Address of a position; at least `ALIGN` bytes follow it, because positions are multiples of it.
    fn at(&self, position: u64) -> NonNull<u8> {
        debug_assert!(position.is_multiple_of(ALIGN));
        // SAFETY: the capacity is a power of two, so the masked position lies in the data.
        unsafe { self.data.add((position & (self.capacity - 1)) as usize) }
    }
}

/// The writing side.
#[derive(Debug)]
pub(crate) struct Producer {
    ring: Ring,
    tail: u64,
    head_seen: u64,
}

impl Producer {
    pub(crate) fn new(segment: Arc<Segment>, at: RingAt) -> Producer {
        let ring = Ring::new(segment, at);
        let tail = ring.tail().load(Ordering::Acquire);
        let head_seen = ring.head().load(Ordering::Acquire);
        Producer { ring, tail, head_seen }
    }

    /// Appends a record whose payload is in `parts` (inline) or in the chunk `header.slot` names (no parts).
    /// `Ok(false)`: no room now; the consumer will report when it makes some.
    pub(crate) fn push(&mut self, header: &Header, parts: &[&[u8]]) -> Result<bool, Corrupt> {
        let inline = if header.slot == NO_CHUNK { header.len } else { 0 };
        assert_eq!(
            parts.iter().map(|part| part.len()).sum::<usize>(),
            inline as usize,
            "header tells the length"
        );
        let need = extent(inline);
        assert!(need <= self.ring.capacity / 2, "records are at most half a ring long");
        let Some(placement) = self.find_room(need)? else { return Ok(false) };
        if let Some(pad) = placement.pad {
            self.write_header(pad, &Header { kind: Header::PAD, ..Header::EMPTY });
        }
        let mut at = placement.start + HEADER_BYTES as u64;
        for part in parts {
            // SAFETY: `place` found `need` contiguous bytes from `start` on that the consumer has released; the sum
            // of the parts is the inline length, so all of them end within. The source is a slice of ours.
            unsafe {
                let target = self.ring.data.add((at & (self.ring.capacity - 1)) as usize);
                std::ptr::copy_nonoverlapping(part.as_ptr(), target.as_ptr(), part.len());
            }
            at += part.len() as u64;
        }
        self.write_header(placement.start, header);
        self.tail = placement.end;
        self.ring.tail().store(self.tail, Ordering::Release);
        Ok(true)
    }

    fn find_room(&mut self, need: u64) -> Result<Option<crate::place::Placement>, Corrupt> {
        let capacity = self.ring.capacity;
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
        if !plausible(head, self.tail, self.ring.capacity) {
            return Err(Corrupt::Indexes { head, tail: self.tail });
        }
        self.head_seen = head;
        Ok(head)
    }

    fn write_header(&self, position: u64, header: &Header) {
        // SAFETY: a position in the ring is followed by at least 64 bytes; these are free for the producer.
        unsafe { self.ring.at(position).cast::<Header>().write(*header) };
    }
}

/// A record as the consumer sees it. The payload stays where it is until the record is released.
#[derive(Debug)]
pub struct Record<'a> {
    /// The header, with `slot` cleared.
    pub header: Header,
    /// The payload, in the ring or in a slab chunk.
    pub payload: &'a [u8],
}

/// A checked record, its payload not yet looked up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawRecord {
    pub(crate) header: Header,
    start: u64,
    pub(crate) end: u64,
}

/// The reading side.
#[derive(Debug)]
pub(crate) struct Consumer {
    ring: Ring,
    head: u64,
    max_inline: u32,
}

impl Consumer {
    pub(crate) fn new(segment: Arc<Segment>, at: RingAt, max_inline: usize) -> Consumer {
        let ring = Ring::new(segment, at);
        let head = ring.head().load(Ordering::Acquire);
        Consumer { ring, head, max_inline: max_inline as u32 }
    }

    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    /// Whether something lies behind the head. May be a pad only, or nonsense; `record_at` tells.
    pub(crate) fn has_news(&self) -> bool {
        self.ring.tail().load(Ordering::Relaxed) != self.head
    }

    /// The record at or behind `position`, which is the head or the end of a record.
    pub(crate) fn record_at(&self, position: u64) -> Result<Option<RawRecord>, Corrupt> {
        let tail = self.ring.tail().load(Ordering::Acquire);
        if !plausible(self.head, tail, self.ring.capacity) {
            return Err(Corrupt::Indexes { head: self.head, tail });
        }
        let mut start = position;
        if start == tail {
            return Ok(None);
        }
        let mut header = self.read_header(start);
        if header.kind == Header::PAD {
            start = (start / self.ring.capacity + 1) * self.ring.capacity;
            if start.wrapping_add(ALIGN) > tail {
                return Err(Corrupt::Indexes { head: self.head, tail });
            }
            header = self.read_header(start);
        }
        let inline = if header.slot == NO_CHUNK { header.len } else { 0 };
        let bad = Corrupt::Length { position: start, len: header.len };
        if inline > self.max_inline || header.kind == Header::PAD {
            return Err(bad);
        }
        let end = start + extent(inline);
        let wraps = start % self.ring.capacity + extent(inline) > self.ring.capacity;
        if end > tail || wraps {
            return Err(bad);
        }
        Ok(Some(RawRecord { header, start, end }))
    }

    fn read_header(&self, position: u64) -> Header {
        // SAFETY: a position in the ring is followed by at least 64 bytes; any bit pattern is a Header.
        unsafe { self.ring.at(position).cast::<Header>().read() }
    }

    /// The inline payload of a record that has not been released.
    pub(crate) fn inline_payload(&self, record: &RawRecord) -> &[u8] {
        // SAFETY: `record_at` checked that header and payload lie in the ring without wrapping, and the producer
        // does not touch them before they are released, which needs `&mut self`.
        unsafe {
            let payload = self.ring.at(record.start).add(HEADER_BYTES);
            std::slice::from_raw_parts(payload.as_ptr(), record.header.len as usize)
        }
    }

    /// Releases everything before `position`; true if the producer waits for room and wants its bell rung.
    pub(crate) fn release_to(&mut self, position: u64) -> bool {
        self.head = position;
        self.ring.head().store(position, Ordering::Release);
        fence(Ordering::SeqCst);
        let starved = self.ring.starved();
        starved.load(Ordering::Relaxed) != 0 && starved.swap(0, Ordering::SeqCst) != 0
    }
}
