//! Sealing of pages: writes them durably to a file, compressed as hard as the disk leaves time for.
//!
//! ```text
//! this thread: chunk ─ zero filter ─ zstd ─▶ batch ══ at most two wait ══▶ writer: large writes, then fsync
//! ```
//! After a chunk that did not shrink, only every eighth chunk is tried, which saves processor time for other
//! jobs. If a batch has to wait for the writer, the disk is slower than compressing, and the next batch is
//! compressed harder. If the writer waits, the next batch is compressed less.

use super::index::{self, Chunk, INDEX, PAGES};
use super::memory::Memory;
use super::raw::CHUNK;
use crate::error::{SnapshotError, at};
use crate::manifest::{Checksum, FileRecord};
use crate::private;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, TrySendError, sync_channel};
use xxhash_rust::xxh3::Xxh3;

/// Bytes of one write.
const BATCH: usize = 16 * CHUNK;
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
    /// Writes the pages to the directory of their images and syncs them, but not the directory.
    pub fn seal(&self, images_dir: &Path) -> Result<SealReport, SnapshotError> {
        self.write(images_dir).map(|(_, report)| report)
    }

    /// Seals the pages; also returns their record for the manifest.
    pub(crate) fn write(&self, images_dir: &Path) -> Result<(FileRecord, SealReport), SnapshotError> {
        let path = images_dir.join(PAGES);
        let file = private::create_or_open(&path).map_err(at(&path))?;
        let (sender, batches) = sync_channel(1);
        let (chunks, written) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| write(&file, batches));
            let chunks = self.encode(|batch| match sender.try_send(batch) {
                Err(TrySendError::Full(batch)) => sender.send(batch).map(|()| true),
                sent => sent.map(|()| false).map_err(|_| std::sync::mpsc::SendError(Vec::new())),
            });
            drop(sender);
            (chunks, writer.join().expect("writing does not panic"))
        });
        // The writer's error comes first: it is the cause if encoding broke off.
        let (stored, checksum) = written.map_err(at(&path))?;
        let chunks = chunks.map_err(at(&path))?;
        let index = images_dir.join(INDEX);
        let encoded = index::encode(&chunks);
        private::overwrite(&index).and_then(|mut file| file.write_all(&encoded)).map_err(at(&index))?;
        let bytes = chunks.iter().map(|chunk| chunk.bytes() as u64).sum();
        Ok((
            FileRecord { name: format!("images/{PAGES}"), bytes: stored, checksum },
            SealReport { bytes, stored },
        ))
    }

    /// Encodes all chunks in order. `hand_over` takes a batch and returns whether it had to wait, or an error
    /// if the writer has ended.
    fn encode<E>(&self, mut hand_over: impl FnMut(Vec<u8>) -> Result<bool, E>) -> io::Result<Vec<Chunk>> {
        let (mut level, mut offset, mut chunks, mut batch) = (Level::FIRST, 0, Vec::new(), Vec::new());
        let (mut scratch, mut payload, mut in_vain) = (Vec::new(), Vec::new(), 0u32);
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        for number in 0..self.chunks() {
            let (bytes, pieces) = self.chunk(number, &mut scratch)?;
            if pieces.is_empty() {
                continue;
            }
            payload.clear();
            pieces.iter().for_each(|piece| payload.extend_from_slice(&bytes[piece.at..][..piece.bytes()]));
            let pieces = pieces.iter().map(|piece| (piece.process, piece.address, piece.pages as u16));
            let zstd = in_vain.is_multiple_of(TRY_EVERY).then_some(level.zstd());
            let (chunk, packed) = Chunk::encode(offset, &payload, pieces.collect(), zstd);
            in_vain = if packed.is_some() { 0 } else { in_vain + 1 };
            batch.extend_from_slice(packed.as_deref().unwrap_or(&payload));
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

/// Writes all batches, cuts the file to their length and syncs it.
fn write(mut file: &File, batches: Receiver<Vec<u8>>) -> io::Result<(u64, Checksum)> {
    let (mut hasher, mut length) = (Xxh3::new(), 0);
    for batch in batches {
        file.write_all(&batch)?;
        hasher.update(&batch);
        length += batch.len() as u64;
    }
    file.set_len(length)?;
    file.sync_all()?;
    Ok((length, Checksum(hasher.digest128())))
}

/// Allocates disk space for that many bytes of pages, and checks that there are `besides` more bytes for the
/// images. Cutting the file to its length frees the rest. On a file system in memory, where allocating costs
/// as much as writing, the free space is only checked.
pub(super) fn preallocate(images_dir: &Path, bytes: u64, besides: u64) -> io::Result<()> {
    let file = private::create(&images_dir.join(PAGES))?;
    let is_in_memory = fstatfs(&file)?.filesystem_type() == TMPFS_MAGIC;
    if !is_in_memory && bytes > 0 {
        let length = i64::try_from(bytes).unwrap_or(i64::MAX);
        match fallocate(&file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, length) {
            // If the file system cannot allocate, writing fails when it is full.
            Err(nix::Error::EOPNOTSUPP) => {}
            allocated => allocated?,
        }
    }
    let now = fstatfs(&file)?;
    let free = now.blocks_available().saturating_mul(now.block_size() as u64);
    let needed = if is_in_memory { bytes.saturating_add(besides) } else { besides };
    if free < needed { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
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
}
