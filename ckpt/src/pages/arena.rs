//! Memory that is always there: bounded, touched once, used again and again.
//!
//! A dump is as fast as the memory it goes to, and a fresh page costs more than copying it: a fault, and on a virtual
//! machine perhaps a second one below. So the arena is mapped and touched once, in blocks that dumps take and give
//! back. What has been sealed stays in its blocks, for a restore that comes soon, until a dump needs them: the image
//! that was sealed longest ago goes first.

use super::Memory;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};
use std::collections::VecDeque;
use std::io;
use std::num::NonZeroUsize;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// As large as a huge page.
pub(super) const BLOCK: usize = 2 << 20;

/// The arena of a process. Cheap to clone; all clones are the same one.
#[derive(Clone)]
pub struct Arena {
    inner: Arc<Inner>,
    /// What is sealed and could be had from a disk as well, longest ago first.
    sealed: Arc<Mutex<Sealed>>,
}

type Sealed = VecDeque<(PathBuf, Arc<Memory>)>;

struct Inner {
    /// Of `blocks` blocks, mapped for as long as this lives.
    base: NonNull<u8>,
    blocks: usize,
    free: Mutex<Vec<usize>>,
}

// SAFETY: the mapping belongs to the process; each block of it is reached only through the one `Block` that has its
// number, and numbers are handed out under the lock.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// A block, its holder's alone; given back when dropped.
pub(super) struct Block {
    arena: Arc<Inner>,
    number: usize,
}

impl Arena {
    /// Maps `bytes`, rounded down to whole blocks; none are a good arena too: everything goes to files then. The
    /// memory is not touched yet: see [`Arena::warm`].
    pub fn new(bytes: u64) -> io::Result<Arena> {
        let blocks = usize::try_from(bytes).unwrap_or(usize::MAX) / BLOCK;
        // A block more, so that all can begin where a huge page does.
        let Some(length) = blocks.checked_add(1).and_then(|blocks| blocks.checked_mul(BLOCK)) else {
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        let length = NonZeroUsize::new(length).expect("a block at least");
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let base =
            unsafe { mmap_anonymous(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, flags) }?;
        for advice in [MmapAdvise::MADV_HUGEPAGE, MmapAdvise::MADV_DONTFORK] {
            // SAFETY: neither changes what the new mapping, which nobody uses yet, contains.
            unsafe { madvise(base, length.get(), advice) }.ok();
        }
        let free = Mutex::new((0..blocks).rev().collect());
        Ok(Arena { inner: Arc::new(Inner { base: base.cast(), blocks, free }), sealed: Arc::default() })
    }

    /// Touches all that is free, so that the first dump has not to. Takes as long as the machine needs to find the
    /// memory, and from then on the process holds it.
    pub fn warm(&self) {
        let mut blocks: Vec<Block> = std::iter::from_fn(|| self.take_free()).collect();
        blocks.iter_mut().for_each(|block| block.fill(0));
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        (self.inner.blocks * BLOCK) as u64
    }

    /// How much of it could be taken now, be it that sealed images have to go.
    pub fn room(&self) -> u64 {
        let sealed: usize = locked(&self.sealed).iter().map(|(_, memory)| memory.blocks()).sum();
        ((locked(&self.inner.free).len() + sealed) * BLOCK) as u64
    }

    /// A free block; where there is none, sealed images go until there is.
    pub(super) fn take(&self) -> Option<Block> {
        loop {
            if let Some(block) = self.take_free() {
                return Some(block);
            }
            // Dropped after the lock is: it gives its blocks back.
            let oldest = locked(&self.sealed).pop_front();
            oldest?;
        }
    }

    fn take_free(&self) -> Option<Block> {
        let number = locked(&self.inner.free).pop()?;
        Some(Block { arena: Arc::clone(&self.inner), number })
    }

    /// Keeps what has been sealed in that directory for as long as its blocks are not needed, instead of what was
    /// there before; all of it, or nothing.
    pub(crate) fn keep(&self, dir: &Path, memory: Memory) {
        self.forget(dir);
        if memory.is_in_arena() {
            locked(&self.sealed).push_back((dir.to_owned(), Arc::new(memory)));
        }
    }

    /// What was sealed in that directory, if it is still here.
    pub(crate) fn find(&self, dir: &Path) -> Option<Arc<Memory>> {
        let sealed = locked(&self.sealed);
        sealed.iter().find(|(kept, _)| kept == dir).map(|(_, memory)| Arc::clone(memory))
    }

    /// Gives the blocks of that directory's image back.
    fn forget(&self, dir: &Path) {
        let mut sealed = locked(&self.sealed);
        let forgotten = sealed.iter().position(|(kept, _)| kept == dir).and_then(|at| sealed.remove(at));
        drop(sealed);
        drop(forgotten);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    fn block(&self, number: usize) -> NonNull<u8> {
        let padding = self.base.align_offset(BLOCK);
        // SAFETY: one block more is mapped than is used, and `number` is below `blocks`: this lies inside.
        unsafe { self.base.add(padding + number * BLOCK) }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped; every block holds an `Arc` of this, so none is left.
        unsafe { munmap(self.base.cast(), (self.blocks + 1) * BLOCK) }.ok();
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: mapped while the arena lives, zeroed by the kernel if never written, and reached by this block only.
        unsafe { std::slice::from_raw_parts(self.arena.block(self.number).as_ptr(), BLOCK) }
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and the block is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.arena.block(self.number).as_ptr(), BLOCK) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        locked(&self.arena.free).push(self.number);
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Arena({} bytes, room for {})", self.bytes(), self.room())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_taken_once_given_back_and_never_more_than_there_are() {
        let arena = Arena::new(3 * BLOCK as u64 + 5).unwrap();
        arena.warm();
        assert_eq!((arena.bytes(), arena.room()), (3 * BLOCK as u64, 3 * BLOCK as u64));
        let mut blocks: Vec<Block> = std::iter::from_fn(|| arena.take()).collect();
        assert_eq!((blocks.len(), arena.room()), (3, 0));
        for (value, block) in (1..).zip(&mut blocks) {
            block.fill(value);
        }
        assert!((1..).zip(&blocks).all(|(value, block)| block.iter().all(|byte| *byte == value)));
        blocks.pop();
        assert!(arena.take().is_some() && Arena::new(0).unwrap().take().is_none());
    }
}
