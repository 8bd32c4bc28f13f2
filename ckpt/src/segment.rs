//! Contents of a segment file in a snapshot: stored sparse and compressed, loaded back in place. Who calls
//! this seals what is stored, and opens it.
//!
//! ```text
//! magic 8 │ version u32 │ u64 size of the file │ zstd( ( u64 offset │ u32 length │ bytes )*  u64 MAX )
//! ```
//! Blocks of zeros are not stored. This module never creates, replaces or resizes the segment file: the
//! daemon has it mapped, and the ranks will map the same inode.

use nix::fcntl::{FallocateFlags, fallocate};
use nix::unistd::{Whence, lseek64};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

const MAGIC: &[u8; 8] = b"COSWSEGM";
const VERSION: u32 = 1;
const END: u64 = u64::MAX;
/// Unit of comparison with zero, and of writing.
const BLOCK: usize = 64 * 1024;
const LEVEL: i32 = -1;
static ZEROS: [u8; BLOCK] = [0; BLOCK];

#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    #[error("copy a segment: {0}")]
    Io(#[from] io::Error),
    #[error("load a segment: its stored contents are damaged: {0}")]
    Damaged(&'static str),
    #[error("load a segment: it had {stored} bytes, the file has {found}")]
    Size { stored: u64, found: u64 },
}

/// Stores the contents of `segment` in `target`; returns how many bytes are in the blocks that are not all
/// zero.
pub fn save(segment: &File, mut target: impl Write) -> Result<u64, SegmentError> {
    let size = segment.metadata()?.len();
    target.write_all(MAGIC)?;
    target.write_all(&VERSION.to_le_bytes())?;
    target.write_all(&size.to_le_bytes())?;
    let mut encoder = zstd::Encoder::new(target, LEVEL)?;
    encoder.include_checksum(true)?;
    let mut buffer = vec![0; BLOCK];
    let mut stored = 0;
    let mut offset = next_data(segment, 0, size)?;
    while offset < size {
        let length = BLOCK.min((size - offset) as usize);
        let block = &mut buffer[..length];
        segment.read_exact_at(block, offset)?;
        if *block != ZEROS[..length] {
            encoder.write_all(&offset.to_le_bytes())?;
            encoder.write_all(&(length as u32).to_le_bytes())?;
            encoder.write_all(block)?;
            stored += length as u64;
        }
        offset = next_data(segment, offset + length as u64, size)?;
    }
    encoder.write_all(&END.to_le_bytes())?;
    encoder.finish()?;
    Ok(stored)
}

/// Fills `segment` with the contents stored in `source`; blocks of zeros become holes.
pub fn load(mut source: &[u8], segment: &File) -> Result<(), SegmentError> {
    let stored = read_header(&mut source)?;
    let found = segment.metadata()?.len();
    if stored != found {
        return Err(SegmentError::Size { stored, found });
    }
    let mut decoder = zstd::Decoder::with_buffer(source)?;
    let mut buffer = vec![0; BLOCK];
    let mut filled = 0;
    loop {
        let offset = u64::from_le_bytes(read_array(&mut decoder)?);
        if offset == END {
            break;
        }
        let length = u32::from_le_bytes(read_array(&mut decoder)?) as usize;
        let is_inside = length <= BLOCK && offset.checked_add(length as u64).is_some_and(|end| end <= stored);
        if offset < filled || !is_inside {
            return Err(SegmentError::Damaged("a block lies outside the file or before the one before it"));
        }
        decoder.read_exact(&mut buffer[..length]).map_err(damaged)?;
        punch(segment, filled, offset)?;
        segment.write_all_at(&buffer[..length], offset)?;
        filled = offset + length as u64;
    }
    punch(segment, filled, stored)?;
    // Reading to the end makes zstd verify its checksum.
    match io::copy(&mut decoder, &mut io::sink()).map_err(damaged)? {
        0 => Ok(()),
        _ => Err(SegmentError::Damaged("something follows the last block")),
    }
}

fn read_header(file: &mut impl Read) -> Result<u64, SegmentError> {
    if read_array::<8>(file)? != *MAGIC {
        return Err(SegmentError::Damaged("it has another magic"));
    }
    if u32::from_le_bytes(read_array(file)?) != VERSION {
        return Err(SegmentError::Damaged("it has a version that this program does not read"));
    }
    Ok(u64::from_le_bytes(read_array(file)?))
}

fn read_array<const N: usize>(from: &mut impl Read) -> Result<[u8; N], SegmentError> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes).map_err(damaged)?;
    Ok(bytes)
}

/// An error of reading through the decoder means damage.
fn damaged(_: io::Error) -> SegmentError {
    SegmentError::Damaged("it is cut off or cannot be decompressed")
}

/// The first offset from `from` on that may hold data, rounded down to a block; `size` if there is none.
fn next_data(file: &File, from: u64, size: u64) -> io::Result<u64> {
    if from >= size {
        return Ok(size);
    }
    match lseek64(file.as_fd(), from as i64, Whence::SeekData) {
        Ok(offset) => Ok((offset as u64 / BLOCK as u64 * BLOCK as u64).max(from)),
        Err(nix::Error::ENXIO) => Ok(size),
        // On a file system without SEEK_DATA, every offset may hold data.
        Err(nix::Error::EINVAL) => Ok(from),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn punch(file: &File, from: u64, to: u64) -> io::Result<()> {
    if from == to {
        return Ok(());
    }
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    Ok(fallocate(file.as_fd(), flags, from as i64, (to - from) as i64)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    const SIZE: u64 = 4 << 20;

    fn sparse_file(dir: &Path, name: &str) -> File {
        let file = File::options().read(true).write(true).create_new(true).open(dir.join(name)).unwrap();
        file.set_len(SIZE + 100).unwrap();
        file
    }

    fn contents(file: &File) -> Vec<u8> {
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    #[test]
    fn contents_come_back_into_the_same_inode_and_zeros_as_holes() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let segment = sparse_file(dir.path(), "segment");
        segment.write_all_at(b"head", 0).unwrap();
        segment.write_all_at(&[9; 3 * BLOCK], 5 * BLOCK as u64 - 77).unwrap();
        segment.write_all_at(b"tail", SIZE + 96).unwrap();
        segment.write_all_at(&[0; 2 * BLOCK], 20 * BLOCK as u64).unwrap();
        let (before, inode) = (contents(&segment), segment.metadata().unwrap().ino());
        let mut file = Vec::new();
        let stored = save(&segment, &mut file).unwrap();
        assert_eq!(stored, (1 + 4) * BLOCK as u64 + 100);

        segment.write_all_at(&[7; SIZE as usize], 0).unwrap();
        load(&file, &segment).unwrap();
        assert!(contents(&segment) == before);
        let after = segment.metadata().unwrap();
        assert_eq!((after.ino(), after.len()), (inode, SIZE + 100));
        assert!(after.blocks() * 512 <= 6 * BLOCK as u64, "{} blocks", after.blocks());
    }

    #[test]
    fn a_file_of_another_size_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        let segment = sparse_file(dir.path(), "segment");
        let mut file = Vec::new();
        save(&segment, &mut file).unwrap();
        segment.set_len(SIZE).unwrap();
        let error = load(&file, &segment).unwrap_err();
        assert!(
            matches!(error, SegmentError::Size { stored, found } if stored == SIZE + 100 && found == SIZE)
        );
    }

    #[test]
    fn stored_contents_that_are_cut_off_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let segment = sparse_file(dir.path(), "segment");
        segment.write_all_at(b"some contents", 4096).unwrap();
        let mut stored = Vec::new();
        save(&segment, &mut stored).unwrap();
        for length in 0..stored.len() {
            assert!(load(&stored[..length], &segment).is_err(), "{length} of {}", stored.len());
        }
    }
}
