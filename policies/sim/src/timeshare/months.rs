//! Utilisation of a time-sharing run by calendar month.

use coswitch_policies::metrics::{RunTimes, utilisation_between};

use crate::workload::{LogStart, Month};

#[must_use]
pub fn by_month(start: LogStart, run: &RunTimes) -> Vec<Month> {
    let submitted = || run.jobs.iter().map(|job| job.submitted);
    let first = submitted().min().unwrap_or_default();
    let last = run.jobs.iter().map(|job| job.finished).max().unwrap_or_default();
    let mut months = start.months(first, last);
    for (month, part) in &mut months {
        month.jobs = submitted().filter(|at| (part.from..part.to).contains(at)).count() as u64;
        month.utilisation = utilisation_between(run, *part);
    }
    months.into_iter().map(|(month, _)| month).collect()
}

#[cfg(test)]
mod tests {
    use coswitch_policies::{
        JobId, NodeId, SimTime,
        metrics::{JobTimes, Span},
    };

    use super::*;

    #[test]
    fn jobs_that_share_time_use_each_month_by_its_own() {
        // From five days before the end of a year; on one of two nodes for ten days, half of the time beside
        // another job.
        let start = LogStart { day: 9496 - 5, second: 0 };
        let day = |number: u64| SimTime(number * 86_400_000_000_000);
        let job = |id, from, to| JobTimes {
            job: JobId(id),
            submitted: day(from),
            finished: day(to),
            active: vec![Span { from: day(from), to: day(to) }],
            nodes: vec![NodeId(0)],
            alone: None,
        };
        let run = RunTimes { nodes: 2, jobs: vec![job(0, 0, 10), job(1, 6, 11)], switches: vec![] };
        let months: Vec<_> = by_month(start, &run)
            .into_iter()
            .map(|month| (month.year, month.month, month.jobs, month.utilisation))
            .collect();
        assert_eq!(months, [(1995, 12, 1, 0.5), (1996, 1, 1, 0.5)]);
    }
}
