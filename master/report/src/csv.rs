//! The table of jobs as comma-separated values: one row for each job of each run, times in seconds.

use std::time::Duration;

use serde::Serialize;

use crate::report::{JobTimes, Report};

#[derive(Serialize)]
struct Row<'a> {
    run: &'a str,
    name: &'a str,
    policy: String,
    job: &'a str,
    ranks: u32,
    outcome: String,
    wait_s: Option<f64>,
    run_s: Option<f64>,
    suspended_s: Option<f64>,
    parked_s: Option<f64>,
    turnaround_s: Option<f64>,
    alone_s: Option<f64>,
    slowdown: Option<f64>,
    restores: u32,
    class: Option<&'static str>,
}

/// The rows under a header line; unknown values are empty.
#[must_use]
pub fn csv(reports: &[Report]) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for report in reports {
        for row in rows(report) {
            writer.serialize(row).expect("a row is written to memory");
        }
    }
    writer.into_inner().expect("memory is written without errors")
}

fn rows(report: &Report) -> impl Iterator<Item = Row<'_>> {
    report.jobs.iter().map(|job| {
        let seconds = |of: fn(&JobTimes) -> Duration| job.times.as_ref().map(|times| of(times).as_secs_f64());
        Row {
            run: &report.run,
            name: &report.name,
            policy: report.policy.map_or_else(String::new, |policy| policy.to_string()),
            job: &job.name,
            ranks: job.ranks,
            outcome: job.outcome.as_ref().map_or_else(|| "not ended".into(), ToString::to_string),
            wait_s: seconds(|times| times.wait),
            run_s: seconds(|times| times.run),
            suspended_s: seconds(|times| times.suspended),
            parked_s: seconds(|times| times.parked),
            turnaround_s: seconds(|times| times.turnaround),
            alone_s: job.times.as_ref().and_then(|times| times.alone).map(|alone| alone.as_secs_f64()),
            slowdown: job.times.as_ref().and_then(|times| times.slowdown),
            restores: job.restores,
            class: job.communication.as_ref().map(|communication| communication.class.word()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::{fold, tests::two_jobs_in_turn};

    #[test]
    fn each_job_is_a_row() {
        let report = fold(&two_jobs_in_turn());
        let text = String::from_utf8(csv(&[report])).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("run,name,policy,job,ranks,outcome,wait_s,run_s,suspended_s,parked_s"));
        assert_eq!(lines[1], "r,two,gang,job-0,2,ok,0.0,15.0,2.0,13.0,30.0,15.0,2.0,0,");
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn unknown_values_are_empty() {
        let report = fold(&two_jobs_in_turn()[..9]);
        let text = String::from_utf8(csv(&[report])).unwrap();
        assert_eq!(text.lines().nth(1), Some("r,two,gang,job-0,2,not ended,,,,,,,,0,"));
    }
}
