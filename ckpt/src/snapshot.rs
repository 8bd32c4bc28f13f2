//! One snapshot in a directory: written in two steps, checked and restored.
//!
//! ```text
//! epoch-N/images/        CRIU's, and pages  begin ─ images dumped, segment and channels saved ─▶ tree may go
//!         segment.zst    the segment file                   │
//!         part.json      what a new daemon has to know      │
//!         program        where it came with the application │
//!         channels.bin   messages in flight                 └─ seal: encrypt, fsync, rename the manifest
//!         log/           CRIU's, not sealed
//!         manifest.json  without it, there is no snapshot; renamed to manifest.damaged when damage is found
//! ```
//! All files but the program are encrypted ([`crate::keys`]). CRIU writes its images to a directory in memory
//! and finds them in one again ([`crate::plain`]). [`crate::writer`] writes a snapshot; its seal encrypts
//! images and pages and waits for the disk, so it runs beside the next job. Until the seal returns, the
//! previous snapshot is the last valid one.

use crate::criu::Criu;
use crate::error::{SnapshotError, at};
use crate::files;
use crate::keys::{Sealing, SnapshotKeys};
use crate::manifest::{self, Damage, FileRecord, Manifest, OtherMachine, Outline, Proof};
use crate::pages::{FillError, INDEX, PAGES, SealedPages, Unusable};
use crate::parallel::in_parallel;
use crate::plain::PlainDir;
use crate::preflight::SegmentFile;
use crate::private;
use crate::program;
use crate::restore::{RestoreError, RestoreRequest, Restored};
use crate::segment;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Begins the name of a snapshot's directory, in that of its application; the epoch follows.
pub(crate) const PREFIX: &str = "epoch-";
pub(crate) const IMAGES: &str = "images";
/// Begins the name of each image.
pub(crate) const BELOW_IMAGES: &str = "images/";
/// The manifest's name after damage was found.
const DAMAGED: &str = "manifest.damaged";
pub(crate) const SEGMENT: &str = "segment.zst";
pub(crate) const CHANNELS: &str = "channels.bin";
pub(crate) const PART: &str = "part.json";
pub(crate) const PROGRAM: &str = "program";
pub(crate) fn image_name(name: &str) -> String {
    format!("{BELOW_IMAGES}{name}")
}

/// Why a snapshot was not restored; no process of it is left.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotRestoreError {
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error(transparent)]
    OtherMachine(#[from] OtherMachine),
}

/// A sealed snapshot whose files are all there, with the right lengths. [`Snapshot::verify`] checks their
/// contents.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) dir: PathBuf,
    pub(crate) manifest: Manifest,
    pub(crate) keys: SnapshotKeys,
    /// Where CRIU finds its images at a restore.
    pub(crate) plain: PathBuf,
}

/// The application and the epoch after which a snapshot's directory is named.
fn named(dir: &Path) -> Option<(&str, u64)> {
    let epoch = dir.file_name()?.to_str()?.strip_prefix(PREFIX)?.parse().ok()?;
    Some((dir.parent()?.file_name()?.to_str()?, epoch))
}

/// Reads the manifest of a snapshot, which need not be genuine.
fn read_manifest(dir: &Path) -> Result<Vec<u8>, SnapshotError> {
    let path = dir.join(manifest::FILE_NAME);
    if dir.join(DAMAGED).exists() {
        return Err(SnapshotError::MarkedDamaged { dir: dir.to_owned() });
    }
    if !path.exists() {
        return Err(SnapshotError::Incomplete { dir: dir.to_owned() });
    }
    files::read_bounded(&path, manifest::BYTES_MAX)
}

/// What is wrong with a snapshot as far as can be seen without its key: names and lengths of files.
pub(crate) fn visible_problem(dir: &Path) -> Result<(), SnapshotError> {
    let bytes = read_manifest(dir)?;
    let found = files::list(dir)?;
    let compared = Outline::decode(&bytes).and_then(|outline| outline.compare(&found));
    compared.map_err(|damage| SnapshotError::Damaged { dir: dir.to_owned(), damage })
}

impl Snapshot {
    /// Opens the snapshot that is there, if it is the one that the directory is named after, of the store's
    /// owner.
    pub fn open(dir: &Path, sealing: &Sealing) -> Result<Snapshot, SnapshotError> {
        let bytes = read_manifest(dir)?;
        let damaged = |damage| SnapshotError::Damaged { dir: dir.to_owned(), damage };
        let malformed = || damaged(Damage::Malformed("no epoch of an application lies there".to_owned()));
        let (application, epoch) = named(dir).ok_or_else(malformed)?;
        let keys = sealing.keys(application, epoch);
        let manifest = Manifest::decode(&bytes, &keys, sealing.owner()).map_err(damaged)?;
        manifest.outline().compare(&files::list(dir)?).map_err(damaged)?;
        let plain = sealing.plain_dir("restore", application, epoch);
        Ok(Snapshot { dir: dir.to_owned(), manifest, keys, plain })
    }

    /// Compares every byte with what was sealed.
    pub fn verify(&self) -> Result<(), SnapshotError> {
        files::verify(&self.dir, &self.files_but_pages().collect::<Vec<_>>(), &self.keys)?;
        self.verify_pages()
    }

    /// Compares every byte of one file with what was sealed.
    pub fn verify_file(&self, name: &str) -> Result<(), SnapshotError> {
        match self.files_but_pages().find(|file| file.name == name) {
            Some(file) => files::verify(&self.dir, &[file], &self.keys),
            None => self.verify_pages(),
        }
    }

    fn verify_pages(&self) -> Result<(), SnapshotError> {
        let Some(pages) = self.pages()? else { return Ok(()) };
        pages.verify().map_err(|error| match error {
            FillError::Unusable(unusable) => self.damaged(of_pages(unusable)),
            error => at(&pages.dir)(io::Error::other(error)),
        })
    }

    pub(crate) fn damaged(&self, damage: Damage) -> SnapshotError {
        SnapshotError::Damaged { dir: self.dir.clone(), damage }
    }

    /// Restores the tree, stopped, if every byte is as it was sealed. Files that CRIU interprets are opened
    /// before CRIU starts; pages are opened while they are written into the tree, and the other files beside
    /// CRIU. A tree with a wrong page never runs. A snapshot that turns out damaged is marked and does not
    /// count as sealed any more.
    pub fn restore(&self, criu: &Criu, request: &RestoreRequest) -> Result<Restored, SnapshotRestoreError> {
        self.restore_checked(criu, request).inspect_err(|error| {
            if matches!(error, SnapshotRestoreError::Snapshot(SnapshotError::Damaged { .. })) {
                self.mark_damaged();
            }
        })
    }

    fn restore_checked(
        &self,
        criu: &Criu,
        request: &RestoreRequest,
    ) -> Result<Restored, SnapshotRestoreError> {
        assert!(request.leave_stopped, "a tree runs only after all of it has been checked");
        self.manifest.origin.check()?;
        let request = RestoreRequest { pages: self.pages()?, ..request.clone() };
        let (images, others): (Vec<_>, Vec<_>) =
            self.files_but_pages().partition(|file| file.name.starts_with(BELOW_IMAGES));
        let plain = PlainDir::make(&request.images_dir)?;
        in_parallel(&images, |file| {
            let name = Path::new(&file.name).file_name().unwrap_or_default();
            files::open_to(&self.dir, file, &self.keys, &plain.path().join(name))
        })?;
        std::thread::scope(|scope| {
            let check = scope.spawn(|| files::verify(&self.dir, &others, &self.keys));
            let restored = criu.restore(&request);
            let checked = check.join().expect("opening does not panic");
            if let (Ok(restored), Err(_)) = (&restored, &checked) {
                restored.end(&request.cgroups);
            }
            checked?;
            restored.map_err(|error| match error {
                RestoreError::Pages(FillError::Unusable(unusable)) => self.damaged(of_pages(unusable)).into(),
                error => error.into(),
            })
        })
    }

    fn files_but_pages(&self) -> impl Iterator<Item = &FileRecord> {
        let of_pages = [PAGES, INDEX].map(image_name);
        self.manifest.files.iter().filter(move |file| !of_pages.contains(&file.name))
    }

    /// The deferred pages, where an arena took any at the dump.
    fn pages(&self) -> Result<Option<SealedPages>, SnapshotError> {
        let [pages, index] = [PAGES, INDEX].map(|name| self.record(&image_name(name)));
        match (pages, index) {
            (None, None) => Ok(None),
            (Some(pages), Some(index)) => {
                let sealed = SealedPages::of(&self.dir.join(IMAGES), [pages, index], &self.keys);
                sealed.map(Some).ok_or_else(|| self.damaged(of_pages(Unusable::Index)))
            }
            (pages, _) => {
                let name = image_name(if pages.is_none() { PAGES } else { INDEX });
                Err(self.damaged(Damage::Missing { name }))
            }
        }
    }

    /// Renames the manifest, so that the snapshot does not count as valid any more.
    fn mark_damaged(&self) {
        let manifest = self.dir.join(manifest::FILE_NAME);
        if let Err(error) = fs::rename(&manifest, self.dir.join(DAMAGED)) {
            tracing::warn!(dir = %self.dir.display(), %error, "a damaged snapshot could not be marked");
        }
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the channel states, if they are what was sealed; `None` if none were saved.
    pub fn channels(&self) -> Result<Option<Vec<u8>>, SnapshotError> {
        self.contents(CHANNELS)
    }

    /// Returns what the daemon has stored of the application, if it is what was sealed; `None` if it stored
    /// nothing.
    pub fn part(&self) -> Result<Option<Vec<u8>>, SnapshotError> {
        self.contents(PART)
    }

    fn contents(&self, name: &str) -> Result<Option<Vec<u8>>, SnapshotError> {
        self.record(name).map(|record| files::open_bytes(&self.dir, record, &self.keys)).transpose()
    }

    /// Puts the program of the tree in its place, where it has come with the application and is not there.
    pub fn place_program(&self) -> Result<(), SnapshotError> {
        let saved = self.manifest.program.as_ref().zip(self.record(PROGRAM));
        let Some((path, FileRecord { name, proof: Proof::Sha256(digest), .. })) = saved else {
            return Ok(());
        };
        match program::place(&self.dir.join(PROGRAM), *digest, path)? {
            true => Ok(()),
            false => Err(self.damaged(Damage::Contents { name: name.clone() })),
        }
    }

    /// Refills the segment file at that path in place, if the stored contents are what was sealed.
    pub fn load_segment(&self, path: &Path) -> Result<(), SnapshotError> {
        let missing = || self.damaged(Damage::Missing { name: SEGMENT.to_owned() });
        let stored = self.contents(SEGMENT)?.ok_or_else(missing)?;
        let file = private::open_to_write(path).map_err(at(path))?;
        Ok(segment::load(&stored, &file)?)
    }

    /// A request to restore the tree, stopped, into these cgroups; `segment` is the file that the daemon has
    /// mapped.
    pub fn restore_request(
        &self,
        cgroups: Vec<PathBuf>,
        segment: Option<SegmentFile>,
        timeout: Duration,
    ) -> RestoreRequest {
        RestoreRequest {
            images_dir: self.plain.clone(),
            work_dir: self.dir.join(files::LOG_DIR),
            cgroups,
            segment,
            outputs: self.manifest.outputs.clone(),
            pages: None,
            arena: None,
            user: None,
            leave_stopped: true,
            timeout,
        }
    }

    fn record(&self, name: &str) -> Option<&FileRecord> {
        self.manifest.files.iter().find(|file| file.name == name)
    }
}

fn of_pages(unusable: Unusable) -> Damage {
    let name = match unusable {
        Unusable::Index => INDEX,
        Unusable::Chunk { .. } => PAGES,
    };
    Damage::Contents { name: image_name(name) }
}

/// Removes a snapshot: the manifest first, so that half of it is never taken for a snapshot. Also succeeds
/// where there is none.
pub(crate) fn remove(dir: &Path) -> Result<(), SnapshotError> {
    let manifest = dir.join(manifest::FILE_NAME);
    let unless_gone = |removed: io::Result<()>| match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    unless_gone(fs::remove_file(&manifest)).map_err(at(&manifest))?;
    unless_gone(fs::remove_dir_all(dir)).map_err(at(dir))
}
