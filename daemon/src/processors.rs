//! The processors of a virtual node: a share of the machine's own.
//!
//! Without shares the kernel may leave a rank and both data planes on one core for a long time, and a stream
//! of large messages loses a fifth of its bandwidth. Processes that a daemon starts stay on the daemon's
//! processors.

use nix::{
    errno::Errno,
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};

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
    // SAFETY: the call reads one structure, which holds its own size. Where it fails, the slice is unchanged.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0u32) };
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
    fn more_nodes_than_processors_share_them() {
        let shares: Vec<_> = (0..4).map(|number| share(&[0, 1], number, 4)).collect();
        assert_eq!(shares, [[0], [1], [0], [1]]);
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
