//! Format of a sealed file: its bytes in chunks, each of them encrypted and authenticated.
//!
//! ```text
//! ( chunk of 128 KiB │ tag )*  last chunk, which may be shorter or empty │ tag
//! ```
//! The number of a chunk, and whether it is the last, are part of what its tag proves (see [`crate::keys`]),
//! so chunks cannot be exchanged, left out or appended.

use crate::keys::{FileKey, Place, TAG};
use std::io::{self, Read, Write};

pub(crate) const CHUNK: usize = 128 << 10;

/// Seals what is written to it. What it has written is worth nothing before [`SealedWriter::finish`].
pub(crate) struct SealedWriter<W> {
    inner: W,
    key: FileKey,
    /// The next chunk, not yet sealed.
    buffer: Vec<u8>,
    chunk: u64,
    stored: u64,
}

impl<W: Write> SealedWriter<W> {
    pub(crate) fn new(inner: W, key: FileKey) -> SealedWriter<W> {
        SealedWriter { inner, key, buffer: Vec::with_capacity(CHUNK + TAG), chunk: 0, stored: 0 }
    }

    /// Writes the last chunk; also returns the length of the sealed file.
    pub(crate) fn finish(mut self) -> io::Result<(W, u64)> {
        self.write_chunk(true)?;
        Ok((self.inner, self.stored))
    }

    fn write_chunk(&mut self, is_last: bool) -> io::Result<()> {
        self.key.seal(Place::new(self.chunk, is_last), &mut self.buffer, 0);
        self.chunk += 1;
        self.stored += self.buffer.len() as u64;
        let written = self.inner.write_all(&self.buffer);
        self.buffer.clear();
        written
    }
}

impl<W: Write> Write for SealedWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() == CHUNK {
            self.write_chunk(false)?;
        }
        let some = bytes.len().min(CHUNK - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..some]);
        Ok(some)
    }

    /// A chunk is written when the next one begins.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Why a sealed file was not opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it is not what was sealed")]
    Changed,
}

/// Opens a sealed file of `stored` bytes and gives its contents to `take`, chunk after chunk.
pub(crate) fn open(
    mut source: impl Read,
    stored: u64,
    key: &FileKey,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), OpenError> {
    let mut buffer = vec![0; (CHUNK + TAG).min(usize::try_from(stored).unwrap_or(usize::MAX))];
    let (mut left, mut chunk) = (stored, 0);
    loop {
        let bytes = &mut buffer[..left.min((CHUNK + TAG) as u64) as usize];
        left -= bytes.len() as u64;
        source.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => OpenError::Changed,
            _ => error.into(),
        })?;
        take(key.open(Place::new(chunk, left == 0), bytes).ok_or(OpenError::Changed)?)?;
        chunk += 1;
        if left == 0 {
            let is_at_end = source.read(&mut [0])? == 0;
            return if is_at_end { Ok(()) } else { Err(OpenError::Changed) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{ClusterKey, Hex32, Sealing};

    fn key() -> FileKey {
        let sealing = Sealing::new(ClusterKey::from([1; 32]), "n0".into(), "/".into());
        sealing.keys("job-1", 1).file("x", &Hex32([2; 32]))
    }

    fn seal(plain: &[u8]) -> Vec<u8> {
        let mut writer = SealedWriter::new(Vec::new(), key());
        // In pieces that do not end where chunks do.
        plain.chunks(50_001).for_each(|piece| writer.write_all(piece).unwrap());
        let (sealed, stored) = writer.finish().unwrap();
        assert_eq!(sealed.len() as u64, stored);
        sealed
    }

    fn opened(sealed: &[u8], stored: usize) -> Result<Vec<u8>, OpenError> {
        let mut plain = Vec::new();
        open(sealed, stored as u64, &key(), |bytes| plain.write_all(bytes)).map(|()| plain)
    }

    #[test]
    fn a_file_of_any_length_opens_to_what_was_sealed_and_not_if_it_is_cut_or_longer() {
        for length in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK] {
            let plain: Vec<u8> = (0..length).map(|at| (at * 31) as u8).collect();
            let sealed = seal(&plain);
            assert_eq!(sealed.len(), length + length.div_ceil(CHUNK).max(1) * TAG);
            assert!(opened(&sealed, sealed.len()).unwrap() == plain);
            for end in [0, 1, TAG, CHUNK, CHUNK + TAG, sealed.len() - 1]
                .into_iter()
                .filter(|end| *end < sealed.len())
            {
                assert!(opened(&sealed[..end], end).is_err(), "{length} bytes cut to {end}");
                assert!(opened(&sealed[..end], sealed.len()).is_err(), "{length} bytes, {end} are there");
                assert!(opened(&sealed, end).is_err(), "{length} bytes, {end} are known");
            }
            let longer = [&sealed[..], b"x"].concat();
            assert!(opened(&longer, sealed.len()).is_err() && opened(&longer, longer.len()).is_err());
        }
    }

    #[test]
    fn chunks_that_change_their_places_are_found() {
        let sealed = seal(&[7; 4 * CHUNK]);
        let mut chunks: Vec<&[u8]> = sealed.chunks(CHUNK + TAG).collect();
        for (one, other) in [(0, 1), (1, 2), (2, 3)] {
            chunks.swap(one, other);
            assert!(
                matches!(opened(&chunks.concat(), sealed.len()), Err(OpenError::Changed)),
                "{one}, {other}"
            );
            chunks.swap(one, other);
        }
        assert!(opened(&[chunks[0], chunks[1], chunks[3]].concat(), 3 * (CHUNK + TAG)).is_err());
        assert!(opened(&chunks.concat(), sealed.len()).is_ok());
    }
}
