//! A slab: chunks of equal size for payloads that are too large for a ring.
//!
//! ```text
//!            lease (owner)            publish (owner)
//!   FREE ------------------> LEASED -----------------> PUBLISHED
//!     ^                        | release (owner)           |
//!     +------------------------+---------------------------+  free (consumer of the record)
//! ```
//!
//! The state is one word per chunk in shared memory. The owner looks for a free chunk from the lowest number
//! on, so that a few chunks stay in the cache. The rank owns its out slab, the daemon the rank's in slab.

use crate::shared::SharedBytes;
use crate::sync::{AtomicU32, Ordering, fence};

const FREE: u32 = 0;
const LEASED: u32 = 1;
const PUBLISHED: u32 = 2;

/// A view of one slab. It holds only addresses, so callers borrow a new one whenever they need it.
pub(crate) struct Slab<'a> {
    pub(crate) states: &'a [AtomicU32],
    /// Set by an owner that found no free chunk; cleared by the consumer that frees one and rings the owner's
    /// bell.
    pub(crate) starved: &'a AtomicU32,
    pub(crate) bytes: SharedBytes<'a>,
    pub(crate) chunk_bytes: usize,
}

impl<'a> Slab<'a> {
    pub(crate) fn lease(&self) -> Option<u32> {
        let found = self.find_free().or_else(|| {
            self.mark_starved();
            self.find_free()
        })?;
        self.states[found as usize].store(LEASED, Ordering::Relaxed);
        Some(found)
    }

    /// Asks the consumers to ring the owner's bell when they free a chunk.
    pub(crate) fn mark_starved(&self) {
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

    /// Makes a published chunk that no record names leased again.
    pub(crate) fn unpublish(&self, chunk: u32) {
        self.states[chunk as usize].store(LEASED, Ordering::Relaxed);
    }

    /// Frees a leased chunk. Does nothing to a chunk in another state.
    pub(crate) fn release(&self, chunk: u32) {
        let state = &self.states[chunk as usize];
        let _ = state.compare_exchange(LEASED, FREE, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Frees a consumed chunk. True if the owner waits for one, so that its bell must be rung.
    pub(crate) fn free(&self, chunk: u32) -> bool {
        self.states[chunk as usize].store(FREE, Ordering::Release);
        fence(Ordering::SeqCst);
        self.starved.load(Ordering::Relaxed) != 0 && self.starved.swap(0, Ordering::SeqCst) != 0
    }

    /// Frees all leased chunks: after a restore they have no holder.
    pub(crate) fn free_leased(&self) {
        (0..self.states.len() as u32).for_each(|chunk| self.release(chunk));
    }

    /// The first `len` bytes of a chunk that a record names; `None` if the chunk is not published or too
    /// small.
    pub(crate) fn published(&self, chunk: u32, len: u32) -> Option<SharedBytes<'a>> {
        let state = self.states.get(chunk as usize)?;
        if state.load(Ordering::Acquire) != PUBLISHED || len as usize > self.chunk_bytes {
            return None;
        }
        Some(self.chunk(chunk).first(len as usize))
    }

    /// Panics if the chunk is outside the slab.
    pub(crate) fn chunk(&self, chunk: u32) -> SharedBytes<'a> {
        self.bytes.skip(chunk as usize * self.chunk_bytes).first(self.chunk_bytes)
    }
}

/// Direction of a slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlabKind {
    /// Owned by the rank, for payloads that it sends.
    Out,
    /// Owned by the daemon, for payloads that it delivers to the rank.
    In,
}

/// Names one slab of a segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlabId {
    pub(crate) local: u32,
    pub(crate) kind: SlabKind,
}
