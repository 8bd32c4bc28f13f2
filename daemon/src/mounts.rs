//! What the processes of a node see of its file systems: a mount namespace of the daemon's own, whose `/proc`
//! shows to each user only that user's processes.
//!
//! ```text
//!   machine ──mounts and unmounts──▶ daemon, launchers, ranks, CRIU     (never the other way)
//! ```
//! CRIU runs in the namespace that its trees are in, so images have no mounts in them, and a restored tree
//! sees what is mounted then. The next daemon enters the namespace of what has survived the one before.

use std::{fs::File, io, os::unix::fs::MetadataExt};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, setns, unshare},
};

const NONE: Option<&str> = None;
/// Since Linux 5.8 of this mount alone, under that name; an earlier kernel refuses it.
const OWN_PROCESSES: &str = "hidepid=invisible";

/// Puts the calling thread, and all threads and processes that it starts later, into the namespace of a
/// `survivor`, or into a new one.
///
/// # Errors
/// Where the kernel refuses: the thread is in a namespace in which it sees what it saw before.
pub(crate) fn enter(survivor: Option<u32>) -> io::Result<()> {
    let Some(pid) = survivor else { return enter_new() };
    let [theirs, own] = [pid.to_string().as_str(), "self"].map(|of| File::open(format!("/proc/{of}/ns/mnt")));
    let (theirs, own) = (theirs?, own?.metadata()?);
    if theirs.metadata()?.ino() == own.ino() {
        return Ok(());
    }
    // The other threads of this process keep their directories.
    unshare(CloneFlags::CLONE_FS)?;
    Ok(setns(theirs, CloneFlags::CLONE_NEWNS)?)
}

fn enter_new() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SLAVE, NONE)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    Ok(mount(Some("proc"), "/proc", Some("proc"), flags, Some(OWN_PROCESSES))?)
}
