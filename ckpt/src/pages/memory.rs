//! Deferred pages of a dumped tree in memory, cut into chunks.

use super::raw::{CHUNK, CHUNK_PAGES, Extent, Raw};
use super::wire::PAGE;
use std::io;
use std::ops::Range;

static ZEROS: [u8; PAGE] = [0; PAGE];

/// The deferred pages of a dumped tree. [`Memory::seal`] writes them next to the images; if it is dropped
/// before, they are lost, and the tree with them.
pub struct Memory {
    raw: Raw,
    /// In the order of their offsets.
    deferred: Vec<Extent>,
}

/// Pages that are consecutive both in a process's memory and in a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) process: u32,
    pub(super) address: u64,
    pub(super) pages: u64,
    /// Offset in the chunk, in bytes.
    pub(super) at: usize,
}

impl Piece {
    pub(super) fn bytes(&self) -> usize {
        self.pages as usize * PAGE
    }
}

impl Memory {
    pub(super) fn new(raw: Raw, deferred: Vec<Extent>) -> Memory {
        Memory { raw, deferred }
    }

    pub fn bytes(&self) -> u64 {
        self.deferred.iter().map(|extent| extent.pages * PAGE as u64).sum()
    }

    pub(super) fn blocks(&self) -> usize {
        self.raw.blocks()
    }

    /// Whether all of it is in the arena and nothing in a file.
    pub(super) fn is_in_arena(&self) -> bool {
        !self.raw.has_overflow()
    }

    pub(super) fn chunks(&self) -> u64 {
        self.raw.length().div_ceil(CHUNK as u64)
    }

    /// The deferred pages in these chunks, pages of zeros included: process, address, number of pages.
    pub(super) fn pages(&self, chunks: Range<u64>) -> Vec<(u32, u64, u64)> {
        let (begin, end) = (chunks.start * CHUNK as u64, chunks.end * CHUNK as u64);
        let first = self.deferred.partition_point(|extent| extent.end() <= begin);
        let inside = self.deferred[first..].iter().take_while(|extent| extent.offset < end);
        let part = |extent: &Extent| {
            let (from, to) = (extent.offset.max(begin), extent.end().min(end));
            (extent.process, extent.address + (from - extent.offset), (to - from) / PAGE as u64)
        };
        inside.map(part).collect()
    }

    /// The bytes of a chunk, and the deferred pages in it that are not zero.
    pub(super) fn chunk<'a>(
        &'a self,
        number: u64,
        scratch: &'a mut Vec<u8>,
    ) -> io::Result<(&'a [u8], Vec<Piece>)> {
        let begin = number * CHUNK as u64;
        let end = (begin + CHUNK as u64).min(self.raw.length());
        let bytes = self.raw.get(begin, (end - begin) as usize, scratch)?;
        let is_zero = |page: u64| bytes[page as usize * PAGE..][..PAGE] == ZEROS;
        let mut pieces: Vec<Piece> = Vec::new();
        let first = self.deferred.partition_point(|extent| extent.end() <= begin);
        for extent in self.deferred[first..].iter().take_while(|extent| extent.offset < end) {
            let from = extent.offset.max(begin);
            let pages = (from - begin) / PAGE as u64..(extent.end().min(end) - begin) / PAGE as u64;
            for page in pages.filter(|page| !is_zero(*page)) {
                let at = page as usize * PAGE;
                let address = extent.address + (begin + at as u64 - extent.offset);
                match pieces.last_mut() {
                    Some(last)
                        if last.process == extent.process
                            && last.at + last.bytes() == at
                            && last.address + last.bytes() as u64 == address =>
                    {
                        last.pages += 1;
                    }
                    _ => pieces.push(Piece { process: extent.process, address, pages: 1, at }),
                }
            }
        }
        debug_assert!(pieces.iter().map(|piece| piece.pages).sum::<u64>() <= CHUNK_PAGES);
        Ok((bytes, pieces))
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory({} bytes)", self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::super::raw::tests::raw;
    use super::*;

    #[test]
    fn pieces_are_the_deferred_pages_that_are_not_zero() {
        let mut bytes = vec![1; CHUNK + 4 * PAGE];
        bytes[2 * PAGE..3 * PAGE].fill(0);
        let raw = raw(&bytes, false);
        let extent = |process, address, pages, at| Extent { process, address, pages, offset: at * 4096 };
        let memory = Memory::new(raw, vec![extent(1, 0x10000, 4, 1), extent(2, 0x50000, 3, CHUNK_PAGES - 1)]);
        let pieces = |number| memory.chunk(number, &mut Vec::new()).unwrap().1;
        let piece = |process, address, pages, at: usize| Piece { process, address, pages, at: at * PAGE };
        assert_eq!(memory.chunks(), 2);
        let (whole, part) = ((1, 0x10000, 4), |address, pages| (2, address, pages));
        assert_eq!(memory.pages(0..1), [whole, part(0x50000, 1)]);
        assert_eq!(memory.pages(1..2), [part(0x51000, 2)]);
        assert_eq!(memory.pages(0..2), [whole, part(0x50000, 3)]);
        let last = CHUNK / PAGE - 1;
        assert_eq!(pieces(0), [piece(1, 0x10000, 1, 1), piece(1, 0x12000, 2, 3), piece(2, 0x50000, 1, last)]);
        assert_eq!(pieces(1), [piece(2, 0x51000, 2, 0)]);
    }
}
