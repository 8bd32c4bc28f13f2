//! A snapshot that is being written: see [`crate::snapshot`].

use crate::criu::Criu;
use crate::dump::DumpReport;
use crate::error::{SnapshotError, at};
use crate::files::{self, NewFile};
use crate::image_file;
use crate::images;
use crate::keys::{Hex32, Sealing, SnapshotKeys};
use crate::machine;
use crate::manifest::{self, Damage, FileRecord, Identity, Manifest, Origin};
use crate::pages::{Arena, Memory};
use crate::parallel::in_parallel;
use crate::plain::PlainDir;
use crate::preflight::{OutputFile, SegmentFile};
use crate::private;
use crate::program;
use crate::reservations::Reservation;
use crate::segment;
use crate::snapshot::{BELOW_IMAGES, CHANNELS, IMAGES, PART, PROGRAM, SEGMENT, Snapshot, image_name};
use nix::unistd::Pid;
use std::collections::VecDeque;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Until a seal that has failed is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(300);

/// A snapshot being written. Dropping it before [`SnapshotWriter::seal`] removes what it has written.
#[derive(Debug)]
pub struct SnapshotWriter {
    dir: PathBuf,
    identity: Identity,
    keys: SnapshotKeys,
    /// Holds CRIU's images until they are sealed.
    plain: PlainDir,
    /// Those that are sealed, and perhaps not on the disk yet.
    files: Vec<FileRecord>,
    segment: Option<SegmentFile>,
    program: Option<PathBuf>,
    outputs: Vec<OutputFile>,
    /// The pages that the dump left in memory, and the arena that may keep them after sealing.
    memory: Option<(Memory, Arena)>,
    reservation: Option<Reservation>,
    /// Where it is tried next if it cannot be sealed where it is.
    spare: VecDeque<PathBuf>,
    sealed: bool,
}

impl SnapshotWriter {
    /// Creates the directory and, if need be, the application's. A half-written snapshot in it is removed; a
    /// sealed one is an error.
    pub(crate) fn begin(
        dir: &Path,
        identity: Identity,
        sealing: &Sealing,
    ) -> Result<SnapshotWriter, SnapshotError> {
        if dir.join(manifest::FILE_NAME).exists() {
            return Err(SnapshotError::Exists { dir: dir.to_owned() });
        }
        if dir.exists() {
            fs::remove_dir_all(dir).map_err(at(dir))?;
        }
        let (application, epoch) = (&identity.application, identity.epoch);
        let writer = SnapshotWriter {
            dir: dir.to_owned(),
            keys: sealing.keys(application, epoch),
            plain: PlainDir::make(&sealing.plain_dir("dump", application, epoch))?,
            identity,
            files: Vec::new(),
            segment: None,
            program: None,
            outputs: Vec::new(),
            memory: None,
            reservation: None,
            spare: VecDeque::new(),
            sealed: false,
        };
        writer.create_dirs()?;
        Ok(writer)
    }

    fn create_dirs(&self) -> Result<(), SnapshotError> {
        if let Some(application) = self.dir.parent() {
            private::ensure_dir(application)?;
        }
        for dir in [self.dir.clone(), self.pages_dir(), self.work_dir()] {
            private::create_dir(&dir).map_err(at(&dir))?;
        }
        Ok(())
    }

    /// Holds that reservation until the snapshot is sealed or dropped. Where it cannot be sealed, that is
    /// tried in the `spare` directories, one after another.
    pub(crate) fn with_reservation(
        mut self,
        reservation: Reservation,
        spare: impl IntoIterator<Item = PathBuf>,
    ) -> SnapshotWriter {
        self.reservation = Some(reservation);
        self.spare = spare.into_iter().collect();
        self
    }

    /// The directory of the store that the snapshot is in.
    pub fn tier(&self) -> &Path {
        self.dir.ancestors().nth(2).unwrap_or(&self.dir)
    }

    /// The directory for CRIU's images, in memory.
    pub fn images_dir(&self) -> PathBuf {
        self.plain.path().to_owned()
    }

    /// The directory for the pages, and for the images when they are sealed.
    pub fn pages_dir(&self) -> PathBuf {
        self.dir.join(IMAGES)
    }

    /// The directory for CRIU's log and statistics.
    pub fn work_dir(&self) -> PathBuf {
        self.dir.join(files::LOG_DIR)
    }

    /// Stores the contents of the segment file and records its identity; returns how many bytes were stored.
    pub fn save_segment(&mut self, path: &Path) -> Result<u64, SnapshotError> {
        let file = private::open(path).map_err(at(path))?;
        let mut target = NewFile::create(&self.dir, SEGMENT, &self.keys)?;
        let stored = segment::save(&file, &mut target)?;
        self.files.push(target.finish()?);
        self.segment = Some(SegmentFile::of(&file, path).map_err(at(path))?);
        Ok(stored)
    }

    /// Stores the channel states, as the daemon has encoded them.
    pub fn save_channels(&mut self, channels: &[u8]) -> Result<(), SnapshotError> {
        self.save(CHANNELS, channels)
    }

    /// Stores what a daemon that knows nothing of the application needs to restore it, as its daemon has
    /// encoded it.
    pub fn save_part(&mut self, part: &[u8]) -> Result<(), SnapshotError> {
        self.save(PART, part)
    }

    fn save(&mut self, name: &str, bytes: &[u8]) -> Result<(), SnapshotError> {
        self.files.push(files::seal(&self.dir, name, bytes, &self.keys)?);
        Ok(())
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

    /// Takes the pages that the dump left in memory, to be sealed; the arena may keep them after that. What
    /// does not fit the arena is written by now.
    pub fn take_memory(&mut self, memory: Option<Memory>, arena: &Arena) {
        if let Some(reservation) = &self.reservation {
            reservation.settle_overflow();
        }
        self.memory = memory.map(|memory| (memory, arena.clone()));
    }

    /// Writes the pages, seals the images, makes all files durable, then writes the manifest. When it
    /// returns, the snapshot is valid.
    pub fn seal(self, origin: Origin) -> Result<Manifest, SnapshotError> {
        self.seal_in(origin).map(|(manifest, _)| manifest)
    }

    /// As [`SnapshotWriter::seal`]; also returns the directory of the store that has taken it, which is
    /// another one than that of [`SnapshotWriter::tier`] where that one failed: pages and images are still in
    /// memory, and the processes are not.
    pub fn seal_in(mut self, origin: Origin) -> Result<(Manifest, PathBuf), SnapshotError> {
        loop {
            let error = match self.seal_here(&origin) {
                Ok(manifest) => {
                    if let Some((memory, arena)) = self.memory.take() {
                        arena.keep(&self.pages_dir(), memory);
                    }
                    return Ok((manifest, self.tier().to_owned()));
                }
                Err(error) => error,
            };
            self.go_on(error)?;
        }
    }

    /// Goes on in the next spare directory that takes the snapshot, after a seal that has failed with this
    /// error. Where there is none, or the disk was not the cause, the error stays.
    fn go_on(&mut self, error: SnapshotError) -> Result<(), SnapshotError> {
        let is_of_disk = matches!(error, SnapshotError::Io { .. });
        while let Some(next) = self.spare.pop_front().filter(|_| is_of_disk) {
            tracing::warn!(%error, next = %next.display(), "a snapshot is sealed once more");
            std::thread::sleep(AGAIN_AFTER);
            match self.go_to(next) {
                Ok(()) => return Ok(()),
                Err(error) => tracing::warn!(%error, "a directory is passed over"),
            }
        }
        Err(error)
    }

    fn seal_here(&mut self, origin: &Origin) -> Result<Manifest, SnapshotError> {
        let mut files = self.files.clone();
        if self.program.is_some() {
            files.push(files::record_plain(&self.dir, PROGRAM)?);
        }
        if let Some((memory, _)) = &self.memory {
            files.extend(memory.write((&self.dir, BELOW_IMAGES), &self.keys)?.0);
        }
        let images =
            images::list(self.plain.path()).map_err(|error| at(&self.dir)(io::Error::other(error)))?;
        files.extend(in_parallel(&images, |(name, plain)| {
            files::seal_copy(&self.dir, &image_name(name), plain, &self.keys)
        })?);
        self.complete(Manifest {
            identity: self.identity.clone(),
            origin: origin.clone(),
            segment: self.segment.clone(),
            program: self.program.clone(),
            outputs: self.outputs.clone(),
            files,
        })
    }

    /// Goes on in another directory. Where that one does not take the files, the snapshot stays where it was:
    /// the files are nowhere else.
    fn go_to(&mut self, next: PathBuf) -> Result<(), SnapshotError> {
        if next == self.dir {
            return Ok(());
        }
        let left = std::mem::replace(&mut self.dir, next);
        let copied = self.copy_from(&left);
        let unused = if copied.is_ok() { left } else { std::mem::replace(&mut self.dir, left) };
        // What stays there is no snapshot, or is this one.
        fs::remove_dir_all(&unused).ok();
        copied
    }

    /// Copies what was sealed before the seal.
    fn copy_from(&self, left: &Path) -> Result<(), SnapshotError> {
        if self.dir.exists() {
            fs::remove_dir_all(&self.dir).map_err(at(&self.dir))?;
        }
        self.create_dirs()?;
        for FileRecord { name, .. } in &self.files {
            let (from, to) = (left.join(name), self.dir.join(name));
            let bytes = private::read(&from).map_err(at(&from))?;
            private::overwrite(&to).and_then(|mut file| file.write_all(&bytes)).map_err(at(&to))?;
        }
        match &self.program {
            Some(program) => program::link_or_copy(program, &self.dir.join(PROGRAM)),
            None => Ok(()),
        }
    }

    /// Makes a snapshot of files that are here.
    fn complete(&mut self, mut manifest: Manifest) -> Result<Manifest, SnapshotError> {
        manifest.files.sort_by(|one, other| one.name.cmp(&other.name));
        in_parallel(&manifest.files, |file| files::sync(&self.dir.join(&file.name)))?;
        files::sync(&self.pages_dir())?;
        let path = self.dir.join(manifest::FILE_NAME);
        let salt = Hex32::random().map_err(at(&path))?;
        files::write_durably(&path, &manifest.encode(&self.keys, salt))?;
        if let Some(parent) = self.dir.parent() {
            files::sync(parent)?;
        }
        self.sealed = true;
        Ok(manifest)
    }

    /// Seals a snapshot whose files have come from elsewhere, if each is as `manifest` says. Where the tree
    /// will have its files at other paths, or other things are to be known of the application, these are
    /// changed after that. From then on it is a snapshot of this store's owner.
    pub(crate) fn seal_as(
        mut self,
        manifest: &Manifest,
        Moved { segment, program, part }: Moved<'_>,
    ) -> Result<(), SnapshotError> {
        let (dir, keys) = (self.dir.clone(), self.keys.clone());
        let came = self.came(manifest);
        let found = files::list(&dir)?;
        manifest.outline().compare(&found).map_err(|damage| came.damaged(damage))?;
        came.verify()?;
        let mut manifest = manifest.clone();
        manifest.identity.owner.clone_from(&self.identity.owner);
        let changed = |files: &mut Vec<FileRecord>, record: FileRecord| {
            files.retain(|file| file.name != record.name);
            files.push(record);
        };
        // The launcher works in that of the segment.
        let directory = |path: &Path| path.parent().unwrap_or(path).to_string_lossy().into_owned();
        let known = [manifest.segment.as_mut().map(|known| &mut known.path), manifest.program.as_mut()];
        for (path, known) in [segment, program].into_iter().zip(known) {
            let Some((path, known)) = path.zip(known) else { continue };
            let name = images::files_name(IMAGES);
            let files = manifest.files.iter().find(|file| file.name == name);
            let files = files.ok_or_else(|| came.damaged(Damage::Missing { name: name.clone() }))?;
            let image = files::open_bytes(&dir, files, &keys)?;
            let moved = image_file::renamed(&image, &directory(known), &directory(path));
            if let Some(image) = moved.map_err(|error| at(&dir.join(&name))(io::Error::other(error)))? {
                changed(&mut manifest.files, files::seal(&dir, &name, &image, &keys)?);
            }
            path.clone_into(known);
        }
        if let Some(part) = part {
            changed(&mut manifest.files, files::seal(&dir, PART, part, &keys)?);
        }
        self.complete(manifest).map(drop)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The snapshot of this manifest, whose files have come.
    pub(crate) fn came(&self, manifest: &Manifest) -> Snapshot {
        let (dir, manifest, keys) = (self.dir.clone(), manifest.clone(), self.keys.clone());
        Snapshot { dir, manifest, keys, plain: self.images_dir() }
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
            cpu: machine::features().clone(),
        }
    }
}
