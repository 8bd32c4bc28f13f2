//! Parking by page-out: the private pages of a frozen job go to swap, and come back from there.
//!
//! `process_madvise(MADV_PAGEOUT)` writes pages to swap but leaves them in the swap cache, charged to the
//! job; a reclaim of its cgroup frees them. Pages of the segment and of program files are left to the kernel.

use std::{
    fs, io,
    ops::Range,
    os::fd::{AsRawFd, OwnedFd},
    thread,
    time::{Duration, Instant},
};

use coswitch_policies::{Bytes, Epoch};
use nix::errno::Errno;
use thiserror::Error;

use super::part::{Part, State, blocking};
use crate::{
    cgroup::{CgroupError, JobCgroup},
    children::open_pidfd,
    proc_text,
    protocol::{AppEvent, Failure, Step, moving_time},
    swap,
};

/// For little memory; the [`moving_time`] of what is to move is added.
const LIMIT: Duration = Duration::from_secs(240);
/// A reclaim that has freed no memory for so long will not free any.
const STALL: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Bytes advised at once; the time limit is checked between two pieces.
const PIECE: u64 = 64 << 20;
/// This share of the private pages may stay in memory, and so many bytes of each process.
const MAY_STAY: u64 = 16;
const OF_A_PROCESS: u64 = 1 << 20;

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
        self.frozen_root().await?;
        let cgroup = self.resources().cgroup.clone();
        let before = cgroup.used().map_err(Failure::alive)?;
        let (group, began) = (cgroup.clone(), Instant::now());
        let gone = move || Bytes(before.0.saturating_sub(group.used().unwrap_or(before).0));
        let work = blocking(move || move_to_swap(&cgroup));
        let paged_out = self.with_progress(Step::Dump, before, gone, work).await;
        let (bytes, dump) = paged_out.map_err(|error| match error {
            PageOutError::Full { .. } => Failure::store_full(error),
            error => Failure::alive(error),
        })?;
        self.image_bytes = bytes;
        self.leave_running();
        self.state = match self.take_state() {
            State::Frozen(ranks) => State::PagedOut(ranks),
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
        let cgroup = self.resources().cgroup.clone();
        let before = cgroup.used().map_err(Failure::dead)?;
        let group = cgroup.clone();
        let back = move || Bytes(group.used().unwrap_or(before).0.saturating_sub(before.0));
        let so_far = back.clone();
        let deadline = began + LIMIT + moving_time(self.image_bytes);
        let work = blocking(move || advise_all(&cgroup, libc::MADV_WILLNEED, deadline));
        self.with_progress(Step::Restore, self.image_bytes, so_far, work).await.map_err(Failure::dead)?;
        self.node.running.rest(self.job, self.resources().cgroup.clone());
        self.state = match self.take_state() {
            State::PagedOut(ranks) => State::Frozen(ranks),
            other => other,
        };
        Ok(AppEvent::Restored { epoch, bytes: back(), restore: began.elapsed() })
    }
}

/// Returns the bytes that have left memory and the time for writing them, without the reclaim.
fn move_to_swap(cgroup: &JobCgroup) -> Result<(Bytes, Duration), PageOutError> {
    let began = Instant::now();
    let before = cgroup.used()?;
    let deadline = began + LIMIT + moving_time(before);
    let may_stay = check_swap(cgroup)?;
    advise_all(cgroup, libc::MADV_PAGEOUT, deadline)?;
    let written = began.elapsed();
    let after = reclaim_down_to(may_stay, cgroup, deadline)?;
    Ok((Bytes(before.0.saturating_sub(after.0)), written))
}

/// Checks that swap has enough free space; returns how many bytes may stay in memory.
fn check_swap(cgroup: &JobCgroup) -> Result<Bytes, PageOutError> {
    let processes = cgroup.pids()?;
    let private = processes.iter().map(|pid| PrivatePages::of(*pid)).collect::<io::Result<Vec<_>>>()?;
    let needed: Bytes = private.iter().map(|pages| pages.resident).sum();
    let free = swap::free();
    if free < needed {
        return Err(PageOutError::Full { needed, free });
    }
    // Prefetched pages that were not touched count as well: in memory they are only copies of swap.
    let all: u64 = private.iter().map(|pages| pages.resident.0 + pages.swapped.0).sum();
    Ok(Bytes(all / MAY_STAY + processes.len() as u64 * OF_A_PROCESS))
}

/// Returns the use of memory afterwards.
fn reclaim_down_to(may_stay: Bytes, cgroup: &JobCgroup, deadline: Instant) -> Result<Bytes, PageOutError> {
    let (mut least, mut last_progress) = (Bytes(u64::MAX), Instant::now());
    loop {
        cgroup.reclaim()?;
        let used = cgroup.used()?;
        let left = Bytes(used.0.saturating_sub(cgroup.shared()?.0));
        if left <= may_stay {
            return Ok(used);
        }
        if used < least {
            (least, last_progress) = (used, Instant::now());
        }
        if last_progress.elapsed() > STALL || Instant::now() > deadline {
            advise_all(cgroup, libc::MADV_WILLNEED, Instant::now() + STALL)?;
            return Err(PageOutError::Partial { left });
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Advises the kernel on the private pages of each process, until `deadline`.
fn advise_all(cgroup: &JobCgroup, advice: i32, deadline: Instant) -> Result<(), PageOutError> {
    for pid in cgroup.pids()? {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let process = open_pidfd(pid)?;
        for piece in maps.lines().filter_map(private_writable).flat_map(pieces) {
            if Instant::now() > deadline {
                return Ok(());
            }
            // The kernel refuses some pages, such as locked ones; the caller measures the result.
            let _ = advise(&process, piece, advice);
        }
    }
    Ok(())
}

fn advise(process: &OwnedFd, piece: Range<u64>, advice: i32) -> nix::Result<()> {
    let iov = libc::iovec { iov_base: piece.start as *mut _, iov_len: (piece.end - piece.start) as usize };
    // SAFETY: the vector is valid during the call; its addresses are the other process's, and neither advice
    // changes the content of its memory.
    let done = unsafe {
        libc::syscall(libc::SYS_process_madvise, process.as_raw_fd(), &raw const iov, 1usize, advice, 0u32)
    };
    Errno::result(done).map(drop)
}

/// The range of a line of `/proc/PID/maps`, if it is a private, writable mapping.
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

/// Private pages of a process.
struct PrivatePages {
    resident: Bytes,
    swapped: Bytes,
}

impl PrivatePages {
    fn of(pid: i32) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let size = |field| proc_text::size(&text, field).unwrap_or_default();
        Ok(Self { resident: size("Pss_Anon"), swapped: size("SwapPss") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_private_writable_mappings_are_paged() {
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
    fn touched_pages_are_resident() {
        let touched = std::hint::black_box(vec![7_u8; 32 << 20]);
        let pages = PrivatePages::of(std::process::id().cast_signed()).unwrap();
        assert!(pages.resident >= Bytes(touched.len() as u64));
    }
}
