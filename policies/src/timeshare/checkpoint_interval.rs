//! How often a job that computes without leaving memory is checkpointed.
//!
//! A checkpoint costs `C`, and a failure, one in `M` on average, costs the work since the last one. Young
//! ("A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974) finds that so much
//! work between two checkpoints costs least: `W = sqrt(2 C M)`. Daly ("A higher order estimate of the optimum
//! checkpoint interval for restart dumps", FGCS 22(3), 2006, equation 37) corrects it where `C` is not small
//! against `M`.

use std::time::Duration;

use crate::Bytes;

/// At most one part in so many of the time goes into checkpoints.
const SHARE: u32 = 10;
const LEAST: Duration = Duration::from_secs(1);
/// Bytes a second that a node is assumed to write before a checkpoint was measured: a slow disk.
const RATE_AT_FIRST: u64 = 200 << 20;
/// What a checkpoint costs besides: the cut, and CRIU's start.
const FIXED: Duration = Duration::from_millis(100);

/// The work between two checkpoints that cost `cost`, where a failure comes every `between_failures` on
/// average: by Daly's estimate, but at least nine times the cost, and a second.
#[must_use]
pub fn interval(cost: Duration, between_failures: Duration) -> Duration {
    let (c, m) = (cost.as_secs_f64(), between_failures.as_secs_f64());
    let part = c / (2.0 * m);
    let best = if part < 1.0 { (2.0 * c * m).sqrt() * (1.0 + part.sqrt() / 3.0 + part / 9.0) - c } else { m };
    let best = Duration::try_from_secs_f64(best).unwrap_or(Duration::MAX);
    best.max(cost.saturating_mul(SHARE - 1)).max(LEAST)
}

/// The mean time between failures of any of `nodes` nodes, each of which fails every `of_node` on average.
#[must_use]
pub fn between_failures(of_node: Duration, nodes: usize) -> Duration {
    of_node / u32::try_from(nodes).unwrap_or(u32::MAX).max(1)
}

/// What a checkpoint is assumed to cost before one was measured; `bytes`: on the node that writes most.
#[must_use]
pub fn assumed_cost(bytes: Bytes) -> Duration {
    FIXED + Duration::from_millis(bytes.0.saturating_mul(1000) / RATE_AT_FIRST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn it_is_youngs_where_a_checkpoint_is_short() {
        let a_week = interval(Duration::from_millis(650), 7 * DAY);
        assert_eq!(a_week.as_secs() / 60, 14, "1 GiB, one node, a failure a week");
        let dear = interval(10 * SECOND, 7 * DAY);
        assert_eq!(dear.as_secs() / 60, 57);
        // W = sqrt(2 C M) = 200 s; the higher order adds a third of the cost, and takes the cost away.
        let young = interval(SECOND, 20_000 * SECOND).as_secs_f64();
        assert!((young - (200.0 + 1.0 / 3.0 - 1.0)).abs() < 0.01, "{young}");
    }

    #[test]
    fn it_costs_at_most_a_tenth_of_the_time_however_often_nodes_fail() {
        for millis in [1_u64, 100, 5_000, 600_000] {
            let cost = Duration::from_millis(millis);
            for between in [Duration::from_millis(1), SECOND, DAY, 10_000 * DAY] {
                let work = interval(cost, between);
                assert!(cost * 10 <= work + cost && work >= SECOND, "{cost:?} {between:?}: {work:?}");
            }
        }
    }

    #[test]
    fn it_grows_with_the_cost_and_with_the_time_between_failures() {
        let steps = |by: fn(u64) -> Duration| (0..30).map(by).collect::<Vec<_>>();
        let costs = steps(|at| interval(Duration::from_millis(1 << at), DAY));
        let times = steps(|at| interval(SECOND, Duration::from_millis(1 << at)));
        assert!(costs.is_sorted() && times.is_sorted(), "{costs:?} {times:?}");
    }

    #[test]
    fn more_nodes_fail_more_often_and_more_bytes_cost_more() {
        assert_eq!(between_failures(DAY, 24), Duration::from_secs(3600));
        assert_eq!(between_failures(DAY, 0), DAY);
        assert_eq!(assumed_cost(Bytes::mib(1000)), Duration::from_millis(5100));
    }
}
