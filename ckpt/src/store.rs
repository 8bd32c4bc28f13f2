//! The snapshots of all applications on a node: `<root>/<application>/epoch-<n>/`.
//!
//! A store has tiers, directories in the order in which they are used: a snapshot goes to the first that has room for
//! it, and is found in whichever it lies.
//!
//! Two valid ones of each application are kept: the last, and the one to fall back to where it turns out damaged.

use crate::files;
use crate::manifest::{self, Identity};
use crate::snapshot::{Snapshot, SnapshotError, SnapshotWriter};
use nix::sys::statvfs::statvfs;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    #[error("the store is full: {needed} bytes are needed, and the most that {} takes is {free}", .root.display())]
    Full {
        /// The tier that has most.
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
    /// In which tier.
    pub root: PathBuf,
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

/// A directory of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tier {
    /// Where it is.
    pub root: PathBuf,
    /// What snapshots may take there; `None`: as much as there is.
    pub bytes_max: Option<u64>,
}

impl Tier {
    /// As much as there is.
    pub fn unbounded(root: PathBuf) -> Tier {
        Tier { root, bytes_max: None }
    }

    /// How much more may go there, beside what is being written.
    fn room(&self, claims: &Claims) -> Result<u64, StoreError> {
        let found = statvfs(&self.root).map_err(io::Error::from).map_err(files::at(&self.root))?;
        let free = found.blocks_available() as u64 * found.fragment_size() as u64;
        let Some(most) = self.bytes_max else { return Ok(free) };
        // What is removed meanwhile is room.
        let sealed = self.snapshots()?.into_iter().filter(|dir| !claims.contains_key(dir));
        let sealed: u64 = sealed.map(|dir| size(&dir)).sum();
        let claimed = claims.iter().filter(|(dir, _)| dir.starts_with(&self.root));
        let used = claimed.map(|(_, bytes)| *bytes).fold(sealed, u64::saturating_add);
        Ok(free.min(most.saturating_sub(used)))
    }

    /// The directories of all snapshots here.
    fn snapshots(&self) -> Result<Vec<PathBuf>, StoreError> {
        let applications = fs::read_dir(&self.root).map_err(files::at(&self.root))?.flatten();
        let epochs = applications.filter_map(|entry| fs::read_dir(entry.path()).ok()).flatten().flatten();
        Ok(epochs.map(|entry| entry.path()).collect())
    }
}

/// What was admitted and is not sealed yet, by directory: two jobs that leave together must not be promised the same
/// room.
type Claims = BTreeMap<PathBuf, u64>;

/// The room of one snapshot, until it is sealed or given up.
#[derive(Debug)]
pub(crate) struct Claim {
    claims: Arc<Mutex<Claims>>,
    dir: PathBuf,
}

impl Drop for Claim {
    fn drop(&mut self) {
        locked(&self.claims).remove(&self.dir);
    }
}

fn locked(claims: &Mutex<Claims>) -> MutexGuard<'_, Claims> {
    claims.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All snapshots of a node. Clones know of each other's claims, so a node has one store and its clones.
#[derive(Clone, Debug)]
pub struct Store {
    /// At least one.
    tiers: Vec<Tier>,
    claims: Arc<Mutex<Claims>>,
}

impl Store {
    /// Uses that directory, creating it where it is missing.
    pub fn open(root: &Path) -> Result<Store, StoreError> {
        Store::with_tiers(vec![Tier::unbounded(root.to_owned())])
    }

    /// Uses these directories, the first ones first, creating those that are missing.
    ///
    /// # Panics
    /// Without any.
    pub fn with_tiers(tiers: Vec<Tier>) -> Result<Store, StoreError> {
        tiers.iter().try_for_each(|tier| fs::create_dir_all(&tier.root).map_err(files::at(&tier.root)))?;
        Ok(Store::existing(tiers))
    }

    /// Uses these directories as they are.
    ///
    /// # Panics
    /// Without any.
    pub fn existing(tiers: Vec<Tier>) -> Store {
        assert!(!tiers.is_empty(), "a store has a tier at least");
        Store { tiers, claims: Arc::default() }
    }

    /// All snapshots, valid or not, by application, each one's newest first; their contents are not looked at.
    pub fn list(&self) -> Result<Vec<Entry>, StoreError> {
        let mut names = BTreeSet::new();
        for Tier { root, .. } in &self.tiers {
            let entries = fs::read_dir(root).map_err(files::at(root))?;
            let found = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            names.extend(found.filter(|name| is_plain(name)));
        }
        let mut found = Vec::new();
        for application in names {
            for (epoch, dir) in self.epochs(&application)? {
                let (bytes, problem) = (size(&dir), Snapshot::open(&dir).err());
                let root = dir.ancestors().nth(2).expect("a tier, an application, an epoch").to_owned();
                found.push(Entry { application: application.clone(), epoch, root, bytes, problem });
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
        for dir in self.dirs(application, epoch)? {
            match Snapshot::open(&dir) {
                Ok(snapshot) => snapshot.remove()?,
                Err(_) => remove_dir(&dir)?,
            }
            // It stays where it has others.
            fs::remove_dir(dir.parent().expect("an epoch belongs to an application")).ok();
        }
        Ok(())
    }

    /// Begins the snapshot of an epoch, which needs no room to speak of.
    pub fn begin(
        &self,
        application: &str,
        epoch: u64,
        now: SystemTime,
    ) -> Result<SnapshotWriter, StoreError> {
        self.begin_with(application, epoch, now, 0)
    }

    /// Begins the snapshot of an epoch where there is room for `needed` bytes.
    pub fn begin_with(
        &self,
        application: &str,
        epoch: u64,
        now: SystemTime,
        needed: u64,
    ) -> Result<SnapshotWriter, StoreError> {
        // What was half-written must not be found beside it, and what is valid must not be written again.
        for dir in self.dirs(application, epoch)? {
            if is_sealed(&dir) {
                return Err(SnapshotError::Exists { dir }.into());
            }
            remove_dir(&dir)?;
        }
        let mut claims = locked(&self.claims);
        let tier = self.admit(needed, &claims)?;
        let dir = application_dir(tier, application)?.join(format!("{PREFIX}{epoch}"));
        claims.insert(dir.clone(), needed);
        drop(claims);
        let claim = Claim { claims: Arc::clone(&self.claims), dir: dir.clone() };
        let created_unix_ms = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let identity = Identity { application: application.to_owned(), epoch, created_unix_ms };
        Ok(SnapshotWriter::begin(&dir, identity)?.holding(claim))
    }

    /// Refuses what there is no room for: ask before a job leaves memory.
    pub fn has_room(&self, needed: u64) -> Result<(), StoreError> {
        self.admit(needed, &locked(&self.claims)).map(drop)
    }

    /// The first tier that has room.
    fn admit(&self, needed: u64, claims: &Claims) -> Result<&Tier, StoreError> {
        let mut most = (0, &self.tiers[0]);
        for tier in &self.tiers {
            // A directory that has gone away has no room; the others may have.
            let free = match tier.room(claims) {
                Err(error) if self.tiers.len() > 1 => {
                    tracing::warn!(%error, "a tier is passed over");
                    continue;
                }
                room => room?,
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

    /// What an epoch takes so far, wherever it lies, in bytes.
    pub fn bytes(&self, application: &str, epoch: u64) -> u64 {
        self.dirs(application, epoch).unwrap_or_default().iter().map(|dir| size(dir)).sum()
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
        let dirs = self.dirs(application, epoch)?;
        // Where there is none, the first tier is where it would be.
        let missing = application_dir(&self.tiers[0], application)?.join(format!("{PREFIX}{epoch}"));
        let dir = dirs.iter().find(|dir| is_sealed(dir)).or(dirs.first()).unwrap_or(&missing);
        Ok(Snapshot::open(dir)?)
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
        self.tiers.iter().try_for_each(|tier| remove_dir(&application_dir(tier, application)?))
    }

    /// Where that epoch lies; more than one place only where a writer was killed.
    fn dirs(&self, application: &str, epoch: u64) -> Result<Vec<PathBuf>, StoreError> {
        let epochs = self.epochs(application)?.into_iter();
        Ok(epochs.filter(|(found, _)| *found == epoch).map(|(_, dir)| dir).collect())
    }

    /// Directories of epochs in all tiers, newest first.
    fn epochs(&self, application: &str) -> Result<Vec<(u64, PathBuf)>, StoreError> {
        let mut epochs = Vec::new();
        for tier in &self.tiers {
            let dir = application_dir(tier, application)?;
            let entries = match fs::read_dir(&dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries.map_err(files::at(&dir))?,
            };
            let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            epochs.extend(
                names.filter_map(|name| Some((name.strip_prefix(PREFIX)?.parse().ok()?, dir.join(name)))),
            );
        }
        epochs.sort_by_key(|(epoch, _)| Reverse(*epoch));
        Ok(epochs)
    }
}

fn application_dir(tier: &Tier, name: &str) -> Result<PathBuf, StoreError> {
    if is_plain(name) { Ok(tier.root.join(name)) } else { Err(StoreError::Name { name: name.to_owned() }) }
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0'])
}

/// What its files hold; of those that are being written, or removed, what can be seen.
fn size(dir: &Path) -> u64 {
    files::list(dir).unwrap_or_default().iter().map(|(_, bytes)| bytes).sum()
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
