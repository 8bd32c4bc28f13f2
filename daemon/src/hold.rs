//! The hold of a node: one daemon at a time has it, and only that one changes or removes what is there.
//!
//! A daemon may wake after its master has died, beside the one that the next master has started. The hold is
//! a lock on the node's directory of notes, which ends with its process. A program that is executed in a
//! daemon's place takes it again.

use std::{
    fs::File,
    io,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::Mutex,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};

use crate::node;

/// Between two looks whether the daemon before has ended.
const LOOK: Duration = Duration::from_millis(5);

/// This process holds its node.
static HELD: Mutex<Option<Flock<File>>> = Mutex::new(None);

/// Ends the daemon before, where there is one, and holds the node in its place. `is_orphan`: the master that
/// has started this daemon has ended, and the next one may have started another daemon.
///
/// # Errors
/// Where the daemon before does not end in time, or this one is an orphan.
pub(crate) fn take(name: &str, limit: Duration, is_orphan: impl Fn() -> bool) -> anyhow::Result<()> {
    if is_held() {
        return Ok(());
    }
    let deadline = Instant::now() + limit;
    loop {
        if is_orphan() {
            bail!("the master that has started this daemon has ended");
        }
        let dir = node::ensure_notes_dir(name)?;
        // Also one that holds nothing: it may be of an earlier version.
        node::end_daemon_before(name, deadline.saturating_duration_since(Instant::now()))?;
        if let Some(lock) = lock(&dir).context("failed to hold the node")? {
            *HELD.lock().expect("no other thread fails") = Some(lock);
            return Ok(node::note_daemon(name)?);
        }
        if Instant::now() >= deadline {
            bail!("another daemon holds the node, and does not end");
        }
        sleep(LOOK);
    }
}

/// Holds the node on, after an exec.
///
/// # Errors
/// Where another daemon has come between.
pub(crate) fn take_again(name: &str) -> anyhow::Result<()> {
    let lock = lock(&node::notes_dir(name)).context("failed to hold the node")?;
    *HELD.lock().expect("no other thread fails") = Some(lock.context("another daemon holds the node")?);
    Ok(())
}

pub(crate) fn is_held() -> bool {
    HELD.lock().expect("no other thread fails").is_some()
}

/// `None` where another process has it, or the directory has just been removed.
fn lock(dir: &Path) -> io::Result<Option<Flock<File>>> {
    let file = match File::open(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => {
            let own = lock.metadata()?.ino();
            let is_there = dir.metadata().is_ok_and(|there| there.ino() == own);
            Ok(is_there.then_some(lock))
        }
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, error)) => Err(error.into()),
    }
}
