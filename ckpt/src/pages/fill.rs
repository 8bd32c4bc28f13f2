//! Fills deferred pages into restored processes while they are stopped.
//!
//! Several threads write the pages from outside; each chunk from a file is checked before. The alternative
//! was userfaultfd (docs/decisions/0001): it takes two thirds of the time for each page, but the restored
//! processes, and CRIU's own restorer, would wait for the process that serves the pages.

use super::huge::Huge;
use super::index::{self, Chunk, INDEX, PAGES, Unusable};
use super::memory::{Memory, Piece};
use crate::files;
use crate::keys::{FileKey, SnapshotKeys};
use crate::manifest::FileRecord;
use crate::sealed::{self, OpenError};
use crate::{parallel, private, processes};
use nix::sys::uio::{RemoteIoVec, process_vm_writev};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// The most chunks that a thread takes at a time. Large groups need fewer calls for huge pages.
const GROUP: u64 = 64;

/// Why not all pages were filled in.
#[derive(Debug, thiserror::Error)]
pub enum FillError {
    #[error(transparent)]
    Unusable(#[from] Unusable),
    #[error("read pages: {0}")]
    Read(io::Error),
    /// Pages belong to a process that was not restored.
    #[error("pages of process {0}, which is not there")]
    NoProcess(u32),
    #[error("write {bytes} bytes at {address:#x} of process {process}: {source}")]
    Write { process: i32, address: u64, bytes: usize, source: io::Error },
    #[error("the pages were not given back in time")]
    TimedOut,
}

/// The pages of a tree as they were sealed in a directory, and what opens them.
#[derive(Clone, Debug)]
pub struct SealedPages {
    /// By which an arena knows them.
    pub(crate) dir: PathBuf,
    pages: FileKey,
    index: FileKey,
}

/// Where the deferred pages of a tree come from.
pub(crate) enum PageSource<'a> {
    /// From memory, as they were dumped.
    Memory(&'a Memory),
    File {
        pages: File,
        key: FileKey,
        chunks: Vec<Chunk>,
    },
}

impl SealedPages {
    /// Those in `dir`, by the records of the pages and of their index.
    pub(crate) fn of(
        dir: &Path,
        [pages, index]: [&FileRecord; 2],
        keys: &SnapshotKeys,
    ) -> Option<SealedPages> {
        let (pages, index) = files::key(pages, keys).zip(files::key(index, keys))?;
        Some(SealedPages { dir: dir.to_owned(), pages, index })
    }

    /// Opens the index and starts reading the pages in the background.
    pub(crate) fn open(&self) -> Result<PageSource<'static>, FillError> {
        let pages = private::open(&self.dir.join(PAGES)).map_err(FillError::Read)?;
        let advice = nix::fcntl::PosixFadviseAdvice::POSIX_FADV_WILLNEED;
        nix::fcntl::posix_fadvise(&pages, 0, 0, advice).ok();
        let file = private::open(&self.dir.join(INDEX)).map_err(FillError::Read)?;
        let (stored, mut index) = (file.metadata().map_err(FillError::Read)?.len(), Vec::new());
        let opened = sealed::open(file, stored, &self.index, |bytes| {
            index.extend_from_slice(bytes);
            Ok(())
        });
        opened.map_err(|error| match error {
            OpenError::Changed => Unusable::Index.into(),
            OpenError::Io(error) => FillError::Read(error),
        })?;
        Ok(PageSource::File { pages, key: self.pages.clone(), chunks: index::decode(&index)? })
    }

    /// Opens every chunk.
    pub(crate) fn verify(&self) -> Result<(), FillError> {
        let (source, mut scratch) = (self.open()?, Default::default());
        (0..source.chunks()).try_for_each(|number| source.with_chunk(number, &mut scratch, |_, _| Ok(())))
    }
}

impl PageSource<'_> {
    fn chunks(&self) -> u64 {
        match self {
            PageSource::Memory(memory) => memory.chunks(),
            PageSource::File { chunks, .. } => chunks.len() as u64,
        }
    }

    /// The pages in these chunks: process, address, number of pages.
    fn pages(&self, chunks: Range<u64>) -> Vec<(u32, u64, u64)> {
        match self {
            PageSource::Memory(memory) => memory.pages(chunks),
            PageSource::File { chunks: all, .. } => {
                let pieces =
                    all[chunks.start as usize..chunks.end as usize].iter().flat_map(|chunk| &chunk.pieces);
                pieces.map(|(process, address, pages)| (*process, *address, u64::from(*pages))).collect()
            }
        }
    }

    /// Calls `act` with the pages of a chunk.
    fn with_chunk(
        &self,
        number: u64,
        [stored, decoded]: &mut [Vec<u8>; 2],
        act: impl FnOnce(&[u8], &[Piece]) -> Result<(), FillError>,
    ) -> Result<(), FillError> {
        match self {
            PageSource::Memory(memory) => {
                let (bytes, pieces) = memory.chunk(number, stored).map_err(FillError::Read)?;
                act(bytes, &pieces)
            }
            PageSource::File { pages, key, chunks } => {
                let chunk = &chunks[number as usize];
                stored.resize(chunk.stored as usize, 0);
                pages.read_exact_at(stored, chunk.offset).map_err(|error| match error.kind() {
                    io::ErrorKind::UnexpectedEof => Unusable::Chunk { offset: chunk.offset }.into(),
                    _ => FillError::Read(error),
                })?;
                act(chunk.decode(key, number, stored, decoded)?, &pieces_of(chunk))
            }
        }
    }

    /// Writes all pages into the processes of a restored tree, which must be stopped.
    pub(crate) fn fill(&self, pids: &[Pid], deadline: Instant) -> Result<(), FillError> {
        let to = processes::by_own_id(pids);
        let huge = Huge::of(self.pages(0..self.chunks()).into_iter());
        let threads = parallel::threads();
        let group = self.chunks().div_ceil(threads as u64).clamp(1, GROUP);
        let (next, failed) = (AtomicU64::new(0), AtomicBool::new(false));
        let fill = |chunks: Range<u64>| {
            let mut scratch = [Vec::new(), Vec::new()];
            huge.make(self.pages(chunks.clone()).into_iter(), &to);
            chunks.into_iter().try_for_each(|number| match Instant::now() < deadline {
                _ if failed.load(Ordering::Relaxed) => Ok(()),
                true => self.with_chunk(number, &mut scratch, |bytes, pieces| write(bytes, pieces, &to)),
                false => Err(FillError::TimedOut),
            })
        };
        let work = || {
            loop {
                let first = next.fetch_add(group, Ordering::Relaxed);
                if first >= self.chunks() || failed.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let filled = fill(first..self.chunks().min(first + group));
                filled.inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let mut results =
                workers.into_iter().map(|worker| worker.join().expect("filling does not panic"));
            results.try_for_each(|result| result)
        })
    }
}

/// The pieces of a stored chunk, whose pages are consecutive.
fn pieces_of(chunk: &Chunk) -> Vec<Piece> {
    let mut at = 0;
    let place = |(process, address, pages): &(u32, u64, u16)| {
        let piece = Piece { process: *process, address: *address, pages: (*pages).into(), at };
        at += piece.bytes();
        piece
    };
    chunk.pieces.iter().map(place).collect()
}

fn write(bytes: &[u8], pieces: &[Piece], to: &BTreeMap<u32, Pid>) -> Result<(), FillError> {
    for pieces in pieces.chunk_by(|one, next| one.process == next.process) {
        let process = pieces[0].process;
        let pid = *to.get(&process).ok_or(FillError::NoProcess(process))?;
        let local: Vec<_> =
            pieces.iter().map(|piece| IoSlice::new(&bytes[piece.at..][..piece.bytes()])).collect();
        let remote = |piece: &Piece| RemoteIoVec { base: piece.address as usize, len: piece.bytes() };
        let remote: Vec<_> = pieces.iter().map(remote).collect();
        let wanted = pieces.iter().map(Piece::bytes).sum();
        let source = match process_vm_writev(pid, &local, &remote) {
            Ok(wrote) if wrote == wanted => continue,
            Ok(_) => io::ErrorKind::WriteZero.into(),
            Err(error) => error.into(),
        };
        let process = pid.as_raw();
        return Err(FillError::Write { process, address: pieces[0].address, bytes: wanted, source });
    }
    Ok(())
}
