//! Intake of a dump's pages: fills blocks of the arena one after the other. Each full block goes to a thread
//! that copies the queued pages of the tree into it. Pages that do not fit the arena go to a nameless file.
//!
//! ```text
//! serve ── append, queue_copy ──▶ open block ── full ──▶ threads: copy ──▶ Raw
//! ```

use super::arena::Arena;
use super::blocks::{BLOCK, Block};
use super::copy;
use super::raw::{Extent, Raw};
use super::wire::PAGE;
use crate::parallel;
use crate::private;
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};

/// Takes pages in the order of their arrival.
pub(super) struct Intake<'a> {
    arena: &'a Arena,
    dir: &'a Path,
    open: Option<OpenBlock>,
    full: Sender<OpenBlock>,
    blocks_full: u64,
    /// Continues where the blocks end.
    overflow: Option<File>,
    length: u64,
    buffer: Vec<u8>,
}

/// A block, and the pages to be copied into it.
struct OpenBlock {
    /// Offset of the block among all pages, in bytes.
    begin: u64,
    block: Block,
    extents: Vec<Extent>,
}

/// Runs `serve`, which fills an intake, and meanwhile copies the queued pages from the processes of a tree,
/// which are stopped.
pub(super) fn take_in<T>(
    tree: &BTreeMap<u32, Pid>,
    arena: &Arena,
    dir: &Path,
    serve: impl FnOnce(&mut Intake) -> io::Result<T>,
) -> io::Result<(T, Raw)> {
    let (full, entries) = channel::<OpenBlock>();
    let entries = Mutex::new(entries);
    let next = || entries.lock().unwrap_or_else(PoisonError::into_inner).recv().ok();
    let copied = |mut entry: OpenBlock| {
        copy::copy(&mut entry.block, entry.begin, &entry.extents, tree).map(|()| (entry.begin, entry.block))
    };
    let work = || std::iter::from_fn(next).map(copied).collect::<io::Result<Vec<_>>>();
    let threads = parallel::threads();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut intake = Intake::new(arena, dir, full);
        let served = serve(&mut intake);
        // Ending the intake closes the channel, and the threads end.
        let (overflow, length) = intake.end();
        let served = served?;
        let mut blocks = Vec::new();
        for worker in workers {
            blocks.extend(worker.join().expect("copying does not panic")?);
        }
        blocks.sort_by_key(|(begin, _)| *begin);
        Ok((served, Raw::new(blocks.into_iter().map(|(_, block)| block).collect(), overflow, length)))
    })
}

impl<'a> Intake<'a> {
    fn new(arena: &'a Arena, dir: &'a Path, full: Sender<OpenBlock>) -> Intake<'a> {
        Intake { arena, dir, open: None, full, blocks_full: 0, overflow: None, length: 0, buffer: Vec::new() }
    }

    fn end(mut self) -> (Option<File>, u64) {
        self.close_block();
        (self.overflow, self.length)
    }

    fn close_block(&mut self) {
        if let Some(entry) = self.open.take() {
            self.blocks_full += 1;
            // Cannot fail: the receiver outlives the threads, which end after the sender is dropped.
            self.full.send(entry).ok();
        }
    }

    /// The block for the next page and the offset in it; `None` if the page goes to the file.
    fn open(&mut self) -> io::Result<Option<(&mut OpenBlock, usize)>> {
        let at = self.length as usize % BLOCK;
        if self.overflow.is_none() && at == 0 {
            self.close_block();
            match self.arena.take() {
                Some(block) => {
                    self.open = Some(OpenBlock { begin: self.length, block, extents: Vec::new() });
                }
                None => self.overflow = Some(nameless(self.dir)?),
            }
        }
        Ok(self.open.as_mut().filter(|_| self.overflow.is_none()).map(|entry| (entry, at)))
    }

    /// Queues pages of a process to be copied; returns how many fit the arena.
    pub(super) fn queue_copy(&mut self, process: u32, address: u64, pages: u64) -> io::Result<u64> {
        let mut queued = 0;
        while queued < pages {
            let offset = self.length;
            let Some((entry, at)) = self.open()? else { break };
            let here = (pages - queued).min(((BLOCK - at) / PAGE) as u64);
            let address = address + queued * PAGE as u64;
            entry.extents.push(Extent { process, address, pages: here, offset });
            queued += here;
            self.length += here * PAGE as u64;
        }
        Ok(queued)
    }

    /// Reads `count` bytes from `source`.
    pub(super) fn append(&mut self, source: &mut impl Read, count: u64) -> io::Result<()> {
        let end = self.length + count;
        while self.length < end {
            let wanted = usize::try_from(end - self.length).unwrap_or(usize::MAX);
            let took = match self.open()? {
                Some((entry, at)) => {
                    read_some(source, &mut entry.block[at..BLOCK.min(at.saturating_add(wanted))])?
                }
                None => self.overflow(source, wanted)?,
            };
            self.length += took as u64;
        }
        Ok(())
    }

    fn overflow(&mut self, source: &mut impl Read, wanted: usize) -> io::Result<usize> {
        let file = self.overflow.as_ref().ok_or(io::ErrorKind::NotFound)?;
        self.buffer.resize(1 << 20, 0);
        let length = self.buffer.len().min(wanted);
        let took = read_some(source, &mut self.buffer[..length])?;
        file.write_all_at(&self.buffer[..took], self.length - self.blocks_full * BLOCK as u64)?;
        Ok(took)
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

/// Creates a file without a name, so that it vanishes when it is closed, even if this process is killed.
fn nameless(dir: &Path) -> io::Result<File> {
    let path = dir.join("pages.overflow");
    let file = private::create(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::super::raw::CHUNK;
    use super::*;

    /// Takes bytes of this process, some appended and some copied: the result must be the same.
    #[test]
    fn pages_that_do_not_fit_the_arena_go_to_a_file_and_nothing_is_mixed_up() {
        let dir = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..3 * BLOCK as u64 + 8192).map(|at| (at / 4096 % 251) as u8).collect();
        let tree = BTreeMap::from([(7, Pid::this())]);
        for (blocks, copied) in
            [0, 1, 3, 9].into_iter().flat_map(|blocks| [(blocks, 0), (blocks, 1), (blocks, 3)])
        {
            let arena = Arena::new((blocks * BLOCK) as u64).unwrap();
            let serve = |intake: &mut Intake| {
                for (number, part) in bytes.chunks(12_288).enumerate() {
                    let pages = if number % 4 < copied { (part.len() / PAGE) as u64 } else { 0 };
                    let queued = intake.queue_copy(7, part.as_ptr() as u64, pages)? as usize * PAGE;
                    intake.append(&mut &part[queued..], (part.len() - queued) as u64)?;
                }
                Ok(())
            };
            let ((), raw) = take_in(&tree, &arena, dir.path(), serve).unwrap();
            assert_eq!(raw.length(), bytes.len() as u64);
            assert_eq!((raw.blocks(), raw.has_overflow()), (blocks.min(4), blocks < 4));
            for (at, part) in bytes.chunks(CHUNK).enumerate() {
                let got = raw.get((at * CHUNK) as u64, part.len(), &mut Vec::new()).map(<[u8]>::to_vec);
                assert!(got.unwrap() == part, "chunk {at} with {blocks} blocks, {copied} of 4 parts copied");
            }
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn pages_that_end_early_or_cannot_be_read_are_an_error_and_the_blocks_are_freed() {
        let (dir, arena) = (tempfile::tempdir().unwrap(), Arena::new(2 * BLOCK as u64).unwrap());
        let tree = BTreeMap::from([(7, Pid::this())]);
        let short = take_in(&tree, &arena, dir.path(), |intake| intake.append(&mut &b"short"[..], 6));
        assert_eq!(short.err().unwrap().kind(), io::ErrorKind::UnexpectedEof);
        for (process, address) in [(7, 0x1000), (8, page_of(&dir))] {
            let queue = |intake: &mut Intake| intake.queue_copy(process, address, 1);
            assert!(take_in(&tree, &arena, dir.path(), queue).is_err());
        }
        assert_eq!(arena.available_bytes(), arena.bytes());
    }

    fn page_of<T>(value: &T) -> u64 {
        std::ptr::from_ref(value) as u64 & !(PAGE as u64 - 1)
    }
}
