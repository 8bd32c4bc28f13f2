//! Out of memory without leaving it: a frozen job's private pages go to swap, and come back from there.
//!
//! `process_madvise(MADV_PAGEOUT)` writes pages to swap, but leaves them in the swap cache, charged to the job: a reclaim
//! of its cgroup gives them back. What the pages of the segment and of program files hold is left to the kernel.

use std::{
    fs, io,
    ops::Range,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    thread,
    time::{Duration, Instant},
};

use coswitch_policies::{Bytes, Epoch};
use nix::errno::Errno;
use thiserror::Error;

use super::{Failure, Part, State, blocking};
use crate::{
    cgroup::{CgroupError, JobCgroup},
    protocol::{AppEvent, Step},
    swap,
};

const LIMIT: Duration = Duration::from_secs(240);
/// Without any memory given back for so long there is none to be had.
const STALL: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Advised at once: between two pieces the limit is looked at.
const PIECE: u64 = 64 << 20;
/// Of the private pages this share may stay, and for each process so much that the kernel keeps for it.
const MAY_STAY: u64 = 16;
const OF_A_PROCESS: u64 = 1 << 20;

/// Why pages did not leave.
#[derive(Debug, Error)]
enum PageOutError {
    #[error("swap is full: {needed} are to go there and {free} are free")]
    Full { needed: Bytes, free: Bytes },
    #[error("{left} stay in memory: swap is full, or the pages are locked")]
    Partial { left: Bytes },
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error("the pages of a process could not be named: {0}")]
    Process(#[from] io::Error),
}

impl Part {
    /// Takes the place of a dump: from frozen to paged out.
    pub(super) async fn page_out(&mut self, epoch: Epoch) -> Result<AppEvent, Failure> {
        self.look_whether_frozen().await?;
        let cgroup = self.made().cgroup.clone();
        let held = cgroup.used().map_err(Failure::alive)?;
        let (group, began) = (cgroup.clone(), Instant::now());
        let gone = move || Bytes(held.0.saturating_sub(group.used().unwrap_or(held).0));
        let work = blocking(move || page_out(&cgroup));
        let paged_out = self.watched(Step::Dump, held, gone, work).await;
        let (bytes, dump) = paged_out.map_err(|error| match error {
            PageOutError::Full { .. } => Failure::store_full(error),
            error => Failure::alive(error),
        })?;
        self.image_bytes = bytes;
        self.state = match std::mem::replace(&mut self.state, State::Ended) {
            State::Frozen(ice) => State::PagedOut(ice),
            other => other,
        };
        Ok(AppEvent::Dumped { epoch, bytes, dump, release: began.elapsed().saturating_sub(dump) })
    }

    /// Takes the place of a restore: from paged out to frozen.
    pub(super) async fn page_in(&mut self, epoch: Epoch) -> Result<AppEvent, Failure> {
        if !matches!(self.state, State::PagedOut(_)) {
            return Err(Failure::dead("it is not paged out"));
        }
        let began = Instant::now();
        let cgroup = self.made().cgroup.clone();
        let before = cgroup.used().map_err(Failure::dead)?;
        let (group, total) = (cgroup.clone(), self.image_bytes);
        let come = move || Bytes(group.used().unwrap_or(before).0.saturating_sub(before.0));
        let so_far = come.clone();
        let work = blocking(move || advise_all(&cgroup, libc::MADV_WILLNEED, began + LIMIT));
        self.watched(Step::Restore, total, so_far, work).await.map_err(Failure::dead)?;
        self.state = match std::mem::replace(&mut self.state, State::Ended) {
            State::PagedOut(ice) => State::Frozen(ice),
            other => other,
        };
        Ok(AppEvent::Restored { epoch, bytes: come(), restore: began.elapsed() })
    }
}

/// Says how much has left memory and how long writing it took; what remains until the return is giving it back.
fn page_out(cgroup: &JobCgroup) -> Result<(Bytes, Duration), PageOutError> {
    let began = Instant::now();
    let held = cgroup.used()?;
    let processes = cgroup.pids()?;
    let private = processes.iter().map(|pid| Private::of(*pid)).collect::<io::Result<Vec<_>>>()?;
    let needed = Bytes(private.iter().map(|private| private.resident).sum());
    let free = swap::free();
    if free < needed {
        return Err(PageOutError::Full { needed, free });
    }
    // Pages that were fetched and not touched are in memory only as copies of what is in swap.
    let all: u64 = private.iter().map(|private| private.resident + private.swapped).sum();
    let may_stay = Bytes(all / MAY_STAY + processes.len() as u64 * OF_A_PROCESS);
    advise_all(cgroup, libc::MADV_PAGEOUT, began + LIMIT)?;
    let written = began.elapsed();
    let (mut best, mut last) = (held, Instant::now());
    loop {
        cgroup.reclaim()?;
        let used = cgroup.used()?;
        let left = Bytes(used.0.saturating_sub(cgroup.shared()?.0));
        if left <= may_stay {
            return Ok((Bytes(held.0.saturating_sub(used.0)), written));
        }
        if used < best {
            (best, last) = (used, Instant::now());
        }
        if last.elapsed() > STALL || began.elapsed() > LIMIT {
            advise_all(cgroup, libc::MADV_WILLNEED, Instant::now() + STALL)?;
            return Err(PageOutError::Partial { left });
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// A process that ends meanwhile is none to advise.
fn advise_all(cgroup: &JobCgroup, advice: i32, deadline: Instant) -> Result<(), PageOutError> {
    for pid in cgroup.pids()? {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        // SAFETY: pidfd_open takes two plain integers.
        let fd =
            Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) }).map_err(io::Error::from)?;
        // SAFETY: the call has just returned this descriptor, which nobody else owns.
        let process = unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).expect("a descriptor")) };
        for piece in maps.lines().filter_map(private_writable).flat_map(pieces) {
            if Instant::now() > deadline {
                return Ok(());
            }
            // What the kernel cannot page, such as locked pages, stays; what has left is measured, not assumed.
            let _ = advise(&process, piece, advice);
        }
    }
    Ok(())
}

fn advise(process: &OwnedFd, piece: Range<u64>, advice: i32) -> nix::Result<()> {
    let iov = libc::iovec { iov_base: piece.start as *mut _, iov_len: (piece.end - piece.start) as usize };
    // SAFETY: the vector is valid during the call; its addresses are the other process's, and neither advice changes
    // what is to be read there.
    let done = unsafe {
        libc::syscall(libc::SYS_process_madvise, process.as_raw_fd(), &raw const iov, 1usize, advice, 0u32)
    };
    Errno::result(done).map(drop)
}

/// The range of a line of `/proc/PID/maps`, if it is a private mapping that may be written.
fn private_writable(line: &str) -> Option<Range<u64>> {
    let (range, rest) = line.split_once(' ')?;
    let flags = rest.as_bytes();
    if flags.get(1) != Some(&b'w') || flags.get(3) != Some(&b'p') {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
}

fn pieces(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    range.step_by(PIECE as usize).map(move |start| start..(start + PIECE).min(end))
}

/// A process's share of private pages, in memory and in swap.
struct Private {
    resident: u64,
    swapped: u64,
}

impl Private {
    fn of(pid: i32) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let bytes = |field| -> u64 {
            let value = text.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
            value.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) << 10
        };
        Ok(Self { resident: bytes("Pss_Anon:"), swapped: bytes("SwapPss:") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_private_mappings_that_may_be_written_are_paged() {
        let line = |flags: &str| private_writable(&format!("7f00-7f80 {flags} 00000000 00:00 0 [heap]"));
        assert_eq!(line("rw-p"), Some(0x7f00..0x7f80));
        assert_eq!((line("rw-s"), line("r-xp"), private_writable("")), (None, None, None));
    }

    #[test]
    fn a_range_is_cut_into_pieces_that_cover_it() {
        let cut: Vec<_> = pieces(5..2 * PIECE + 6).collect();
        assert_eq!(cut, [5..PIECE + 5, PIECE + 5..2 * PIECE + 5, 2 * PIECE + 5..2 * PIECE + 6]);
    }

    #[test]
    fn what_this_process_has_touched_is_resident() {
        let touched = std::hint::black_box(vec![7_u8; 32 << 20]);
        let held = Private::of(std::process::id().cast_signed()).unwrap();
        assert!(held.resident >= touched.len() as u64);
    }
}
