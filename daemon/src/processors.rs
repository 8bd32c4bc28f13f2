//! The processors of a virtual node: its own share of the machine's, as a machine of its own would have.
//!
//! Without shares the kernel may leave a rank and both data planes on one core for a long time, and a stream of large
//! messages loses a fifth of its bandwidth. Whatever a daemon starts stays on the daemon's processors.

use nix::{
    errno::Errno,
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};

/// The processors this process may use.
///
/// # Errors
/// Where the kernel does not say.
pub fn allowed() -> Result<Vec<usize>, Errno> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count()).filter(|cpu| set.is_set(*cpu) == Ok(true)).collect())
}

/// Keeps this thread, and all that it will start, on `cpus`.
///
/// # Errors
/// Where one of them is not there.
pub fn keep_to(cpus: &[usize]) -> Result<(), Errno> {
    let mut set = CpuSet::new();
    cpus.iter().try_for_each(|cpu| set.set(*cpu))?;
    sched_setaffinity(Pid::from_raw(0), &set)
}

/// The share of node `number` of `count`: shares are as equal as can be and overlap only where there are more nodes than
/// processors.
#[must_use]
pub fn share(all: &[usize], number: usize, count: usize) -> Vec<usize> {
    match all.len() {
        0 => Vec::new(),
        cpus if cpus < count => vec![all[number % cpus]],
        cpus => all[number * cpus / count..(number + 1) * cpus / count].to_vec(),
    }
}

/// How long a turn of a thread is, as the kernel counts turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turns {
    /// As everybody's: a thread that yields lets others have theirs.
    Usual,
    /// A tenth of a millisecond: the thread has a processor as soon as it wakes, where whoever computes on it would finish a turn of
    /// milliseconds first. A yield then gives next to nothing away.
    Short,
}

/// Asks the kernel for such turns of this thread. Kernels before 6.12 change nothing.
pub fn ask_for(turns: Turns) {
    // SAFETY: of numbers only, for each of which 0 is a value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = u32::try_from(size_of_val(&attributes)).expect("a structure of some bytes");
    attributes.sched_runtime = if turns == Turns::Short { 100_000 } else { 0 };
    // SAFETY: reads one structure, which says how large it is. Where it is refused, turns are as long as they were.
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
    fn more_nodes_than_processors_take_turns() {
        let shares: Vec<_> = (0..4).map(|number| share(&[0, 1], number, 4)).collect();
        assert_eq!(shares, [[0], [1], [0], [1]]);
    }

    #[test]
    fn thread_stays_where_it_is_told() {
        let first = allowed().unwrap()[0];
        std::thread::spawn(move || {
            keep_to(&[first]).unwrap();
            assert_eq!(allowed().unwrap(), [first]);
        })
        .join()
        .unwrap();
    }
}
