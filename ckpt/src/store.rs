//! Store: the snapshots of all applications on a node, in `<root>/<application>/epoch-<n>/`.
//!
//! A store has tiers, which are directories in the order of their use: a snapshot goes to the first tier with
//! enough free space and is looked for in all. Two valid snapshots of each application are kept: the last,
//! and the one before it in case the last turns out damaged.

use crate::error::{SnapshotError, at};
use crate::files;
use crate::keys::Sealing;
use crate::manifest::{self, Damage, Identity, Manifest};
use crate::private;
use crate::reservations::{Promise, Reservation, Reservations, Reserved};
use crate::snapshot::{self, PREFIX, Snapshot};
use crate::writer::SnapshotWriter;
use nix::sys::statvfs::statvfs;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Number of valid snapshots kept of each application.
pub const KEPT: usize = 2;
/// Below a tier: copies of snapshots that other nodes own. No application has this name.
pub(crate) const COPIES: &str = ".copies";

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The name could lead out of the store's directories.
    #[error("store snapshots of '{name}': not a usable name")]
    Name { name: String },
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error("seal or open snapshots: the store was opened without the key of its cluster")]
    NoKey,
    /// No tier has enough free space, so the job must stay in memory; nothing was written. Only
    /// [`Store::begin_with`] raises this error, and no other error means the same. A retry can help after
    /// snapshots have been removed. (A disk that fills up later fails the dump or the seal: see
    /// [`crate::is_full`].)
    #[error(
        "the store is full: {needed} bytes are needed, and the most that {} takes is {free}",
        .root.display()
    )]
    Full {
        /// The tier with the most free space.
        root: PathBuf,
        /// Bytes asked for.
        needed: u64,
        /// Free bytes in `root`: within its limit, on its file system, neither reserved for other snapshots
        /// nor needed for the overflow of the same dump.
        free: u64,
    },
}

/// A snapshot that [`Store::latest_intact`] could not use.
#[derive(Debug)]
pub struct PassedOver {
    pub dir: PathBuf,
    pub reason: SnapshotError,
}

/// A snapshot as [`Store::list`] finds it.
#[derive(Debug)]
pub struct StoredSnapshot {
    pub application: String,
    pub epoch: u64,
    /// The directory of its tier.
    pub root: PathBuf,
    pub bytes: u64,
    /// Why it cannot be restored. `None` says that names and lengths of files are right, and the manifest is
    /// genuine if the store has a key; contents are not checked.
    pub problem: Option<SnapshotError>,
}

impl StoredSnapshot {
    /// Whether it differs from what was sealed; a snapshot that was never sealed is not damaged.
    pub fn is_damaged(&self) -> bool {
        !matches!(self.problem, None | Some(SnapshotError::Incomplete { .. }))
    }
}

/// A directory of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tier {
    pub root: PathBuf,
    /// The most that snapshots may take there; `None`: as much as the file system has.
    pub bytes_max: Option<u64>,
}

impl Tier {
    pub fn unbounded(root: PathBuf) -> Tier {
        Tier { root, bytes_max: None }
    }

    /// How many more bytes snapshots may take there, if the file system is to take `overflow` besides.
    fn free_bytes(&self, overflow: u64, reserved: &Reserved) -> Result<u64, StoreError> {
        // What is written between the two looks is subtracted twice, rather than not at all.
        let promised = self.promised(reserved);
        let found = statvfs(&self.root).map_err(io::Error::from).map_err(at(&self.root))?;
        let free = found.blocks_available() as u64 * found.fragment_size() as u64;
        let free = free.saturating_sub(promised).saturating_sub(overflow);
        let Some(most) = self.bytes_max else { return Ok(free) };
        // A snapshot that is removed while its size is looked at counts as nothing.
        let sealed = self.snapshots()?.into_iter().filter(|dir| !reserved.contains_key(dir));
        let sealed: u64 = sealed.map(|dir| size(&dir)).sum();
        let here = reserved.iter().filter(|(dir, _)| dir.starts_with(&self.root));
        let used = here.map(|(_, promise)| promise.needed).fold(sealed, u64::saturating_add);
        Ok(free.min(most.saturating_sub(used)))
    }

    /// Bytes of the tier's file system that are reserved and not written yet, also for other tiers on it.
    fn promised(&self, reserved: &Reserved) -> u64 {
        let own = device(&self.root);
        let here = reserved.iter().filter(|(dir, _)| device(dir) == own);
        let left = here.map(|(dir, promise)| {
            promise.needed.saturating_sub(allocated(dir)).saturating_add(promise.overflow)
        });
        left.fold(0, u64::saturating_add)
    }

    /// The directories of all snapshots of this tier, and of all copies.
    fn snapshots(&self) -> Result<Vec<PathBuf>, StoreError> {
        let applications = fs::read_dir(&self.root).map_err(at(&self.root))?.flatten();
        let copied = fs::read_dir(self.root.join(COPIES)).into_iter().flatten().flatten();
        let applications = applications.filter(|entry| entry.file_name() != COPIES).chain(copied);
        let epochs = applications.filter_map(|entry| fs::read_dir(entry.path()).ok()).flatten().flatten();
        Ok(epochs.map(|entry| entry.path()).collect())
    }
}

/// All snapshots of a node. Clones share their reservations, so a node has one store and its clones.
#[derive(Clone, Debug)]
pub struct Store {
    tiers: Vec<Tier>,
    reservations: Reservations,
    /// Without it, snapshots can be listed and removed.
    sealing: Option<Sealing>,
}

impl Store {
    /// A store of one directory, which is created if it is missing.
    pub fn open(root: &Path, sealing: Sealing) -> Result<Store, StoreError> {
        Store::with_tiers(vec![Tier::unbounded(root.to_owned())], sealing)
    }

    /// A store of these directories, which are created if they are missing, and which nobody else may change.
    ///
    /// # Panics
    /// If there are none.
    pub fn with_tiers(tiers: Vec<Tier>, sealing: Sealing) -> Result<Store, StoreError> {
        tiers.iter().try_for_each(|tier| open_root(&tier.root))?;
        Ok(Store::existing(tiers).sealed(sealing))
    }

    /// A store of these directories as they are, without a key.
    ///
    /// # Panics
    /// If there are none.
    pub fn existing(tiers: Vec<Tier>) -> Store {
        assert!(!tiers.is_empty(), "a store has at least one tier");
        Store { tiers, reservations: Reservations::default(), sealing: None }
    }

    /// The same store with this key.
    #[must_use]
    pub fn sealed(self, sealing: Sealing) -> Store {
        Store { sealing: Some(sealing), ..self }
    }

    fn sealing(&self) -> Result<&Sealing, StoreError> {
        self.sealing.as_ref().ok_or(StoreError::NoKey)
    }

    /// Why a snapshot cannot be restored, as far as that is seen without reading all of it.
    fn check(&self, dir: &Path) -> Result<(), SnapshotError> {
        match &self.sealing {
            Some(sealing) => Snapshot::open(dir, sealing).map(drop),
            None => snapshot::visible_problem(dir),
        }
    }

    /// Reads the manifest of a snapshot of another store of the cluster, that of `owner`.
    pub fn read_manifest(
        &self,
        bytes: &[u8],
        (application, epoch): (&str, u64),
        owner: &str,
    ) -> Result<Manifest, StoreError> {
        let keys = self.sealing()?.keys(application, epoch);
        let damaged = |damage: Damage| SnapshotError::Damaged { dir: self.tiers[0].root.clone(), damage };
        Ok(Manifest::decode(bytes, &keys, owner).map_err(damaged)?)
    }

    /// Lists all snapshots, valid or not, by application and with the newest first; contents are not checked.
    pub fn list(&self) -> Result<Vec<StoredSnapshot>, StoreError> {
        let mut found = Vec::new();
        for application in self.applications()? {
            for (epoch, dir) in self.epochs(&application)? {
                let (bytes, problem) = (size(&dir), self.check(&dir).err());
                let root = dir.ancestors().nth(2).expect("a tier, an application, an epoch").to_owned();
                found.push(StoredSnapshot { application: application.clone(), epoch, root, bytes, problem });
            }
        }
        Ok(found)
    }

    /// Compares every byte of one snapshot with what was sealed.
    pub fn verify(&self, application: &str, epoch: u64) -> Result<(), StoreError> {
        Ok(self.snapshot(application, epoch)?.verify()?)
    }

    /// Removes one snapshot, valid or not.
    pub fn remove_one(&self, application: &str, epoch: u64) -> Result<(), StoreError> {
        for dir in self.dirs(application, epoch)? {
            snapshot::remove(&dir)?;
            // Fails while the application has other snapshots.
            fs::remove_dir(dir.parent().expect("an epoch belongs to an application")).ok();
        }
        Ok(())
    }

    /// Begins the snapshot of an epoch without reserving space.
    pub fn begin(
        &self,
        application: &str,
        epoch: u64,
        now: SystemTime,
    ) -> Result<SnapshotWriter, StoreError> {
        self.begin_with(application, epoch, now, 0)
    }

    /// Begins the snapshot of an epoch in the first tier with `needed` free bytes, and reserves them.
    pub fn begin_with(
        &self,
        application: &str,
        epoch: u64,
        now: SystemTime,
        needed: u64,
    ) -> Result<SnapshotWriter, StoreError> {
        self.begin_with_overflow(application, epoch, now, needed, 0)
    }

    /// As [`Store::begin_with`], for a dump that also takes `overflow` bytes of the tier's file system, until
    /// the snapshot is sealed. They do not count for the limit of the tier.
    pub fn begin_with_overflow(
        &self,
        application: &str,
        epoch: u64,
        now: SystemTime,
        needed: u64,
        overflow: u64,
    ) -> Result<SnapshotWriter, StoreError> {
        let sealing = self.sealing()?;
        // Remove half-written attempts in all tiers; never write a sealed snapshot again.
        for dir in self.dirs(application, epoch)? {
            if is_sealed(&dir) {
                return Err(SnapshotError::Exists { dir }.into());
            }
            remove_dir(&dir)?;
        }
        let below = Path::new(plain(application)?).join(format!("{PREFIX}{epoch}"));
        let (dir, reservation) = self.reserve(needed, overflow, &below)?;
        // Each twice more, beginning with the next one.
        let tiers = self.tiers.len();
        let own = self.roots().position(|root| dir.starts_with(root)).unwrap_or_default();
        let spare = (1..=2 * tiers).map(|step| self.tiers[(own + step) % tiers].root.join(&below));
        let created_unix_ms = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let (application, owner) = (application.to_owned(), sealing.owner().to_owned());
        let identity = Identity { application, epoch, owner, created_unix_ms };
        Ok(SnapshotWriter::begin(&dir, identity, sealing)?.with_reservation(reservation, spare))
    }

    /// Reserves space for the directory `below` the first tier with enough of it.
    pub(crate) fn reserve(
        &self,
        needed: u64,
        overflow: u64,
        below: &Path,
    ) -> Result<(PathBuf, Reservation), StoreError> {
        let mut reserved = self.reservations.lock();
        let dir = self.choose_tier(needed, overflow, &reserved)?.root.join(below);
        reserved.insert(dir.clone(), Promise { needed, overflow });
        drop(reserved);
        let reservation = self.reservations.of(&dir);
        Ok((dir, reservation))
    }

    pub(crate) fn roots(&self) -> impl Iterator<Item = &Path> {
        self.tiers.iter().map(|tier| tier.root.as_path())
    }

    pub(crate) fn tiers(&self) -> impl Iterator<Item = &Tier> {
        self.tiers.iter()
    }

    /// The first tier with enough free space.
    fn choose_tier(&self, needed: u64, overflow: u64, reserved: &Reserved) -> Result<&Tier, StoreError> {
        let mut most = (0, &self.tiers[0]);
        for tier in &self.tiers {
            // A directory that has gone away is skipped while there are others.
            let free = match tier.free_bytes(overflow, reserved) {
                Err(error) if self.tiers.len() > 1 => {
                    tracing::warn!(%error, "a tier is passed over");
                    continue;
                }
                free => free?,
            };
            if free >= needed {
                return Ok(tier);
            }
            if free >= most.0 {
                most = (free, tier);
            }
        }
        Err(StoreError::Full { root: most.1.root.clone(), needed, free: most.0 })
    }

    /// How many bytes the snapshot of an epoch has so far, in all tiers and in memory.
    pub fn bytes(&self, application: &str, epoch: u64) -> u64 {
        let plain = self.sealing.iter().map(|sealing| sealing.plain_dir("dump", application, epoch));
        let dirs = self.dirs(application, epoch).unwrap_or_default().into_iter();
        dirs.chain(plain).map(|dir| size(&dir)).sum()
    }

    /// Returns the newest snapshot whose every byte is as it was sealed, and the newer ones that are not.
    pub fn latest_intact(
        &self,
        application: &str,
    ) -> Result<(Option<Snapshot>, Vec<PassedOver>), StoreError> {
        let mut passed_over = Vec::new();
        for (_, dir) in self.epochs(application)? {
            match Snapshot::open(&dir, self.sealing()?).and_then(|found| found.verify().map(|()| found)) {
                Ok(snapshot) => return Ok((Some(snapshot), passed_over)),
                Err(reason) => {
                    tracing::warn!(dir = %dir.display(), %reason, "snapshot passed over");
                    passed_over.push(PassedOver { dir, reason });
                }
            }
        }
        Ok((None, passed_over))
    }

    /// Opens the snapshot of an epoch.
    pub fn snapshot(&self, application: &str, epoch: u64) -> Result<Snapshot, StoreError> {
        let dirs = self.dirs(application, epoch)?;
        // If there is none, the error names the path in the first tier.
        let missing = application_dir(&self.tiers[0], application)?.join(format!("{PREFIX}{epoch}"));
        let dir = dirs.iter().find(|dir| is_sealed(dir)).or(dirs.first()).unwrap_or(&missing);
        Ok(Snapshot::open(dir, self.sealing()?)?)
    }

    /// The epochs that have a sealed snapshot, newest first; contents are not checked.
    pub fn sealed_epochs(&self, application: &str) -> Result<Vec<u64>, StoreError> {
        let epochs = self.epochs(application)?.into_iter();
        Ok(epochs.filter(|(_, dir)| is_sealed(dir)).map(|(epoch, _)| epoch).collect())
    }

    /// Removes all but the last [`KEPT`] valid snapshots and those that are `needed`, and all invalid ones
    /// older than the newest valid one. Newer ones without a manifest are being written and stay.
    pub fn prune(&self, application: &str, needed: &BTreeSet<u64>) -> Result<(), StoreError> {
        let mut valid = 0;
        for (epoch, dir) in self.epochs(application)? {
            match self.check(&dir) {
                Ok(()) if valid < KEPT => valid += 1,
                Ok(()) if needed.contains(&epoch) => {}
                Err(_) if valid == 0 => {}
                _ => snapshot::remove(&dir)?,
            }
        }
        Ok(())
    }

    /// The names of all applications that have snapshots, sealed or not.
    pub fn applications(&self) -> Result<BTreeSet<String>, StoreError> {
        let mut names = self.all_applications()?;
        let mut found = Ok(());
        names.retain(|name| match self.has_snapshots(name) {
            Ok(has) => has,
            Err(error) => {
                found = Err(error);
                false
            }
        });
        found.map(|()| names)
    }

    pub(crate) fn has_snapshots(&self, application: &str) -> Result<bool, StoreError> {
        Ok(!self.epochs(application)?.is_empty())
    }

    /// The same, and those that have only a program.
    pub(crate) fn all_applications(&self) -> Result<BTreeSet<String>, StoreError> {
        let mut names = BTreeSet::new();
        for Tier { root, .. } in &self.tiers {
            let entries = fs::read_dir(root).map_err(at(root))?;
            let found = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            names.extend(found.filter(|name| is_plain(name)));
        }
        Ok(names)
    }

    /// Removes the snapshots of an application that were not sealed. Nobody may be writing one.
    pub fn remove_unsealed(&self, application: &str) -> Result<(), StoreError> {
        let epochs = self.epochs(application)?.into_iter();
        epochs.filter(|(_, dir)| !is_sealed(dir)).try_for_each(|(_, dir)| remove_dir(&dir))
    }

    /// Removes the snapshots of an application that are newer than `epoch`: it has gone back to that.
    pub fn remove_newer(&self, application: &str, epoch: u64) -> Result<(), StoreError> {
        let mut newer = self.epochs(application)?.into_iter().filter(|(found, _)| *found > epoch);
        Ok(newer.try_for_each(|(_, dir)| snapshot::remove(&dir))?)
    }

    /// Removes all snapshots of an application, and its program.
    pub fn remove(&self, application: &str) -> Result<(), StoreError> {
        self.tiers.iter().try_for_each(|tier| remove_dir(&application_dir(tier, application)?))
    }

    /// The directories of an epoch; more than one only if a writer was killed.
    fn dirs(&self, application: &str, epoch: u64) -> Result<Vec<PathBuf>, StoreError> {
        let epochs = self.epochs(application)?.into_iter();
        Ok(epochs.filter(|(found, _)| *found == epoch).map(|(_, dir)| dir).collect())
    }

    /// Epochs and their directories in all tiers, newest first.
    fn epochs(&self, application: &str) -> Result<Vec<(u64, PathBuf)>, StoreError> {
        let mut epochs = Vec::new();
        for tier in &self.tiers {
            let dir = application_dir(tier, application)?;
            let entries = match fs::read_dir(&dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries.map_err(at(&dir))?,
            };
            // A link is no snapshot, wherever it leads.
            let dirs = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|found| found.is_dir()));
            let names = dirs.filter_map(|entry| entry.file_name().into_string().ok());
            epochs.extend(
                names.filter_map(|name| Some((name.strip_prefix(PREFIX)?.parse().ok()?, dir.join(name)))),
            );
        }
        epochs.sort_by_key(|(epoch, _)| Reverse(*epoch));
        Ok(epochs)
    }
}

fn open_root(root: &Path) -> Result<(), SnapshotError> {
    private::ensure_dir(root)?;
    Ok(private::check_trusted(root)?)
}

pub(crate) fn application_dir(tier: &Tier, name: &str) -> Result<PathBuf, StoreError> {
    Ok(tier.root.join(plain(name)?))
}

/// The name, if it leads nowhere else.
pub(crate) fn plain(name: &str) -> Result<&str, StoreError> {
    if is_plain(name) { Ok(name) } else { Err(StoreError::Name { name: name.to_owned() }) }
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0'])
}

/// The bytes of its files; files that vanish meanwhile do not count.
fn size(dir: &Path) -> u64 {
    files::list(dir).unwrap_or_default().iter().map(|(_, bytes)| bytes).sum()
}

/// The space that a file, or all files below a directory, have on their file system, whatever their lengths.
/// Files that vanish meanwhile do not count.
fn allocated(path: &Path) -> u64 {
    /// Bytes of the unit of `st_blocks`, on every file system.
    const UNIT: u64 = 512;
    let Ok(found) = fs::symlink_metadata(path) else { return 0 };
    let own = found.blocks().saturating_mul(UNIT);
    if !found.is_dir() {
        return own;
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| allocated(&entry.path())).fold(own, u64::saturating_add)
}

/// The file system of a path, or of the first directory above it that exists.
fn device(path: &Path) -> Option<u64> {
    path.ancestors().find_map(|path| fs::metadata(path).ok()).map(|found| found.dev())
}

fn is_sealed(dir: &Path) -> bool {
    dir.join(manifest::FILE_NAME).exists()
}

pub(crate) fn remove_dir(dir: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(dir)(error).into()),
        _ => Ok(()),
    }
}
