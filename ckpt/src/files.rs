//! Files of a snapshot on disk: lists, hashes, verifies them and makes them durable.

use crate::error::{SnapshotError, at};
use crate::manifest::{self, Checksum, Damage, FileRecord};
use crate::parallel::in_parallel;
use crate::private;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

/// Holds CRIU's log and statistics, which are no part of the snapshot.
pub(crate) const LOG_DIR: &str = "log";
const CHUNK: usize = 1 << 20;

/// Returns names and lengths of the files below `dir` that a manifest lists, sorted by name.
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

/// Hashes the files and makes them durable, several at a time, except those whose records are in `done`.
pub(crate) fn seal(dir: &Path, done: &[FileRecord]) -> Result<Vec<FileRecord>, SnapshotError> {
    let files = list(dir)?;
    in_parallel(&files, |(name, bytes)| {
        if let Some(done) = done.iter().find(|done| done.name == *name) {
            return Ok(done.clone());
        }
        let path = dir.join(name);
        let checksum = hash(&path).map_err(at(&path))?;
        private::open(&path).and_then(|file| file.sync_all()).map_err(at(&path))?;
        Ok(FileRecord { name: name.clone(), bytes: *bytes, checksum })
    })
}

/// Compares the files with their records by hash, several at a time.
pub(crate) fn verify(dir: &Path, records: &[&FileRecord]) -> Result<(), SnapshotError> {
    in_parallel(records, |record| verify_one(dir, record)).map(drop)
}

pub(crate) fn verify_one(dir: &Path, record: &FileRecord) -> Result<(), SnapshotError> {
    let path = dir.join(&record.name);
    let found = hash(&path).map_err(at(&path))?;
    record.check(found).map_err(|damage| SnapshotError::Damaged { dir: dir.to_owned(), damage })
}

/// Writes a file by rename, so that it is there as a whole or not at all, and syncs its directory.
pub(crate) fn write_durably(path: &Path, bytes: &[u8]) -> Result<(), SnapshotError> {
    let fresh = path.with_extension("new");
    let write = || {
        let mut file = private::overwrite(&fresh)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&fresh, path)
    };
    write().map_err(at(path))?;
    let dir = path.parent().expect("a file lies in a directory");
    sync_dir(dir)
}

pub(crate) fn sync_dir(dir: &Path) -> Result<(), SnapshotError> {
    private::open(dir).and_then(|dir| dir.sync_all()).map_err(at(dir))
}

/// Reads a file of at most `limit` bytes.
pub(crate) fn read_bounded(path: &Path, limit: u64) -> Result<Vec<u8>, SnapshotError> {
    let mut bytes = Vec::new();
    let read = private::open(path).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes));
    read.map_err(at(path))?;
    if bytes.len() as u64 > limit {
        let damage = Damage::Malformed(format!("it is longer than {limit} bytes"));
        let dir = path.parent().expect("a file lies in a directory").to_owned();
        return Err(SnapshotError::Damaged { dir, damage });
    }
    Ok(bytes)
}

pub(crate) fn hash(path: &Path) -> io::Result<Checksum> {
    let mut file = private::open(path)?;
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
