//! Arena: a bounded amount of memory that takes the pages of dumps, touched once and reused.
//!
//! A dump is as fast as the memory it writes to, and a fresh page costs more than copying it: a page fault,
//! and on a virtual machine perhaps a second one in the host. So the arena is mapped and touched once, in
//! blocks that dumps take and free. Sealed pages stay in their blocks for a restore that comes soon. When a
//! dump needs the blocks, the pages that were sealed longest ago are dropped first.

use super::blocks::{BLOCK, Block, Blocks, locked};
use super::memory::Memory;
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The arena of a process. Clones share it.
#[derive(Clone)]
pub struct Arena {
    blocks: Blocks,
    /// Pages that are also in sealed images, by the directory of the images; sealed longest ago first.
    kept: Arc<Mutex<Kept>>,
}

type Kept = VecDeque<(PathBuf, Arc<Memory>)>;

impl Arena {
    /// Maps `bytes`, rounded down to whole blocks. An arena without blocks works as well: all pages go to
    /// files. The memory is not touched yet: see [`Arena::warm`].
    pub fn new(bytes: u64) -> io::Result<Arena> {
        Ok(Arena { blocks: Blocks::map(bytes)?, kept: Arc::default() })
    }

    /// Touches all free memory, so that the first dump need not. Takes as long as the machine needs to
    /// provide the memory, which the process holds from then on.
    pub fn warm(&self) {
        let mut blocks: Vec<Block> = std::iter::from_fn(|| self.blocks.take()).collect();
        blocks.iter_mut().for_each(|block| block.fill(0));
    }

    pub fn bytes(&self) -> u64 {
        (self.blocks.count() * BLOCK) as u64
    }

    /// How many bytes dumps can take now; sealed pages count, because they can be dropped.
    pub fn available_bytes(&self) -> u64 {
        let kept: usize = locked(&self.kept).iter().map(|(_, memory)| memory.blocks()).sum();
        ((self.blocks.count_free() + kept) * BLOCK) as u64
    }

    /// Takes a free block; if there is none, drops sealed pages until there is.
    pub(super) fn take(&self) -> Option<Block> {
        loop {
            if let Some(block) = self.blocks.take() {
                return Some(block);
            }
            // Dropped, which frees its blocks, after the lock is released.
            let oldest = locked(&self.kept).pop_front();
            oldest?;
        }
    }

    /// Keeps the pages that were sealed in that directory until their blocks are needed, instead of earlier
    /// pages of that directory. Pages that are partly in a file are not kept.
    pub(crate) fn keep(&self, dir: &Path, memory: Memory) {
        self.forget(dir);
        if memory.is_in_arena() {
            locked(&self.kept).push_back((dir.to_owned(), Arc::new(memory)));
        }
    }

    /// The pages that were sealed in that directory, if they are still kept.
    pub(crate) fn find(&self, dir: &Path) -> Option<Arc<Memory>> {
        let kept = locked(&self.kept);
        kept.iter().find(|(of, _)| of == dir).map(|(_, memory)| Arc::clone(memory))
    }

    fn forget(&self, dir: &Path) {
        let mut kept = locked(&self.kept);
        let forgotten = kept.iter().position(|(of, _)| of == dir).and_then(|at| kept.remove(at));
        drop(kept);
        drop(forgotten);
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Arena({} bytes, {} available)", self.bytes(), self.available_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_taken_once_and_can_be_taken_again_when_it_was_freed() {
        let arena = Arena::new(3 * BLOCK as u64 + 5).unwrap();
        arena.warm();
        assert_eq!((arena.bytes(), arena.available_bytes()), (3 * BLOCK as u64, 3 * BLOCK as u64));
        let mut blocks: Vec<Block> = std::iter::from_fn(|| arena.take()).collect();
        assert_eq!((blocks.len(), arena.available_bytes()), (3, 0));
        for (value, block) in (1..).zip(&mut blocks) {
            block.fill(value);
        }
        assert!((1..).zip(&blocks).all(|(value, block)| block.iter().all(|byte| *byte == value)));
        blocks.pop();
        assert!(arena.take().is_some() && Arena::new(0).unwrap().take().is_none());
    }
}
