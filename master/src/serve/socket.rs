//! The socket of a cluster: one at a time listens there, and nothing stays behind of one that was killed.

use std::{
    fs::{File, Permissions, set_permissions},
    io,
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

use coswitch_ckpt::private;
use nix::fcntl::{Flock, FlockArg};
use thiserror::Error;

/// Where `coswitch serve` listens unless it is told otherwise.
pub const DEFAULT: &str = "/run/coswitch/serve.sock";

/// All may ask, and pass through the directory, which they cannot list.
const OF_ALL: u32 = 0o666;
const PASSABLE: u32 = 0o711;

#[derive(Debug, Error)]
pub enum SocketError {
    #[error("a cluster is served at {} already: name another socket by --socket", .0.display())]
    Taken(PathBuf),
    #[error("{} is there, and is no socket of a cluster: name another by --socket", .0.display())]
    Foreign(PathBuf),
    #[error("{} cannot be made: {cause}", .path.display())]
    Io { path: PathBuf, cause: io::Error },
}

/// A bound socket; it is removed when this is dropped.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    listener: UnixListener,
    /// Held for as long as the cluster is served.
    _lock: Flock<File>,
}

impl Socket {
    /// Binds the socket. One that a killed master has left is replaced.
    ///
    /// # Errors
    /// [`SocketError`]
    pub fn bind(path: PathBuf) -> Result<Self, SocketError> {
        let failed = |cause: io::Error| SocketError::Io { path: path.clone(), cause };
        if let Some(parent) = path.parent().filter(|parent| *parent != Path::new("")) {
            private::create_dir_all(parent).map_err(failed)?;
            if Path::new(DEFAULT).parent() == Some(parent) {
                set_permissions(parent, Permissions::from_mode(PASSABLE)).map_err(failed)?;
            }
        }
        let lock = private::create_or_open(&path.with_extension("lock")).map_err(failed)?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock)
            .map_err(|_| SocketError::Taken(path.clone()))?;
        match path.symlink_metadata() {
            Ok(found) if !is_socket(&found) => return Err(SocketError::Foreign(path)),
            Ok(_) if UnixStream::connect(&path).is_ok() => return Err(SocketError::Taken(path)),
            Ok(_) => std::fs::remove_file(&path).map_err(failed)?,
            Err(_) => {}
        }
        let listener = UnixListener::bind(&path).map_err(failed)?;
        // Who asks the kernel says, and what they may.
        set_permissions(&path, Permissions::from_mode(OF_ALL)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Self { path, listener, _lock: lock })
    }

    /// Removes the socket of a master that was killed; whether there was one.
    pub fn remove_dead(path: &Path) -> bool {
        path.symlink_metadata().is_ok() && Self::bind(path.into()).is_ok()
    }

    pub(super) fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn is_socket(found: &std::fs::Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_socket(&found.file_type())
}

impl Drop for Socket {
    fn drop(&mut self) {
        for path in [&self.path, &self.path.with_extension("lock")] {
            if let Err(error) = std::fs::remove_file(path) {
                tracing::warn!(%error, path = %path.display(), "it stays behind");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_listens_and_one_that_was_killed_is_no_hindrance() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/serve.sock");
        let first = Socket::bind(path.clone()).unwrap();
        assert!(matches!(Socket::bind(path.clone()), Err(SocketError::Taken(_))));
        drop(first);
        assert!(!path.exists() && !path.with_extension("lock").exists());
        // As after `kill -9`: the file is there, nobody listens.
        drop(UnixListener::bind(&path).unwrap());
        drop(Socket::bind(path.clone()).unwrap());
        assert!(!Socket::remove_dead(&path), "there is none");
        drop(UnixListener::bind(&path).unwrap());
        assert!(Socket::remove_dead(&path) && !path.exists());
        std::fs::write(&path, "").unwrap();
        assert!(matches!(Socket::bind(path), Err(SocketError::Foreign(_))));
    }
}
