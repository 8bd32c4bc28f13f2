//! A time-out that counts only the time in which this process ran: not that in which it was stopped.

use std::{pin::pin, time::Duration};

/// A process that was stopped loses at most this of its time.
const STEP: Duration = Duration::from_millis(250);

/// What `work` gives, or `None` where it takes longer than `limit`.
pub async fn timeout<F: Future>(limit: Duration, work: F) -> Option<F::Output> {
    let mut work = pin!(work);
    let mut left = limit;
    while !left.is_zero() {
        let step = left.min(STEP);
        if let Ok(output) = tokio::time::timeout(step, &mut work).await {
            return Some(output);
        }
        left -= step;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(600);

    #[tokio::test]
    async fn it_ends_what_takes_too_long() {
        assert_eq!(timeout(LIMIT, std::future::pending::<()>()).await, None);
        assert_eq!(timeout(LIMIT, async { 7 }).await, Some(7));
    }

    /// A blocked runtime is to its timers what a stopped process is.
    #[tokio::test]
    async fn time_in_which_the_process_was_stopped_does_not_count() {
        let work = || async {
            std::thread::sleep(2 * LIMIT);
            tokio::time::sleep(LIMIT / 20).await;
        };
        assert_eq!(timeout(LIMIT, work()).await, Some(()));
        assert!(tokio::time::timeout(LIMIT, work()).await.is_err(), "this one counts it");
    }
}
