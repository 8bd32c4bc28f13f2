//! Files of a snapshot on disk: lists, seals, opens them and makes them durable.

use crate::error::{SnapshotError, at};
use crate::keys::{FileKey, Hex32, Sha256, SnapshotKeys};
use crate::manifest::{self, Damage, FileRecord, Proof};
use crate::parallel::in_parallel;
use crate::private;
use crate::sealed::{self, CHUNK, OpenError, SealedWriter};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Holds CRIU's log and statistics, which are no part of the snapshot.
pub(crate) const LOG_DIR: &str = "log";

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

/// A file of a snapshot that is being written.
pub(crate) struct NewFile {
    path: PathBuf,
    name: String,
    salt: Hex32,
    writer: SealedWriter<File>,
}

impl NewFile {
    /// Begins the file of that name below `dir`, or empties the one that exists.
    pub(crate) fn create(dir: &Path, name: &str, keys: &SnapshotKeys) -> Result<NewFile, SnapshotError> {
        let path = dir.join(name);
        let salt = Hex32::random().map_err(at(&path))?;
        let file = private::overwrite(&path).map_err(at(&path))?;
        let writer = SealedWriter::new(file, keys.file(name, &salt));
        Ok(NewFile { path, name: name.to_owned(), salt, writer })
    }

    /// Does not wait for the disk.
    pub(crate) fn finish(self) -> Result<FileRecord, SnapshotError> {
        let (_, bytes) = self.writer.finish().map_err(at(&self.path))?;
        Ok(FileRecord { name: self.name, bytes, proof: Proof::Salt(self.salt) })
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// Seals `bytes` as the file of that name below `dir`.
pub(crate) fn seal(
    dir: &Path,
    name: &str,
    bytes: &[u8],
    keys: &SnapshotKeys,
) -> Result<FileRecord, SnapshotError> {
    let mut file = NewFile::create(dir, name, keys)?;
    file.write_all(bytes).map_err(at(&dir.join(name)))?;
    file.finish()
}

/// Seals the contents of `plain` as the file of that name below `dir`.
pub(crate) fn seal_copy(
    dir: &Path,
    name: &str,
    plain: &Path,
    keys: &SnapshotKeys,
) -> Result<FileRecord, SnapshotError> {
    let mut file = NewFile::create(dir, name, keys)?;
    read(plain, |bytes| file.write_all(bytes)).map_err(at(plain))?;
    file.finish()
}

/// The record of a file that stays as it is.
pub(crate) fn record_plain(dir: &Path, name: &str) -> Result<FileRecord, SnapshotError> {
    let path = dir.join(name);
    let (bytes, digest) = digest(&path).map_err(at(&path))?;
    Ok(FileRecord { name: name.to_owned(), bytes, proof: Proof::Sha256(digest) })
}

/// Opens the file of that record and gives its contents to `take`, piece after piece. All of them are right
/// only if no error is returned.
pub(crate) fn open(
    dir: &Path,
    record: &FileRecord,
    keys: &SnapshotKeys,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), SnapshotError> {
    let path = dir.join(&record.name);
    let damaged = || {
        let damage = Damage::Contents { name: record.name.clone() };
        SnapshotError::Damaged { dir: dir.to_owned(), damage }
    };
    match &record.proof {
        Proof::Salt(salt) => {
            let file = private::open(&path).map_err(at(&path))?;
            let opened = sealed::open(file, record.bytes, &keys.file(&record.name, salt), take);
            opened.map_err(|error| match error {
                OpenError::Changed => damaged(),
                OpenError::Io(error) => at(&path)(error),
            })
        }
        Proof::Sha256(expected) => {
            let mut sha256 = Sha256::new();
            let read = read(&path, |bytes| {
                sha256.update(bytes);
                take(bytes)
            });
            read.map_err(at(&path))?;
            if sha256.finish() == *expected { Ok(()) } else { Err(damaged()) }
        }
    }
}

/// Opens a file in memory.
pub(crate) fn open_bytes(
    dir: &Path,
    record: &FileRecord,
    keys: &SnapshotKeys,
) -> Result<Vec<u8>, SnapshotError> {
    let mut bytes = Vec::with_capacity(usize::try_from(record.bytes).unwrap_or_default());
    open(dir, record, keys, |piece| bytes.write_all(piece))?;
    Ok(bytes)
}

/// Opens a file into a new one.
pub(crate) fn open_to(
    dir: &Path,
    record: &FileRecord,
    keys: &SnapshotKeys,
    plain: &Path,
) -> Result<(), SnapshotError> {
    let mut file = private::create(plain).map_err(at(plain))?;
    open(dir, record, keys, |piece| file.write_all(piece))
}

/// Compares the files with what was sealed, several at a time.
pub(crate) fn verify(dir: &Path, records: &[&FileRecord], keys: &SnapshotKeys) -> Result<(), SnapshotError> {
    in_parallel(records, |record| open(dir, record, keys, |_| Ok(()))).map(drop)
}

/// The key of a file that is sealed in chunks of its own kind.
pub(crate) fn key(record: &FileRecord, keys: &SnapshotKeys) -> Option<FileKey> {
    match &record.proof {
        Proof::Salt(salt) => Some(keys.file(&record.name, salt)),
        Proof::Sha256(_) => None,
    }
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
    sync(dir)
}

/// Makes a file, or the entries of a directory, durable.
pub(crate) fn sync(path: &Path) -> Result<(), SnapshotError> {
    private::open(path).and_then(|file| file.sync_all()).map_err(at(path))
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

/// Length and SHA-256 of a file.
pub(crate) fn digest(path: &Path) -> io::Result<(u64, Hex32)> {
    let (mut sha256, mut length) = (Sha256::new(), 0);
    read(path, |bytes| {
        sha256.update(bytes);
        length += bytes.len() as u64;
        Ok(())
    })?;
    Ok((length, sha256.finish()))
}

fn read(path: &Path, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut file = private::open(path)?;
    let mut buffer = vec![0; CHUNK];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => take(&buffer[..length])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
