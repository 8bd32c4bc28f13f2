//! A slab: equal chunks for payloads too large for a ring.
//!
//! ```text
//!            lease (owner)            publish (owner)
//!   FREE ------------------> LEASED -----------------> PUBLISHED
//!     ^                        | give up (owner)           |
//!     +------------------------+---------------------------+  free (the one who consumed the record)
//! ```
//!
//! One state word per chunk in shared memory says all; the owner scans for a free one, lowest first, so that a few
//! chunks stay hot in the cache. The owner of an out slab is the rank, of an in slab the daemon.

use crate::segment::Segment;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

const FREE: u32 = 0;
const LEASED: u32 = 1;
const PUBLISHED: u32 = 2;

/// A view of one slab. Borrow it from the segment whenever it is needed: it holds nothing but addresses.
pub(crate) struct Slab<'a> {
    pub(crate) states: &'a [AtomicU32],
    /// Set by the owner that found no free chunk; cleared by whoever frees one and rings.
    pub(crate) starved: &'a AtomicU32,
    pub(crate) base: NonNull<u8>,
    pub(crate) chunk_bytes: usize,
}

impl<'a> Slab<'a> {
    pub(crate) fn lease(&self) -> Option<u32> {
        let found = self.find_free().or_else(|| {
            self.want_one();
            self.find_free()
        })?;
        self.states[found as usize].store(LEASED, Ordering::Relaxed);
        Some(found)
    }

    /// The owner waits for a chunk to come back.
    pub(crate) fn want_one(&self) {
        self.starved.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    fn find_free(&self) -> Option<u32> {
        self.states.iter().position(|state| state.load(Ordering::Acquire) == FREE).map(|chunk| chunk as u32)
    }

    pub(crate) fn is_free(&self, chunk: u32) -> bool {
        self.states[chunk as usize].load(Ordering::Acquire) == FREE
    }

    pub(crate) fn publish(&self, chunk: u32) {
        self.states[chunk as usize].store(PUBLISHED, Ordering::Release);
    }

    /// Takes back the publication of a chunk that no record names.
    pub(crate) fn unpublish(&self, chunk: u32) {
        self.states[chunk as usize].store(LEASED, Ordering::Relaxed);
    }

    /// Takes a leased chunk back. Does nothing to a chunk in another state.
    pub(crate) fn give_up(&self, chunk: u32) {
        let state = &self.states[chunk as usize];
        let _ = state.compare_exchange(LEASED, FREE, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Frees a consumed chunk; true if the owner waits for one and wants its bell rung.
    pub(crate) fn free(&self, chunk: u32) -> bool {
        self.states[chunk as usize].store(FREE, Ordering::Release);
        fence(Ordering::SeqCst);
        self.starved.load(Ordering::Relaxed) != 0 && self.starved.swap(0, Ordering::SeqCst) != 0
    }

    /// After a restore: chunks that were leased and never published belong to nobody.
    pub(crate) fn free_leased(&self) {
        (0..self.states.len() as u32).for_each(|chunk| self.give_up(chunk));
    }

    /// The first `len` bytes of a chunk named by a record, if the record can be true.
    pub(crate) fn published(&self, chunk: u32, len: u32) -> Option<&'a [u8]> {
        let state = self.states.get(chunk as usize)?;
        if state.load(Ordering::Acquire) != PUBLISHED || len as usize > self.chunk_bytes {
            return None;
        }
        // SAFETY: chunk and length are in range; a published chunk is not written to before its consumer, the
        // caller, frees it.
        Some(unsafe { std::slice::from_raw_parts(self.chunk(chunk).as_ptr(), len as usize) })
    }

    /// Address of a chunk that the caller has leased.
    pub(crate) fn chunk(&self, chunk: u32) -> NonNull<u8> {
        assert!((chunk as usize) < self.states.len(), "leased chunks exist");
        // SAFETY: the slab has states.len() chunks of chunk_bytes each.
        unsafe { self.base.add(chunk as usize * self.chunk_bytes) }
    }
}

/// Which slab of a local rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlabKind {
    /// Owned by the rank, for what it sends.
    Out,
    /// Owned by the daemon, for what it delivers to the rank.
    In,
}

/// Where the chunks named in a ring lie.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlabOf {
    pub(crate) local: u32,
    pub(crate) kind: SlabKind,
}

impl SlabOf {
    pub(crate) fn view(self, segment: &Segment) -> Slab<'_> {
        segment.slab(self)
    }
}
