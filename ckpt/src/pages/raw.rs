//! Pages of a dump in the order of their arrival: in blocks of the arena, and in a nameless file if the arena
//! is full.

use super::blocks::{BLOCK, Block};
use super::wire::PAGE;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The unit of sealing, checking and restoring pages, in bytes. Divides a block, so that a chunk lies in one
/// block.
pub(super) const CHUNK: usize = 256 << 10;
pub(super) const CHUNK_PAGES: u64 = (CHUNK / PAGE) as u64;

/// A sequence of pages; filled once ([`super::intake`]), corrected by [`super::borrowed`], then only read.
pub(super) struct Raw {
    blocks: Vec<Block>,
    /// Continues where the blocks end.
    overflow: Option<File>,
    length: u64,
}

/// Pages of a process that are consecutive both in its memory and in a [`Raw`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) process: u32,
    pub(super) address: u64,
    pub(super) pages: u64,
    /// Of the first page in the [`Raw`], in bytes.
    pub(super) offset: u64,
}

impl Extent {
    /// The offset behind the last page, in bytes.
    pub(super) fn end(&self) -> u64 {
        self.offset + self.pages * PAGE as u64
    }
}

impl Raw {
    pub(super) fn new(blocks: Vec<Block>, overflow: Option<File>, length: u64) -> Raw {
        Raw { blocks, overflow, length }
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn has_overflow(&self) -> bool {
        self.overflow.is_some()
    }

    /// Overwrites bytes, all in one chunk.
    pub(super) fn put(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (block, at) = ((offset / BLOCK as u64) as usize, (offset % BLOCK as u64) as usize);
        let before = (self.blocks.len() * BLOCK) as u64;
        match (self.blocks.get_mut(block), &self.overflow) {
            (Some(block), _) => block[at..at + bytes.len()].copy_from_slice(bytes),
            (None, Some(file)) => file.write_all_at(bytes, offset - before)?,
            (None, None) => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        Ok(())
    }

    /// Returns the bytes from `offset` on, all in one chunk; `scratch` holds them if they are in the file.
    pub(super) fn get<'a>(
        &'a self,
        offset: u64,
        length: usize,
        scratch: &'a mut Vec<u8>,
    ) -> io::Result<&'a [u8]> {
        let (block, at) = ((offset / BLOCK as u64) as usize, (offset % BLOCK as u64) as usize);
        if let Some(block) = self.blocks.get(block) {
            return Ok(&block[at..at + length]);
        }
        let file = self.overflow.as_ref().ok_or(io::ErrorKind::UnexpectedEof)?;
        scratch.resize(length, 0);
        file.read_exact_at(scratch, offset - (self.blocks.len() * BLOCK) as u64)?;
        Ok(scratch)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// These bytes as received pages: all in blocks, or all in a file.
    pub(in super::super) fn raw(bytes: &[u8], in_blocks: bool) -> Raw {
        let length = bytes.len() as u64;
        if !in_blocks {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(bytes, 0).unwrap();
            return Raw::new(Vec::new(), Some(file), length);
        }
        let pool = super::super::blocks::Blocks::map(length.next_multiple_of(BLOCK as u64)).unwrap();
        let copied = bytes.chunks(BLOCK).map(|part| {
            let mut block = pool.take().unwrap();
            block[..part.len()].copy_from_slice(part);
            block
        });
        Raw::new(copied.collect(), None, length)
    }
}
