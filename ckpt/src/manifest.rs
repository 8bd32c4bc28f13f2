//! Manifest of a snapshot: lists all parts of a complete snapshot. Pure.
//!
//! ```json
//! {"magic":"coswitch-snapshot","version":1,"checksum":"…","body":{…}}
//! ```
//! The checksum is over the body's bytes exactly as written. A reader of version N reads all older versions;
//! it refuses newer ones, because it cannot tell what they require. Fields that version N does not know are
//! not an error: a later program may add one that older programs may ignore, without a new version.

use crate::preflight::{OutputFile, SegmentFile};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The name of the manifest in a snapshot's directory.
pub const FILE_NAME: &str = "manifest.json";
/// A larger file is refused before it is decoded. A tree of a thousand ranks has some thousands of files.
pub const BYTES_MAX: u64 = 16 << 20;

const MAGIC: &str = "coswitch-snapshot";
const VERSION: u32 = 1;

/// The xxh3 hash of a file's contents, 128 bits. It detects damage, not manipulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Checksum(pub u128);

impl Checksum {
    pub fn of(bytes: &[u8]) -> Checksum {
        Checksum(xxhash_rust::xxh3::xxh3_128(bytes))
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl From<Checksum> for String {
    fn from(checksum: Checksum) -> String {
        checksum.to_string()
    }
}

impl TryFrom<String> for Checksum {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Checksum, Self::Error> {
        let is_ours = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let value = is_ours.then(|| u128::from_str_radix(&text, 16).ok()).flatten();
        value.map(Checksum).ok_or("a checksum has 32 lower-case hexadecimal digits")
    }
}

/// Which application and which cut a snapshot belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub application: String,
    /// The number of the cut.
    pub epoch: u64,
    /// When writing began.
    pub created_unix_ms: u64,
}

/// Where a snapshot was made. Images are only known to work with the same kernel and the same CRIU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    pub criu: String,
    pub kernel: String,
    /// The process id of the tree's root as the daemon saw it; for reading logs.
    pub root: i32,
    pub dump_took: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Relative to the snapshot's directory.
    pub name: String,
    pub bytes: u64,
    pub checksum: Checksum,
}

/// All that a snapshot consists of, and the files outside that a restore relies on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    #[serde(flatten)]
    pub identity: Identity,
    pub origin: Origin,
    /// The segment file that the tree had mapped, as it was at the dump.
    pub segment: Option<SegmentFile>,
    /// Where the tree has its program, which is in the snapshot as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<PathBuf>,
    /// The output files, with their lengths at the dump.
    pub outputs: Vec<OutputFile>,
    /// Every file but the manifest, sorted by name.
    pub files: Vec<FileRecord>,
}

/// What is wrong with a snapshot. No damage can be repaired; only an older snapshot helps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    #[error("the manifest cannot be read: {0}")]
    Malformed(String),
    #[error("the manifest has magic '{found}'")]
    Magic { found: String },
    #[error("the manifest has version {found}; this program reads up to {VERSION}")]
    Version { found: u32 },
    /// The manifest differs from its own checksum.
    #[error("the manifest's contents are not what was written")]
    Manifest,
    #[error("{name} is missing")]
    Missing { name: String },
    /// A file was added after the snapshot was sealed.
    #[error("{name} does not belong to the snapshot")]
    Unknown { name: String },
    #[error("{name} has {found} bytes, not {recorded}")]
    Size { name: String, recorded: u64, found: u64 },
    #[error("{name} has other contents than were written")]
    Contents { name: String },
}

#[derive(Serialize, Deserialize)]
struct Envelope<'a> {
    magic: String,
    version: u32,
    checksum: Checksum,
    #[serde(borrow)]
    body: &'a RawValue,
}

impl Manifest {
    pub fn encode(&self) -> Vec<u8> {
        let body = serde_json::value::to_raw_value(self).expect("a manifest has only keys that are strings");
        let checksum = Checksum::of(body.get().as_bytes());
        let envelope = Envelope { magic: MAGIC.to_owned(), version: VERSION, checksum, body: &body };
        serde_json::to_vec(&envelope).expect("an envelope has only keys that are strings")
    }

    pub fn decode(bytes: &[u8]) -> Result<Manifest, Damage> {
        let malformed = |error: serde_json::Error| Damage::Malformed(error.to_string());
        let envelope: Envelope<'_> = serde_json::from_slice(bytes).map_err(malformed)?;
        if envelope.magic != MAGIC {
            return Err(Damage::Magic { found: envelope.magic });
        }
        if envelope.version > VERSION || envelope.version == 0 {
            return Err(Damage::Version { found: envelope.version });
        }
        if Checksum::of(envelope.body.get().as_bytes()) != envelope.checksum {
            return Err(Damage::Manifest);
        }
        serde_json::from_str(envelope.body.get()).map_err(malformed)
    }

    /// Compares with the names and lengths found in the directory. Cheap; done whenever a snapshot is opened.
    pub fn compare(&self, found: &[(String, u64)]) -> Result<(), Damage> {
        let known = |name: &str| self.files.iter().any(|file| file.name == name);
        for file in &self.files {
            match found.iter().find(|(name, _)| *name == file.name) {
                None => return Err(Damage::Missing { name: file.name.clone() }),
                Some((_, found)) if *found != file.bytes => {
                    return Err(Damage::Size {
                        name: file.name.clone(),
                        recorded: file.bytes,
                        found: *found,
                    });
                }
                Some(_) => {}
            }
        }
        match found.iter().find(|(name, _)| !known(name)) {
            Some((name, _)) => Err(Damage::Unknown { name: name.clone() }),
            None => Ok(()),
        }
    }

    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

impl FileRecord {
    pub fn check(&self, found: Checksum) -> Result<(), Damage> {
        if found == self.checksum { Ok(()) } else { Err(Damage::Contents { name: self.name.clone() }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let file = |name: &str, bytes: &[u8]| FileRecord {
            name: name.to_owned(),
            bytes: bytes.len() as u64,
            checksum: Checksum::of(bytes),
        };
        Manifest {
            identity: Identity {
                application: "cg-1".to_owned(),
                epoch: 7,
                created_unix_ms: 1_700_000_000_000,
            },
            origin: Origin {
                criu: "4.2.1".to_owned(),
                kernel: "6.18".to_owned(),
                root: 4711,
                dump_took: Duration::from_millis(43),
            },
            segment: Some(SegmentFile {
                path: "/dev/shm/cg-1".into(),
                device: 28,
                inode: 3,
                bytes: 1 << 20,
                mode: 0o100_600,
            }),
            program: None,
            outputs: vec![OutputFile { path: "/tmp/rank-0.out".into(), bytes: 12, inode: Some(7) }],
            files: vec![file("channels.bin", b"in flight"), file("images/files.img", b"files")],
        }
    }

    #[test]
    fn a_manifest_reads_back_as_it_was_written() {
        assert_eq!(Manifest::decode(&manifest().encode()), Ok(manifest()));
    }

    #[test]
    fn a_change_of_any_single_bit_is_detected() {
        let bytes = manifest().encode();
        for position in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[position] ^= 1 << bit;
                let read = Manifest::decode(&damaged);
                assert!(read.is_err(), "byte {position} bit {bit}: {}", String::from_utf8_lossy(&damaged));
            }
        }
    }

    #[test]
    fn a_manifest_cut_off_anywhere_is_refused() {
        let bytes = manifest().encode();
        assert!((0..bytes.len()).all(|length| Manifest::decode(&bytes[..length]).is_err()));
    }

    #[test]
    fn a_later_version_is_refused() {
        let text = String::from_utf8(manifest().encode()).unwrap().replace("\"version\":1", "\"version\":2");
        assert_eq!(Manifest::decode(text.as_bytes()), Err(Damage::Version { found: 2 }));
    }

    #[test]
    fn a_field_added_later_does_not_stop_an_older_reader() {
        let mut body = serde_json::to_value(manifest()).unwrap();
        body["compressed_by"] = "zstd".into();
        let body = serde_json::value::to_raw_value(&body).unwrap();
        let checksum = Checksum::of(body.get().as_bytes());
        let envelope = Envelope { magic: MAGIC.to_owned(), version: 1, checksum, body: &body };
        assert_eq!(Manifest::decode(&serde_json::to_vec(&envelope).unwrap()), Ok(manifest()));
    }

    #[test]
    fn files_missing_added_or_of_another_length_are_reported_by_name() {
        let found =
            |files: &[(&str, u64)]| files.iter().map(|(name, n)| (name.to_string(), *n)).collect::<Vec<_>>();
        let manifest = manifest();
        assert_eq!(manifest.compare(&found(&[("channels.bin", 9), ("images/files.img", 5)])), Ok(()));
        let missing = manifest.compare(&found(&[("channels.bin", 9)]));
        assert_eq!(missing, Err(Damage::Missing { name: "images/files.img".to_owned() }));
        let size = manifest.compare(&found(&[("channels.bin", 8), ("images/files.img", 5)]));
        assert_eq!(size, Err(Damage::Size { name: "channels.bin".to_owned(), recorded: 9, found: 8 }));
        let unknown =
            manifest.compare(&found(&[("channels.bin", 9), ("images/files.img", 5), ("images/x", 0)]));
        assert_eq!(unknown, Err(Damage::Unknown { name: "images/x".to_owned() }));
    }
}
