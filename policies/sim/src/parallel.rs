//! Runs a function over many items (seeds, runs) on several threads. Results come in the order of the items,
//! so they do not depend on the number of threads.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// The result of `run` for each item, in their order; at most `threads` run at a time.
///
/// # Panics
/// Where `run` does.
pub fn each<T: Sync, R: Send>(items: &[T], threads: usize, run: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::with_capacity(items.len()));
    let work = || {
        while let Some((index, item)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            items.get(index).map(|item| (index, item))
        } {
            let result = run(item);
            done.lock().expect("no run panics while it holds the list").push((index, result));
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(items.len()) {
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
    fn the_number_of_threads_does_not_show_in_the_result() {
        let seeds: Vec<u64> = (0..100).collect();
        let run = |seed: &u64| Seed::new(*seed).next_u64();
        let alone = each(&seeds, 1, run);
        assert_eq!(alone, each(&seeds, 2, run));
        assert_eq!(alone, each(&seeds, 7, run));
        assert_eq!(alone[3], Seed::new(3).next_u64());
        assert!(each(&[], 2, run).is_empty());
    }
}
