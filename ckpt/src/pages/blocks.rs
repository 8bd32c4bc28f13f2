//! Blocks of memory that is mapped once and reused. The unsafe code of the arena is here.

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::num::NonZeroUsize;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The size of a block in bytes: that of a huge page.
pub(super) const BLOCK: usize = 2 << 20;

/// A fixed number of blocks. Clones share them.
#[derive(Clone)]
pub(super) struct Blocks(Arc<Mapping>);

struct Mapping {
    /// Of `blocks` blocks and one more, mapped for as long as this lives.
    base: NonNull<u8>,
    blocks: usize,
    free: Mutex<Vec<usize>>,
}

// SAFETY: the mapping belongs to the process; each block of it is reached only through the one `Block` that
// has its number, and numbers are handed out under the lock.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// A block that only its owner can reach; freed when dropped.
pub(super) struct Block {
    mapping: Arc<Mapping>,
    number: usize,
}

impl Blocks {
    /// Maps `bytes`, rounded down to whole blocks, without touching them.
    pub(super) fn map(bytes: u64) -> io::Result<Blocks> {
        let blocks = usize::try_from(bytes).unwrap_or(usize::MAX) / BLOCK;
        // One block more, so that all blocks can be aligned to huge pages.
        let Some(length) = blocks.checked_add(1).and_then(|blocks| blocks.checked_mul(BLOCK)) else {
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        let length = NonZeroUsize::new(length).expect("a block at least");
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let base =
            unsafe { mmap_anonymous(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, flags) }?;
        for advice in [MmapAdvise::MADV_HUGEPAGE, MmapAdvise::MADV_DONTFORK] {
            // SAFETY: neither advice changes the contents of the new mapping, which is not used yet.
            unsafe { madvise(base, length.get(), advice) }.ok();
        }
        let free = Mutex::new((0..blocks).rev().collect());
        Ok(Blocks(Arc::new(Mapping { base: base.cast(), blocks, free })))
    }

    pub(super) fn count(&self) -> usize {
        self.0.blocks
    }

    pub(super) fn count_free(&self) -> usize {
        locked(&self.0.free).len()
    }

    pub(super) fn take(&self) -> Option<Block> {
        let number = locked(&self.0.free).pop()?;
        Some(Block { mapping: Arc::clone(&self.0), number })
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mapping {
    fn block(&self, number: usize) -> NonNull<u8> {
        let padding = self.base.align_offset(BLOCK);
        // SAFETY: one block more is mapped than is used, and `number` is below `blocks`: this lies inside.
        unsafe { self.base.add(padding + number * BLOCK) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped; every block holds an `Arc` of this, so none is left.
        unsafe { munmap(self.base.cast(), (self.blocks + 1) * BLOCK) }.ok();
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: mapped while the mapping lives, zeroed by the kernel if never written, and reached by this
        // block only.
        unsafe { std::slice::from_raw_parts(self.mapping.block(self.number).as_ptr(), BLOCK) }
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and the block is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.block(self.number).as_ptr(), BLOCK) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        locked(&self.mapping.free).push(self.number);
    }
}
