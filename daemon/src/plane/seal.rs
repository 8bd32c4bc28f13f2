//! Encryption of a data link: AES-256-GCM over records of its bytes, with keys from the TLS handshake.
//!
//! ```text
//!   record:  length (4, in the clear, authenticated)   bytes of frames, encrypted (length)   tag (16)
//! ```
//! Each direction has a secret of its own from the handshake's exporter. The nonce is the number of the
//! record, which is not sent: a record that was changed, dropped, repeated or moved does not open, and the
//! link ends. After [`RECORDS_PER_KEY`] records both sides derive the next key from the secret and forget the
//! last one.
//!
//! The receiver opens a record in memory of its own and copies what a rank shall have into the rank's chunk.
//! Opened in the chunk itself, a rank that writes there at the wrong moment could end the link of all jobs.

use std::{
    io::{self, ErrorKind, Read},
    ops::Range,
};

use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey},
    hkdf::{HKDF_SHA256, KeyType, Prk},
};
use thiserror::Error;

use super::{incoming::Place, outgoing::Part};

/// Bytes of a direction's secret.
pub(crate) const SECRET_BYTES: usize = 32;
/// The most bytes of frames in one record: small enough for a core's cache, and the tags are 0.1 % of it.
const RECORD_MAX: usize = 16 << 10;
const LENGTH_BYTES: usize = 4;
const TAG_BYTES: usize = 16;
/// Whole records that one read may take.
const RECORDS_READ: usize = 8;
/// Under one key go at most 2^30 blocks: a distinguisher's advantage stays below 2^-68, TLS 1.3 allows 2^-57.
const RECORDS_PER_KEY: u64 = 1 << 20;

/// Why a link could not go on.
#[derive(Debug, Error)]
pub(crate) enum SealError {
    #[error("record {0} of the link was changed, dropped, repeated or reordered on its way")]
    Tampered(u64),
    #[error("record {number} of the link announces {bytes} bytes, more than a record has")]
    Length { number: u64, bytes: usize },
}

impl From<SealError> for io::Error {
    fn from(error: SealError) -> Self {
        Self::new(ErrorKind::InvalidData, error)
    }
}

/// Secrets of both directions of a link, seen from one end.
pub struct LinkKeys {
    pub(crate) sending: [u8; SECRET_BYTES],
    pub(crate) receiving: [u8; SECRET_BYTES],
}

/// The keys of one direction, one after the other, and the number of the next record.
struct Keys {
    secret: Prk,
    key: LessSafeKey,
    iv: [u8; 12],
    /// Of the link.
    record: u64,
    /// Records under `key`.
    used: u64,
    per_key: u64,
}

/// The length of a derived secret.
struct SecretLength;

impl KeyType for SecretLength {
    fn len(&self) -> usize {
        SECRET_BYTES
    }
}

impl Keys {
    fn new(secret: &[u8; SECRET_BYTES], per_key: u64) -> Self {
        let secret = Prk::new_less_safe(HKDF_SHA256, secret);
        let (key, iv) = derive(&secret);
        Self { secret, key, iv, record: 0, used: 0, per_key }
    }

    /// Goes on to the next record; returns the nonce, which no other record under this key has.
    fn next(&mut self) -> Nonce {
        if self.used == self.per_key {
            let mut next = [0; SECRET_BYTES];
            let derived = self.secret.expand(&[b"next"], SecretLength).and_then(|okm| okm.fill(&mut next));
            derived.expect("a secret is short enough for HKDF");
            *self = Self { record: self.record, ..Self::new(&next, self.per_key) };
        }
        let mut nonce = self.iv;
        nonce[4..].iter_mut().zip(self.used.to_be_bytes()).for_each(|(byte, count)| *byte ^= count);
        self.record += 1;
        self.used += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}

fn derive(secret: &Prk) -> (LessSafeKey, [u8; 12]) {
    struct IvLength;
    impl KeyType for IvLength {
        fn len(&self) -> usize {
            12
        }
    }
    let mut iv = [0; 12];
    let derived = secret.expand(&[b"iv"], IvLength).and_then(|okm| okm.fill(&mut iv));
    derived.expect("an initial vector is short enough for HKDF");
    let key = secret.expand(&[b"key"], &AES_256_GCM).expect("a key is short enough for HKDF");
    (LessSafeKey::new(UnboundKey::from(key)), iv)
}

/// The sending end.
pub(crate) struct Sealer(Keys);

impl Sealer {
    pub(crate) fn new(secret: &[u8; SECRET_BYTES]) -> Self {
        Self(Keys::new(secret, RECORDS_PER_KEY))
    }

    /// Appends `parts`, as records, to `out`.
    pub(crate) fn seal(&mut self, mut parts: [Part<'_>; 3], out: &mut Vec<u8>) {
        let mut left: usize = parts.iter().map(|part| part.len()).sum();
        while left > 0 {
            let bytes = left.min(RECORD_MAX);
            left -= bytes;
            let length = u32::try_from(bytes).expect("a record is small").to_le_bytes();
            out.reserve(LENGTH_BYTES + bytes + TAG_BYTES);
            out.extend_from_slice(&length);
            let begin = out.len();
            for part in &mut parts {
                let now = part.len().min(begin + bytes - out.len());
                part.append_first(now, out);
                *part = part.skip(now);
            }
            let nonce = self.0.next();
            let tag = self.0.key.seal_in_place_separate_tag(nonce, Aad::from(length), &mut out[begin..]);
            out.extend_from_slice(tag.expect("a record is short enough for AES-GCM").as_ref());
        }
    }
}

/// The receiving end: what came and was not taken yet.
pub(crate) struct Opener {
    keys: Keys,
    buffer: Box<[u8]>,
    /// Opened bytes that were not taken.
    open: Range<usize>,
    /// Sealed bytes behind them.
    sealed: Range<usize>,
}

impl Opener {
    pub(crate) fn new(secret: &[u8; SECRET_BYTES]) -> Self {
        let buffer = vec![0; RECORDS_READ * (LENGTH_BYTES + RECORD_MAX + TAG_BYTES)].into_boxed_slice();
        Self { keys: Keys::new(secret, RECORDS_PER_KEY), buffer, open: 0..0, sealed: 0..0 }
    }

    /// Fills `places` in their order with bytes of at most one record; `None` where nothing whole has come.
    ///
    /// # Errors
    /// Those of `stream`, its end, and [`SealError`] where a record does not open.
    pub(crate) fn read(
        &mut self,
        stream: &mut impl Read,
        places: [Place<'_>; 2],
    ) -> io::Result<Option<usize>> {
        while self.open.is_empty() && !self.open_next()? {
            match super::link::again(stream.read(self.rest()))? {
                None => return Ok(None),
                Some(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Some(read) => self.sealed.end += read,
            }
        }
        let mut taken = 0;
        for place in places {
            let some = place.len().min(self.open.len());
            place.fill(&self.buffer[self.open.start..][..some]);
            self.open.start += some;
            taken += some;
        }
        Ok(Some(taken))
    }

    /// Room for more sealed bytes, at least for the rest of a record.
    fn rest(&mut self) -> &mut [u8] {
        if self.sealed.start > 0 {
            self.buffer.copy_within(self.sealed.clone(), 0);
            self.sealed = 0..self.sealed.len();
        }
        &mut self.buffer[self.sealed.end..]
    }

    /// Opens the next record; false where it is incomplete.
    fn open_next(&mut self) -> io::Result<bool> {
        let have = &mut self.buffer[self.sealed.clone()];
        let Some((length, rest)) = have.split_first_chunk_mut::<LENGTH_BYTES>() else { return Ok(false) };
        let (number, bytes) = (self.keys.record, u32::from_le_bytes(*length) as usize);
        if bytes == 0 || bytes > RECORD_MAX {
            return Err(SealError::Length { number, bytes }.into());
        }
        let Some(record) = rest.get_mut(..bytes + TAG_BYTES) else { return Ok(false) };
        let (text, tag) = record.split_at_mut(bytes);
        let (nonce, tag) = (self.keys.next(), Tag::try_from(&*tag).expect("a tag's length"));
        let opened = self.keys.key.open_in_place_separate_tag(nonce, Aad::from(*length), tag, text, 0..);
        opened.map_err(|_| SealError::Tampered(number))?;
        let begin = self.sealed.start + LENGTH_BYTES;
        self.open = begin..begin + bytes;
        self.sealed.start = begin + bytes + TAG_BYTES;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECRET: [u8; SECRET_BYTES] = [7; SECRET_BYTES];

    /// A stream that gives a few bytes at a time, and would block in between and at its end.
    struct Trickle<'a> {
        bytes: &'a [u8],
        step: usize,
        blocks: bool,
    }

    impl Read for Trickle<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.blocks = !self.blocks;
            if self.blocks || self.bytes.is_empty() {
                return Err(ErrorKind::WouldBlock.into());
            }
            let some = self.step.min(into.len()).min(self.bytes.len());
            into[..some].copy_from_slice(&self.bytes[..some]);
            self.bytes = &self.bytes[some..];
            Ok(some)
        }
    }

    fn ends(per_key: u64) -> (Sealer, Opener) {
        let opener = Opener { keys: Keys::new(&SECRET, per_key), ..Opener::new(&SECRET) };
        (Sealer(Keys::new(&SECRET, per_key)), opener)
    }

    fn own(parts: [&[u8]; 3]) -> [Part<'_>; 3] {
        parts.map(Part::Own)
    }

    fn open_all(opener: &mut Opener, bytes: &[u8], step: usize) -> io::Result<Vec<u8>> {
        let (mut stream, mut out) = (Trickle { bytes, step, blocks: false }, Vec::new());
        loop {
            let (mut first, mut second) = ([0; 100], [0; 5000]);
            match opener.read(&mut stream, [Place::Own(&mut first), Place::Own(&mut second)])? {
                Some(taken) => {
                    out.extend_from_slice(&first[..taken.min(100)]);
                    out.extend_from_slice(&second[..taken.saturating_sub(100)]);
                }
                None if stream.bytes.is_empty() => return Ok(out),
                None => {}
            }
        }
    }

    fn message() -> impl Strategy<Value = Vec<u8>> {
        (1..3 * RECORD_MAX, any::<u8>()).prop_map(|(length, first)| {
            (0..length).map(|at| first.wrapping_add((at * 31) as u8)).collect::<Vec<u8>>()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn all_bytes_come_out_as_they_went_in(
            messages in prop::collection::vec(message(), 1..8),
            step in 1usize..40_000,
            per_key in 1u64..5,
        ) {
            let ((mut sealer, mut opener), mut wire) = (ends(per_key), Vec::new());
            for message in &messages {
                let (head, tail) = message.split_at(message.len() / 3);
                sealer.seal(own([head, &[], tail]), &mut wire);
            }
            prop_assert_eq!(open_all(&mut opener, &wire, step).unwrap(), messages.concat());
        }

        #[test]
        fn no_changed_byte_comes_out(at in 0usize..1000, bit in 0u32..8) {
            let ((mut sealer, mut opener), mut wire) = (ends(2), Vec::new());
            (0..5).for_each(|number: u8| sealer.seal(own([&[number; 180], &[], &[]]), &mut wire));
            prop_assert_eq!(wire.len(), 1000);
            wire[at] ^= 1 << bit;
            // A length that has grown may wait for bytes that never come; then nothing after it comes out.
            let opened = open_all(&mut opener, &wire, 333);
            let before: Vec<u8> = (0..at / 200).flat_map(|number| [number as u8; 180]).collect();
            prop_assert!(opened.is_err() || opened.unwrap() == before);
        }
    }

    /// Seals five records and lets `change` do something with them.
    fn open_changed(change: impl FnOnce(&mut Vec<Vec<u8>>)) -> String {
        let (mut sealer, mut opener) = ends(100);
        let mut records: Vec<Vec<u8>> = (0..5u8)
            .map(|number| {
                let mut record = Vec::new();
                sealer.seal(own([&[number; 50], &[], &[]]), &mut record);
                record
            })
            .collect();
        change(&mut records);
        open_all(&mut opener, &records.concat(), 1000).unwrap_err().to_string()
    }

    #[test]
    fn a_record_that_is_dropped_repeated_or_moved_ends_the_link() {
        let reason = "record 2 of the link was changed, dropped, repeated or reordered on its way";
        assert_eq!(open_changed(|records| drop(records.remove(2))), reason);
        assert_eq!(open_changed(|records| records.swap(2, 3)), reason);
        assert_eq!(open_changed(|records| records.insert(2, records[1].clone())), reason);
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_it_is_waited_for() {
        let reason = open_changed(|records| records[3][2] = 1);
        assert_eq!(reason, "record 3 of the link announces 65586 bytes, more than a record has");
    }

    #[test]
    fn no_two_records_look_alike_within_and_across_keys() {
        let (mut sealer, _) = ends(3);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..10 {
            let mut record = Vec::new();
            sealer.seal(own([&[0; 32], &[], &[]]), &mut record);
            assert!(seen.insert(record));
        }
    }
}
