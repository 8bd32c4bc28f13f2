//! Copies of snapshots that other nodes own: in `<tier>/.copies/<application>-of-<owner>/epoch-<n>/`.
//!
//! ```text
//! manifest.json   that of the snapshot, as it was sealed
//! chunks          some of the snapshot's bytes, or all: chunk after chunk, in the order in which they came
//! index.json      which chunks these are, where, and the hash of each; written last
//! ```
//! A snapshot's bytes are its files one after the other, in the order of the manifest, cut into chunks of
//! [`CHUNK_BYTES`]. A copy is made in a directory with another name, which is renamed when everything in it
//! is on the disk: until then it does not exist. What it takes counts for the limit of its tier.

use crate::error::{SnapshotError, at};
use crate::files;
use crate::manifest::{self, Checksum, Damage, Manifest};
use crate::private;
use crate::reservations::Reservation;
use crate::snapshot::{PREFIX, Snapshot};
use crate::store::{COPIES, Store, StoreError, plain, remove_dir};
use crate::writer::{Moved, SnapshotWriter};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

/// Size of all chunks of a snapshot but the last, in bytes.
pub const CHUNK_BYTES: u64 = 4 << 20;
/// Whenever so many bytes of a copy have come they are synced, so that its end syncs no more than that.
const SYNC_EVERY: u64 = 256 << 20;
const OF: &str = "-of-";
const CHUNKS: &str = "chunks";
const INDEX: &str = "index.json";
const INDEX_BYTES_MAX: u64 = 64 << 20;
/// Ends the name of a directory that is being written.
const UNFINISHED: &str = ".new";

/// Which snapshot a copy is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CopyId {
    pub application: String,
    /// The node whose snapshot it is.
    pub owner: u32,
    pub epoch: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Index {
    /// Of the caller; it is in [`HeldCopy`].
    note: String,
    chunks: Vec<Placed>,
}

/// A chunk in the file of chunks.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Placed {
    chunk: u32,
    offset: u64,
    bytes: u32,
    checksum: Checksum,
}

/// A copy that is complete.
#[derive(Clone, Debug)]
pub struct HeldCopy {
    pub id: CopyId,
    /// What the writer has noted.
    pub note: String,
    dir: PathBuf,
    chunks: Vec<Placed>,
}

/// A copy that is being written; dropped before [`CopyWriter::finish`] it is removed.
#[derive(Debug)]
pub struct CopyWriter {
    dir: PathBuf,
    unfinished: PathBuf,
    file: File,
    index: Index,
    end: u64,
    is_finished: bool,
    _reservation: Reservation,
}

impl CopyId {
    fn dir(&self) -> Result<PathBuf, StoreError> {
        let owned = format!("{}{OF}{}", plain(&self.application)?, self.owner);
        Ok(Path::new(COPIES).join(owned).join(format!("{PREFIX}{}", self.epoch)))
    }

    fn of(dir: &Path) -> Option<CopyId> {
        let epoch = dir.file_name()?.to_str()?.strip_prefix(PREFIX)?.parse().ok()?;
        let (application, owner) = dir.parent()?.file_name()?.to_str()?.rsplit_once(OF)?;
        Some(CopyId { application: application.to_owned(), owner: owner.parse().ok()?, epoch })
    }
}

impl Store {
    /// Begins the copy of a snapshot with this manifest, of which `bytes` bytes will come here.
    ///
    /// # Errors
    /// Where no tier has room for it.
    pub fn begin_copy(
        &self,
        id: &CopyId,
        manifest: &[u8],
        bytes: u64,
        note: &str,
    ) -> Result<CopyWriter, StoreError> {
        self.copy_dirs(id)?.iter().try_for_each(|dir| remove_dir(dir))?;
        let (unfinished, reservation) = self.reserve(bytes, 0, &unfinished(&id.dir()?))?;
        let parent = unfinished.parent().expect("an epoch belongs to an application");
        let dir = parent.join(format!("{PREFIX}{}", id.epoch));
        remove_dir(&unfinished)?;
        for dir in [parent.parent().expect("it is below a tier"), parent] {
            private::ensure_dir(dir).map_err(SnapshotError::from)?;
        }
        private::create_dir(&unfinished).map_err(at(&unfinished))?;
        let path = unfinished.join(manifest::FILE_NAME);
        private::write(&path, manifest).map_err(at(&path))?;
        let path = unfinished.join(CHUNKS);
        let file = private::create(&path).map_err(at(&path))?;
        let index = Index { note: note.to_owned(), chunks: Vec::new() };
        Ok(CopyWriter { dir, unfinished, file, index, end: 0, is_finished: false, _reservation: reservation })
    }

    /// All complete copies. Those that cannot be read are left out.
    pub fn copies(&self) -> Vec<HeldCopy> {
        let owned = self.roots().flat_map(|root| subdirs(&root.join(COPIES)));
        owned.flat_map(|dir| subdirs(&dir)).filter_map(|dir| HeldCopy::open(dir).ok()).collect()
    }

    /// The complete copy of a snapshot.
    ///
    /// # Errors
    /// Where there is none.
    pub fn copy(&self, id: &CopyId) -> Result<HeldCopy, StoreError> {
        let dirs = self.copy_dirs(id)?;
        let dir = dirs.into_iter().find(|dir| dir.exists());
        let missing = self.roots().next().expect("a store has a tier").join(id.dir()?);
        Ok(HeldCopy::open(dir.unwrap_or(missing))?)
    }

    /// Removes the copies of an application's snapshots from epoch `from` to `to`, of all owners.
    ///
    /// # Errors
    /// Where one cannot be removed.
    pub fn drop_copies(&self, application: &str, from: u64, to: u64) -> Result<(), StoreError> {
        for owned in self.roots().flat_map(|root| subdirs(&root.join(COPIES))) {
            for dir in subdirs(&owned) {
                let id = CopyId::of(&dir);
                let is_meant = |id: CopyId| id.application == application && (from..=to).contains(&id.epoch);
                if id.is_some_and(is_meant) {
                    remove_dir(&dir)?;
                }
            }
            // Fails while there are others.
            fs::remove_dir(&owned).ok();
        }
        self.roots().for_each(|root| drop(fs::remove_dir(root.join(COPIES))));
        Ok(())
    }

    /// Removes copies that were not finished. Nobody may be writing one.
    pub fn remove_unfinished_copies(&self) {
        let owned = self.roots().flat_map(|root| subdirs(&root.join(COPIES)));
        for dir in owned.flat_map(|dir| subdirs(&dir)).filter(|dir| CopyId::of(dir).is_none()) {
            if let Err(error) = remove_dir(&dir) {
                tracing::warn!(%error, "half a copy could not be removed");
            }
        }
    }

    fn copy_dirs(&self, id: &CopyId) -> Result<Vec<PathBuf>, StoreError> {
        let below = id.dir()?;
        Ok(self.roots().map(|root| root.join(&below)).collect())
    }
}

fn unfinished(dir: &Path) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(UNFINISHED);
    dir.with_file_name(name)
}

fn subdirs(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|found| found.is_dir()));
    dirs.map(|entry| entry.path()).collect()
}

impl CopyWriter {
    /// Takes a chunk, if it is what was sent.
    ///
    /// # Errors
    /// Where its hash is another one, or the disk refuses it.
    pub fn put(&mut self, chunk: u32, bytes: &[u8], checksum: Checksum) -> Result<(), SnapshotError> {
        if Checksum::of(bytes) != checksum {
            return Err(damaged(&self.unfinished, chunk));
        }
        let io = at(&self.unfinished);
        self.file.write_all(bytes).map_err(io)?;
        let placed = Placed { chunk, offset: self.end, bytes: bytes.len() as u32, checksum };
        self.index.chunks.push(placed);
        let synced = self.end / SYNC_EVERY;
        self.end += bytes.len() as u64;
        if self.end / SYNC_EVERY > synced {
            self.file.sync_data().map_err(at(&self.unfinished))?;
        }
        Ok(())
    }

    /// Makes the copy durable; from then on it exists.
    ///
    /// # Errors
    /// Where the disk refuses it.
    pub fn finish(mut self) -> Result<(), SnapshotError> {
        let io = |source| SnapshotError::Io { path: self.unfinished.clone(), source };
        self.file.sync_all().map_err(io)?;
        let manifest = private::open(&self.unfinished.join(manifest::FILE_NAME));
        manifest.and_then(|file| file.sync_all()).map_err(io)?;
        let index = serde_json::to_vec(&self.index).map_err(|error| io(error.into()))?;
        files::write_durably(&self.unfinished.join(INDEX), &index)?;
        fs::rename(&self.unfinished, &self.dir).map_err(io)?;
        self.is_finished = true;
        files::sync(self.dir.parent().expect("an epoch belongs to an application"))
    }
}

impl Drop for CopyWriter {
    fn drop(&mut self) {
        if !self.is_finished {
            fs::remove_dir_all(&self.unfinished).ok();
        }
    }
}

fn damaged(dir: &Path, chunk: u32) -> SnapshotError {
    let damage = Damage::Contents { name: format!("chunk {chunk}") };
    SnapshotError::Damaged { dir: dir.to_owned(), damage }
}

impl HeldCopy {
    fn open(dir: PathBuf) -> Result<HeldCopy, SnapshotError> {
        let id = CopyId::of(&dir).ok_or_else(|| SnapshotError::Incomplete { dir: dir.clone() })?;
        let index = files::read_bounded(&dir.join(INDEX), INDEX_BYTES_MAX)?;
        let malformed = |error: serde_json::Error| {
            let damage = Damage::Malformed(error.to_string());
            SnapshotError::Damaged { dir: dir.clone(), damage }
        };
        let Index { note, chunks } = serde_json::from_slice(&index).map_err(malformed)?;
        Ok(HeldCopy { id, note, dir, chunks })
    }

    /// The manifest of the snapshot, as it was sealed.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn manifest(&self) -> Result<Vec<u8>, SnapshotError> {
        files::read_bounded(&self.dir.join(manifest::FILE_NAME), manifest::BYTES_MAX)
    }

    /// The chunks that are here.
    pub fn chunks(&self) -> impl Iterator<Item = u32> + '_ {
        self.chunks.iter().map(|placed| placed.chunk)
    }

    /// Removes it.
    ///
    /// # Errors
    /// Where it cannot be removed.
    pub fn remove(self) -> Result<(), StoreError> {
        remove_dir(&self.dir)?;
        // Fails while there are others.
        self.dir.ancestors().skip(1).take(2).all(|dir| fs::remove_dir(dir).is_ok());
        Ok(())
    }

    /// Reads a chunk, if it is what was written.
    ///
    /// # Errors
    /// Where it is not here, or is damaged.
    pub fn read(&self, chunk: u32) -> Result<(Vec<u8>, Checksum), SnapshotError> {
        let placed = self.chunks.iter().find(|placed| placed.chunk == chunk);
        let placed = placed.filter(|placed| u64::from(placed.bytes) <= CHUNK_BYTES);
        let placed = placed.ok_or_else(|| damaged(&self.dir, chunk))?;
        let path = self.dir.join(CHUNKS);
        let mut bytes = vec![0; placed.bytes as usize];
        let read = private::open(&path).and_then(|file| file.read_exact_at(&mut bytes, placed.offset));
        read.map_err(at(&path))?;
        match Checksum::of(&bytes) == placed.checksum {
            true => Ok((bytes, placed.checksum)),
            false => Err(damaged(&self.dir, chunk)),
        }
    }
}

/// The bytes of a snapshot, in chunks.
#[derive(Debug)]
pub struct Chunks {
    /// Paths and sizes.
    files: Vec<(PathBuf, u64)>,
    /// The files, to be read also when the snapshot is removed meanwhile.
    open: Vec<File>,
    bytes: u64,
}

impl Chunks {
    /// Of the files of that manifest below `dir`.
    ///
    /// # Errors
    /// Where a name leads out of the directory.
    fn of(dir: &Path, manifest: &Manifest) -> Result<Chunks, SnapshotError> {
        let is_plain =
            |name: &str| Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
        if let Some(file) = manifest.files.iter().find(|file| file.name.is_empty() || !is_plain(&file.name)) {
            let damage = Damage::Unknown { name: file.name.clone() };
            return Err(SnapshotError::Damaged { dir: dir.to_owned(), damage });
        }
        let files = manifest.files.iter().map(|file| (dir.join(&file.name), file.bytes)).collect();
        Ok(Chunks { files, open: Vec::new(), bytes: manifest.bytes() })
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        u32::try_from(self.bytes.div_ceil(CHUNK_BYTES)).unwrap_or(u32::MAX)
    }

    /// Size of a chunk, in bytes.
    pub fn bytes_of(&self, chunk: u32) -> u64 {
        let from = u64::from(chunk) * CHUNK_BYTES;
        self.bytes.saturating_sub(from).min(CHUNK_BYTES)
    }

    /// Calls `each` with the pieces of files that make up a chunk: file, offset there, and the range in it.
    fn pieces(
        &self,
        chunk: u32,
        mut each: impl FnMut(&File, u64, Range<usize>) -> io::Result<()>,
    ) -> Result<(), SnapshotError> {
        let (from, length) = (u64::from(chunk) * CHUNK_BYTES, self.bytes_of(chunk));
        let mut begin = 0;
        for ((path, bytes), file) in self.files.iter().zip(&self.open) {
            let (low, high) = (from.max(begin), (from + length).min(begin + bytes));
            if low < high {
                let range = (low - from) as usize..(high - from) as usize;
                each(file, low - begin, range).map_err(at(path))?;
            }
            begin += bytes;
        }
        Ok(())
    }

    /// Reads a chunk.
    ///
    /// # Errors
    /// Where the files cannot be read.
    pub fn read(&self, chunk: u32) -> Result<Vec<u8>, SnapshotError> {
        let mut bytes = vec![0; self.bytes_of(chunk) as usize];
        self.pieces(chunk, |file, offset, range| file.read_exact_at(&mut bytes[range], offset))?;
        Ok(bytes)
    }

    /// Writes a chunk into files that exist.
    fn write(&self, chunk: u32, bytes: &[u8]) -> Result<(), SnapshotError> {
        self.pieces(chunk, |file, offset, range| {
            file.write_all_at(bytes.get(range).ok_or(io::ErrorKind::InvalidData)?, offset)
        })
    }

    /// Makes the files, with holes.
    fn create_files(&mut self) -> Result<(), SnapshotError> {
        for (path, bytes) in &self.files {
            let dir = path.parent().expect("a file lies in a directory");
            private::create_dir_all(dir).map_err(at(dir))?;
            let file = private::create(path).map_err(at(path))?;
            file.set_len(*bytes).map_err(at(path))?;
            self.open.push(file);
        }
        Ok(())
    }

    fn open_files(&mut self) -> Result<(), SnapshotError> {
        let open = |(path, _): &(PathBuf, u64)| private::open(path).map_err(at(path));
        self.open = self.files.iter().map(open).collect::<Result<_, _>>()?;
        Ok(())
    }
}

impl Snapshot {
    /// Its bytes, and its manifest as it was sealed.
    ///
    /// # Errors
    /// Where they cannot be read.
    pub fn to_copy(&self) -> Result<(Chunks, Vec<u8>), SnapshotError> {
        let manifest = files::read_bounded(&self.dir().join(manifest::FILE_NAME), manifest::BYTES_MAX)?;
        let mut chunks = Chunks::of(self.dir(), self.manifest())?;
        chunks.open_files()?;
        Ok((chunks, manifest))
    }
}

/// A snapshot that comes back from copies. Dropped before it is sealed, it is removed.
#[derive(Debug)]
pub struct Returning {
    writer: SnapshotWriter,
    manifest: Manifest,
    chunks: Chunks,
}

impl Returning {
    /// Makes the files of a snapshot with this manifest, which [`Store::read_manifest`] has read; the writer
    /// has just begun.
    ///
    /// # Errors
    /// Where the disk refuses them.
    pub fn begin(writer: SnapshotWriter, manifest: Manifest) -> Result<Returning, SnapshotError> {
        let mut chunks = Chunks::of(writer.dir(), &manifest)?;
        chunks.create_files()?;
        Ok(Returning { writer, manifest, chunks })
    }

    /// How many chunks it needs.
    pub fn chunk_count(&self) -> u32 {
        self.chunks.count()
    }

    /// Takes a chunk, if it is what was sent. Threads may do so side by side.
    ///
    /// # Errors
    /// Where it is not, or the disk refuses it.
    pub fn put(&self, chunk: u32, bytes: &[u8], checksum: Checksum) -> Result<(), SnapshotError> {
        let is_right = bytes.len() as u64 == self.chunks.bytes_of(chunk) && Checksum::of(bytes) == checksum;
        if !is_right {
            return Err(damaged(self.writer.dir(), chunk));
        }
        self.chunks.write(chunk, bytes)
    }

    /// Reads what the daemon has stored of the application, once all chunks are here.
    ///
    /// # Errors
    /// Where it cannot be read, or is not what was sealed.
    pub fn part(&self) -> Result<Vec<u8>, SnapshotError> {
        Ok(self.writer.came(&self.manifest).part()?.unwrap_or_default())
    }

    /// Compares every byte with what was sealed once, and makes the snapshot valid here. Returns its size.
    /// Then the tree finds here what `moved` says.
    ///
    /// # Errors
    /// Where a byte differs.
    pub fn seal(self, moved: Moved<'_>) -> Result<u64, SnapshotError> {
        self.writer.seal_as(&self.manifest, moved)?;
        Ok(self.manifest.bytes())
    }

    /// Where the tree had its program, if that has come with the application.
    pub fn program(&self) -> Option<&Path> {
        self.manifest.program.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{ClusterKey, Sealing};
    use crate::manifest::{Identity, Origin};
    use std::time::SystemTime;

    const SIZES: [u64; 3] = [CHUNK_BYTES + 17, 0, 2 * CHUNK_BYTES - 5];

    fn id() -> CopyId {
        CopyId { application: "job-3".into(), owner: 1, epoch: 7 }
    }

    fn sealing(dir: &Path, owner: &str) -> Sealing {
        Sealing::new(ClusterKey::from([7; 32]), owner.to_owned(), dir.to_owned())
    }

    fn open(dir: &tempfile::TempDir, name: &str) -> Store {
        Store::open(&dir.path().join(name), sealing(dir.path(), name)).unwrap()
    }

    /// A sealed snapshot of a few files.
    fn sealed(store: &Store) -> Snapshot {
        let CopyId { application, epoch, .. } = id();
        let mut writer = store.begin(&application, epoch, SystemTime::UNIX_EPOCH).unwrap();
        for (number, bytes) in SIZES.iter().enumerate() {
            let contents: Vec<u8> = (0..*bytes).map(|at| (at * 31 + number as u64) as u8).collect();
            private::write(&writer.images_dir().join(number.to_string()), &contents).unwrap();
        }
        writer.save_part(b"part").unwrap();
        let origin = Origin { root: 1, ..Origin::default() };
        writer.seal(origin).unwrap();
        store.snapshot(&application, epoch).unwrap()
    }

    fn copy(from: &Snapshot, to: &Store, chunks: impl Fn(u32) -> bool) {
        let (all, manifest) = from.to_copy().unwrap();
        let mut copy = to.begin_copy(&id(), &manifest, from.manifest().bytes(), "note").unwrap();
        for chunk in (0..all.count()).filter(|chunk| chunks(*chunk)) {
            let bytes = all.read(chunk).unwrap();
            copy.put(chunk, &bytes, Checksum::of(&bytes)).unwrap();
        }
        assert!(to.copies().is_empty(), "it is not complete");
        copy.finish().unwrap();
    }

    #[test]
    fn a_snapshot_comes_back_from_its_chunks_and_a_damaged_copy_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let stores = ["own", "a", "b", "back"].map(|name| open(&dir, name));
        let snapshot = sealed(&stores[0]);
        copy(&snapshot, &stores[1], |chunk| chunk % 2 == 0);
        copy(&snapshot, &stores[2], |chunk| chunk % 2 == 1);
        let back = |damage: bool| {
            let writer = stores[3].begin("job-3", 7, SystemTime::UNIX_EPOCH).unwrap();
            let held: Vec<HeldCopy> = stores[1..3].iter().map(|store| store.copy(&id()).unwrap()).collect();
            let read = |owner| {
                let bytes = held[0].manifest().unwrap();
                stores[3].read_manifest(&bytes, ("job-3", 7), owner)
            };
            assert!(read("a").is_err(), "it is of another owner");
            let returning = Returning::begin(writer, read("own").unwrap()).unwrap();
            assert_eq!(held[0].note, "note");
            for copy in &held {
                for chunk in copy.chunks() {
                    let (mut bytes, mut checksum) = copy.read(chunk)?;
                    if damage && chunk == 2 {
                        bytes[0] ^= 1;
                        checksum = Checksum::of(&bytes);
                    }
                    returning.put(chunk, &bytes, checksum)?;
                }
            }
            assert_eq!(returning.part().unwrap(), b"part");
            returning.seal(Moved { part: Some(b"moved"), ..Moved::default() })
        };
        assert!(back(true).is_err());
        assert_eq!(stores[3].sealed_epochs("job-3").unwrap(), [] as [u64; 0]);
        assert_eq!(back(false).unwrap(), snapshot.manifest().bytes());
        stores[3].verify("job-3", 7).unwrap();
        let returned = stores[3].snapshot("job-3", 7).unwrap();
        assert_eq!(returned.part().unwrap().unwrap(), b"moved");
        let Identity { owner, .. } = &returned.manifest().identity;
        assert_eq!(owner, "back");
        // What was not changed is sealed as it was.
        let contents = |snapshot: &Snapshot| fs::read(snapshot.dir().join("images/0")).unwrap();
        assert!(contents(&returned) == contents(&snapshot));

        let chunks = stores[1].copies()[0].dir.join(CHUNKS);
        private::open_to_write(&chunks).unwrap().write_all_at(b"damaged", 99).unwrap();
        assert!(stores[1].copy(&id()).unwrap().read(0).is_err());
        assert!(stores[1].copy(&id()).unwrap().read(2).is_ok());
    }

    #[test]
    fn copies_take_space_of_the_store_and_are_dropped_by_epoch() {
        let dir = tempfile::tempdir().unwrap();
        let own = open(&dir, "own");
        let tier = crate::store::Tier { root: dir.path().join("small"), bytes_max: Some(20 << 20) };
        let small = Store::with_tiers(vec![tier], sealing(dir.path(), "small")).unwrap();
        let snapshot = sealed(&own);
        let (_, manifest) = snapshot.to_copy().unwrap();
        let full = |bytes| small.begin_copy(&CopyId { epoch: 8, ..id() }, &manifest, bytes, "");
        copy(&snapshot, &small, |_| true);
        assert!(matches!(full(12 << 20), Err(StoreError::Full { .. })));
        assert!(small.applications().unwrap().is_empty(), "copies are no snapshots");
        drop(full(1 << 20).unwrap());
        small.drop_copies("job-3", 0, 6).unwrap();
        assert_eq!(small.copies().len(), 1);
        small.drop_copies("job-3", 0, 7).unwrap();
        assert!(small.copies().is_empty());
        assert!(full(19 << 20).is_ok());
    }
}
