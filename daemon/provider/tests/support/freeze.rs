//! Freezes all ranks at a random instant, removes the contents of the segments and refills them, as a switch
//! does.
//!
//! The ranks keep their memory (no image is made), so this tests the daemon's part: a segment can be emptied
//! and refilled under frozen ranks, and new ports continue where the old ones stopped.

use super::relay::Relay;
use coswitch_ring::Segment;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Freezes and thaws once. Skips ranks that have ended.
pub(crate) fn cycle(pids: &[u32], segments: &[Arc<Segment>], relay: &Relay) {
    pids.iter().for_each(|&pid| signal(pid, libc::SIGSTOP));
    let deadline = Instant::now() + Duration::from_secs(10);
    while pids.iter().any(|&pid| !is_stopped(pid)) {
        assert!(Instant::now() < deadline, "a rank does not stop");
        std::thread::yield_now();
    }
    relay.pause(|| segments.iter().for_each(|segment| refill(segment)));
    pids.iter().for_each(|&pid| signal(pid, libc::SIGCONT));
}

fn signal(pid: u32, signal: i32) {
    // SAFETY: kill touches no memory. The children are not reaped while this runs, so the pids are valid; an
    // error means that the rank has just ended.
    unsafe { libc::kill(pid as i32, signal) };
}

/// Whether all threads of a process are stopped, or it has ended.
fn is_stopped(pid: u32) -> bool {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    tasks.flatten().all(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // The state follows the name, which is in parentheses.
        stat.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with(['T', 't', 'Z', 'X']))
    })
}

fn refill(segment: &Segment) {
    let file =
        std::fs::OpenOptions::new().read(true).write(true).open(segment.path()).expect("the segment exists");
    let mut contents = vec![0; segment.len() as usize];
    file.read_exact_at(&mut contents, 0).expect("the segment has its length");
    file.write_all_at(&vec![0xa5; contents.len()], 0).expect("tmpfs has free space");
    file.write_all_at(&contents, 0).expect("tmpfs has free space");
    segment.free_orphan_leases();
}
