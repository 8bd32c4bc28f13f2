//! One snapshot in a directory: written in two steps, checked and restored.
//!
//! ```text
//! epoch-N/images/        CRIU's, and pages  begin ─ images dumped, segment and channels saved ─▶ tree may go
//!         segment.zst    the segment file                   │
//!         part.json      what a new daemon has to know      │
//!         program        where it came with the application │
//!         channels.bin   messages in flight                 └─ seal: hash, fsync, manifest last, by rename
//!         log/           CRIU's, not sealed
//!         manifest.json  without it, there is no snapshot; renamed to manifest.damaged when damage is found
//! ```
//! [`SnapshotWriter::seal`] reads everything once more and waits for the disk, so it runs beside the next
//! job. Until it returns, the previous snapshot is the last valid one.

use crate::criu::Criu;
use crate::dump::DumpReport;
use crate::error::{SnapshotError, at};
use crate::files;
use crate::images;
use crate::manifest::{self, Damage, FileRecord, Identity, Manifest, Origin};
use crate::pages::{Arena, FillError, Memory, PAGES, Unusable};
use crate::preflight::{OutputFile, SegmentFile};
use crate::private;
use crate::program;
use crate::reservations::Reservation;
use crate::restore::{RestoreError, RestoreRequest, Restored};
use crate::segment;
use nix::unistd::Pid;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const IMAGES: &str = "images";
/// The manifest's name after damage was found.
const DAMAGED: &str = "manifest.damaged";
const SEGMENT: &str = "segment.zst";
const CHANNELS: &str = "channels.bin";
const PART: &str = "part.json";
const PROGRAM: &str = "program";
/// Arguments and environment of a program, and the keys that its ranks have exchanged.
const PART_BYTES_MAX: u64 = 1 << 30;
/// Messages in flight are bounded by the credits of the links, far below this.
const CHANNELS_BYTES_MAX: u64 = 4 << 30;

fn pages_name() -> String {
    format!("{IMAGES}/{PAGES}")
}

/// Why a snapshot was not restored; no process of it is left.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotRestoreError {
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    Restore(#[from] RestoreError),
}

/// A snapshot being written. Dropping it before [`SnapshotWriter::seal`] removes what it has written.
#[derive(Debug)]
pub struct SnapshotWriter {
    dir: PathBuf,
    identity: Identity,
    segment: Option<SegmentFile>,
    program: Option<PathBuf>,
    outputs: Vec<OutputFile>,
    /// The pages that the dump left in memory, and the arena that may keep them after sealing.
    memory: Option<(Memory, Arena)>,
    /// Held, not read.
    _reservation: Option<Reservation>,
    sealed: bool,
}

impl SnapshotWriter {
    /// Creates the directory and, if need be, the application's. A half-written snapshot in it is removed; a
    /// sealed one is an error.
    pub fn begin(dir: &Path, identity: Identity) -> Result<SnapshotWriter, SnapshotError> {
        if dir.join(manifest::FILE_NAME).exists() {
            return Err(SnapshotError::Exists { dir: dir.to_owned() });
        }
        if dir.exists() {
            fs::remove_dir_all(dir).map_err(at(dir))?;
        }
        if let Some(application) = dir.parent() {
            private::ensure_dir(application)?;
        }
        private::create_dir(dir).map_err(at(dir))?;
        let writer = SnapshotWriter {
            dir: dir.to_owned(),
            identity,
            segment: None,
            program: None,
            outputs: Vec::new(),
            memory: None,
            _reservation: None,
            sealed: false,
        };
        for dir in [writer.images_dir(), writer.work_dir()] {
            private::create_dir(&dir).map_err(at(&dir))?;
        }
        Ok(writer)
    }

    /// Holds that reservation until the snapshot is sealed or dropped.
    pub(crate) fn with_reservation(mut self, reservation: Reservation) -> SnapshotWriter {
        self._reservation = Some(reservation);
        self
    }

    /// The directory of the store that the snapshot is in.
    pub fn tier(&self) -> &Path {
        self.dir.ancestors().nth(2).unwrap_or(&self.dir)
    }

    pub fn images_dir(&self) -> PathBuf {
        self.dir.join(IMAGES)
    }

    /// The directory for CRIU's log and statistics.
    pub fn work_dir(&self) -> PathBuf {
        self.dir.join(files::LOG_DIR)
    }

    /// Stores the contents of the segment file and records its identity; returns how many bytes were stored.
    pub fn save_segment(&mut self, path: &Path) -> Result<u64, SnapshotError> {
        let file = private::open(path).map_err(at(path))?;
        let stored = segment::save(&file, &self.dir.join(SEGMENT))?;
        self.segment = Some(SegmentFile::of(&file, path).map_err(at(path))?);
        Ok(stored)
    }

    /// Stores the channel states, as the daemon has encoded them.
    pub fn save_channels(&mut self, channels: &[u8]) -> Result<(), SnapshotError> {
        let path = self.dir.join(CHANNELS);
        private::write(&path, channels).map_err(at(&path))
    }

    /// Stores what a daemon that knows nothing of the application needs to restore it, as its daemon has
    /// encoded it.
    pub fn save_part(&mut self, part: &[u8]) -> Result<(), SnapshotError> {
        let path = self.dir.join(PART);
        private::write(&path, part).map_err(at(&path))
    }

    /// Stores the program at `path`, which has come to this node with the application. On the file system of
    /// the snapshot it takes no space.
    pub fn save_program(&mut self, path: &Path) -> Result<(), SnapshotError> {
        program::link_or_copy(path, &self.dir.join(PROGRAM))?;
        self.program = Some(path.to_owned());
        Ok(())
    }

    /// Records the lengths of the tree's output files: from CRIU's images, or else as they are now. A removed
    /// output file is skipped: it is not worth losing the tree, which is only in the images by now. Other
    /// files that the program has opened to write to are recorded as well.
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
                (_, Err(error)) => return Err(at(path)(error)),
            };
            self.outputs.push(OutputFile { path: path.clone(), bytes, inode: None });
        }
        // One that has changed since the dump is left to the checks before a restore.
        let own = in_images.into_iter().filter(|file| file.is_written);
        for (path, bytes) in own.map(|file| (PathBuf::from(file.path), file.bytes)) {
            let found =
                fs::metadata(&path).ok().filter(|found| found.is_file() && bytes == Some(found.len()));
            let (Some(found), false) = (found, self.is_known(&path)) else { continue };
            self.outputs.push(OutputFile { path, bytes: found.len(), inode: Some(found.ino()) });
        }
        Ok(())
    }

    /// Whether the file is an output already, or one of the daemon's, beside the segment.
    fn is_known(&self, path: &Path) -> bool {
        let daemons = self.segment.as_ref().and_then(|segment| segment.path.parent());
        self.outputs.iter().any(|known| known.path == path)
            || !path.is_absolute()
            || daemons.is_some_and(|daemons| path.starts_with(daemons))
    }

    /// Takes the pages that the dump left in memory, to be sealed; the arena may keep them after that.
    pub fn take_memory(&mut self, memory: Option<Memory>, arena: &Arena) {
        self.memory = memory.map(|memory| (memory, arena.clone()));
    }

    /// Writes the pages, hashes and syncs all files, then writes the manifest. When it returns, the snapshot
    /// is valid.
    pub fn seal(mut self, origin: Origin) -> Result<Manifest, SnapshotError> {
        let images_dir = self.images_dir();
        let pages = self.memory.as_ref().map(|(memory, _)| memory.write(&images_dir)).transpose()?;
        let records = files::seal(&self.dir, pages.map(|(record, _)| record).as_slice())?;
        files::sync_dir(&self.images_dir())?;
        let manifest = Manifest {
            identity: self.identity.clone(),
            origin,
            segment: self.segment.take(),
            program: self.program.take(),
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

    /// Seals a snapshot whose files have come from elsewhere, if each is as `manifest` says. Where the tree
    /// will have its files at other paths, or other things are to be known of the application, these are
    /// changed after that.
    pub(crate) fn seal_as(
        mut self,
        manifest: &Manifest,
        Moved { segment, program, part }: Moved<'_>,
    ) -> Result<(), SnapshotError> {
        let damaged = |damage| SnapshotError::Damaged { dir: self.dir.clone(), damage };
        let found = files::seal(&self.dir, &[])?;
        let sizes: Vec<_> = found.iter().map(|file| (file.name.clone(), file.bytes)).collect();
        manifest.compare(&sizes).map_err(damaged)?;
        for file in &manifest.files {
            let same = found.iter().find(|found| found.name == file.name);
            same.map_or(Ok(()), |found| file.check(found.checksum)).map_err(damaged)?;
        }
        let mut manifest = manifest.clone();
        // The launcher works in that of the segment.
        let directory = |path: &Path| path.parent().unwrap_or(path).to_owned();
        let known = [manifest.segment.as_mut().map(|known| &mut known.path), manifest.program.as_mut()];
        for (path, known) in [segment, program].into_iter().zip(known) {
            let Some((path, known)) = path.zip(known) else { continue };
            let moved = images::rename_directory(&self.images_dir(), &directory(known), &directory(path));
            moved.map_err(|error| at(&self.dir)(io::Error::other(error)))?;
            path.clone_into(known);
        }
        if let Some(part) = part {
            let path = self.dir.join(PART);
            fs::remove_file(&path).and_then(|()| private::write(&path, part)).map_err(at(&path))?;
        }
        let changed = |file: &FileRecord| file.name == PART || file.name == images::files_name(IMAGES);
        let unchanged: Vec<FileRecord> = found.into_iter().filter(|file| !changed(file)).collect();
        manifest.files = files::seal(&self.dir, &unchanged)?;
        files::sync_dir(&self.images_dir())?;
        files::write_durably(&self.dir.join(manifest::FILE_NAME), &manifest.encode())?;
        if let Some(parent) = self.dir.parent() {
            files::sync_dir(parent)?;
        }
        self.sealed = true;
        Ok(())
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn part_path(&self) -> PathBuf {
        self.dir.join(PART)
    }
}

/// What is otherwise on the node to which a snapshot comes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moved<'a> {
    /// The path of the segment file.
    pub segment: Option<&'a Path>,
    /// The path of the program, where the snapshot has one.
    pub program: Option<&'a Path>,
    /// What the daemon has stored of the application.
    pub part: Option<&'a [u8]>,
}

impl Drop for SnapshotWriter {
    fn drop(&mut self) {
        if !self.sealed {
            fs::remove_dir_all(&self.dir).ok();
        }
    }
}

impl Origin {
    /// The origin of a dump that this CRIU has made on this machine.
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

/// A sealed snapshot whose files are all there, with the right lengths. [`Snapshot::verify`] checks their
/// contents.
#[derive(Clone, Debug)]
pub struct Snapshot {
    dir: PathBuf,
    manifest: Manifest,
}

impl Snapshot {
    pub fn open(dir: &Path) -> Result<Snapshot, SnapshotError> {
        let path = dir.join(manifest::FILE_NAME);
        if dir.join(DAMAGED).exists() {
            return Err(SnapshotError::MarkedDamaged { dir: dir.to_owned() });
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

    /// Reads all files and compares them with their checksums.
    pub fn verify(&self) -> Result<(), SnapshotError> {
        files::verify(&self.dir, &self.manifest.files.iter().collect::<Vec<_>>())
    }

    /// Restores the tree, stopped, if every byte is as it was sealed. Files that CRIU interprets are checked
    /// before CRIU starts; its files of pages are checked while it copies them, and a tree with a wrong page
    /// never runs. A snapshot that turns out damaged is marked and does not count as sealed any more.
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
        // Deferred pages are left out here: each chunk of them is checked before it is written into the tree.
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

    /// Returns the verified channel states; `None` if none were saved.
    pub fn channels(&self) -> Result<Option<Vec<u8>>, SnapshotError> {
        let Some(record) = self.record(CHANNELS) else { return Ok(None) };
        files::verify_one(&self.dir, record)?;
        files::read_bounded(&self.dir.join(CHANNELS), CHANNELS_BYTES_MAX).map(Some)
    }

    /// Returns what the daemon has stored of the application, verified; `None` if it stored nothing.
    pub fn part(&self) -> Result<Option<Vec<u8>>, SnapshotError> {
        let Some(record) = self.record(PART) else { return Ok(None) };
        files::verify_one(&self.dir, record)?;
        files::read_bounded(&self.dir.join(PART), PART_BYTES_MAX).map(Some)
    }

    /// Puts the program of the tree in its place, where it has come with the application and is not there.
    pub fn place_program(&self) -> Result<(), SnapshotError> {
        let Some((path, record)) = self.manifest.program.as_ref().zip(self.record(PROGRAM)) else {
            return Ok(());
        };
        program::place(&self.dir.join(PROGRAM), record.checksum, path)
    }

    /// Refills the segment file at that path in place, after verifying the stored contents.
    pub fn load_segment(&self, path: &Path) -> Result<(), SnapshotError> {
        let missing = Damage::Missing { name: SEGMENT.to_owned() };
        let record = self.record(SEGMENT);
        let record = record.ok_or(SnapshotError::Damaged { dir: self.dir.clone(), damage: missing })?;
        files::verify_one(&self.dir, record)?;
        let file = private::open_to_write(path).map_err(at(path))?;
        Ok(segment::load(&self.dir.join(SEGMENT), &file)?)
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
            images_dir: self.dir.join(IMAGES),
            work_dir: self.dir.join(files::LOG_DIR),
            cgroups,
            segment,
            outputs: self.manifest.outputs.clone(),
            arena: None,
            user: None,
            leave_stopped: true,
            timeout,
        }
    }

    /// Removes the snapshot: the manifest first, so that half of it is never taken for a snapshot.
    pub fn remove(self) -> Result<(), SnapshotError> {
        let manifest = self.dir.join(manifest::FILE_NAME);
        fs::remove_file(&manifest).map_err(at(&manifest))?;
        fs::remove_dir_all(&self.dir).map_err(at(&self.dir))
    }

    fn record(&self, name: &str) -> Option<&FileRecord> {
        self.manifest.files.iter().find(|file| file.name == name)
    }
}
