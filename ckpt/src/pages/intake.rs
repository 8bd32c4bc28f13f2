//! A dump's pages on their way into memory: blocks of the arena are filled one after the other, each is handed to a
//! thread that copies into it what is still to be copied, and what does not fit goes to a file that has no name.
//!
//! ```text
//! serve ── append, expect ──▶ open block ── full ──▶ threads: copy ──▶ Raw
//! ```

use super::arena::{Arena, BLOCK, Block};
use super::copy;
use super::raw::Raw;
use super::split::Stretch;
use super::wire::PAGE;
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};

/// Takes pages in their order.
pub(super) struct Intake<'a> {
    arena: &'a Arena,
    dir: &'a Path,
    open: Option<Entry>,
    full: Sender<Entry>,
    /// Blocks that were full.
    handed_on: u64,
    /// What does not fit: it follows the blocks.
    overflow: Option<File>,
    length: u64,
    buffer: Vec<u8>,
}

/// A block, and what is to be copied into it.
struct Entry {
    /// Its place among the pages, in bytes.
    begin: u64,
    block: Block,
    stretches: Vec<Stretch>,
}

/// Has `serve` fill an intake, and copies beside it what it expects of the processes of a tree, which are stopped.
pub(super) fn take_in<T>(
    tree: &BTreeMap<u32, Pid>,
    arena: &Arena,
    dir: &Path,
    serve: impl FnOnce(&mut Intake) -> io::Result<T>,
) -> io::Result<(T, Raw)> {
    let (full, entries) = channel::<Entry>();
    let entries = Mutex::new(entries);
    let next = || entries.lock().unwrap_or_else(PoisonError::into_inner).recv().ok();
    let copied = |mut entry: Entry| {
        copy::copy(&mut entry.block, entry.begin, &entry.stretches, tree).map(|()| (entry.begin, entry.block))
    };
    let work = || std::iter::from_fn(next).map(copied).collect::<io::Result<Vec<_>>>();
    let threads = crate::threads();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut intake = Intake::new(arena, dir, full);
        let served = serve(&mut intake);
        // No more entries, so that the threads end.
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
    fn new(arena: &'a Arena, dir: &'a Path, full: Sender<Entry>) -> Intake<'a> {
        Intake { arena, dir, open: None, full, handed_on: 0, overflow: None, length: 0, buffer: Vec::new() }
    }

    fn end(mut self) -> (Option<File>, u64) {
        self.hand_on();
        (self.overflow, self.length)
    }

    fn hand_on(&mut self) {
        if let Some(entry) = self.open.take() {
            self.handed_on += 1;
            // Its receiver lives until the threads have ended, and they wait for this.
            self.full.send(entry).ok();
        }
    }

    /// The block that the next page goes to and where in it, unless that is the file.
    fn open(&mut self) -> io::Result<Option<(&mut Entry, usize)>> {
        let at = self.length as usize % BLOCK;
        if self.overflow.is_none() && at == 0 {
            self.hand_on();
            match self.arena.take() {
                Some(block) => {
                    self.open = Some(Entry { begin: self.length, block, stretches: Vec::new() });
                }
                None => self.overflow = Some(nameless(self.dir)?),
            }
        }
        Ok(self.open.as_mut().filter(|_| self.overflow.is_none()).map(|entry| (entry, at)))
    }

    /// Has pages of a process copied; returns how many, as the arena may be full.
    pub(super) fn expect(&mut self, process: u32, address: u64, pages: u64) -> io::Result<u64> {
        let mut expected = 0;
        while expected < pages {
            let offset = self.length;
            let Some((entry, at)) = self.open()? else { break };
            let here = (pages - expected).min(((BLOCK - at) / PAGE) as u64);
            let address = address + expected * PAGE as u64;
            entry.stretches.push(Stretch { process, address, pages: here, offset });
            expected += here;
            self.length += here * PAGE as u64;
        }
        Ok(expected)
    }

    /// Takes `count` bytes from `source`.
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
        let room = self.buffer.len().min(wanted);
        let took = read_some(source, &mut self.buffer[..room])?;
        file.write_all_at(&self.buffer[..took], self.length - self.handed_on * BLOCK as u64)?;
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

/// It is gone when it is closed, whatever becomes of us.
fn nameless(dir: &Path) -> io::Result<File> {
    let path = dir.join("pages.overflow");
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::raw::CHUNK;
    use super::*;

    /// These bytes, as a dump of them.
    pub(in super::super) fn raw(bytes: &[u8], arena: &Arena, dir: &Path) -> Raw {
        let append = |intake: &mut Intake| intake.append(&mut &*bytes, bytes.len() as u64);
        take_in(&BTreeMap::new(), arena, dir, append).unwrap().1
    }

    /// Memory of ours, and the same bytes sent: which of them are appended and which are copied must not matter.
    #[test]
    fn what_does_not_fit_the_arena_goes_to_a_file_and_nothing_is_mixed_up() {
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
                    let expected = intake.expect(7, part.as_ptr() as u64, pages)? as usize * PAGE;
                    intake.append(&mut &part[expected..], (part.len() - expected) as u64)?;
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
    fn what_ends_early_or_cannot_be_read_is_an_error_and_the_blocks_are_given_back() {
        let (dir, arena) = (tempfile::tempdir().unwrap(), Arena::new(2 * BLOCK as u64).unwrap());
        let tree = BTreeMap::from([(7, Pid::this())]);
        let short = take_in(&tree, &arena, dir.path(), |intake| intake.append(&mut &b"short"[..], 6));
        assert_eq!(short.err().unwrap().kind(), io::ErrorKind::UnexpectedEof);
        for (process, address) in [(7, 0x1000), (8, bytes_of(&dir))] {
            assert!(take_in(&tree, &arena, dir.path(), |intake| intake.expect(process, address, 1)).is_err());
        }
        assert_eq!(arena.room(), arena.bytes());
    }

    fn bytes_of<T>(what: &T) -> u64 {
        std::ptr::from_ref(what) as u64 & !(PAGE as u64 - 1)
    }
}
