//! One dump at a time per working directory.
//!
//! To see the tree's own `/proc`, CRIU makes a directory `proc.crtools` in the working directory of the tree's root,
//! mounts it and takes both away again. Two dumps whose roots share a working directory collide there, in whatever
//! process they are made, and one fails. So a dump holds a lock on that directory until that part of it is over.

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
/// The first image that CRIU writes of PID 1; it does so when it has the tree's `/proc` open.
const AFTERWARDS: &str = "core-1.img";
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Keeps other dumps out of a working directory; `None` inside where nothing can be locked there.
pub(crate) struct Turn(#[allow(dead_code, reason = "held, not read")] Option<Flock<File>>);

impl Turn {
    /// Runs the dump into `images`, and lets the next one begin as soon as it can.
    pub(crate) fn during<R>(self, images: &Path, dump: impl FnOnce() -> R) -> R {
        let (done, is_done) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let _turn = self;
                let is_running = || is_done.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Timeout);
                while is_running() && !images.join(AFTERWARDS).exists() {}
            });
            let result = dump();
            drop(done);
            result
        })
    }
}

/// Waits for the root's working directory to be free, and clears what a killed dump has left in it. Past the
/// deadline the error is of kind `TimedOut`.
pub(crate) fn wait_for_turn(root: Pid, deadline: Instant) -> io::Result<Turn> {
    // Through /proc, so that it is the same directory whatever our own root is.
    let dir = PathBuf::from(format!("/proc/{root}/cwd"));
    let turn = lock(File::open(&dir)?, deadline)?;
    let left_over = dir.join(NAME);
    if left_over.symlink_metadata().is_ok() {
        tracing::warn!(dir = %fs::read_link(&dir)?.display(), "removing {NAME}, left by a dump that was killed");
        umount2(&left_over, MntFlags::MNT_DETACH).ok();
        fs::remove_dir(&left_over).ok();
    }
    Ok(turn)
}

fn lock(mut dir: File, deadline: Instant) -> io::Result<Turn> {
    loop {
        dir = match Flock::lock(dir, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(Turn(Some(lock))),
            Err((dir, Errno::EWOULDBLOCK)) if Instant::now() < deadline => dir,
            Err((_, Errno::EWOULDBLOCK)) => return Err(io::ErrorKind::TimedOut.into()),
            // Some network file systems have no locks: the collision is unlikely, and only costs the epoch.
            Err(_) => return Ok(Turn(None)),
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
    fn the_next_may_begin_when_the_first_image_is_there() {
        let (dir, images) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let open = || File::open(dir.path()).unwrap();
        let soon = || Instant::now() + Duration::from_secs(20);
        lock(open(), soon()).unwrap().during(images.path(), || {
            assert!(lock(open(), Instant::now()).is_err());
            fs::write(images.path().join(AFTERWARDS), "").unwrap();
            lock(open(), soon()).unwrap();
        });
    }

    #[test]
    fn what_a_killed_dump_left_is_cleared() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(NAME)).unwrap();
        let mut child =
            std::process::Command::new("sleep").arg("60").current_dir(dir.path()).spawn().unwrap();
        let turn = wait_for_turn(Pid::from_raw(child.id() as i32), Instant::now());
        child.kill().unwrap();
        child.wait().unwrap();
        turn.unwrap();
        assert!(!dir.path().join(NAME).exists());
    }
}
