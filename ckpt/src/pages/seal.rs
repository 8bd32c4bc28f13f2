//! Sealing of pages: writes them encrypted to a file, compressed as hard as the disk leaves time for.
//!
//! ```text
//! this thread: chunk ─ zero filter ─ zstd ─ seal ─▶ batch ══ at most two wait ══▶ writer: large writes
//! ```
//! After a chunk that did not shrink, only every eighth chunk is tried, which saves processor time for other
//! jobs. If a batch has to wait for the writer, the disk is slower than compressing, and the next batch is
//! compressed harder. If the writer waits, the next batch is compressed less.

use super::fill::SealedPages;
use super::index::{self, Chunk, INDEX, PAGES};
use super::memory::Memory;
use super::raw::CHUNK;
use crate::error::{SnapshotError, at};
use crate::files;
use crate::keys::{FileKey, Hex32, SnapshotKeys, TAG};
use crate::manifest::{FileRecord, Proof};
use crate::private;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs, statfs};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, TrySendError, sync_channel};

/// Bytes of one write, at least.
const BATCH: usize = 16 * CHUNK;
/// The most that a batch may become.
const BATCH_MAX: usize = BATCH + CHUNK + TAG;
/// zstd levels, all of them fast.
const LEVELS: [i32; 4] = [-7, -3, -1, 1];

/// After a chunk that did not shrink, one chunk of this many is compressed.
const TRY_EVERY: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealReport {
    /// Bytes of pages that are not zero.
    pub bytes: u64,
    /// Bytes of these pages on the disk.
    pub stored: u64,
}

/// A compression level that follows the speed of the disk: an index into [`LEVELS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level(usize);

impl Level {
    const FIRST: Level = Level(2);

    fn zstd(self) -> i32 {
        LEVELS[self.0]
    }

    fn after(self, writer_was_behind: bool) -> Level {
        Level(if writer_was_behind { (self.0 + 1).min(LEVELS.len() - 1) } else { self.0.saturating_sub(1) })
    }
}

impl Memory {
    /// Writes the pages to a directory.
    pub fn seal(&self, dir: &Path, keys: &SnapshotKeys) -> Result<(SealedPages, SealReport), SnapshotError> {
        let ([pages, index], report) = self.write((dir, ""), keys)?;
        let sealed = SealedPages::of(dir, [&pages, &index], keys).expect("both have just been sealed");
        Ok((sealed, report))
    }

    /// Writes the pages to the directory `below` that of their snapshot; returns the records of the pages and
    /// of their index for the manifest. Does not wait for the disk.
    pub(crate) fn write(
        &self,
        (snapshot, below): (&Path, &str),
        keys: &SnapshotKeys,
    ) -> Result<([FileRecord; 2], SealReport), SnapshotError> {
        let name = format!("{below}{PAGES}");
        let path = snapshot.join(&name);
        let salt = Hex32::random().map_err(at(&path))?;
        let (key, file) = (keys.file(&name, &salt), private::create_or_open(&path).map_err(at(&path))?);
        let (sender, batches) = sync_channel(1);
        let (chunks, written) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| write(&file, batches));
            let chunks = self.encode(&key, |batch| match sender.try_send(batch) {
                Err(TrySendError::Full(batch)) => sender.send(batch).map(|()| true),
                sent => sent.map(|()| false).map_err(|_| std::sync::mpsc::SendError(Vec::new())),
            });
            drop(sender);
            (chunks, writer.join().expect("writing does not panic"))
        });
        // The writer's error comes first: it is the cause if encoding broke off.
        let stored = written.map_err(at(&path))?;
        let chunks = chunks.map_err(at(&path))?;
        let index = files::seal(snapshot, &format!("{below}{INDEX}"), &index::encode(&chunks), keys)?;
        let bytes = chunks.iter().map(|chunk| chunk.bytes() as u64).sum();
        let pages = FileRecord { name, bytes: stored, proof: Proof::Salt(salt) };
        Ok(([pages, index], SealReport { bytes, stored }))
    }

    /// Encodes all chunks in order. `hand_over` takes a batch and returns whether it had to wait, or an error
    /// if the writer has ended.
    fn encode<E>(
        &self,
        key: &FileKey,
        mut hand_over: impl FnMut(Vec<u8>) -> Result<bool, E>,
    ) -> io::Result<Vec<Chunk>> {
        let (mut level, mut offset, mut chunks, mut batch) = (Level::FIRST, 0, Vec::new(), Vec::new());
        let (mut scratch, mut in_vain) = (Vec::new(), 0u32);
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        for number in 0..self.chunks() {
            let (bytes, pieces) = self.chunk(number, &mut scratch)?;
            if pieces.is_empty() {
                continue;
            }
            batch.reserve(BATCH_MAX - batch.len());
            let begin = batch.len();
            pieces.iter().for_each(|piece| batch.extend_from_slice(&bytes[piece.at..][..piece.bytes()]));
            let pieces = pieces.iter().map(|piece| (piece.process, piece.address, piece.pages as u16));
            let zstd = in_vain.is_multiple_of(TRY_EVERY).then_some(level.zstd());
            let place = (chunks.len() as u64, offset);
            let chunk = Chunk::encode(key, place, (&mut batch, begin), pieces.collect(), zstd);
            in_vain = if chunk.is_compressed { 0 } else { in_vain + 1 };
            offset += u64::from(chunk.stored);
            chunks.push(chunk);
            if batch.len() >= BATCH {
                level = level.after(hand_over(std::mem::take(&mut batch)).map_err(gone)?);
            }
        }
        hand_over(batch).map_err(gone)?;
        Ok(chunks)
    }
}

/// Writes all batches and cuts the file to their length.
fn write(mut file: &File, batches: Receiver<Vec<u8>>) -> io::Result<u64> {
    let mut length = 0;
    for batch in batches {
        file.write_all(&batch)?;
        length += batch.len() as u64;
    }
    file.set_len(length)?;
    Ok(length)
}

/// Allocates disk space for that many bytes of pages in `dir`, and checks that there are `besides` more bytes
/// for the images in `images_dir`, and on the disk, where they will be sealed. Cutting the file to its length
/// frees the rest. Where space cannot be allocated, it is only checked that there is as much.
pub(super) fn preallocate(dir: &Path, images_dir: &Path, bytes: u64, besides: u64) -> io::Result<()> {
    let file = private::create(&dir.join(PAGES))?;
    // Each chunk has a tag.
    let bytes = bytes.saturating_add(bytes.div_ceil(CHUNK as u64) * TAG as u64);
    let needed = if allocate(&file, bytes)? { besides } else { bytes.saturating_add(besides) };
    let on_disk = (dir, fstatfs(&file)?, needed);
    for (dir, found, needed) in [on_disk, (images_dir, statfs(images_dir)?, besides)] {
        let free = found.blocks_available().saturating_mul(found.block_size() as u64);
        if free < needed {
            let message = format!("{} has {free} bytes free, and {needed} are needed", dir.display());
            return Err(io::Error::new(io::ErrorKind::StorageFull, message));
        }
    }
    Ok(())
}

/// Returns false where the file system cannot allocate, and in memory, where that costs as much as writing.
fn allocate(file: &File, bytes: u64) -> io::Result<bool> {
    if fstatfs(file)?.filesystem_type() == TMPFS_MAGIC {
        return Ok(false);
    }
    if bytes == 0 {
        return Ok(true);
    }
    let length = i64::try_from(bytes).unwrap_or(i64::MAX);
    match fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, length) {
        Err(nix::Error::EOPNOTSUPP) => Ok(false),
        allocated => allocated.map(|()| true).map_err(io::Error::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_follows_the_disk_within_bounds() {
        let slow = (0..9).fold(Level::FIRST, |level, _| level.after(true));
        let fast = (0..9).fold(slow, |level, _| level.after(false));
        assert_eq!((slow.zstd(), fast.zstd()), (LEVELS[3], LEVELS[0]));
    }

    #[test]
    fn space_that_is_missing_is_refused_before_it_is_written_to_and_the_directory_is_named() {
        let (disk, memory) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
        let cases = [(&disk, &memory, 0, u64::MAX), (&memory, &disk, 1 << 60, 0)];
        for (dir, images_dir, bytes, besides) in cases {
            let error = preallocate(dir.path(), images_dir.path(), bytes, besides).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
            assert!(error.to_string().starts_with(&dir.path().display().to_string()), "{error}");
        }
    }
}
