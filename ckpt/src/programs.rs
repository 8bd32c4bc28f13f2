//! Programs that have come to this node with their applications: `<tier>/<application>/program/<name>`,
//! beside the application's snapshots, and removed with them.
//!
//! ```text
//! .program.new   what has come so far ─ complete, and as it was announced ─▶ program/<name>, by rename
//! ```

use crate::error::SnapshotError;
use crate::manifest::Checksum;
use crate::private;
use crate::program::{self, FRESH};
use crate::reservations::Reservation;
use crate::store::{Store, StoreError, application_dir, plain, remove_dir};
use nix::sys::statvfs::{FsFlags, statvfs};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

/// In the directory of an application.
const DIR: &str = "program";

/// Computes the checksum of bytes that come in pieces.
#[derive(Clone, Default)]
pub struct Checksummer(Xxh3);

impl Checksummer {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn checksum(&self) -> Checksum {
        Checksum(self.0.digest128())
    }
}

/// Why a program could not be kept here.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("no program may run in {}: its file system is mounted with `noexec`", .root.display())]
    NoExec { root: PathBuf },
    #[error("what has come is not what was announced: {found} bytes of {announced}")]
    Incomplete { announced: u64, found: u64 },
    #[error("what has come is not what was announced: its checksum is {found}, not {announced}")]
    Contents { announced: Checksum, found: Checksum },
    #[error("a program cannot be called '{name}'")]
    Name { name: String },
}

fn io(path: &Path) -> impl FnOnce(io::Error) -> ProgramError {
    move |source| ProgramError::Io { path: path.to_owned(), source }
}

/// A program that comes. Dropped before [`ProgramWriter::finish`], it is removed.
pub struct ProgramWriter {
    /// `None` when it has been put in its place.
    file: Option<File>,
    fresh: PathBuf,
    path: PathBuf,
    announced: (u64, Checksum),
    found: u64,
    checksummer: Checksummer,
    /// Held, not read.
    _reservation: Reservation,
}

impl ProgramWriter {
    /// Appends what has come.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), ProgramError> {
        let file = self.file.as_mut().expect("it is not finished");
        file.write_all(bytes).map_err(io(&self.fresh))?;
        self.checksummer.update(bytes);
        self.found += bytes.len() as u64;
        Ok(())
    }

    /// Whether all bytes have come.
    pub fn is_complete(&self) -> bool {
        self.found >= self.announced.0
    }

    /// Puts the program in its place, if it is what was announced. Nobody has it open to write then, without
    /// which it could not be executed.
    pub fn finish(mut self) -> Result<PathBuf, ProgramError> {
        let (announced, checksum) = self.announced;
        if self.found != announced {
            return Err(ProgramError::Incomplete { announced, found: self.found });
        }
        let found = self.checksummer.checksum();
        if found != checksum {
            return Err(ProgramError::Contents { announced: checksum, found });
        }
        let file = self.file.take().expect("it is finished once");
        let in_place = program::set_mode(&file).map_err(io(&self.fresh));
        drop(file);
        let dir = self.path.parent().expect("it has a directory of its own");
        let made = in_place.and_then(|()| private::create_dir_all(dir).map_err(io(dir)));
        let placed = made.and_then(|()| fs::rename(&self.fresh, &self.path).map_err(io(&self.path)));
        placed.inspect_err(|_| drop(fs::remove_file(&self.fresh)))?;
        Ok(self.path.clone())
    }
}

impl Drop for ProgramWriter {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            fs::remove_file(&self.fresh).ok();
        }
    }
}

impl Store {
    /// Begins the program of an application, which will be called `name`, in the first tier with room for it.
    /// One that was there before is removed.
    pub fn begin_program(
        &self,
        application: &str,
        name: &str,
        bytes: u64,
        checksum: Checksum,
    ) -> Result<ProgramWriter, ProgramError> {
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
            return Err(ProgramError::Name { name: name.to_owned() });
        }
        self.remove_program(application)?;
        let below = Path::new(plain(application)?).join(FRESH);
        let (fresh, reservation) = self.reserve(bytes, 0, &below)?;
        let dir = fresh.parent().expect("the application's").to_owned();
        private::ensure_dir(&dir).map_err(|error| StoreError::from(SnapshotError::from(error)))?;
        let root = dir.parent().expect("the tier").to_owned();
        let flags = statvfs(&root).map_err(io::Error::from).map_err(io(&root))?.flags();
        if flags.contains(FsFlags::ST_NOEXEC) {
            remove_if_empty(&dir);
            return Err(ProgramError::NoExec { root });
        }
        let file = private::overwrite(&fresh).map_err(io(&fresh))?;
        Ok(ProgramWriter {
            file: Some(file),
            path: dir.join(DIR).join(name),
            fresh,
            announced: (bytes, checksum),
            found: 0,
            checksummer: Checksummer::default(),
            _reservation: reservation,
        })
    }

    /// The program that has come with an application, if one has.
    pub fn program(&self, application: &str) -> Result<Option<PathBuf>, StoreError> {
        for tier in self.tiers() {
            let entries = fs::read_dir(application_dir(tier, application)?.join(DIR));
            // What a daemon that was killed has not finished is none.
            let mut complete =
                entries.into_iter().flatten().flatten().filter(|entry| entry.file_name() != FRESH);
            if let Some(found) = complete.next() {
                return Ok(Some(found.path()));
            }
        }
        Ok(None)
    }

    /// Removes the program of an application, and what has come of it; the snapshots stay.
    fn remove_program(&self, application: &str) -> Result<(), StoreError> {
        for tier in self.tiers() {
            let dir = application_dir(tier, application)?;
            fs::remove_file(dir.join(FRESH)).ok();
            remove_dir(&dir.join(DIR))?;
        }
        Ok(())
    }

    /// Removes what programs have left without a snapshot, but for those of the applications that are kept.
    pub fn remove_programs_but(&self, is_kept: impl Fn(&str) -> bool) -> Result<(), StoreError> {
        for application in self.all_applications()?.into_iter().filter(|name| !is_kept(name)) {
            if !self.has_snapshots(&application)? {
                self.remove(&application)?;
            }
        }
        Ok(())
    }

    /// The path that the program of an application has in this store, if it had `path` in another one.
    pub fn program_path(&self, application: &str, path: &Path) -> Result<PathBuf, StoreError> {
        if let Some(here) = self.program(application)? {
            return Ok(here);
        }
        let name = path.file_name().unwrap_or_default();
        let first = self.tiers().next().expect("a store has at least one tier");
        Ok(application_dir(first, application)?.join(DIR).join(name))
    }
}

fn remove_if_empty(dir: &Path) {
    // Fails where the application has snapshots.
    fs::remove_dir(dir).ok();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn checksum(bytes: &[u8]) -> Checksum {
        let mut checksummer = Checksummer::default();
        bytes.chunks(3).for_each(|piece| checksummer.update(piece));
        checksummer.checksum()
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_program_is_there_when_all_of_it_has_come_and_is_right() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::existing(vec![crate::store::Tier::unbounded(dir.path().to_owned())]);
        let bytes = b"#!/bin/sh\nexit 7\n";
        assert_eq!(checksum(bytes), Checksum::of(bytes));
        let mut writer = store.begin_program("job-3", "seven", 17, checksum(bytes)).unwrap();
        writer.append(&bytes[..5]).unwrap();
        assert_eq!((writer.is_complete(), store.program("job-3").unwrap()), (false, None));
        writer.append(&bytes[5..]).unwrap();
        assert!(writer.is_complete());
        let path = writer.finish().unwrap();
        assert_eq!(store.program("job-3").unwrap(), Some(path.clone()));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o555);
        assert_eq!(std::process::Command::new(&path).status().unwrap().code(), Some(7));
        assert_eq!(store.sealed_epochs("job-3").unwrap(), Vec::<u64>::new(), "it is no snapshot");
        assert!(store.applications().unwrap().is_empty());
        store.remove_programs_but(|name| name == "job-3").unwrap();
        assert!(path.exists());
        store.remove_programs_but(|_| false).unwrap();
        assert_eq!(names(dir.path()), Vec::<String>::new());
    }

    #[test]
    fn what_is_incomplete_or_wrong_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::existing(vec![crate::store::Tier::unbounded(dir.path().to_owned())]);
        let begin = |bytes: &[u8]| {
            let mut writer = store.begin_program("job-3", "x", 3, checksum(b"abc")).unwrap();
            writer.append(bytes).unwrap();
            writer
        };
        assert!(matches!(begin(b"ab").finish(), Err(ProgramError::Incomplete { announced: 3, found: 2 })));
        assert!(matches!(begin(b"abx").finish(), Err(ProgramError::Contents { .. })));
        drop(begin(b"abc"));
        assert_eq!((names(&dir.path().join("job-3")), store.program("job-3").unwrap()), (Vec::new(), None));
        let named = |name| store.begin_program("job-3", name, 3, checksum(b"abc")).err();
        assert!(matches!(named("../x"), Some(ProgramError::Name { .. })));
        assert!(matches!(named(".."), Some(ProgramError::Name { .. })));
        let too_large = store.begin_program("job-3", "x", u64::MAX, checksum(b"")).err();
        assert!(matches!(too_large, Some(ProgramError::Store(StoreError::Full { .. }))));
    }
}
