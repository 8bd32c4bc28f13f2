//! Pages as they came: in blocks of the arena, and where that is full, in a file that has no name.

use super::arena::{Arena, BLOCK, Block};
use super::wire::PAGE;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What is sealed, checked and brought back as one. Divides a block, so that it lies in one.
pub(super) const CHUNK: usize = 256 << 10;
pub(super) const CHUNK_PAGES: u64 = (CHUNK / PAGE) as u64;

/// A sequence of pages; filled once, mended where [`super::borrowed`] says so, then only read.
#[derive(Default)]
pub(super) struct Raw {
    blocks: Vec<Block>,
    /// What did not fit: it follows the blocks.
    overflow: Option<File>,
    length: u64,
    buffer: Vec<u8>,
}

impl Raw {
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn has_overflow(&self) -> bool {
        self.overflow.is_some()
    }

    /// Takes `count` bytes from `source`, to the arena while it has room, then to a file in `dir`.
    pub(super) fn append(
        &mut self,
        source: &mut impl Read,
        count: u64,
        arena: &Arena,
        dir: &Path,
    ) -> io::Result<()> {
        let end = self.length + count;
        while self.length < end {
            let wanted = usize::try_from(end - self.length).unwrap_or(usize::MAX);
            let at = self.length as usize % BLOCK;
            if self.overflow.is_none() && at == 0 {
                match arena.take() {
                    Some(block) => self.blocks.push(block),
                    None => self.overflow = Some(nameless(dir)?),
                }
            }
            let took = match (&self.overflow, self.blocks.last_mut()) {
                (None, Some(block)) => {
                    read_some(source, &mut block[at..BLOCK.min(at.saturating_add(wanted))])?
                }
                (Some(file), _) => {
                    let before = self.length - (self.blocks.len() * BLOCK) as u64;
                    self.buffer.resize(1 << 20, 0);
                    let room = self.buffer.len().min(wanted);
                    let took = read_some(source, &mut self.buffer[..room])?;
                    file.write_all_at(&self.buffer[..took], before)?;
                    took
                }
                (None, None) => unreachable!("without a file, there is a block"),
            };
            self.length += took as u64;
        }
        Ok(())
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

fn read_some(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match source.read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            took => return took,
        }
    }
}

/// It is gone when it is closed, whatever becomes of us.
fn nameless(dir: &Path) -> io::Result<File> {
    let path = dir.join("pages.overflow");
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_the_arena_goes_to_a_file_and_nothing_is_mixed_up() {
        let dir = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..3 * BLOCK as u64 + 8192).map(|at| (at / 4096 % 251) as u8).collect();
        for blocks in [0, 1, 3, 9] {
            let arena = Arena::new((blocks * BLOCK) as u64).unwrap();
            let mut raw = Raw::default();
            for part in bytes.chunks(12_288) {
                raw.append(&mut &*part, part.len() as u64, &arena, dir.path()).unwrap();
            }
            assert_eq!(raw.length(), bytes.len() as u64);
            assert_eq!((raw.blocks(), raw.has_overflow()), (blocks.min(4), blocks < 4));
            for (at, part) in bytes.chunks(CHUNK).enumerate() {
                let got = raw.get((at * CHUNK) as u64, part.len(), &mut Vec::new()).map(<[u8]>::to_vec);
                assert!(got.unwrap() == part, "chunk {at} with {blocks} blocks");
            }
            assert!(raw.append(&mut &b"short"[..], 6, &arena, dir.path()).is_err());
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
