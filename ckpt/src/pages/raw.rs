//! Pages as they came: in blocks of the arena, and where that is full, in a file that has no name.

use super::arena::{BLOCK, Block};
use super::wire::PAGE;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// What is sealed, checked and brought back as one. Divides a block, so that it lies in one.
pub(super) const CHUNK: usize = 256 << 10;
pub(super) const CHUNK_PAGES: u64 = (CHUNK / PAGE) as u64;

/// A sequence of pages; filled once ([`super::intake`]), mended where [`super::borrowed`] says so, then only read.
pub(super) struct Raw {
    blocks: Vec<Block>,
    /// What did not fit: it follows the blocks.
    overflow: Option<File>,
    length: u64,
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

    /// Replaces bytes that came before, all in one chunk.
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

    /// The bytes from `offset` on, all in one chunk; `scratch` holds them if they are in the file.
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
