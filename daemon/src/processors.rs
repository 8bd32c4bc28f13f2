//! The processors of a virtual node, a share of the machine's own, and how threads get them.
//!
//! Without shares the kernel may leave a rank and both data planes on one core for a long time, and a stream
//! of large messages loses a fifth of its bandwidth. Processes that a daemon starts stay on the daemon's
//! processors.

use std::{collections::BTreeSet, io};

use nix::{
    errno::Errno,
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};
use thiserror::Error;

/// The processors this process may use.
///
/// # Errors
/// Where the kernel refuses to name them.
pub fn allowed() -> Result<Vec<usize>, Errno> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count()).filter(|cpu| set.is_set(*cpu) == Ok(true)).collect())
}

/// Keeps this thread, and all threads that it starts later, on `cpus`.
///
/// # Errors
/// Where one of them does not exist.
pub fn keep_to(cpus: &[usize]) -> Result<(), Errno> {
    let mut set = CpuSet::new();
    cpus.iter().try_for_each(|cpu| set.set(*cpu))?;
    sched_setaffinity(Pid::from_raw(0), &set)
}

/// A list of processors is written in another way.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("`{0}` is not a list of processors, like `0-7,16-23`, below {max}", max = CpuSet::count())]
pub struct ListError(String);

/// The processors of a list as the kernel writes it, in order.
///
/// # Errors
/// Where the text names no processor, or is not a list of them.
pub fn parse_list(text: &str) -> Result<Vec<usize>, ListError> {
    let number = |word: &str| word.trim().parse().ok().filter(|number| *number < CpuSet::count());
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = number(first)?..=number(last)?;
        (!range.is_empty()).then_some(range)
    };
    let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
    let all: BTreeSet<usize> = ranges.ok_or_else(|| ListError(text.into()))?.into_iter().flatten().collect();
    Ok(all.into_iter().collect())
}

/// Processors as the kernel writes a list of them.
#[must_use]
pub fn list(processors: &[usize]) -> String {
    let runs = processors.chunk_by(|one, next| one + 1 == *next);
    let run = |run: &[usize]| match run {
        [first, .., last] => format!("{first}-{last}"),
        _ => run.iter().map(ToString::to_string).collect(),
    };
    runs.map(run).collect::<Vec<_>>().join(",")
}

/// The share of node `number` of `count`. Shares differ by at most one processor, and overlap only where
/// there are more nodes than processors.
pub fn share(all: &[usize], number: usize, count: usize) -> Vec<usize> {
    match all.len() {
        0 => Vec::new(),
        cpus if cpus < count => vec![all[number % cpus]],
        cpus => all[number * cpus / count..(number + 1) * cpus / count].to_vec(),
    }
}

/// The time slice of a thread in the kernel's scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSlice {
    /// The kernel's own: a thread that yields lets other threads run.
    Default,
    /// A tenth of a millisecond: the thread runs as soon as it wakes, before the thread that computes on its
    /// processor has finished a slice of milliseconds. A yield then gives almost no time away.
    Short,
}

/// Sets the time slice of this thread. Kernels before 6.12 ignore it.
pub fn set_time_slice(slice: TimeSlice) {
    // SAFETY: the structure holds numbers only, and 0 is a valid value of each.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = u32::try_from(size_of_val(&attributes)).expect("a small structure");
    attributes.sched_runtime = if slice == TimeSlice::Short { 100_000 } else { 0 };
    // SAFETY: a system call with plain integers. The call below would set it to 0 otherwise.
    attributes.sched_nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    // SAFETY: the call reads one structure, which holds its own size. Where it fails, the slice is unchanged.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0u32) };
}

/// This thread runs before any rank, and is expected to run for microseconds.
pub(crate) fn precede_ranks() -> io::Result<()> {
    const MOST: i32 = -20;
    set_nice(libc::PRIO_PROCESS, Pid::from_raw(0), MOST).map(drop)
}

/// Timers wake this thread to the microsecond; the kernel may combine them within 50 µs otherwise.
pub(crate) fn wake_on_time() {
    // SAFETY: a system call with plain integers. Where it fails, the thread is woken a little later.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

/// Sets the niceness of a process or a process group. False where it has ended.
pub(crate) fn set_nice(which: libc::__priority_which_t, of: Pid, nice: i32) -> io::Result<bool> {
    let of = libc::id_t::try_from(of.as_raw()).map_err(io::Error::other)?;
    // SAFETY: a system call with plain integers.
    match Errno::result(unsafe { libc::setpriority(which, of, nice) }) {
        Ok(_) => Ok(true),
        Err(Errno::ESRCH) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_processor_belongs_to_one_node() {
        for (cpus, count) in [(2, 1), (2, 2), (8, 3), (7, 7)] {
            let all: Vec<usize> = (10..10 + cpus).collect();
            let shares: Vec<_> = (0..count).map(|number| share(&all, number, count)).collect();
            assert_eq!(shares.concat(), all);
            assert!(shares.iter().all(|share| share.len().abs_diff(cpus / count) <= 1));
        }
    }

    #[test]
    fn a_list_is_read_as_the_kernel_writes_it() {
        for (text, all) in [("3", vec![3]), ("0-2,8", vec![0, 1, 2, 8]), (" 4 , 0-1,1", vec![0, 1, 4])] {
            assert_eq!(parse_list(text), Ok(all));
        }
        for wrong in ["", "a", "3-1", "1,", "-1", "0-99999"] {
            assert_eq!(parse_list(wrong), Err(ListError(wrong.into())));
        }
        assert_eq!(list(&[0, 1, 2, 8, 10, 11]), "0-2,8,10-11");
    }

    #[test]
    fn more_nodes_than_processors_share_them() {
        let shares: Vec<_> = (0..4).map(|number| share(&[0, 1], number, 4)).collect();
        assert_eq!(shares, [[0], [1], [0], [1]]);
    }

    #[test]
    fn a_thread_keeps_its_niceness_when_its_slice_is_set() {
        std::thread::spawn(|| {
            precede_ranks().unwrap();
            set_time_slice(TimeSlice::Short);
            // SAFETY: a system call with plain integers.
            assert_eq!(unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }, -20);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_stays_on_its_processors() {
        let first = allowed().unwrap()[0];
        std::thread::spawn(move || {
            keep_to(&[first]).unwrap();
            assert_eq!(allowed().unwrap(), [first]);
        })
        .join()
        .unwrap();
    }
}
