//! Index of a file of pages. Pure.
//!
//! ```text
//! pages.cws   ( chunk, encrypted │ tag )*   without gaps: each byte belongs to one chunk and its tag
//! pages.idx   "COSWPAGE" │ u32 version │ postcard of the list of chunks; sealed as any other file
//! ```
//! A chunk opens only as the one of its number. So nothing is decoded, or written into a process, before it
//! was checked.

use super::raw::CHUNK;
use super::wire::PAGE;
use crate::keys::{FileKey, Place, TAG};
use serde::{Deserialize, Serialize};

/// The name of the file of pages among the images.
pub(crate) const PAGES: &str = "pages.cws";
/// The name of its index.
pub(crate) const INDEX: &str = "pages.idx";
const MAGIC: &[u8; 8] = b"COSWPAGE";
const VERSION: u32 = 2;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Chunk {
    pub(super) offset: u64,
    /// Its length in the file, with the tag.
    pub(super) stored: u32,
    pub(super) is_compressed: bool,
    /// The pages in their order: process, address, number of pages.
    pub(super) pieces: Vec<(u32, u64, u16)>,
}

/// Why stored pages cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    #[error("the index of pages cannot be read")]
    Index,
    #[error("the chunk of pages at byte {offset} has other contents than were written")]
    Chunk { offset: u64 },
}

impl Chunk {
    /// Encodes the bytes of `batch` from `begin` on in place: the pages of the pieces one after the other, at
    /// that zstd level; `None`: uncompressed. The chunk will be at `offset` in the file, as number `number`.
    pub(super) fn encode(
        key: &FileKey,
        (number, offset): (u64, u64),
        (batch, begin): (&mut Vec<u8>, usize),
        pieces: Vec<(u32, u64, u16)>,
        level: Option<i32>,
    ) -> Chunk {
        let payload = &batch[begin..];
        let packed = level.and_then(|level| zstd::bulk::compress(payload, level).ok());
        // A chunk that does not shrink by half is read faster uncompressed: decoding takes longer than the
        // disk saves.
        let packed = packed.filter(|packed| packed.len() <= payload.len() / 2);
        if let Some(packed) = &packed {
            batch.truncate(begin);
            batch.extend_from_slice(packed);
        }
        key.seal(Place::new(number, false), batch, begin);
        let stored = (batch.len() - begin) as u32;
        Chunk { offset, stored, is_compressed: packed.is_some(), pieces }
    }

    /// Its length when decoded.
    pub(super) fn bytes(&self) -> usize {
        self.pieces.iter().map(|(_, _, pages)| usize::from(*pages) * PAGE).sum()
    }

    /// Opens and decodes the stored bytes of the chunk of that number.
    pub(super) fn decode<'a>(
        &self,
        key: &FileKey,
        number: u64,
        stored: &'a mut [u8],
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], Unusable> {
        let damaged = Unusable::Chunk { offset: self.offset };
        let opened = key.open(Place::new(number, false), stored).ok_or(damaged)?;
        let decoded = if self.is_compressed {
            scratch.resize(CHUNK, 0);
            let length = zstd::bulk::decompress_to_buffer(opened, &mut scratch[..]).map_err(|_| damaged)?;
            &scratch[..length]
        } else {
            opened
        };
        if decoded.len() == self.bytes() { Ok(decoded) } else { Err(damaged) }
    }
}

pub(super) fn encode(chunks: &[Chunk]) -> Vec<u8> {
    let body = postcard::to_stdvec(chunks).expect("a list of plain values can be written to memory");
    [&MAGIC[..], &VERSION.to_le_bytes(), &body].concat()
}

/// Decodes an index; the chunks must follow each other without gaps and be at most [`CHUNK`] long.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<Chunk>, Unusable> {
    let body = bytes.strip_prefix(MAGIC).and_then(|rest| rest.strip_prefix(&VERSION.to_le_bytes()));
    let chunks: Vec<Chunk> = body.and_then(|body| postcard::from_bytes(body).ok()).ok_or(Unusable::Index)?;
    let mut end = 0;
    for chunk in &chunks {
        let fits = chunk.bytes() <= CHUNK && chunk.stored as usize <= CHUNK + TAG;
        if chunk.offset != end || !fits {
            return Err(Unusable::Index);
        }
        end += u64::from(chunk.stored);
    }
    Ok(chunks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{ClusterKey, Hex32, Sealing};

    fn key() -> FileKey {
        let sealing = Sealing::new(ClusterKey::from([1; 32]), "n0".into(), "/".into());
        sealing.keys("job-1", 1).file("pages", &Hex32([2; 32]))
    }

    fn chunk(payload: &[u8], level: Option<i32>) -> (Chunk, Vec<u8>) {
        let (mut batch, pages) = ([b"before", payload].concat(), (payload.len() / PAGE) as u16);
        let chunk = Chunk::encode(&key(), (3, 0), (&mut batch, 6), vec![(1, 0x1000, pages)], level);
        (chunk, batch.split_off(6))
    }

    /// Incompressible bytes.
    fn noise(length: usize) -> Vec<u8> {
        let mut state = 7u64;
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        };
        std::iter::repeat_with(next).take(length).collect()
    }

    #[test]
    fn a_chunk_decodes_to_what_was_encoded_and_is_compressed_if_that_helps() {
        for (payload, level, compressed) in
            [(vec![3; CHUNK], Some(1), true), (noise(CHUNK), Some(1), false), (vec![3; PAGE], None, false)]
        {
            let (chunk, mut stored) = chunk(&payload, level);
            assert_eq!((chunk.is_compressed, chunk.stored as usize), (compressed, stored.len()));
            assert!(chunk.decode(&key(), 3, &mut stored, &mut Vec::new()).unwrap() == payload);
        }
    }

    #[test]
    fn every_bit_changed_in_a_stored_chunk_and_every_cut_and_another_number_is_detected() {
        for level in [None, Some(1)] {
            let (chunk, mut stored) = chunk(&[9; PAGE], level);
            let decode = |number, stored: &[u8]| {
                chunk.decode(&key(), number, &mut stored.to_vec(), &mut Vec::new()).map(<[u8]>::len)
            };
            assert_eq!(decode(3, &stored), Ok(PAGE));
            assert_eq!(decode(4, &stored), Err(Unusable::Chunk { offset: 0 }));
            for bit in 0..stored.len() * 8 {
                stored[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(decode(3, &stored), Err(Unusable::Chunk { offset: 0 }), "bit {bit}");
                stored[bit / 8] ^= 1 << (bit % 8);
            }
            assert!((0..stored.len()).all(|end| decode(3, &stored[..end]).is_err()));
        }
    }

    #[test]
    fn an_index_decodes_to_what_was_encoded_and_one_with_gaps_or_cut_off_is_refused() {
        let (first, _) = chunk(&[1; 2 * PAGE], Some(1));
        let second = Chunk { offset: u64::from(first.stored), ..chunk(&noise(PAGE), None).0 };
        let bytes = encode(&[first.clone(), second.clone()]);
        assert_eq!(decode(&bytes), Ok(vec![first.clone(), second.clone()]));
        assert!((0..bytes.len()).all(|end| decode(&bytes[..end]) == Err(Unusable::Index)));
        assert_eq!(decode(&encode(&[first, Chunk { offset: 5, ..second }])), Err(Unusable::Index));
    }
}
