//! Manifest of a snapshot: lists all parts of a complete snapshot. Pure.
//!
//! ```json
//! {"magic":"coswitch-snapshot","version":2,"salt":"…","outline":{…},"sealed":"…"}
//! ```
//! The outline is not encrypted: the application, the epoch, and names and lengths of the files. The
//! rest is encrypted, and the tag of that covers the outline as well. A manifest is read by the key of the
//! place where it lies (application, epoch, owner): one that was moved there from another place is refused,
//! as is one that differs in a single byte from what was written. Fields of the sealed part that version N
//! does not know are not an error: a later program may add one that older programs may ignore. Version 1 was
//! not sealed, and is refused.

use crate::keys::{FileKey, Hex32, Place, SnapshotKeys, from_hex, to_hex};
use crate::machine;
use crate::preflight::{OutputFile, SegmentFile};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The name of the manifest in a snapshot's directory.
pub const FILE_NAME: &str = "manifest.json";
/// A larger file is refused before it is decoded. A tree of a thousand ranks has some thousands of files.
pub const BYTES_MAX: u64 = 16 << 20;

const MAGIC: &str = "coswitch-snapshot";
const VERSION: u32 = 2;

/// The xxh3 hash of bytes on their way to another node, 128 bits. It detects damage, not manipulation.
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
    /// The store that it belongs to: that of one node of a cluster.
    pub owner: String,
    /// When writing began.
    pub created_unix_ms: u64,
}

/// Where a snapshot was made. Images are only known to work with the same kernel and the same CRIU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    pub criu: String,
    pub kernel: String,
    /// The process id of the tree's root as the daemon saw it; for reading logs.
    pub root: i32,
    pub dump_took: Duration,
    /// What its processors can do for programs; empty where that is not known.
    #[serde(default)]
    pub cpu: BTreeSet<String>,
}

impl Origin {
    /// Whether a tree from there can run on this machine.
    ///
    /// # Errors
    /// Where its processors lack what those had.
    pub fn check(&self) -> Result<(), OtherMachine> {
        let missing = machine::missing(&self.cpu, machine::features());
        if missing.is_empty() { Ok(()) } else { Err(OtherMachine(missing.join(", "))) }
    }
}

/// A snapshot is of another kind of processor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it was made on a processor with {0}, which this one has not")]
pub struct OtherMachine(String);

/// A file of a snapshot, as it was sealed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Relative to the snapshot's directory.
    pub name: String,
    /// As it is stored.
    pub bytes: u64,
    #[serde(flatten)]
    pub(crate) proof: Proof,
}

/// By what a file's contents are known to be the right ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Proof {
    /// It is encrypted: it opens with the key that this salt gives.
    Salt(Hex32),
    /// It is stored as it is, because it is a program that lies beside the snapshots as well.
    Sha256(Hex32),
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
    #[error("the manifest has version {found}; this program reads version {VERSION}")]
    Version { found: u32 },
    /// A snapshot of another application, epoch or node was put in its place.
    #[error("it is another snapshot: {found}, not {expected}")]
    Another { expected: String, found: String },
    #[error("the manifest is not what was written, or was sealed with another key")]
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

/// What can be known of a snapshot without its key; it may have been forged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outline {
    #[serde(flatten)]
    pub identity: Identity,
    /// Names and lengths of all files but the manifest, sorted by name.
    files: Vec<(String, u64)>,
}

/// What all versions begin with.
#[derive(Deserialize)]
struct Header {
    magic: String,
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct Envelope<'a> {
    magic: String,
    version: u32,
    salt: Hex32,
    #[serde(borrow)]
    outline: &'a RawValue,
    /// A [`Manifest`].
    sealed: String,
}

impl<'a> Envelope<'a> {
    fn decode(bytes: &'a [u8]) -> Result<Envelope<'a>, Damage> {
        let Header { magic, version } = serde_json::from_slice(bytes).map_err(malformed)?;
        if magic != MAGIC {
            return Err(Damage::Magic { found: magic });
        }
        if version != VERSION {
            return Err(Damage::Version { found: version });
        }
        serde_json::from_slice(bytes).map_err(malformed)
    }
}

fn malformed(error: serde_json::Error) -> Damage {
    Damage::Malformed(error.to_string())
}

impl Identity {
    fn says(&self) -> String {
        says(&self.application, self.epoch, &self.owner)
    }
}

fn says(application: &str, epoch: u64, owner: &str) -> String {
    format!("epoch {epoch} of {application} of {owner}")
}

impl Outline {
    pub fn decode(bytes: &[u8]) -> Result<Outline, Damage> {
        serde_json::from_str(Envelope::decode(bytes)?.outline.get()).map_err(malformed)
    }

    /// Compares with the names and lengths found in the directory. Cheap; done whenever a snapshot is opened.
    pub fn compare(&self, found: &[(String, u64)]) -> Result<(), Damage> {
        for (name, recorded) in &self.files {
            match found.iter().find(|(found, _)| found == name) {
                None => return Err(Damage::Missing { name: name.clone() }),
                Some((_, found)) if found != recorded => {
                    return Err(Damage::Size { name: name.clone(), recorded: *recorded, found: *found });
                }
                Some(_) => {}
            }
        }
        let known = |name: &str| self.files.iter().any(|(file, _)| file == name);
        match found.iter().find(|(name, _)| !known(name)) {
            Some((name, _)) => Err(Damage::Unknown { name: name.clone() }),
            None => Ok(()),
        }
    }

    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes).sum()
    }
}

impl Manifest {
    /// `salt` was used for nothing else.
    pub(crate) fn encode(&self, keys: &SnapshotKeys, salt: Hex32) -> Vec<u8> {
        const WRITABLE: &str = "a manifest has only keys that are strings";
        let outline = serde_json::value::to_raw_value(&self.outline()).expect(WRITABLE);
        let mut sealed = serde_json::to_vec(self).expect(WRITABLE);
        let (key, place) = opened_by(keys, &self.identity.owner, &salt, &outline);
        key.seal(place, &mut sealed, 0);
        let (magic, sealed) = (MAGIC.to_owned(), to_hex(&sealed));
        let envelope = Envelope { magic, version: VERSION, salt, outline: &outline, sealed };
        serde_json::to_vec(&envelope).expect(WRITABLE)
    }

    /// The manifest of the snapshot that has these keys, in the store of `owner`.
    pub(crate) fn decode(bytes: &[u8], keys: &SnapshotKeys, owner: &str) -> Result<Manifest, Damage> {
        let envelope = Envelope::decode(bytes)?;
        let outline: Outline = serde_json::from_str(envelope.outline.get()).map_err(malformed)?;
        let (found, expected) = (outline.identity.says(), says(&keys.application, keys.epoch, owner));
        if found != expected {
            return Err(Damage::Another { expected, found });
        }
        let mut sealed = from_hex(&envelope.sealed).ok_or(Damage::Manifest)?;
        let (key, place) = opened_by(keys, owner, &envelope.salt, envelope.outline);
        let body = key.open(place, &mut sealed).ok_or(Damage::Manifest)?;
        let manifest: Manifest = serde_json::from_slice(body).map_err(malformed)?;
        // JSON with other spaces or another order of fields would mean the same, and was not written by us.
        let is_as_written = serde_json::to_vec(&envelope).is_ok_and(|written| written == bytes);
        if is_as_written && outline == manifest.outline() { Ok(manifest) } else { Err(Damage::Manifest) }
    }

    pub fn outline(&self) -> Outline {
        let files = self.files.iter().map(|file| (file.name.clone(), file.bytes)).collect();
        Outline { identity: self.identity.clone(), files }
    }

    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

fn opened_by<'a>(
    keys: &SnapshotKeys,
    owner: &str,
    salt: &Hex32,
    outline: &'a RawValue,
) -> (FileKey, Place<'a>) {
    let place = Place { chunk: 0, is_last: true, context: outline.get().as_bytes() };
    (keys.manifest(owner, salt), place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{ClusterKey, Sealing};

    const SALT: Hex32 = Hex32([5; 32]);

    fn keys() -> SnapshotKeys {
        Sealing::new(ClusterKey::from([1; 32]), "r1-2-n0".into(), "/".into()).keys("cg-1", 7)
    }

    fn encoded(manifest: &Manifest) -> Vec<u8> {
        manifest.encode(&keys(), SALT)
    }

    fn decoded(bytes: &[u8]) -> Result<Manifest, Damage> {
        Manifest::decode(bytes, &keys(), "r1-2-n0")
    }

    fn manifest() -> Manifest {
        let file = |name: &str, bytes: u64, proof| FileRecord { name: name.to_owned(), bytes, proof };
        Manifest {
            identity: Identity {
                application: "cg-1".to_owned(),
                epoch: 7,
                owner: "r1-2-n0".to_owned(),
                created_unix_ms: 1_700_000_000_000,
            },
            origin: Origin {
                criu: "4.2.1".to_owned(),
                kernel: "6.18".to_owned(),
                root: 4711,
                dump_took: Duration::from_millis(43),
                cpu: BTreeSet::from(["sse2".to_owned()]),
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
            files: vec![
                file("channels.bin", 9, Proof::Salt(Hex32([8; 32]))),
                file("program", 5, Proof::Sha256(Hex32([9; 32]))),
            ],
        }
    }

    #[test]
    fn a_manifest_reads_back_as_it_was_written_and_shows_an_outline_alone() {
        let bytes = encoded(&manifest());
        assert_eq!(decoded(&bytes), Ok(manifest()));
        assert_eq!(Outline::decode(&bytes), Ok(manifest().outline()));
        let text = String::from_utf8(bytes).unwrap();
        assert!(
            text.contains("channels.bin") && !text.contains("rank-0.out") && !text.contains("4711"),
            "{text}"
        );
    }

    #[test]
    fn a_change_of_any_single_bit_is_detected() {
        let bytes = encoded(&manifest());
        for position in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[position] ^= 1 << bit;
                let read = decoded(&damaged);
                assert!(read.is_err(), "byte {position} bit {bit}: {}", String::from_utf8_lossy(&damaged));
            }
        }
    }

    #[test]
    fn a_manifest_cut_off_anywhere_or_longer_is_refused() {
        let bytes = encoded(&manifest());
        assert!((0..bytes.len()).all(|length| decoded(&bytes[..length]).is_err()));
        assert_eq!(decoded(&[&bytes[..], b"\n"].concat()), Err(Damage::Manifest));
    }

    #[test]
    fn the_manifest_of_another_snapshot_or_key_is_refused_and_named() {
        let bytes = encoded(&manifest());
        let sealing = |key: u8| Sealing::new(ClusterKey::from([key; 32]), String::new(), "/".into());
        let read = |sealing: Sealing, application, epoch, owner| {
            Manifest::decode(&bytes, &sealing.keys(application, epoch), owner)
        };
        for (application, epoch, owner) in
            [("cg-2", 7, "r1-2-n0"), ("cg-1", 8, "r1-2-n0"), ("cg-1", 7, "r1-2-n1")]
        {
            let refused = read(sealing(1), application, epoch, owner).unwrap_err();
            assert!(matches!(refused, Damage::Another { .. }), "{refused}");
            assert!(refused.to_string().contains("epoch 7 of cg-1 of r1-2-n0, not epoch"), "{refused}");
        }
        // Nor does it help to name the place where it was put.
        let text = String::from_utf8(bytes.clone()).unwrap();
        let forged = text.replace("\"epoch\":7", "\"epoch\":8");
        let refused = Manifest::decode(forged.as_bytes(), &sealing(1).keys("cg-1", 8), "r1-2-n0");
        assert_eq!(refused, Err(Damage::Manifest));
        assert_eq!(read(sealing(2), "cg-1", 7, "r1-2-n0"), Err(Damage::Manifest));
        assert_eq!(read(sealing(1), "cg-1", 7, "r1-2-n0"), Ok(manifest()));
    }

    #[test]
    fn an_earlier_and_a_later_version_are_refused() {
        let text = String::from_utf8(encoded(&manifest())).unwrap().replace("\"version\":2", "\"version\":3");
        assert_eq!(decoded(text.as_bytes()), Err(Damage::Version { found: 3 }));
        let first =
            r#"{"magic":"coswitch-snapshot","version":1,"checksum":"00","body":{"application":"cg-1"}}"#;
        let refused = decoded(first.as_bytes()).unwrap_err();
        assert_eq!(refused.to_string(), "the manifest has version 1; this program reads version 2");
        assert_eq!(Outline::decode(first.as_bytes()), Err(refused));
    }

    #[test]
    fn a_field_added_later_does_not_stop_an_older_reader() {
        let mut body = serde_json::to_value(manifest()).unwrap();
        body["compressed_by"] = "zstd".into();
        let outline = serde_json::value::to_raw_value(&manifest().outline()).unwrap();
        let (key, place) = opened_by(&keys(), "r1-2-n0", &SALT, &outline);
        let mut sealed = serde_json::to_vec(&body).unwrap();
        key.seal(place, &mut sealed, 0);
        let (magic, sealed) = (MAGIC.to_owned(), to_hex(&sealed));
        let envelope = Envelope { magic, version: VERSION, salt: SALT, outline: &outline, sealed };
        assert_eq!(decoded(&serde_json::to_vec(&envelope).unwrap()), Ok(manifest()));
    }

    #[test]
    fn a_snapshot_of_another_kind_of_processor_is_refused_with_what_is_missing() {
        let made_with = |names: &[&str]| Origin {
            cpu: names.iter().map(ToString::to_string).collect(),
            ..Origin::default()
        };
        let refused = made_with(&["avx1024", "imaginary"]).check().unwrap_err().to_string();
        assert_eq!(refused, "it was made on a processor with avx1024, imaginary, which this one has not");
        assert_eq!(made_with(&[]).check(), Ok(()), "of an earlier version");
        let here = Origin { cpu: machine::features().clone(), ..Origin::default() };
        assert_eq!(here.check(), Ok(()));
    }

    #[test]
    fn files_missing_added_or_of_another_length_are_reported_by_name() {
        let found =
            |files: &[(&str, u64)]| files.iter().map(|(name, n)| (name.to_string(), *n)).collect::<Vec<_>>();
        let outline = manifest().outline();
        assert_eq!(outline.compare(&found(&[("channels.bin", 9), ("program", 5)])), Ok(()));
        let missing = outline.compare(&found(&[("channels.bin", 9)]));
        assert_eq!(missing, Err(Damage::Missing { name: "program".to_owned() }));
        let size = outline.compare(&found(&[("channels.bin", 8), ("program", 5)]));
        assert_eq!(size, Err(Damage::Size { name: "channels.bin".to_owned(), recorded: 9, found: 8 }));
        let unknown = outline.compare(&found(&[("channels.bin", 9), ("program", 5), ("images/x", 0)]));
        assert_eq!(unknown, Err(Damage::Unknown { name: "images/x".to_owned() }));
    }
}
