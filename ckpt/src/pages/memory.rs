//! The deferred pages of a dumped tree, in memory, cut into chunks.

use super::raw::{CHUNK, CHUNK_PAGES, Raw};
use super::split::Stretch;
use super::wire::PAGE;
use std::io;
use std::ops::Range;

static ZEROS: [u8; PAGE] = [0; PAGE];

/// The memory of a dumped tree that is in no image yet: [`Memory::seal`] writes it next to them. Dropped before that,
/// it is lost, and the tree with it.
pub struct Memory {
    raw: Raw,
    /// In the order of their offsets.
    deferred: Vec<Stretch>,
}

/// Pages of a chunk that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) process: u32,
    pub(super) address: u64,
    pub(super) pages: u64,
    /// In bytes from the begin of the chunk.
    pub(super) at: usize,
}

impl Piece {
    pub(super) fn bytes(&self) -> usize {
        self.pages as usize * PAGE
    }
}

impl Memory {
    pub(super) fn new(raw: Raw, deferred: Vec<Stretch>) -> Memory {
        Memory { raw, deferred }
    }

    /// How much there is.
    pub fn bytes(&self) -> u64 {
        self.deferred.iter().map(|stretch| stretch.pages * PAGE as u64).sum()
    }

    pub(super) fn blocks(&self) -> usize {
        self.raw.blocks()
    }

    /// All of it is in the arena, and nothing in a file.
    pub(super) fn is_in_arena(&self) -> bool {
        !self.raw.has_overflow()
    }

    pub(super) fn chunks(&self) -> u64 {
        self.raw.length().div_ceil(CHUNK as u64)
    }

    /// What is deferred in these chunks, zero or not: process, address, how many pages.
    pub(super) fn pages(&self, chunks: Range<u64>) -> Vec<(u32, u64, u64)> {
        let (begin, end) = (chunks.start * CHUNK as u64, chunks.end * CHUNK as u64);
        let first = self.deferred.partition_point(|stretch| stretch.end() <= begin);
        let inside = self.deferred[first..].iter().take_while(|stretch| stretch.offset < end);
        let part = |stretch: &Stretch| {
            let (from, to) = (stretch.offset.max(begin), stretch.end().min(end));
            (stretch.process, stretch.address + (from - stretch.offset), (to - from) / PAGE as u64)
        };
        inside.map(part).collect()
    }

    /// The bytes of a chunk, and which of them are worth keeping: those that are deferred and not zero.
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
        let first = self.deferred.partition_point(|stretch| stretch.end() <= begin);
        for stretch in self.deferred[first..].iter().take_while(|stretch| stretch.offset < end) {
            let from = stretch.offset.max(begin);
            let pages = (from - begin) / PAGE as u64..(stretch.end().min(end) - begin) / PAGE as u64;
            for page in pages.filter(|page| !is_zero(*page)) {
                let at = page as usize * PAGE;
                let address = stretch.address + (begin + at as u64 - stretch.offset);
                match pieces.last_mut() {
                    Some(last)
                        if last.process == stretch.process
                            && last.at + last.bytes() == at
                            && last.address + last.bytes() as u64 == address =>
                    {
                        last.pages += 1;
                    }
                    _ => pieces.push(Piece { process: stretch.process, address, pages: 1, at }),
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
    use super::super::{Arena, intake};
    use super::*;

    #[test]
    fn pieces_are_what_is_deferred_and_not_zero_and_chunks_know_no_gaps() {
        let dir = tempfile::tempdir().unwrap();
        let arena = Arena::new(0).unwrap();
        let mut bytes = vec![1; CHUNK + 4 * PAGE];
        bytes[2 * PAGE..3 * PAGE].fill(0);
        let raw = intake::tests::raw(&bytes, &arena, dir.path());
        let stretch = |process, address, pages, at| Stretch { process, address, pages, offset: at * 4096 };
        let memory =
            Memory::new(raw, vec![stretch(1, 0x10000, 4, 1), stretch(2, 0x50000, 3, CHUNK_PAGES - 1)]);
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
