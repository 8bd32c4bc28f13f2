//! Lock on the working directory of a tree's root, so that CRIU's mounts of `/proc` do not collide there.
//!
//! To see the tree's own `/proc`, CRIU creates a directory `proc.crtools` in the working directory of the
//! tree's root, mounts `/proc` on it, and removes both. If the roots of two simultaneous dumps share a
//! working directory, one dump fails. So a dump holds this lock until CRIU has removed the directory.

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MntFlags, umount2};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

const NAME: &str = "proc.crtools";
/// The first image that CRIU writes of PID 1; by then it has the tree's `/proc` open and the directory
/// removed.
const FIRST_IMAGE: &str = "core-1.img";
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Excludes other dumps from a working directory; `None` if its file system has no locks.
pub(crate) struct DirLock(#[allow(dead_code, reason = "held, not read")] Option<Flock<File>>);

impl DirLock {
    /// Runs the dump into `images`; unlocks as soon as CRIU needs the directory no more.
    pub(crate) fn hold_during<R>(self, images: &Path, dump: impl FnOnce() -> R) -> R {
        let (done, is_done) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let _lock = self;
                let is_running = || is_done.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Timeout);
                while is_running() && !images.join(FIRST_IMAGE).exists() {}
            });
            let result = dump();
            drop(done);
            result
        })
    }
}

/// Locks the working directory of `root` and removes what a killed dump has left in it. Past the deadline the
/// error is of kind `TimedOut`.
pub(crate) fn lock_working_dir(root: Pid, deadline: Instant) -> io::Result<DirLock> {
    // This path leads to the right directory even if our root directory is another one.
    let dir = PathBuf::from(format!("/proc/{root}/cwd"));
    let dir_lock = lock(File::open(&dir)?, deadline)?;
    let left_over = dir.join(NAME);
    if left_over.symlink_metadata().is_ok() {
        let path = fs::read_link(&dir)?;
        tracing::warn!(dir = %path.display(), "removing {NAME}, left by a dump that was killed");
        umount2(&left_over, MntFlags::MNT_DETACH).ok();
        fs::remove_dir(&left_over).ok();
    }
    Ok(dir_lock)
}

fn lock(mut dir: File, deadline: Instant) -> io::Result<DirLock> {
    loop {
        dir = match Flock::lock(dir, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(DirLock(Some(lock))),
            Err((dir, Errno::EWOULDBLOCK)) if Instant::now() < deadline => dir,
            Err((_, Errno::EWOULDBLOCK)) => return Err(io::ErrorKind::TimedOut.into()),
            // Some network file systems have no locks. A collision is unlikely there and only costs the
            // epoch.
            Err(_) => return Ok(DirLock(None)),
        };
        std::thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_dump_in_the_same_directory_waits_until_its_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let open = || File::open(dir.path()).unwrap();
        let first = lock(open(), Instant::now()).unwrap();
        let begun = Instant::now();
        let error = lock(open(), begun + Duration::from_millis(20)).err().expect("the first holds it");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() >= Duration::from_millis(20));
        drop(first);
        lock(open(), Instant::now()).unwrap();
    }

    #[test]
    fn the_next_dump_may_begin_when_the_first_image_is_there() {
        let (dir, images) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let open = || File::open(dir.path()).unwrap();
        let soon = || Instant::now() + Duration::from_secs(20);
        lock(open(), soon()).unwrap().hold_during(images.path(), || {
            assert!(lock(open(), Instant::now()).is_err());
            fs::write(images.path().join(FIRST_IMAGE), "").unwrap();
            lock(open(), soon()).unwrap();
        });
    }

    #[test]
    fn the_directory_that_a_killed_dump_left_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(NAME)).unwrap();
        let mut child =
            std::process::Command::new("sleep").arg("60").current_dir(dir.path()).spawn().unwrap();
        let locked = lock_working_dir(Pid::from_raw(child.id() as i32), Instant::now());
        child.kill().unwrap();
        child.wait().unwrap();
        locked.unwrap();
        assert!(!dir.path().join(NAME).exists());
    }
}
