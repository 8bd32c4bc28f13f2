//! The comparison of runs of one job set under several policies.
//!
//! Runs of the policies alternate, so that changes on the machine affect all of them. In a turn each of them
//! runs once. A ratio is the median of the ratios within a turn; every other number is the median over the
//! turns.

mod page;
mod table;

use std::{fmt, time::Duration};

use coswitch_policies::{Policy, SwitchOrder};
use serde::Serialize;

use crate::{
    journal::{MachineUse, RunOutcome},
    report::{JobReport, JobTimes, Report},
};

pub use page::page;

/// A policy and its way of switching.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Arm {
    pub policy: Policy,
    /// The order of the steps of a switch; `None` under policies that do not switch.
    pub switching: Option<SwitchOrder>,
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.switching {
            None => write!(f, "{}", self.policy),
            Some(SwitchOrder::Sequential) => write!(f, "{}, sequential", self.policy),
            Some(SwitchOrder::Overlapped) => write!(f, "{}, overlapped", self.policy),
            Some(SwitchOrder::Prefetch) => write!(f, "{}, prefetch", self.policy),
        }
    }
}

/// The arms of `policies`: one for each policy, and one for each way of switching where the policy switches.
pub fn arms(policies: &[Policy], switching: &[SwitchOrder]) -> Vec<Arm> {
    let of = |policy: &Policy| -> Vec<Arm> {
        match policy {
            Policy::Batch | Policy::Cosched => vec![Arm { policy: *policy, switching: None }],
            Policy::Gang | Policy::Hybrid | Policy::Paired => {
                switching.iter().map(|order| Arm { policy: *policy, switching: Some(*order) }).collect()
            }
        }
    };
    policies.iter().flat_map(of).collect()
}

/// The order of the arms in a turn. It rotates, so that each arm is first equally often.
pub fn order_of_turn(arms: usize, turn: usize) -> impl Iterator<Item = usize> {
    (0..arms).map(move |at| (at + turn) % arms)
}

/// A job set compared under several policies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The run file's name.
    pub name: String,
    pub jobs: usize,
    /// How often each arm ran.
    pub turns: usize,
    /// In the order of the command line.
    pub arms: Vec<ArmReport>,
    /// The arms that were not run, each with the reason.
    pub left_out: Vec<String>,
    /// Set where not all runs were made; the numbers are of those that ended.
    pub partial: Option<Partial>,
}

/// A comparison that was stopped before all runs were made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Partial {
    #[serde(flatten)]
    pub stopped: Stopped,
    /// Runs that came to their end.
    pub ended: usize,
    pub planned: usize,
}

/// Why runs were not made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "stopped", rename_all = "kebab-case")]
pub enum Stopped {
    /// The user stopped the comparison.
    Interrupted,
    /// Its time was over.
    Within,
    /// coswitch itself failed.
    Failed { error: String },
}

impl fmt::Display for Partial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stopped, ended, planned } = self;
        match stopped {
            Stopped::Interrupted => write!(f, "interrupted")?,
            Stopped::Within => write!(f, "its time was over")?,
            Stopped::Failed { error } => write!(f, "a run failed ({error})")?,
        }
        write!(f, " when {ended} of {planned} runs had ended; the numbers are of these")
    }
}

/// A median with its range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MedianRange {
    /// Of an even number of values, the mean of the two in the middle.
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

/// The numbers of an arm. Times are in seconds and count only runs in which all jobs were done.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ArmReport {
    #[serde(flatten)]
    pub arm: Arm,
    /// Runs in which all jobs were done.
    pub done: usize,
    /// Runs that reached their time limit.
    pub timed_out: usize,
    /// Runs in which jobs failed.
    pub failed: usize,
    /// From the first submission to the last end; `None` where no run was done.
    pub makespan: Option<MedianRange>,
    /// Makespan by the makespan of batch in the same turn.
    pub by_batch: Option<f64>,
    /// Makespan by the shortest makespan of all arms.
    pub by_best: Option<f64>,
    #[serde(flatten)]
    pub medians: Option<Medians>,
    /// Each job, in the order of the run file.
    pub jobs: Vec<JobPaging>,
}

/// What one job had to fetch from the disk; medians over all runs of an arm.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobPaging {
    pub name: String,
    /// Page faults that waited for a disk, over its nodes; `None` where it was too short to be sampled.
    pub major_faults_a_minute: Option<f64>,
    /// The most bytes that it had in swap at once.
    pub swapped: f64,
}

/// Medians over the runs of an arm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Medians {
    /// Mean over the jobs, from submission to end.
    pub turnaround_s: f64,
    /// Mean over the jobs, from submission to the first turn.
    pub wait_s: f64,
    /// First term of the trade-off metric.
    pub relative_makespan: Option<f64>,
    /// Second term of the trade-off metric.
    pub spread: f64,
    /// The trade-off metric: the sum of both.
    pub tradeoff: Option<f64>,
    /// Time in which no job ran because of a switch.
    pub exposed_s: f64,
    /// Bytes written by dumps and read by restores.
    pub moved: f64,
    /// The share of the ranks' running time that they waited for messages.
    pub waiting: f64,
    /// Page faults that waited for a disk.
    pub major_faults: f64,
    /// Bytes read from swap and written to it.
    pub swapped: f64,
    /// Time in which some process waited for memory.
    pub memory_stall_s: Option<f64>,
}

/// Compares the arms; `runs` has the reports of each arm, one for each turn.
pub fn compare(name: String, runs: &[(Arm, Vec<Report>)], left_out: Vec<String>) -> Comparison {
    let makespans: Vec<Vec<Option<f64>>> =
        runs.iter().map(|(_, reports)| reports.iter().map(makespan).collect()).collect();
    let batch = runs.iter().position(|(arm, _)| arm.policy == Policy::Batch).map(|at| &makespans[at]);
    let medians =
        makespans.iter().map(|of| median_range(of.iter().flatten().copied()).map(|range| range.median));
    let best = medians.flatten().min_by(f64::total_cmp);
    let report = |((arm, reports), makespans): (&(Arm, Vec<Report>), &Vec<Option<f64>>)| {
        let ended = |outcome| reports.iter().filter(|report| report.outcome == Some(outcome)).count();
        let makespan = median_range(makespans.iter().flatten().copied());
        let pairs = batch.into_iter().flat_map(|batch| makespans.iter().zip(batch));
        let ratios = pairs.filter_map(|(own, batch)| Some((*own)? / (*batch)?));
        ArmReport {
            arm: *arm,
            done: ended(RunOutcome::Done),
            timed_out: ended(RunOutcome::TimedOut),
            failed: ended(RunOutcome::JobsFailed),
            makespan,
            by_batch: median_range(ratios).map(|range| range.median),
            by_best: makespan.zip(best).map(|(own, best)| own.median / best),
            medians: medians_of(reports),
            jobs: jobs_of(reports),
        }
    };
    Comparison {
        name,
        jobs: runs
            .iter()
            .flat_map(|(_, reports)| reports.iter().map(|report| report.jobs.len()))
            .max()
            .unwrap_or(0),
        turns: runs.iter().map(|(_, reports)| reports.len()).max().unwrap_or(0),
        arms: runs.iter().zip(&makespans).map(report).collect(),
        left_out,
        partial: None,
    }
}

/// The makespan of a run in which all jobs were done.
fn makespan(report: &Report) -> Option<f64> {
    is_done(report).then_some(report.set.makespan.as_secs_f64())
}

fn is_done(report: &Report) -> bool {
    report.outcome == Some(RunOutcome::Done)
}

fn medians_of(reports: &[Report]) -> Option<Medians> {
    let done: Vec<&Report> = reports.iter().filter(|report| is_done(report)).collect();
    let optional = |of: &dyn Fn(&Report) -> Option<f64>| {
        median_range(done.iter().filter_map(|report| of(report))).map(|range| range.median)
    };
    let median = |of: &dyn Fn(&Report) -> f64| optional(&|report| Some(of(report)));
    let machine = |of: fn(&MachineUse) -> f64| median(&|report| report.machine.as_ref().map_or(0.0, of));
    Some(Medians {
        turnaround_s: median(&|report| mean(report, |times| times.turnaround))?,
        wait_s: median(&|report| mean(report, |times| times.wait))?,
        relative_makespan: optional(&|report| report.set.relative_makespan),
        spread: median(&|report| report.set.spread)?,
        tradeoff: optional(&|report| report.set.tradeoff),
        exposed_s: median(&|report| report.set.exposed.as_secs_f64())?,
        moved: median(&|report| (report.set.bytes_out.0 + report.set.bytes_in.0) as f64)?,
        waiting: median(&Report::waiting)?,
        major_faults: machine(|used| used.major_faults as f64)?,
        swapped: machine(|used| (used.swapped_in.0 + used.swapped_out.0) as f64)?,
        memory_stall_s: optional(&|report| Some(report.machine?.memory_stall?.as_secs_f64())),
    })
}

fn jobs_of(reports: &[Report]) -> Vec<JobPaging> {
    let Some(first) = reports.first() else { return Vec::new() };
    let paging = |(at, job): (usize, &JobReport)| {
        let pagings = || reports.iter().filter_map(|report| Some(report.jobs.get(at)?.paging));
        let faults = median_range(pagings().filter_map(|paging| paging.faults_a_minute()));
        JobPaging {
            name: job.name.clone(),
            major_faults_a_minute: faults.map(|range| range.median),
            swapped: median_range(pagings().map(|paging| paging.swapped.0 as f64))
                .map_or(0.0, |range| range.median),
        }
    };
    first.jobs.iter().enumerate().map(paging).collect()
}

fn mean(report: &Report, of: fn(&JobTimes) -> Duration) -> f64 {
    let times: Vec<f64> = report
        .jobs
        .iter()
        .filter_map(|job| job.times.as_ref())
        .map(|times| of(times).as_secs_f64())
        .collect();
    times.iter().sum::<f64>() / times.len().max(1) as f64
}

fn median_range(values: impl Iterator<Item = f64>) -> Option<MedianRange> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (min, max) = (*values.first()?, *values.last()?);
    let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    Some(MedianRange { median: f64::midpoint(low, high), min, max })
}

#[cfg(test)]
mod tests {
    use coswitch_policies::{Bytes, JobId, NodeId, SimTime};

    use super::*;
    use crate::{
        fold,
        journal::{Event, JobMemory, RunEvent},
    };

    fn ran(seconds: u64, outcome: RunOutcome) -> Report {
        let mut report = fold(&[]);
        report.set.makespan = Duration::from_secs(seconds);
        report.outcome = Some(outcome);
        report
    }

    #[test]
    fn faults_of_each_job_are_medians_a_minute() {
        let job = JobId(0);
        let sample = |at_s, major_faults| {
            let sample = JobMemory { job, used: Bytes(0), swapped: Bytes::mib(major_faults), major_faults };
            let kind = Event::MemorySample {
                node: NodeId(0),
                used: Bytes(0),
                by_job: vec![sample],
                looks: 1,
                peak: Bytes(0),
            };
            RunEvent { at: Duration::from_secs(at_s).into(), kind }
        };
        let of = |faults: u64| {
            let kind = Event::JobSubmitted { job, name: "a".into(), ranks: 1, memory: Bytes(1), alone: None };
            fold(&[RunEvent { at: SimTime::default(), kind }, sample(1, 0), sample(31, faults)])
        };
        let compared = compare("set".into(), &[(BATCH, vec![of(10), of(20), of(90)])], Vec::new());
        let [job] = &compared.arms[0].jobs[..] else { panic!("one job") };
        assert_eq!((job.name.as_str(), job.major_faults_a_minute), ("a", Some(40.0)));
        assert_eq!(job.swapped, Bytes::mib(20).0 as f64);
    }

    const BATCH: Arm = Arm { policy: Policy::Batch, switching: None };
    const GANG: Arm = Arm { policy: Policy::Gang, switching: Some(SwitchOrder::Sequential) };

    #[test]
    fn ratios_are_taken_within_a_turn_and_only_of_runs_that_were_done() {
        let done = |seconds| ran(seconds, RunOutcome::Done);
        let runs = [
            (BATCH, vec![done(100), done(200), done(400)]),
            (GANG, vec![done(50), ran(5, RunOutcome::TimedOut), done(100)]),
        ];
        let compared = compare("set".into(), &runs, Vec::new());
        let [batch, gang] = &compared.arms[..] else { panic!("two arms") };
        assert_eq!((batch.by_batch, batch.by_best), (Some(1.0), Some(200.0 / 75.0)));
        assert_eq!((gang.done, gang.timed_out, gang.failed), (2, 1, 0));
        assert_eq!(gang.makespan, Some(MedianRange { median: 75.0, min: 50.0, max: 100.0 }));
        assert_eq!((gang.by_batch, gang.by_best), (Some(0.375), Some(1.0)), "of 0.5 and 0.25");
    }

    #[test]
    fn an_arm_without_a_run_that_was_done_has_no_numbers() {
        let runs = [(GANG, vec![ran(9, RunOutcome::JobsFailed)])];
        let compared = compare("set".into(), &runs, vec!["cosched: no swap".into()]);
        let gang = &compared.arms[0];
        assert_eq!((gang.failed, gang.makespan, gang.by_batch, gang.medians), (1, None, None, None));
    }

    #[test]
    fn comparison_that_was_stopped_says_so_first() {
        let runs = [(BATCH, vec![ran(100, RunOutcome::Done)]), (GANG, Vec::new())];
        let mut compared = compare("set".into(), &runs, Vec::new());
        compared.partial = Some(Partial { stopped: Stopped::Interrupted, ended: 1, planned: 6 });
        let mut text = Vec::new();
        compared.write_tables(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let first = "PARTIAL: interrupted when 1 of 6 runs had ended; the numbers are of these\n";
        assert!(text.starts_with(first) && text.contains("100.0s"), "{text}");
        assert!(page(&compared).contains("interrupted when 1 of 6 runs had ended"));
        let error = "no node".into();
        compared.partial = Some(Partial { stopped: Stopped::Failed { error }, ended: 1, planned: 6 });
        let json = serde_json::to_value(&compared).unwrap();
        assert_eq!(
            json["partial"],
            serde_json::json!({"stopped": "failed", "error": "no node", "ended": 1, "planned": 6})
        );
    }

    #[test]
    fn a_policy_that_does_not_switch_is_one_arm_and_each_arm_is_first_once() {
        let orders = [SwitchOrder::Sequential, SwitchOrder::Prefetch];
        let arms = arms(&[Policy::Batch, Policy::Hybrid], &orders);
        let names: Vec<String> = arms.iter().map(Arm::to_string).collect();
        assert_eq!(names, ["batch", "hybrid, sequential", "hybrid, prefetch"]);
        let firsts: Vec<_> = (0..3).filter_map(|turn| order_of_turn(3, turn).next()).collect();
        assert_eq!(firsts, [0, 1, 2]);
        assert_eq!(order_of_turn(3, 1).collect::<Vec<_>>(), [1, 2, 0]);
    }
}
