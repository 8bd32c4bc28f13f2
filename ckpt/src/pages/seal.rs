//! From memory to a file: compressed as hard as the disk leaves time for, in one sequence, durable.
//!
//! ```text
//! this thread: chunk ─ zero filter ─ zstd ─▶ batch ══ at most two wait ══▶ writer: one large write, fsync at the end
//! ```
//! Where pages did not shrink, those after them are mostly left as they are: that costs the jobs beside it nothing.
//! Where a batch has to wait for the writer, the disk is slower than compressing: the next one is compressed harder.
//! Where the writer waits, the next one is compressed less hard.

use super::Memory;
use super::index::{self, Chunk, INDEX, PAGES};
use super::raw::CHUNK;
use crate::files;
use crate::manifest::{Checksum, FileRecord};
use crate::snapshot::SnapshotError;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, TrySendError, sync_channel};
use xxhash_rust::xxh3::Xxh3;

/// Written at once.
const BATCH: usize = 16 * CHUNK;
/// From hardly to hard, all of them fast.
const LEVELS: [i32; 4] = [-7, -3, -1, 1];
const LEVEL_FIRST: usize = 2;

/// Of so many chunks after one that did not shrink, one is tried.
const TRY_EVERY: u32 = 8;

/// What sealing did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Of pages that are not zero.
    pub bytes: u64,
    /// What they take on the disk.
    pub stored: u64,
}

/// Which level comes next. Pure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pace(usize);

impl Pace {
    fn level(self) -> i32 {
        LEVELS[self.0]
    }

    fn after(self, writer_was_behind: bool) -> Pace {
        Pace(if writer_was_behind { (self.0 + 1).min(LEVELS.len() - 1) } else { self.0.saturating_sub(1) })
    }
}

impl Memory {
    /// Writes it to the directory of its images, durably but for the directory itself.
    pub fn seal(&self, images_dir: &Path) -> Result<Sealed, SnapshotError> {
        self.write(images_dir).map(|(_, sealed)| sealed)
    }

    /// Likewise; also says what a manifest records of the pages.
    pub(crate) fn write(&self, images_dir: &Path) -> Result<(FileRecord, Sealed), SnapshotError> {
        let path = images_dir.join(PAGES);
        let file = File::options().write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(files::at(&path))?;
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
        // That the writer has ended early is told by the writer.
        let (stored, checksum) = written.map_err(files::at(&path))?;
        let chunks = chunks.map_err(files::at(&path))?;
        let index = images_dir.join(INDEX);
        fs::write(&index, index::encode(&chunks)).map_err(files::at(&index))?;
        let bytes = chunks.iter().map(|chunk| chunk.bytes() as u64).sum();
        Ok((
            FileRecord { name: format!("images/{PAGES}"), bytes: stored, checksum },
            Sealed { bytes, stored },
        ))
    }

    /// Encodes all chunks in order; `hand_over` takes batches and says whether it had to wait, or that it is over.
    fn encode<E>(&self, mut hand_over: impl FnMut(Vec<u8>) -> Result<bool, E>) -> io::Result<Vec<Chunk>> {
        let (mut pace, mut offset, mut chunks, mut batch) = (Pace(LEVEL_FIRST), 0, Vec::new(), Vec::new());
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
            let level = in_vain.is_multiple_of(TRY_EVERY).then_some(pace.level());
            let (chunk, packed) = Chunk::encode(offset, &payload, pieces.collect(), level);
            in_vain = if packed.is_some() { 0 } else { in_vain + 1 };
            batch.extend_from_slice(packed.as_deref().unwrap_or(&payload));
            offset += u64::from(chunk.stored);
            chunks.push(chunk);
            if batch.len() >= BATCH {
                pace = pace.after(hand_over(std::mem::take(&mut batch)).map_err(gone)?);
            }
        }
        hand_over(batch).map_err(gone)?;
        Ok(chunks)
    }
}

/// Writes batches until there are no more; the file ends where they do.
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

/// Takes the room on the disk that so many bytes of pages may need, and sees that there is some `besides`, for the
/// images; cutting the file to its length gives the rest back. A file system in memory, where that would cost as much
/// as writing, is only asked.
pub(super) fn reserve(images_dir: &Path, bytes: u64, besides: u64) -> io::Result<()> {
    let file = File::create_new(images_dir.join(PAGES))?;
    let is_in_memory = fstatfs(&file)?.filesystem_type() == TMPFS_MAGIC;
    if !is_in_memory && bytes > 0 {
        let length = i64::try_from(bytes).unwrap_or(i64::MAX);
        match fallocate(&file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, length) {
            // One that cannot reserve is found out when it is full.
            Err(nix::Error::EOPNOTSUPP) => {}
            reserved => reserved?,
        }
    }
    let now = fstatfs(&file)?;
    let room = now.blocks_available().saturating_mul(now.block_size() as u64);
    let needed = if is_in_memory { bytes.saturating_add(besides) } else { besides };
    if room < needed { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_follows_the_disk_within_bounds() {
        let slow = (0..9).fold(Pace(LEVEL_FIRST), |pace, _| pace.after(true));
        let fast = (0..9).fold(slow, |pace, _| pace.after(false));
        assert_eq!((slow.level(), fast.level()), (LEVELS[3], LEVELS[0]));
    }
}
