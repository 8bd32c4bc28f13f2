//! Neighbours: programs that have nothing to do with coswitch run on beside its jobs.

use std::{
    thread,
    time::{Duration, Instant},
};

use coswitch_dispatcher::protocol::AppOutcome;
use coswitch_tests::{
    cluster::{RUN_LIMIT, run_on},
    job::TestJob,
};

/// The processes of a rank wake each other tens of thousands of times a second.
const FLOOD: &str = "timeout 6 yes | cat >/dev/null";
const NAP: Duration = Duration::from_millis(50);
/// A loaded machine delays a nap by some tenths of a second; a starved program waits for the flood to end.
const DELAY_MAX: Duration = Duration::from_secs(2);

/// Sleeps again and again for `span`; returns by how much a nap was exceeded at most.
fn longest_delay(span: Duration) -> Duration {
    let began = Instant::now();
    let mut longest = Duration::ZERO;
    while began.elapsed() < span {
        let asleep = Instant::now();
        thread::sleep(NAP);
        longest = longest.max(asleep.elapsed().saturating_sub(NAP));
    }
    longest
}

#[test]
fn a_program_beside_ranks_that_wake_each_other_is_not_starved() {
    run_on(2, |cluster| {
        // The kernel moves a sleeper to an idle processor: all are busy.
        let ranks = thread::available_parallelism().map_or(2, usize::from).next_multiple_of(2) * 4;
        let ranks = u32::try_from(ranks).expect("few processors");
        let job = cluster.launch(TestJob::new("flood", "/bin/sh", &["-c", FLOOD], None).on(ranks, 2));
        let delay = longest_delay(Duration::from_secs(6));
        assert_eq!(cluster.wait_for_end(job, RUN_LIMIT), AppOutcome::Succeeded);
        assert!(delay < DELAY_MAX, "a sleeping program had to wait for {delay:?}");
    });
}
