//! The same run over many seeds, on several threads. The answers are in the order of the seeds: the number of threads is
//! not seen in the result.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// What `run` makes of each seed, in their order; at most `threads` at a time.
///
/// # Panics
/// Where `run` does.
pub fn each_seed<R: Send>(seeds: &[u64], threads: usize, run: impl Fn(u64) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::with_capacity(seeds.len()));
    let work = || {
        while let Some((index, seed)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            seeds.get(index).map(|seed| (index, *seed))
        } {
            let result = run(seed);
            done.lock().expect("no run panics while it holds the list").push((index, result));
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(seeds.len()) {
            scope.spawn(work);
        }
        work();
    });
    let mut done = done.into_inner().expect("all threads are over");
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seed;

    #[test]
    fn the_number_of_threads_is_not_seen_in_the_result() {
        let seeds: Vec<u64> = (0..100).collect();
        let run = |seed| Seed::new(seed).next_u64();
        let alone = each_seed(&seeds, 1, run);
        assert_eq!(alone, each_seed(&seeds, 2, run));
        assert_eq!(alone, each_seed(&seeds, 7, run));
        assert_eq!(alone[3], Seed::new(3).next_u64());
        assert!(each_seed(&[], 2, run).is_empty());
    }
}
