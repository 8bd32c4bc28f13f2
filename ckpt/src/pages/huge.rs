//! Huge pages for restored processes, made before their pages are filled in.
//!
//! A hole that is filled page by page costs a fault for each page, and the next dump looks up, pins and frees
//! each of them. So one page of every 2 MiB is touched, the kernel makes a huge page of it (`MADV_COLLAPSE`),
//! and all pages are written to that. Only areas whose pages were all there at the dump are touched, so the
//! process holds no more memory than before. If the kernel declines, because the process or the system wants
//! no huge pages or there are none, only the time changes. If it works long for one, because it has to
//! search, it is not asked again. Time that it waits on a busy machine does not count: huge pages are worth
//! that.

use super::wire::PAGE;
use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_writev};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const HUGE: u64 = 2 << 20;
/// Processor time for one huge page: what it saves in faults now and in the next dump.
const WORTHWHILE: Duration = Duration::from_millis(1);
const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// The huge pages planned for a tree.
pub(super) struct Huge {
    /// Ranges of whole huge pages by process, in order and disjoint.
    whole: BTreeMap<u32, Vec<Range<u64>>>,
    /// The kernel makes one huge page at a time in a process; other threads write pages meanwhile.
    collapsing: Mutex<()>,
    given_up: AtomicBool,
}

impl Huge {
    /// Plans for pages (process, address, number) in any order, except that consecutive pages come one after
    /// the other.
    pub(super) fn of(pages: impl Iterator<Item = (u32, u64, u64)>) -> Huge {
        let mut whole: BTreeMap<u32, Vec<Range<u64>>> = BTreeMap::new();
        for (process, run) in joined(pages) {
            let inside = run.start.next_multiple_of(HUGE)..run.end & !(HUGE - 1);
            if !inside.is_empty() {
                whole.entry(process).or_default().push(inside);
            }
        }
        whole.values_mut().for_each(|ranges| ranges.sort_by_key(|range| range.start));
        let is_off = std::fs::read_to_string(SETTING).map_or(true, |setting| setting.contains("[never]"));
        Huge { whole, collapsing: Mutex::default(), given_up: AtomicBool::new(is_off) }
    }

    /// Makes the huge pages that begin among these pages, of stopped processes. The caller writes the pages
    /// afterwards and not before, because the first byte of each huge page becomes zero.
    pub(super) fn make(&self, pages: impl Iterator<Item = (u32, u64, u64)>, to: &BTreeMap<u32, Pid>) {
        for (process, run) in joined(pages) {
            let Some(pid) = to.get(&process) else { continue };
            for range in self.beginning_in(process, run) {
                let _one = self.collapsing.lock().unwrap_or_else(PoisonError::into_inner);
                if self.given_up.load(Ordering::Relaxed) {
                    return;
                }
                let (before, count) = (worked(), (range.end - range.start) / HUGE);
                let is_declined = collapse(*pid, &range).is_err_and(|error| error != Errno::EAGAIN);
                let is_slow = worked().saturating_sub(before) > WORTHWHILE * count as u32;
                self.given_up.store(is_declined || is_slow, Ordering::Relaxed);
            }
        }
    }

    fn beginning_in(&self, process: u32, run: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let (start, end) = (run.start.next_multiple_of(HUGE), run.end.next_multiple_of(HUGE));
        let whole = self.whole.get(&process).map_or(&[][..], Vec::as_slice);
        let first = whole.partition_point(|range| range.end <= start);
        let inside = whole[first..].iter().take_while(move |range| range.start < end);
        inside.map(move |range| range.start.max(start)..range.end.min(end))
    }
}

/// Joins consecutive pages into ranges.
fn joined(pages: impl Iterator<Item = (u32, u64, u64)>) -> Vec<(u32, Range<u64>)> {
    let mut runs: Vec<(u32, Range<u64>)> = Vec::new();
    for (process, address, pages) in pages {
        let end = address + pages * PAGE as u64;
        match runs.last_mut() {
            Some((last, run)) if *last == process && run.end == address => run.end = end,
            _ => runs.push((process, address..end)),
        }
    }
    runs
}

/// The processor time of this thread.
fn worked() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a thread can read its own clock").into()
}

fn collapse(pid: Pid, range: &Range<u64>) -> nix::Result<()> {
    for address in range.clone().step_by(HUGE as usize) {
        let remote = [RemoteIoVec { base: address as usize, len: 1 }];
        process_vm_writev(pid, &[IoSlice::new(&[0])], &remote)?;
    }
    // SAFETY: takes numbers only, and nothing else owns the descriptor it returns.
    let process = unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0);
        OwnedFd::from_raw_fd(Errno::result(fd)? as i32)
    };
    let area = libc::iovec { iov_base: range.start as *mut _, iov_len: (range.end - range.start) as usize };
    let (process, advice) = (process.as_raw_fd(), libc::MADV_COLLAPSE);
    // SAFETY: reads one `iovec`, which lives; its addresses are those of another process, whose contents do
    // not change.
    let advised =
        unsafe { libc::syscall(libc::SYS_process_madvise, process, &raw const area, 1usize, advice, 0u32) };
    Errno::result(advised).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn making_huge_pages_changes_one_byte_of_each_and_none_outside() {
        let mut memory = vec![7u8; 5 * HUGE as usize];
        let start = (memory.as_ptr() as u64).next_multiple_of(HUGE);
        let (pages, to) = ((1, start, 3 * HUGE / PAGE as u64), BTreeMap::from([(1, Pid::this())]));
        Huge::of([pages].into_iter()).make([pages].into_iter(), &to);
        let offset = (start - memory.as_ptr() as u64) as usize;
        for at in (0..3).map(|number| offset + number * HUGE as usize) {
            // 7 if the system wants no huge pages.
            assert!([0, 7].contains(&std::mem::replace(&mut memory[at], 7)));
        }
        assert!(memory.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn huge_pages_are_whole_and_made_with_the_pages_that_they_begin_among() {
        let pages = |process, from: u64, to: u64| (process, from * MIB, (to - from) * MIB / PAGE as u64);
        let given = [pages(1, 1, 3), pages(1, 3, 9), pages(2, 9, 12), pages(1, 21, 26), pages(1, 11, 13)];
        let huge = Huge::of(given.into_iter());
        let made = |process, from: u64, to: u64| {
            let ranges = huge.beginning_in(process, from * MIB..to * MIB);
            ranges.map(|range| (range.start / MIB, range.end / MIB)).collect::<Vec<_>>()
        };
        assert_eq!(made(1, 0, 30), [(2, 8), (22, 26)]);
        assert_eq!(made(1, 1, 3), [(2, 4)]);
        assert_eq!(made(1, 3, 9), [(4, 8)]);
        assert_eq!(made(1, 8, 22), []);
        assert_eq!(made(2, 9, 12), [(10, 12)]);
        assert_eq!(made(3, 0, 30), []);
    }
}
