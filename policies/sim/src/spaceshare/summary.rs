//! Metrics of a space-sharing run.
//!
//! | metric | definition |
//! | --- | --- |
//! | execution | how long it ran |
//! | turnaround | finished − submitted |
//! | wait | turnaround − execution: also of a job that was suspended |
//! | slowdown | turnaround ÷ execution; jobs that took no time have none |
//! | bounded slowdown | turnaround ÷ max(execution, 10 s), at least 1 |
//! | expansion factor | (Σ execution + Σ wait) ÷ Σ execution, as in paper 002, Table 5 (see below) |
//! | makespan | last finished − first submitted |
//! | utilisation | Σ nodes · execution ÷ (nodes of the machine · makespan) |
//! | usage | a class's share of Σ nodes · execution |
//! | relative makespan | makespan ÷ Σ execution, the time of the jobs one after the other |
//! | spread | √(Σ(tᵢ − t̄)²/n) ÷ t̄ over the turnarounds |
//! | Jain's index | (Σxᵢ)² ÷ (n · Σxᵢ²) over the bounded slowdowns: 1 if all are equal, 1/n if one has all |
//!
//! Table 5 of paper 002 divides means and not job by job: 2.3 h and 0.3 h give its expansion factor of 8.6.
//!
//! Relative makespan and spread are the two terms of the trade-off metric of paper 003, §5.1 (lower is
//! better). They are kept apart because with unequal jobs the second measures the mix of jobs rather than
//! unfairness.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Execution, SpaceJob};

/// The usual floor of the bounded slowdown.
const FLOOR: Duration = Duration::from_secs(10);

/// Times in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub jobs: u64,
    pub makespan_s: f64,
    pub utilisation: f64,
    pub wait_mean_s: f64,
    pub wait_median_s: f64,
    pub wait_p95_s: f64,
    pub wait_max_s: f64,
    pub execution_mean_s: f64,
    pub turnaround_mean_s: f64,
    pub slowdown_mean: f64,
    pub bounded_slowdown_mean: f64,
    pub bounded_slowdown_p95: f64,
    pub expansion_factor: f64,
    pub relative_makespan: f64,
    pub spread: f64,
    pub jain: f64,
}

impl Summary {
    /// Every metric by its name, for tables and for means over seeds.
    #[must_use]
    pub const fn figures(&self) -> [(&'static str, f64); 15] {
        [
            ("makespan_s", self.makespan_s),
            ("utilisation", self.utilisation),
            ("wait_mean_s", self.wait_mean_s),
            ("wait_median_s", self.wait_median_s),
            ("wait_p95_s", self.wait_p95_s),
            ("wait_max_s", self.wait_max_s),
            ("execution_mean_s", self.execution_mean_s),
            ("turnaround_mean_s", self.turnaround_mean_s),
            ("slowdown_mean", self.slowdown_mean),
            ("bounded_slowdown_mean", self.bounded_slowdown_mean),
            ("bounded_slowdown_p95", self.bounded_slowdown_p95),
            ("expansion_factor", self.expansion_factor),
            ("relative_makespan", self.relative_makespan),
            ("spread", self.spread),
            ("jain", self.jain),
        ]
    }
}

/// The jobs of one class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobClass {
    pub name: String,
    pub jobs: u64,
    pub usage: f64,
    pub wait_mean_s: f64,
    pub execution_mean_s: f64,
    pub expansion_factor: f64,
}

/// Computes every metric of a run on a machine of `nodes` nodes. Without jobs all are zero.
#[must_use]
pub fn summarise(jobs: &[SpaceJob], executions: &[Execution], nodes: u32) -> Summary {
    if jobs.is_empty() {
        return Summary::default();
    }
    let n = jobs.len() as f64;
    let each = || jobs.iter().zip(executions).map(|(job, execution)| Times::of(job, execution));
    let first = jobs.iter().map(|job| job.queued.submitted).min().unwrap_or_default();
    let last = executions.iter().map(|execution| execution.finished).max().unwrap_or_default();
    let makespan = last.since(first).as_secs_f64();
    let mut waits: Vec<f64> = each().map(|times| times.wait).collect();
    let mut bounded: Vec<f64> = each().map(|times| times.bounded()).collect();
    waits.sort_unstable_by(f64::total_cmp);
    bounded.sort_unstable_by(f64::total_cmp);
    let (wait, execution) = each().fold((0.0, 0.0), |sum, times| (sum.0 + times.wait, sum.1 + times.run));
    let slowdowns =
        || each().filter(|times| times.run > 0.0).map(|times| (times.wait + times.run) / times.run);
    let mean = (wait + execution) / n;
    let variance = each().map(|times| (times.wait + times.run - mean).powi(2)).sum::<f64>() / n;
    Summary {
        jobs: jobs.len() as u64,
        makespan_s: makespan,
        utilisation: ratio(each().map(|times| times.nodes * times.run).sum(), f64::from(nodes) * makespan),
        wait_mean_s: wait / n,
        wait_median_s: quantile(&waits, 0.5),
        wait_p95_s: quantile(&waits, 0.95),
        wait_max_s: quantile(&waits, 1.0),
        execution_mean_s: execution / n,
        turnaround_mean_s: mean,
        slowdown_mean: ratio(slowdowns().sum(), slowdowns().count() as f64),
        bounded_slowdown_mean: bounded.iter().sum::<f64>() / n,
        bounded_slowdown_p95: quantile(&bounded, 0.95),
        expansion_factor: ratio(wait + execution, execution),
        relative_makespan: ratio(makespan, execution),
        spread: ratio(variance.sqrt(), mean),
        jain: jain(&bounded),
    }
}

/// The jobs by class, in the order of the classes' keys; jobs without a class are left out, also of the
/// usage.
#[must_use]
pub fn classes<K: Ord + ToString>(
    jobs: &[SpaceJob],
    executions: &[Execution],
    class_of: impl Fn(&SpaceJob) -> Option<K>,
) -> Vec<JobClass> {
    let mut sums: BTreeMap<K, (u64, f64, f64, f64)> = BTreeMap::new();
    for (job, execution) in jobs.iter().zip(executions) {
        let Some(key) = class_of(job) else { continue };
        let times = Times::of(job, execution);
        let sum = sums.entry(key).or_default();
        *sum = (sum.0 + 1, sum.1 + times.nodes * times.run, sum.2 + times.wait, sum.3 + times.run);
    }
    let all: f64 = sums.values().map(|sum| sum.1).sum();
    let class = |(name, (jobs, usage, wait, run)): (K, (u64, f64, f64, f64))| JobClass {
        name: name.to_string(),
        jobs,
        usage: ratio(usage, all),
        wait_mean_s: wait / jobs as f64,
        execution_mean_s: run / jobs as f64,
        expansion_factor: ratio(wait + run, run),
    };
    sums.into_iter().map(class).collect()
}

/// Times of a job in seconds, and its nodes.
struct Times {
    wait: f64,
    run: f64,
    nodes: f64,
}

impl Times {
    fn of(job: &SpaceJob, execution: &Execution) -> Self {
        let turnaround = execution.finished.since(job.queued.submitted);
        Self {
            wait: turnaround.saturating_sub(job.run).as_secs_f64(),
            run: job.run.as_secs_f64(),
            nodes: f64::from(job.queued.request.units()),
        }
    }

    fn bounded(&self) -> f64 {
        ((self.wait + self.run) / self.run.max(FLOOR.as_secs_f64())).max(1.0)
    }
}

/// Jain's index of fairness; 1 without shares.
#[must_use]
pub fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    if squares > 0.0 { sum * sum / (shares.len() as f64 * squares) } else { 1.0 }
}

/// The smallest value that at least the share `q` of all values do not exceed.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let index = (sorted.len() as f64 * q).ceil() as usize;
    sorted.get(index.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or_default()
}

pub(super) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use coswitch_policies::{SimTime, spaceshare::allocate::Request};

    use super::*;
    use crate::spaceshare::job::space_job;

    fn at(seconds: u64) -> SimTime {
        Duration::from_secs(seconds).into()
    }

    /// Submitted, started, finished; nodes.
    fn lives(of: &[(u64, u64, u64, u32)]) -> (Vec<SpaceJob>, Vec<Execution>) {
        let job = |(number, (submitted, started, finished, nodes)): (u32, &(u64, u64, u64, u32))| {
            let job = space_job(number, *submitted, Request::nodes(*nodes), finished - started);
            (job, Execution { started: at(*started), finished: at(*finished) })
        };
        (0..).zip(of).map(job).unzip()
    }

    fn close(found: f64, wanted: f64) {
        assert!((found - wanted).abs() < 1e-12, "{found} is not {wanted}");
    }

    #[test]
    fn the_metrics_are_those_defined() {
        let (jobs, executions) = lives(&[(0, 0, 20, 2), (0, 20, 30, 4), (10, 30, 30, 1)]);
        let summary = summarise(&jobs, &executions, 4);
        close(summary.makespan_s, 30.0);
        close(summary.utilisation, 80.0 / 120.0);
        close(summary.wait_mean_s, 40.0 / 3.0);
        close(summary.wait_median_s, 20.0);
        close(summary.slowdown_mean, 2.0);
        close(summary.bounded_slowdown_mean, (1.0 + 3.0 + 2.0) / 3.0);
        close(summary.expansion_factor, 70.0 / 30.0);
        close(summary.relative_makespan, 1.0);
        close(summary.jain, 36.0 / (3.0 * 14.0));
        assert_eq!(summarise(&[], &[], 4), Summary::default());
    }

    #[test]
    fn a_class_has_its_own_means_and_its_share_of_the_use() {
        let (jobs, executions) = lives(&[(0, 0, 20, 2), (0, 20, 30, 4), (10, 30, 30, 1)]);
        let classes = classes(&jobs, &executions, |job| Some(job.queued.request.nodes).filter(|n| *n > 1));
        assert_eq!(classes.iter().map(|class| class.name.as_str()).collect::<Vec<_>>(), ["2", "4"]);
        close(classes[0].usage, 0.5);
        close(classes[1].expansion_factor, 3.0);
    }

    #[test]
    fn jains_index_is_one_for_equals_and_one_of_n_for_a_single_winner() {
        close(jain(&[3.0, 3.0, 3.0]), 1.0);
        close(jain(&[0.0, 5.0, 0.0, 0.0]), 0.25);
        close(jain(&[]), 1.0);
    }
}
