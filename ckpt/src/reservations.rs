//! Space of a store that is promised to snapshots being written, so that jobs that leave memory together are
//! not promised the same space.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The space that is promised to a snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promise {
    /// Bytes of the snapshot itself.
    pub(crate) needed: u64,
    /// Bytes of the file system besides, for pages that do not fit the arena; zero once they are written.
    pub(crate) overflow: u64,
}

/// All promises, by the directory of the snapshot.
pub(crate) type Reserved = BTreeMap<PathBuf, Promise>;

/// All reservations of a store. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reservations(Arc<Mutex<Reserved>>);

impl Reservations {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Reserved> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reservation that was inserted for that directory; dropping it ends the reservation.
    pub(crate) fn of(&self, dir: &Path) -> Reservation {
        Reservation { all: self.clone(), dir: dir.to_owned() }
    }
}

/// The space of one snapshot, reserved until the snapshot is sealed or given up.
#[derive(Debug)]
pub(crate) struct Reservation {
    all: Reservations,
    dir: PathBuf,
}

impl Reservation {
    /// The overflow is written, so the file system counts it itself. Nobody else could tell, because the file
    /// has no name.
    pub(crate) fn settle_overflow(&self) {
        if let Some(promise) = self.all.lock().get_mut(&self.dir) {
            promise.overflow = 0;
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.all.lock().remove(&self.dir);
    }
}
