//! A snapshot in a directory: written in two steps, trusted only whole.
//!
//! ```text
//! epoch-N/images/        CRIU's, and pages    begin ─ images dumped, segment and channels saved ─▶ tree may go
//!         segment.zst    the segment file                     │
//!         channels.bin   messages in flight                   └─ seal: hash, fsync, manifest last, by rename
//!         log/           CRIU's, not sealed
//!         manifest.json  without it, there is no snapshot; renamed where damage was found
//! ```
//! [`SnapshotWriter::seal`] reads everything once more and waits for the disk: it can be done while the next job
//! runs. Until it has returned, the snapshot before it is the last valid one.

use crate::files;
use crate::images;
use crate::manifest::{self, Damage, FileRecord, Identity, Manifest, Origin};
use crate::pages::{FillError, PAGES, Unusable};
use crate::preflight::{OutputFile, SegmentFile};
use crate::restore::{RestoreError, RestoreRequest, Restored};
use crate::segment::{self, SegmentError};
use crate::store::Claim;
use crate::{Arena, Criu, DumpReport, Memory};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

const IMAGES: &str = "images";
/// The manifest of a snapshot that was found damaged.
const DISTRUSTED: &str = "manifest.damaged";
const SEGMENT: &str = "segment.zst";
const CHANNELS: &str = "channels.bin";
/// Messages in flight are bounded by the credits of the links, far below this.
const CHANNELS_BYTES_MAX: u64 = 4 << 30;

fn pages_name() -> String {
    format!("{IMAGES}/{PAGES}")
}

/// Why a snapshot could not be written or used.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// A file could not be used.
    #[error("use {}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// There is a valid snapshot of this epoch.
    #[error("write the snapshot {}: there is one already", .dir.display())]
    Exists {
        /// Its directory.
        dir: PathBuf,
    },
    /// It was never sealed.
    #[error("use the snapshot {}: it is not complete", .dir.display())]
    Incomplete {
        /// Its directory.
        dir: PathBuf,
    },
    /// It was found damaged when it was to be restored.
    #[error("use the snapshot {}: it was found damaged", .dir.display())]
    Distrusted {
        /// Its directory.
        dir: PathBuf,
    },
    /// It is not what was sealed.
    #[error("use the snapshot {}: {damage}", .dir.display())]
    Damaged {
        /// Its directory.
        dir: PathBuf,
        /// What is wrong.
        damage: Damage,
    },
    /// The segment's contents could not be stored or brought back.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

/// Why a snapshot was not brought back; nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum BringBackError {
    /// It cannot be trusted, or not be read.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// CRIU could not restore it.
    #[error(transparent)]
    Restore(#[from] RestoreError),
}

/// A snapshot being written. Dropped without [`SnapshotWriter::seal`], it removes what it has written.
#[derive(Debug)]
pub struct SnapshotWriter {
    dir: PathBuf,
    identity: Identity,
    segment: Option<SegmentFile>,
    outputs: Vec<OutputFile>,
    /// And where it stays when it is sealed.
    memory: Option<(Memory, Arena)>,
    /// Its room in the store.
    claim: Option<Claim>,
    sealed: bool,
}

impl SnapshotWriter {
    /// Creates the directory. A half-written snapshot in it is removed; a valid one is an error.
    pub fn begin(dir: &Path, identity: Identity) -> Result<SnapshotWriter, SnapshotError> {
        if dir.join(manifest::FILE_NAME).exists() {
            return Err(SnapshotError::Exists { dir: dir.to_owned() });
        }
        if dir.exists() {
            fs::remove_dir_all(dir).map_err(files::at(dir))?;
        }
        let writer = SnapshotWriter {
            dir: dir.to_owned(),
            identity,
            segment: None,
            outputs: Vec::new(),
            memory: None,
            claim: None,
            sealed: false,
        };
        for dir in [writer.images_dir(), writer.work_dir()] {
            fs::create_dir_all(&dir).map_err(files::at(&dir))?;
        }
        Ok(writer)
    }

    /// Holds its room until it is sealed or dropped.
    pub(crate) fn holding(mut self, claim: Claim) -> SnapshotWriter {
        self.claim = Some(claim);
        self
    }

    /// The directory of the store that it is in.
    pub fn tier(&self) -> &Path {
        self.dir.ancestors().nth(2).unwrap_or(&self.dir)
    }

    /// Where CRIU's images go.
    pub fn images_dir(&self) -> PathBuf {
        self.dir.join(IMAGES)
    }

    /// Where CRIU's log goes.
    pub fn work_dir(&self) -> PathBuf {
        self.dir.join(files::LOG_DIR)
    }

    /// Stores the contents of the segment file and records which file it is; returns how many bytes were not zero.
    pub fn save_segment(&mut self, path: &Path) -> Result<u64, SnapshotError> {
        let file = File::open(path).map_err(files::at(path))?;
        let stored = segment::save(&file, &self.dir.join(SEGMENT))?;
        self.segment = Some(SegmentFile::of(&file, path).map_err(files::at(path))?);
        Ok(stored)
    }

    /// Stores the channel states, which only the daemon can read.
    pub fn save_channels(&mut self, channels: &[u8]) -> Result<(), SnapshotError> {
        let path = self.dir.join(CHANNELS);
        fs::write(&path, channels).map_err(files::at(&path))
    }

    /// Records how long the tree's output files are: as CRIU found them where it did, else as they are now. One that
    /// somebody has removed is not recorded: it is not worth losing the tree, which is in the image by now.
    pub fn record_outputs(&mut self, paths: &[PathBuf]) -> Result<(), SnapshotError> {
        let in_images = images::regular_files(&self.images_dir()).unwrap_or_default();
        for path in paths {
            let in_image =
                in_images.iter().find(|file| Path::new(&file.path) == path).and_then(|file| file.bytes);
            let bytes = match (in_image, fs::metadata(path)) {
                (Some(bytes), Ok(_)) => bytes,
                (None, Ok(metadata)) => metadata.len(),
                (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => {
                    tracing::warn!(output = %path.display(), "an output file was removed");
                    continue;
                }
                (_, Err(error)) => return Err(files::at(path)(error)),
            };
            self.outputs.push(OutputFile { path: path.clone(), bytes });
        }
        Ok(())
    }

    /// Takes what the dump left in memory, to be sealed; it may stay in the arena after that.
    pub fn take_memory(&mut self, memory: Option<Memory>, arena: &Arena) {
        self.memory = memory.map(|memory| (memory, arena.clone()));
    }

    /// Writes the pages, hashes and syncs all files and then writes the manifest: from its return on, the snapshot is
    /// valid.
    pub fn seal(mut self, origin: Origin) -> Result<Manifest, SnapshotError> {
        let images_dir = self.images_dir();
        let pages = self.memory.as_ref().map(|(memory, _)| memory.write(&images_dir)).transpose()?;
        let records = files::seal(&self.dir, pages.map(|(record, _)| record).as_slice())?;
        files::sync_dir(&self.images_dir())?;
        let manifest = Manifest {
            identity: self.identity.clone(),
            origin,
            segment: self.segment.take(),
            outputs: std::mem::take(&mut self.outputs),
            files: records,
        };
        files::write_durably(&self.dir.join(manifest::FILE_NAME), &manifest.encode())?;
        if let Some(parent) = self.dir.parent() {
            files::sync_dir(parent)?;
        }
        self.sealed = true;
        if let Some((memory, arena)) = self.memory.take() {
            arena.keep(&images_dir, memory);
        }
        Ok(manifest)
    }
}

impl Drop for SnapshotWriter {
    fn drop(&mut self) {
        if !self.sealed {
            fs::remove_dir_all(&self.dir).ok();
        }
    }
}

impl Origin {
    /// Of a dump that this CRIU has made here.
    pub fn of(criu: &Criu, root: Pid, report: &DumpReport) -> Origin {
        let kernel = nix::sys::utsname::uname().map(|name| name.release().to_string_lossy().into_owned());
        Origin {
            criu: criu.version().to_string(),
            kernel: kernel.unwrap_or_default(),
            root: root.as_raw(),
            dump_took: report.took,
        }
    }
}

/// A sealed snapshot whose files are all there; whether their contents are good is for [`Snapshot::verify`] to say.
#[derive(Clone, Debug)]
pub struct Snapshot {
    dir: PathBuf,
    manifest: Manifest,
}

impl Snapshot {
    /// Reads the manifest and compares it with the names and lengths of the files.
    pub fn open(dir: &Path) -> Result<Snapshot, SnapshotError> {
        let path = dir.join(manifest::FILE_NAME);
        if dir.join(DISTRUSTED).exists() {
            return Err(SnapshotError::Distrusted { dir: dir.to_owned() });
        }
        if !path.exists() {
            return Err(SnapshotError::Incomplete { dir: dir.to_owned() });
        }
        let damaged = |damage| SnapshotError::Damaged { dir: dir.to_owned(), damage };
        let bytes = files::read_bounded(&path, manifest::BYTES_MAX)?;
        let manifest = Manifest::decode(&bytes).map_err(damaged)?;
        manifest.compare(&files::list(dir)?).map_err(damaged)?;
        Ok(Snapshot { dir: dir.to_owned(), manifest })
    }

    /// Reads all files and compares their contents with what was sealed.
    pub fn verify(&self) -> Result<(), SnapshotError> {
        files::verify(&self.dir, &self.manifest.files.iter().collect::<Vec<_>>())
    }

    /// Brings the tree back, stopped, if every byte of it is as it was sealed. What CRIU interprets is checked first;
    /// the pages, nearly all there is, are checked while it copies them, and a tree with a wrong one never runs.
    /// One that is found damaged does not count as sealed any more.
    pub fn restore(&self, criu: &Criu, request: &RestoreRequest) -> Result<Restored, BringBackError> {
        self.restore_checked(criu, request).inspect_err(|error| {
            if matches!(error, BringBackError::Snapshot(SnapshotError::Damaged { .. })) {
                self.distrust();
            }
        })
    }

    fn restore_checked(&self, criu: &Criu, request: &RestoreRequest) -> Result<Restored, BringBackError> {
        assert!(request.leave_stopped, "a tree runs only after all of it has been checked");
        // Of the pages that CRIU does not know, each chunk is checked before it is given to the tree.
        let known = self.manifest.files.iter().filter(|file| file.name != pages_name());
        let (pages, rest): (Vec<_>, Vec<_>) = known.partition(|file| images::holds_pages(&file.name));
        files::verify(&self.dir, &rest)?;
        std::thread::scope(|scope| {
            let check = scope.spawn(|| files::verify(&self.dir, &pages));
            let restored = criu.restore(request);
            let checked = check.join().expect("hashing does not panic");
            if let (Ok(restored), Err(_)) = (&restored, &checked) {
                restored.end(&request.cgroups);
            }
            checked?;
            restored.map_err(|error| match error {
                RestoreError::Pages(FillError::Unusable(Unusable::Chunk { .. })) => {
                    let damage = Damage::Contents { name: pages_name() };
                    SnapshotError::Damaged { dir: self.dir.clone(), damage }.into()
                }
                error => error.into(),
            })
        })
    }

    /// Takes the manifest's name away: what is known to be damaged must not be kept as if it were valid.
    fn distrust(&self) {
        let manifest = self.dir.join(manifest::FILE_NAME);
        if let Err(error) = fs::rename(&manifest, self.dir.join(DISTRUSTED)) {
            tracing::warn!(dir = %self.dir.display(), %error, "a damaged snapshot keeps its name");
        }
    }

    /// Gives it back, to one that was repaired.
    pub fn trust_again(&self) -> Result<(), SnapshotError> {
        let distrusted = self.dir.join(DISTRUSTED);
        fs::rename(&distrusted, self.dir.join(manifest::FILE_NAME)).map_err(files::at(&distrusted))
    }

    /// What it consists of.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The channel states, checked; `None` where none were saved.
    pub fn channels(&self) -> Result<Option<Vec<u8>>, SnapshotError> {
        let Some(record) = self.record(CHANNELS) else { return Ok(None) };
        files::verify_one(&self.dir, record)?;
        files::read_bounded(&self.dir.join(CHANNELS), CHANNELS_BYTES_MAX).map(Some)
    }

    /// Refills the segment file at that path, in place. Checked before anything is written to it.
    pub fn load_segment(&self, path: &Path) -> Result<(), SnapshotError> {
        let missing = Damage::Missing { name: SEGMENT.to_owned() };
        let record = self.record(SEGMENT);
        let record = record.ok_or(SnapshotError::Damaged { dir: self.dir.clone(), damage: missing })?;
        files::verify_one(&self.dir, record)?;
        let file = File::options().read(true).write(true).open(path).map_err(files::at(path))?;
        Ok(segment::load(&self.dir.join(SEGMENT), &file)?)
    }

    /// Asks for the tree to come back, stopped, into these cgroups; `segment` is the file that the daemon has mapped.
    pub fn restore_request(
        &self,
        cgroups: Vec<PathBuf>,
        segment: Option<SegmentFile>,
        timeout: Duration,
    ) -> RestoreRequest {
        RestoreRequest {
            images_dir: self.dir.join(IMAGES),
            work_dir: self.dir.join(files::LOG_DIR),
            cgroups,
            segment,
            outputs: self.manifest.outputs.clone(),
            arena: None,
            leave_stopped: true,
            timeout,
        }
    }

    /// Removes it; the manifest goes first, so that half of it is never taken for a snapshot.
    pub fn remove(self) -> Result<(), SnapshotError> {
        let manifest = self.dir.join(manifest::FILE_NAME);
        fs::remove_file(&manifest).map_err(files::at(&manifest))?;
        fs::remove_dir_all(&self.dir).map_err(files::at(&self.dir))
    }

    fn record(&self, name: &str) -> Option<&FileRecord> {
        self.manifest.files.iter().find(|file| file.name == name)
    }
}
