//! Errors of the files of a snapshot.

use crate::manifest::Damage;
use crate::private::Untrusted;
use crate::segment::SegmentError;
use std::io;
use std::path::{Path, PathBuf};

/// Why a snapshot could not be written or used.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("use {}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    /// There is a sealed snapshot of this epoch already.
    #[error("write the snapshot {}: there is one already", .dir.display())]
    Exists { dir: PathBuf },
    /// It was never sealed.
    #[error("use the snapshot {}: it is not complete", .dir.display())]
    Incomplete { dir: PathBuf },
    /// An earlier restore found it damaged.
    #[error("use the snapshot {}: it was found damaged", .dir.display())]
    MarkedDamaged { dir: PathBuf },
    /// Its files differ from what was sealed.
    #[error("use the snapshot {}: {damage}", .dir.display())]
    Damaged { dir: PathBuf, damage: Damage },
    /// A directory of the store is not this user's alone.
    #[error("use the store: {0}")]
    Untrusted(#[from] Untrusted),
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

/// Adds the path to an error of the file system.
pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> SnapshotError {
    move |source| SnapshotError::Io { path: path.to_owned(), source }
}
