//! The files of a snapshot on their way to and from a disk: listed, hashed, made durable.

use crate::manifest::{self, Checksum, Damage, FileRecord};
use crate::snapshot::SnapshotError;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use xxhash_rust::xxh3::Xxh3;

/// CRIU's log and statistics: kept for reading, no part of the snapshot.
pub(crate) const LOG_DIR: &str = "log";
const CHUNK: usize = 1 << 20;

pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> SnapshotError {
    move |source| SnapshotError::Io { path: path.to_owned(), source }
}

/// Names and lengths of the files below `dir` that a manifest lists, sorted by name.
pub(crate) fn list(dir: &Path) -> Result<Vec<(String, u64)>, SnapshotError> {
    let mut files = Vec::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(below) = pending.pop() {
        let path = dir.join(&below);
        for entry in fs::read_dir(&path).map_err(at(&path))? {
            let entry = entry.map_err(at(&path))?;
            let name = below.join(entry.file_name());
            let metadata = entry.metadata().map_err(at(&path))?;
            if metadata.is_dir() && name != Path::new(LOG_DIR) {
                pending.push(name);
            } else if metadata.is_file() && name != Path::new(manifest::FILE_NAME) {
                files.push((name.to_string_lossy().into_owned(), metadata.len()));
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Hashes the files and makes them durable, several at a time; those `done` are so already.
pub(crate) fn seal(dir: &Path, done: &[FileRecord]) -> Result<Vec<FileRecord>, SnapshotError> {
    let files = list(dir)?;
    let records = in_parallel(&files, |(name, bytes)| {
        if let Some(done) = done.iter().find(|done| done.name == *name) {
            return Ok(done.clone());
        }
        let path = dir.join(name);
        let checksum = hash(&path).map_err(at(&path))?;
        File::open(&path).and_then(|file| file.sync_all()).map_err(at(&path))?;
        Ok(FileRecord { name: name.clone(), bytes: *bytes, checksum })
    })?;
    Ok(records)
}

/// Hashes the files and compares with what was recorded, several at a time.
pub(crate) fn verify(dir: &Path, records: &[&FileRecord]) -> Result<(), SnapshotError> {
    in_parallel(records, |record| verify_one(dir, record)).map(drop)
}

/// Hashes one file and compares.
pub(crate) fn verify_one(dir: &Path, record: &FileRecord) -> Result<(), SnapshotError> {
    let path = dir.join(&record.name);
    let found = hash(&path).map_err(at(&path))?;
    record.check(found).map_err(|damage| SnapshotError::Damaged { dir: dir.to_owned(), damage })
}

/// Writes a file whole or not at all, durably: by rename, and the directory after it.
pub(crate) fn write_durably(path: &Path, bytes: &[u8]) -> Result<(), SnapshotError> {
    let fresh = path.with_extension("new");
    let write = || {
        let mut file = File::create(&fresh)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&fresh, path)
    };
    write().map_err(at(path))?;
    let dir = path.parent().expect("a file lies in a directory");
    sync_dir(dir)
}

/// Makes the names in a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), SnapshotError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(at(dir))
}

/// Reads a file of bounded size.
pub(crate) fn read_bounded(path: &Path, limit: u64) -> Result<Vec<u8>, SnapshotError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes));
    read.map_err(at(path))?;
    if bytes.len() as u64 > limit {
        let damage = Damage::Malformed(format!("it is longer than {limit} bytes"));
        let dir = path.parent().expect("a file lies in a directory").to_owned();
        return Err(SnapshotError::Damaged { dir, damage });
    }
    Ok(bytes)
}

fn hash(path: &Path) -> io::Result<Checksum> {
    let mut file = File::open(path)?;
    let mut hasher = Xxh3::new();
    let mut buffer = vec![0; CHUNK];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(Checksum(hasher.digest128())),
            Ok(length) => hasher.update(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Results in the order of the items, or the first error in that order.
fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    act: impl Fn(&T) -> Result<R, SnapshotError> + Sync,
) -> Result<Vec<R>, SnapshotError> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mine = std::iter::from_fn(|| {
            let index = next.fetch_add(1, Ordering::Relaxed);
            items.get(index).map(|item| (index, act(item)))
        });
        mine.collect::<Vec<_>>()
    };
    let threads = crate::threads().min(items.len());
    let mut results = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let results = workers.into_iter().flat_map(|worker| worker.join().expect("hashing does not panic"));
        results.collect::<Vec<_>>()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
