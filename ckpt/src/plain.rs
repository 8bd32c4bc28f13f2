//! A directory in memory for images while CRIU writes or reads them, so that they never lie on a disk in
//! plain. Where this process is killed it stays, below the directory that [`crate::Sealing`] names.

use crate::error::{SnapshotError, at};
use crate::private;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Removed, with all that is in it, when dropped.
#[derive(Debug)]
pub(crate) struct PlainDir(PathBuf);

impl PlainDir {
    /// Makes the directory, without what a process that was killed has left there.
    pub(crate) fn make(path: &Path) -> Result<PlainDir, SnapshotError> {
        remove(path).and_then(|()| private::create_dir(path)).map_err(at(path))?;
        Ok(PlainDir(path.to_owned()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PlainDir {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.0) {
            tracing::warn!(dir = %self.0.display(), %error, "images stay behind in memory");
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
