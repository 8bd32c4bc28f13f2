//! Metrics of time sharing: one definition for the live master, the simulator and the documentation.
//!
//! Of a job:
//!
//! | metric | definition |
//! | --- | --- |
//! | wait | first time active − submitted |
//! | run | total time active: in memory and running, in turns of its row |
//! | parked | turnaround − wait − run: suspended, out of memory, or on its way |
//! | turnaround | finished − submitted |
//! | slowdown | turnaround ÷ time alone; where that is unknown, turnaround ÷ run |
//! | bounded slowdown | turnaround ÷ max(the same divisor, floor), at least 1 |
//!
//! Of the set:
//!
//! | metric | definition |
//! | --- | --- |
//! | makespan | last finished − first submitted |
//! | utilisation | node time with a job active ÷ (nodes × makespan) |
//! | exposed | time in which a switch kept the nodes from running jobs; overlapping switches count once |
//! | overhead | exposed ÷ makespan |
//! | expansion factor | Σ turnaround ÷ Σ divisors of slowdown, over the jobs that ran (paper 002, Table 5) |
//! | relative makespan | makespan ÷ Σ time alone: the first term of the trade-off metric |
//! | spread | √(Σ(tᵢ − t̄)²/n) ÷ t̄ over the turnarounds tᵢ: its second term |
//! | trade-off | their sum; lower is better |
//!
//! The trade-off metric is that of Bouteiller et al., §5.1, where all jobs are alike and Σ time alone is n ·
//! t_sequential. Its terms are reported apart, because with unequal jobs the second measures the mix of jobs
//! rather than unfairness. *Slowdown* by `run` shows only the cost of waiting and parking, not that of
//! sharing a node: [`JobMetrics::alone`] says which one it is. A job that never ran has no slowdown.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{JobId, NodeId, SimTime};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Span {
    pub from: SimTime,
    /// Not before the beginning.
    pub to: SimTime,
}

impl Span {
    #[must_use]
    pub const fn length(&self) -> Duration {
        self.to.since(self.from)
    }
}

/// Measured times of one job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobTimes {
    pub job: JobId,
    pub submitted: SimTime,
    /// Also when it failed.
    pub finished: SimTime,
    /// When it was active: in order, not overlapping.
    pub active: Vec<Span>,
    pub nodes: Vec<NodeId>,
    /// The time it takes alone on the cluster, if known.
    pub alone: Option<Duration>,
}

/// Measured times of a whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTimes {
    pub nodes: u32,
    pub jobs: Vec<JobTimes>,
    /// From the first freeze of the outgoing jobs to the release of the incoming ones, for each switch during
    /// which no job ran. Jobs that join running ones expose nothing.
    pub switches: Vec<Span>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobMetrics {
    pub job: JobId,
    pub wait: Duration,
    pub run: Duration,
    pub parked: Duration,
    pub turnaround: Duration,
    /// The time alone, if the slowdowns are relative to it.
    pub alone: Option<Duration>,
    pub slowdown: Option<f64>,
    pub bounded_slowdown: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tradeoff {
    /// `None` unless the time alone of every job is known.
    pub relative_makespan: Option<f64>,
    pub spread: f64,
}

impl Tradeoff {
    /// The metric itself, if both terms are known.
    #[must_use]
    pub fn sum(&self) -> Option<f64> {
        self.relative_makespan.map(|first| first + self.spread)
    }
}

impl Metrics {
    /// None where no job ran.
    #[must_use]
    pub fn expansion_factor(&self) -> Option<f64> {
        let ran = || self.jobs.iter().filter(|job| job.slowdown.is_some());
        let bases: Duration = ran().map(|job| job.alone.unwrap_or(job.run)).sum();
        (!bases.is_zero()).then(|| ratio(ran().map(|job| job.turnaround).sum(), bases))
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    pub jobs: Vec<JobMetrics>,
    pub makespan: Duration,
    pub utilisation: f64,
    pub exposed: Duration,
    pub overhead: f64,
    pub tradeoff: Tradeoff,
}

/// The usual floor of the bounded slowdown.
pub const SLOWDOWN_FLOOR: Duration = Duration::from_secs(10);

/// Computes every metric of a run. Without jobs all are zero.
#[must_use]
pub fn measure(run: &RunTimes, slowdown_floor: Duration) -> Metrics {
    let first = run.jobs.iter().map(|job| job.submitted).min().unwrap_or_default();
    let makespan = run.jobs.iter().map(|job| job.finished).max().unwrap_or_default().since(first);
    let jobs: Vec<JobMetrics> = run.jobs.iter().map(|job| measure_job(job, slowdown_floor)).collect();
    let exposed = union(run.switches.clone());
    let turnarounds: Vec<f64> = jobs.iter().map(|job| job.turnaround.as_secs_f64()).collect();
    let spread = spread(&turnarounds);
    let tradeoff = Tradeoff { relative_makespan: relative_makespan(run, makespan), spread };
    Metrics {
        utilisation: utilisation_between(run, Span { from: first, to: first.after(makespan) }),
        overhead: ratio(exposed, makespan),
        jobs,
        makespan,
        exposed,
        tradeoff,
    }
}

fn measure_job(job: &JobTimes, floor: Duration) -> JobMetrics {
    let run: Duration = job.active.iter().map(Span::length).sum();
    let turnaround = job.finished.since(job.submitted);
    let wait = job.active.first().map_or(turnaround, |span| span.from.since(job.submitted));
    let base = job.alone.unwrap_or(run);
    let ran = !job.active.is_empty() && !base.is_zero();
    JobMetrics {
        job: job.job,
        wait,
        run,
        parked: turnaround.saturating_sub(wait + run),
        turnaround,
        alone: job.alone,
        slowdown: ran.then(|| ratio(turnaround, base)),
        bounded_slowdown: ran.then(|| ratio(turnaround, base.max(floor)).max(1.0)),
    }
}

fn relative_makespan(run: &RunTimes, makespan: Duration) -> Option<f64> {
    let alone: Option<Duration> = run.jobs.iter().map(|job| job.alone).sum();
    alone.filter(|alone| !alone.is_zero()).map(|alone| ratio(makespan, alone))
}

/// The coefficient of variation of turnarounds, in whatever unit.
#[must_use]
pub fn spread(turnarounds: &[f64]) -> f64 {
    let n = turnarounds.len() as f64;
    let mean = turnarounds.iter().sum::<f64>() / n;
    let variance = turnarounds.iter().map(|turnaround| (turnaround - mean).powi(2)).sum::<f64>() / n;
    if mean > 0.0 { variance.sqrt() / mean } else { 0.0 }
}

/// Node time with a job active ÷ (nodes × length), in a part of a run.
#[must_use]
pub fn utilisation_between(run: &RunTimes, part: Span) -> f64 {
    ratio(busy(run, part), part.length() * run.nodes)
}

/// Node time with at least one job active.
fn busy(run: &RunTimes, part: Span) -> Duration {
    let within = |span: &Span| Span { from: span.from.max(part.from), to: span.to.min(part.to) };
    let spans = run.jobs.iter().flat_map(|job| job.active.iter().map(move |span| (within(span), job)));
    let mut spans: Vec<(Span, &JobTimes)> = spans.filter(|(span, _)| span.from < span.to).collect();
    spans.sort_unstable_by_key(|(span, _)| *span);
    // Lists of spans by node would be as long as all jobs are wide.
    let last = run.jobs.iter().flat_map(|job| &job.nodes).max();
    let mut covered = vec![SimTime::default(); last.map_or(0, |last| last.0 as usize + 1)];
    let mut busy = Duration::ZERO;
    for (span, job) in spans {
        for node in &job.nodes {
            busy += extend(&mut covered[node.0 as usize], span);
        }
    }
    busy
}

/// The length of the union of `spans`.
fn union(mut spans: Vec<Span>) -> Duration {
    spans.sort_unstable();
    let mut covered = SimTime::default();
    let mut length = Duration::ZERO;
    for span in spans {
        length += extend(&mut covered, span);
    }
    length
}

/// The time that `span` adds to what is covered so far, by spans that begin no later.
fn extend(covered: &mut SimTime, span: Span) -> Duration {
    let more = span.to.since(span.from.max(*covered));
    *covered = span.to.max(*covered);
    more
}

fn ratio(part: Duration, whole: Duration) -> f64 {
    if whole.is_zero() { 0.0 } else { part.as_secs_f64() / whole.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SimTime {
        Duration::from_secs(seconds).into()
    }

    fn job(id: u32, submitted: u64, active: &[(u64, u64)], alone: u64) -> JobTimes {
        let active: Vec<Span> =
            active.iter().map(|(from, to)| Span { from: at(*from), to: at(*to) }).collect();
        let finished = active.last().unwrap().to;
        let alone = Some(Duration::from_secs(alone));
        JobTimes { job: JobId(id), submitted: at(submitted), finished, active, nodes: vec![NodeId(0)], alone }
    }

    #[test]
    fn times_of_a_job_add_up_to_its_turnaround() {
        let run = RunTimes { nodes: 1, jobs: vec![job(0, 2, &[(5, 15), (20, 30)], 20)], switches: vec![] };
        let of = &measure(&run, SLOWDOWN_FLOOR).jobs[0];
        let seconds = [of.wait, of.run, of.parked, of.turnaround].map(|d| d.as_secs());
        assert_eq!(seconds, [3, 20, 5, 28]);
        assert_eq!(of.slowdown, Some(1.4));
        let floor = Duration::from_secs(40);
        assert_eq!(measure(&run, floor).jobs[0].bounded_slowdown, Some(1.0));
    }

    #[test]
    fn shared_time_counts_once_in_utilisation() {
        let jobs = vec![job(0, 0, &[(0, 6)], 4), job(1, 0, &[(2, 8), (9, 10)], 6)];
        let switches = vec![Span { from: at(8), to: at(9) }, Span { from: at(8), to: at(9) }];
        let run = RunTimes { nodes: 2, jobs, switches };
        let metrics = measure(&run, SLOWDOWN_FLOOR);
        assert_eq!(metrics.makespan, Duration::from_secs(10));
        assert!((metrics.utilisation - 9.0 / 20.0).abs() < 1e-12);
        assert!((utilisation_between(&run, Span { from: at(4), to: at(9) }) - 4.0 / 10.0).abs() < 1e-12);
        assert!((metrics.overhead - 0.1).abs() < 1e-12);
    }

    #[test]
    fn the_trade_off_metric_is_that_of_the_paper() {
        // Two equal jobs of 10 s, one after the other: the makespan is n · t, the turnarounds are 10 and 20.
        let jobs = vec![job(0, 0, &[(0, 10)], 10), job(1, 0, &[(10, 20)], 10)];
        let tradeoff = measure(&RunTimes { nodes: 1, jobs, switches: vec![] }, SLOWDOWN_FLOOR).tradeoff;
        assert_eq!(tradeoff.relative_makespan, Some(1.0));
        assert!((tradeoff.spread - 5.0 / 15.0).abs() < 1e-12);
        assert!((tradeoff.sum().unwrap() - (1.0 + 5.0 / 15.0)).abs() < 1e-12);
    }

    #[test]
    fn the_expansion_factor_divides_sums_and_leaves_out_jobs_that_never_ran() {
        let never = JobTimes { active: vec![], ..job(2, 0, &[(3, 4)], 1) };
        let jobs = vec![job(0, 0, &[(0, 10)], 10), job(1, 0, &[(10, 20)], 5), never];
        let metrics = measure(&RunTimes { nodes: 1, jobs, switches: vec![] }, SLOWDOWN_FLOOR);
        assert_eq!(metrics.expansion_factor(), Some(2.0));
        assert_eq!(measure(&RunTimes::default(), SLOWDOWN_FLOOR).expansion_factor(), None);
    }

    #[test]
    fn without_all_times_alone_the_first_term_is_unknown() {
        let jobs = vec![JobTimes { alone: None, ..job(0, 0, &[(4, 10)], 1) }, job(1, 0, &[(10, 20)], 10)];
        let metrics = measure(&RunTimes { nodes: 1, jobs, switches: vec![] }, SLOWDOWN_FLOOR);
        assert_eq!(metrics.tradeoff.sum(), None);
        assert_eq!(metrics.jobs[0].slowdown, Some(10.0 / 6.0));
    }

    #[test]
    fn a_job_that_never_ran_waited_to_its_end_and_has_no_slowdown() {
        let never = JobTimes { active: vec![], finished: at(7), ..job(0, 2, &[(3, 4)], 1) };
        let metrics = measure(&RunTimes { nodes: 1, jobs: vec![never], switches: vec![] }, SLOWDOWN_FLOOR);
        assert_eq!((metrics.jobs[0].wait.as_secs(), metrics.jobs[0].slowdown), (5, None));
        let nothing = measure(&RunTimes::default(), SLOWDOWN_FLOOR);
        assert_eq!((nothing.makespan, nothing.utilisation), (Duration::ZERO, 0.0));
    }
}
