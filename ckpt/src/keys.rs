//! Keys of sealed snapshots, and the sealing of one chunk. Only this file knows algorithms.
//!
//! ```text
//! cluster key ─┬─ HKDF-SHA256 (salt of the manifest; application, epoch, owner) ─▶ key of the manifest
//!              └─ HKDF-SHA256 (salt of the file; application, epoch, name) ──────▶ key of the file
//! key ─ AES-256-GCM (nonce: number of the chunk, and whether it is the last) ─▶ chunk, tag of 16 bytes
//! ```
//! A file gets a new random salt whenever it is written, so each key seals one file once and no nonce repeats
//! under it. Where a file lies is part of its key: a chunk opens in its own place alone. The salts of the
//! files are in the manifest, so files of two snapshots cannot be exchanged either, and the manifest itself
//! opens only as that of its application, epoch and owner.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Bytes that sealing adds to a chunk.
pub(crate) const TAG: usize = 16;
const MANIFEST: &str = "coswitch manifest";
const FILE: &str = "coswitch file";

/// 32 bytes, written in hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Hex32(pub(crate) [u8; 32]);

impl Hex32 {
    pub(crate) fn random() -> io::Result<Hex32> {
        let mut bytes = [0; 32];
        let filled = SystemRandom::new().fill(&mut bytes);
        filled.map_err(|_| io::Error::other("the kernel gives no random bytes"))?;
        Ok(Hex32(bytes))
    }
}

impl From<Hex32> for String {
    fn from(bytes: Hex32) -> String {
        to_hex(&bytes.0)
    }
}

impl TryFrom<String> for Hex32 {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Hex32, Self::Error> {
        let bytes = Zeroizing::new(from_hex(&text).unwrap_or_default());
        let bytes =
            bytes.as_slice().try_into().map_err(|_| "64 lower-case hexadecimal digits are expected")?;
        Ok(Hex32(bytes))
    }
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// `None` where the text is not what [`to_hex`] writes.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    if rest.is_empty() { bytes.collect() } else { None }
}

/// The secret of a cluster, from which the keys of all its snapshots are derived. Whoever has it can read and
/// forge them.
#[derive(Clone)]
pub struct ClusterKey(Zeroizing<[u8; 32]>);

impl ClusterKey {
    /// A new one.
    ///
    /// # Errors
    /// Where the kernel gives no random bytes.
    pub fn random() -> io::Result<ClusterKey> {
        Hex32::random().map(|Hex32(bytes)| ClusterKey::from(bytes))
    }
}

impl From<[u8; 32]> for ClusterKey {
    fn from(bytes: [u8; 32]) -> ClusterKey {
        ClusterKey(Zeroizing::new(bytes))
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(..)")
    }
}

impl Serialize for ClusterKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&Zeroizing::new(to_hex(&*self.0)))
    }
}

impl<'de> Deserialize<'de> for ClusterKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<ClusterKey, D::Error> {
        Hex32::deserialize(deserializer).map(|Hex32(bytes)| ClusterKey::from(bytes))
    }
}

/// What a store seals its snapshots with, and opens them.
#[derive(Clone, Debug)]
pub struct Sealing {
    key: ClusterKey,
    owner: String,
    plain: PathBuf,
}

impl Sealing {
    /// `owner` tells the snapshots of this store from those of others of the same cluster. `plain` is a
    /// directory in memory, and this user's alone: images that CRIU writes or reads lie there meanwhile.
    pub fn new(key: ClusterKey, owner: String, plain: PathBuf) -> Sealing {
        Sealing { key, owner, plain }
    }

    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The keys of one snapshot.
    pub fn keys(&self, application: &str, epoch: u64) -> SnapshotKeys {
        SnapshotKeys { cluster: self.key.clone(), application: application.to_owned(), epoch }
    }

    /// Where the images of a snapshot lie in plain while it is written ("dump") or restored ("restore").
    pub(crate) fn plain_dir(&self, purpose: &str, application: &str, epoch: u64) -> PathBuf {
        self.plain.join(format!(".{purpose}-{application}-{epoch}"))
    }
}

/// Derives the keys of the files of one snapshot.
#[derive(Clone, Debug)]
pub struct SnapshotKeys {
    cluster: ClusterKey,
    pub(crate) application: String,
    pub(crate) epoch: u64,
}

impl SnapshotKeys {
    /// The key of a file that was sealed with this salt.
    pub(crate) fn file(&self, name: &str, salt: &Hex32) -> FileKey {
        self.derive(salt, FILE, name)
    }

    /// The key of the manifest of an owner's snapshot.
    pub(crate) fn manifest(&self, owner: &str, salt: &Hex32) -> FileKey {
        self.derive(salt, MANIFEST, owner)
    }

    fn derive(&self, salt: &Hex32, purpose: &str, of: &str) -> FileKey {
        let mut info = self.epoch.to_le_bytes().to_vec();
        for part in [purpose, &self.application, of] {
            info.extend((part.len() as u64).to_le_bytes());
            info.extend(part.as_bytes());
        }
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, &salt.0).extract(&*self.cluster.0);
        let info = [info.as_slice()];
        let key = secret.expand(&info, &AES_256_GCM).expect("a key is short enough for HKDF");
        FileKey(Arc::new(LessSafeKey::new(UnboundKey::from(key))))
    }
}

/// Seals and opens the chunks of one file.
#[derive(Clone)]
pub(crate) struct FileKey(Arc<LessSafeKey>);

impl FileKey {
    /// Seals `bytes` from `begin` on, and appends the tag. No two chunks of a file may have the same number.
    pub(crate) fn seal(&self, place: Place, bytes: &mut Vec<u8>, begin: usize) {
        let (nonce, aad) = (place.nonce(), Aad::from(place.context));
        let tag = self.0.seal_in_place_separate_tag(nonce, aad, &mut bytes[begin..]);
        bytes.extend_from_slice(tag.expect("a chunk is short enough for AES-GCM").as_ref());
    }

    /// Opens a chunk in place; `None` where it is not what was sealed in this place.
    pub(crate) fn open<'a>(&self, place: Place, sealed: &'a mut [u8]) -> Option<&'a [u8]> {
        let opened = self.0.open_in_place(place.nonce(), Aad::from(place.context), sealed);
        opened.ok().map(|opened| &*opened)
    }
}

impl fmt::Debug for FileKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileKey(..)")
    }
}

/// The place of a chunk in its file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) chunk: u64,
    pub(crate) is_last: bool,
    /// What has to be as it was, and is not encrypted.
    pub(crate) context: &'a [u8],
}

impl Place<'_> {
    pub(crate) fn new(chunk: u64, is_last: bool) -> Place<'static> {
        Place { chunk, is_last, context: &[] }
    }

    fn nonce(self) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        nonce[3] = u8::from(self.is_last);
        nonce[4..].copy_from_slice(&self.chunk.to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    }
}

/// The SHA-256 of a file that is not encrypted.
pub(crate) struct Sha256(ring::digest::Context);

impl Sha256 {
    pub(crate) fn new() -> Sha256 {
        Sha256(ring::digest::Context::new(&ring::digest::SHA256))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Hex32 {
        Hex32(self.0.finish().as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealing(key: u8, owner: &str) -> Sealing {
        Sealing::new(ClusterKey::from([key; 32]), owner.into(), PathBuf::new())
    }

    fn sealed(key: &FileKey, place: Place) -> Vec<u8> {
        let mut bytes = b"before, secret".to_vec();
        key.seal(place, &mut bytes, 8);
        assert!(bytes.starts_with(b"before, ") && !bytes.ends_with(b"secret"));
        bytes.split_off(8)
    }

    #[test]
    fn a_chunk_opens_in_its_place_and_in_no_other() {
        let salt = Hex32([3; 32]);
        let keys = sealing(1, "n0").keys("job-1", 7);
        let (key, place) = (keys.file("segment", &salt), Place::new(5, true));
        let bytes = sealed(&key, place);
        let open = |key: &FileKey, place| key.open(place, &mut bytes.clone()).map(<[u8]>::to_vec);
        assert_eq!(open(&key, place), Some(b"secret".to_vec()));
        for place in [Place::new(4, true), Place::new(5, false), Place { context: b"x", ..place }] {
            assert_eq!(open(&key, place), None, "{place:?}");
        }
        let others = [
            keys.file("segmen", &salt),
            keys.file("segment", &Hex32([4; 32])),
            keys.manifest("segment", &salt),
            sealing(2, "n0").keys("job-1", 7).file("segment", &salt),
            sealing(1, "n0").keys("job-1", 8).file("segment", &salt),
            sealing(1, "n0").keys("job-11", 7).file("segment", &salt),
        ];
        assert!(others.iter().all(|key| open(key, place).is_none()));
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(key.open(place, &mut bytes), None, "bit {bit}");
        }
        assert!((0..bytes.len()).all(|end| key.open(place, &mut bytes[..end].to_vec()).is_none()));
    }

    #[test]
    fn a_key_is_written_as_digits_and_never_printed() {
        let key = ClusterKey::from([0xab; 32]);
        let text = serde_json::to_string(&key).unwrap();
        assert_eq!(text, format!("\"{}\"", "ab".repeat(32)));
        assert_eq!(serde_json::from_str::<ClusterKey>(&text).unwrap().0, key.0);
        assert!(!format!("{key:?} {:?}", sealing(0xab, "n0")).contains("ab"));
        for wrong in ["", "ab", &"AB".repeat(32), &"a".repeat(63), &"ab".repeat(33)] {
            assert!(serde_json::from_str::<ClusterKey>(&format!("\"{wrong}\"")).is_err(), "{wrong}");
        }
        assert_ne!(ClusterKey::random().unwrap().0, ClusterKey::random().unwrap().0);
    }
}
