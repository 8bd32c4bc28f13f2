//! Work shared by several threads.

use std::sync::atomic::{AtomicUsize, Ordering};

/// How many threads copy or check for one snapshot.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(4)
}

/// Returns the results in the order of the items, or the first error in that order.
pub(crate) fn in_parallel<T: Sync, R: Send, E: Send>(
    items: &[T],
    act: impl Fn(&T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mine = std::iter::from_fn(|| {
            let index = next.fetch_add(1, Ordering::Relaxed);
            items.get(index).map(|item| (index, act(item)))
        });
        mine.collect::<Vec<_>>()
    };
    let threads = threads().min(items.len());
    let mut results = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let results = workers.into_iter().flat_map(|worker| worker.join().expect("a worker does not panic"));
        results.collect::<Vec<_>>()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
