//! Errors of the files of a snapshot.

use crate::manifest::Damage;
use crate::private::Untrusted;
use crate::segment::SegmentError;
use std::error::Error;
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

/// Whether the cause of an error is a file system without room, or a quota that is used up. The same step can
/// succeed after other files have been removed.
pub fn is_full(error: &(dyn Error + 'static)) -> bool {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| matches!(cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_system_is_found_below_the_errors_of_each_step() {
        let path = Path::new("/store");
        for (number, expected) in [(libc::ENOSPC, true), (libc::EDQUOT, true), (libc::EIO, false)] {
            let source = || io::Error::from_raw_os_error(number);
            let errors: [SnapshotError; 3] = [
                at(path)(source()),
                SegmentError::from(source()).into(),
                Untrusted::Io { dir: path.to_owned(), source: source() }.into(),
            ];
            assert!(errors.iter().all(|error| is_full(error) == expected), "{errors:?}");
        }
        assert!(!is_full(&SnapshotError::Exists { dir: path.to_owned() }));
    }
}
