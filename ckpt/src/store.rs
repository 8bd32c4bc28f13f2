//! The snapshots of all applications on a node: `<root>/<application>/epoch-<n>/`.
//!
//! Two valid ones of each application are kept: the last, and the one to fall back to where it turns out damaged.

use crate::files;
use crate::manifest::{self, Identity};
use crate::snapshot::{Snapshot, SnapshotError, SnapshotWriter};
use nix::sys::statvfs::statvfs;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// How many valid snapshots of an application are kept.
pub const KEPT: usize = 2;
const PREFIX: &str = "epoch-";

/// Why the store could not do as it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It would be a path to somewhere else.
    #[error("store snapshots of '{name}': not a usable name")]
    Name {
        /// The name.
        name: String,
    },
    /// A snapshot could not be written or used.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// There is not enough room.
    #[error("store {needed} bytes in {}: only {free} are free", .root.display())]
    Full {
        /// The store.
        root: PathBuf,
        /// What was asked for.
        needed: u64,
        /// What there is.
        free: u64,
    },
}

/// A snapshot that was passed over, and why.
#[derive(Debug)]
pub struct PassedOver {
    /// Its directory.
    pub dir: PathBuf,
    /// What is wrong with it.
    pub reason: SnapshotError,
}

/// A snapshot as [`Store::list`] finds it.
#[derive(Debug)]
pub struct Entry {
    /// Whose.
    pub application: String,
    /// Of which cut.
    pub epoch: u64,
    /// What it takes on the disk.
    pub bytes: u64,
    /// Why it could not be restored; `None` says nothing of its contents.
    pub problem: Option<SnapshotError>,
}

impl Entry {
    /// It is not what was sealed; one that was never sealed is not damaged.
    pub fn is_damaged(&self) -> bool {
        !matches!(self.problem, None | Some(SnapshotError::Incomplete { .. }))
    }
}

/// The directory of all snapshots.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

impl Store {
    /// Uses that directory, creating it where it is missing.
    pub fn open(root: &Path) -> Result<Store, StoreError> {
        fs::create_dir_all(root).map_err(files::at(root))?;
        Ok(Store { root: root.to_owned() })
    }

    /// Uses that directory as it is.
    pub fn existing(root: &Path) -> Store {
        Store { root: root.to_owned() }
    }

    /// All snapshots, valid or not, by application, each one's newest first; their contents are not looked at.
    pub fn list(&self) -> Result<Vec<Entry>, StoreError> {
        let entries = fs::read_dir(&self.root).map_err(files::at(&self.root))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| is_plain(name)).collect();
        names.sort();
        let mut found = Vec::new();
        for application in names {
            for (epoch, dir) in self.epochs(&application)? {
                // What is being written, or removed, meanwhile is as large as can be seen.
                let bytes = files::list(&dir).unwrap_or_default().iter().map(|(_, bytes)| bytes).sum();
                let problem = Snapshot::open(&dir).err();
                found.push(Entry { application: application.clone(), epoch, bytes, problem });
            }
        }
        Ok(found)
    }

    /// Reads every byte of one snapshot and compares it with what was sealed.
    pub fn verify(&self, application: &str, epoch: u64) -> Result<(), StoreError> {
        Ok(self.snapshot(application, epoch)?.verify()?)
    }

    /// Removes one snapshot, valid or not.
    pub fn remove_one(&self, application: &str, epoch: u64) -> Result<(), StoreError> {
        let dir = self.application_dir(application)?.join(format!("{PREFIX}{epoch}"));
        match Snapshot::open(&dir) {
            Ok(snapshot) => snapshot.remove()?,
            Err(_) => remove_dir(&dir)?,
        }
        // It stays where it has others.
        fs::remove_dir(self.application_dir(application)?).ok();
        Ok(())
    }

    /// Begins the snapshot of an epoch.
    pub fn begin(
        &self,
        application: &str,
        epoch: u64,
        now: SystemTime,
    ) -> Result<SnapshotWriter, StoreError> {
        let dir = self.application_dir(application)?.join(format!("{PREFIX}{epoch}"));
        let created_unix_ms = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let identity = Identity { application: application.to_owned(), epoch, created_unix_ms };
        Ok(SnapshotWriter::begin(&dir, identity)?)
    }

    /// Refuses what there is no room for: ask before a job leaves memory.
    pub fn has_room(&self, needed: u64) -> Result<(), StoreError> {
        let found = statvfs(&self.root).map_err(io::Error::from).map_err(files::at(&self.root))?;
        let free = found.blocks_available() as u64 * found.fragment_size() as u64;
        if free >= needed { Ok(()) } else { Err(StoreError::Full { root: self.root.clone(), needed, free }) }
    }

    /// The newest snapshot of which every byte is as it was sealed, and those passed over on the way to it.
    pub fn latest_intact(
        &self,
        application: &str,
    ) -> Result<(Option<Snapshot>, Vec<PassedOver>), StoreError> {
        let mut passed_over = Vec::new();
        for (_, dir) in self.epochs(application)? {
            match Snapshot::open(&dir).and_then(|snapshot| snapshot.verify().map(|()| snapshot)) {
                Ok(snapshot) => return Ok((Some(snapshot), passed_over)),
                Err(reason) => {
                    tracing::warn!(dir = %dir.display(), %reason, "snapshot passed over");
                    passed_over.push(PassedOver { dir, reason });
                }
            }
        }
        Ok((None, passed_over))
    }

    /// The snapshot of that epoch: the nodes of a gang must all go back to the same one.
    pub fn snapshot(&self, application: &str, epoch: u64) -> Result<Snapshot, StoreError> {
        Ok(Snapshot::open(&self.application_dir(application)?.join(format!("{PREFIX}{epoch}")))?)
    }

    /// The epochs that have a sealed snapshot, newest first; their contents are not looked at.
    pub fn sealed_epochs(&self, application: &str) -> Result<Vec<u64>, StoreError> {
        let epochs = self.epochs(application)?.into_iter();
        Ok(epochs.filter(|(_, dir)| is_sealed(dir)).map(|(epoch, _)| epoch).collect())
    }

    /// Removes all but the last valid snapshots, and what was left half-written before the newest of them. Later
    /// ones without a manifest are being written and stay.
    pub fn prune(&self, application: &str) -> Result<(), StoreError> {
        let mut valid = 0;
        for (_, dir) in self.epochs(application)? {
            match Snapshot::open(&dir) {
                Ok(_) if valid < KEPT => valid += 1,
                Ok(old) => old.remove()?,
                Err(_) if valid == 0 => {}
                Err(_) => remove_dir(&dir)?,
            }
        }
        Ok(())
    }

    /// Removes all of an application's snapshots: it has ended.
    pub fn remove(&self, application: &str) -> Result<(), StoreError> {
        remove_dir(&self.application_dir(application)?)
    }

    /// Directories of epochs, newest first.
    fn epochs(&self, application: &str) -> Result<Vec<(u64, PathBuf)>, StoreError> {
        let dir = self.application_dir(application)?;
        let entries = match fs::read_dir(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(files::at(&dir))?,
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let epochs =
            names.filter_map(|name| Some((name.strip_prefix(PREFIX)?.parse().ok()?, dir.join(name))));
        let mut epochs: Vec<(u64, PathBuf)> = epochs.collect();
        epochs.sort_by_key(|(epoch, _)| std::cmp::Reverse(*epoch));
        Ok(epochs)
    }

    fn application_dir(&self, name: &str) -> Result<PathBuf, StoreError> {
        if is_plain(name) {
            Ok(self.root.join(name))
        } else {
            Err(StoreError::Name { name: name.to_owned() })
        }
    }
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0'])
}

fn is_sealed(dir: &Path) -> bool {
    dir.join(manifest::FILE_NAME).exists()
}

fn remove_dir(dir: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(files::at(dir)(error).into()),
        _ => Ok(()),
    }
}
