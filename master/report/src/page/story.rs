//! The story of a run: a few sentences on its jobs, its longest wait, its switches and its memory.

use std::{mem, time::Duration};

use coswitch_policies::{JobId, Policy, spaceshare::choice::QueueName};

use crate::{
    causes::{Cause, Rule, causes},
    history::History,
    journal::RunOutcome,
    report::{JobReport, JobTimes, Report},
    words::{bytes, capacity, clock, list, percent, plural, seconds},
};

/// One or more sentences on a subject.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) about: &'static str,
    pub(super) text: String,
}

pub(super) struct Story {
    pub(super) points: Vec<Point>,
    /// The causes that kept each job from running, the longest first.
    causes: Vec<(JobId, Vec<Cause>)>,
}

impl Story {
    pub(super) fn causes_of(&self, job: JobId) -> &[Cause] {
        causes_of(&self.causes, job)
    }
}

fn causes_of(causes: &[(JobId, Vec<Cause>)], job: JobId) -> &[Cause] {
    causes.iter().find(|(of, _)| *of == job).map_or(&[], |(_, causes)| causes)
}

pub(super) fn story(history: &History, report: &Report) -> Story {
    let sets = history.sets();
    let causes: Vec<(JobId, Vec<Cause>)> =
        history.jobs.keys().map(|job| (*job, causes(history, &sets, *job))).collect();
    let mut points = vec![Point { about: "The run", text: run_in_words(history, report) }];
    if let Some((job, times)) = stood_still_most(report) {
        points.push(Point { about: "Who waited most", text: most_in_words(report, job, times) });
        points.push(Point { about: "Why", text: why_in_words(history, job, causes_of(&causes, job.job)) });
    }
    if report.set.switches > 0 {
        points.push(Point { about: "What switching cost", text: switching_in_words(report) });
    }
    if let Some(text) = memory_in_words(report) {
        points.push(Point { about: "Memory", text });
    }
    Story { points, causes }
}

/// How long a submitted job did not run.
pub(super) fn stood_still(times: &JobTimes) -> Duration {
    times.turnaround.saturating_sub(times.run)
}

fn stood_still_most(report: &Report) -> Option<(&JobReport, &JobTimes)> {
    let ended = report.jobs.iter().filter_map(|job| Some((job, job.times.as_ref()?)));
    ended.rev().max_by_key(|(_, times)| stood_still(times)).filter(|(_, times)| !stood_still(times).is_zero())
}

fn run_in_words(history: &History, report: &Report) -> String {
    let (jobs, nodes) = (report.jobs.len(), report.nodes);
    let shared = match report.policy {
        Some(Policy::Batch) if report.space.as_ref().is_some_and(|space| space.queue != QueueName::Fcfs) => {
            "ran in the order of a queue, where some may overtake others, a node to one job at a time"
        }
        Some(Policy::Batch) => "ran in the order of their arrival, a node to one job at a time",
        Some(Policy::Cosched) => "ran all at once, whether memory held them or not",
        Some(Policy::Gang) => "took turns, a node to one job at a time",
        Some(Policy::Hybrid) => "shared nodes in sets that fit into memory, and the sets took turns",
        Some(Policy::Paired) => {
            "shared nodes in sets that fit into memory and mix what they do, and the sets took turns"
        }
        None => "ran",
    };
    let times = report.set.memory_total.0 as f64 / report.capacity.total(nodes).0.max(1) as f64;
    let of = format!(
        "{} on {} of {} {shared}. Together they declare {}, {times:.1} times what the nodes hold.",
        plural(jobs, "job"),
        plural(nodes as usize, "node"),
        capacity(&report.capacity),
        bytes(report.set.memory_total),
    );
    let failed: Vec<String> = report
        .jobs
        .iter()
        .filter(|job| job.outcome.as_ref().is_some_and(|outcome| !outcome.is_success()))
        .map(|job| job.name.clone())
        .collect();
    let end = match report.outcome {
        Some(RunOutcome::Done) => format!("All ended well, after {}.", seconds(report.set.makespan)),
        Some(RunOutcome::JobsFailed) => {
            format!("It ended after {}; {} failed.", seconds(report.set.makespan), list(&failed))
        }
        Some(RunOutcome::Interrupted) => "It was interrupted: numbers are of the jobs that had ended.".into(),
        Some(RunOutcome::TimedOut) => {
            "It took longer than it was given: numbers are of the jobs that had ended.".into()
        }
        Some(RunOutcome::Parked) => {
            "Its nodes were taken away: the jobs that had not ended are parked until it is resumed.".into()
        }
        Some(RunOutcome::Aborted) | None => {
            format!("It did not come to its end; the journal stops after {:.1} s.", clock(history.end))
        }
    };
    format!("{of} {end}")
}

fn most_in_words(report: &Report, job: &JobReport, times: &JobTimes) -> String {
    let between = times.suspended + times.parked;
    let mut parts = Vec::new();
    if !times.wait.is_zero() {
        parts.push(format!("{} before its first turn", seconds(times.wait)));
    }
    if !between.is_zero() {
        parts.push(format!("{} between its turns", seconds(between)));
    }
    let mut text = format!(
        "{} stood still for {} of the {} from its submission to its end: {}. It ran for {}.",
        job.name,
        seconds(stood_still(times)),
        seconds(times.turnaround),
        list(&parts),
        seconds(times.run),
    );
    let ended = report.jobs.iter().filter_map(|job| Some((job, job.times.as_ref()?)));
    if let Some((first, longest)) = ended.rev().max_by_key(|(_, times)| times.wait)
        && first.job != job.job
        && longest.wait > times.wait
    {
        text.push_str(&format!(
            " {} waited longest for its first turn: {}.",
            first.name,
            seconds(longest.wait)
        ));
    }
    text
}

fn why_in_words(history: &History, job: &JobReport, causes: &[Cause]) -> String {
    let mut kinds: Vec<(Duration, &Cause)> = Vec::new();
    for cause in causes {
        match kinds.iter_mut().find(|(_, first)| alike(&first.rule, &cause.rule)) {
            Some((time, _)) => *time += cause.time,
            None => kinds.push((cause.time, cause)),
        }
    }
    kinds.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
    if kinds.is_empty() {
        return format!("The journal does not tell what {} stood still for.", job.name);
    }
    kinds.iter().map(|(time, longest)| kind_in_words(history, *time, longest)).collect::<Vec<_>>().join(" ")
}

fn alike(a: &Rule, b: &Rule) -> bool {
    mem::discriminant(a) == mem::discriminant(b)
}

/// A sentence on all causes of one kind, with the longest as its example.
fn kind_in_words(history: &History, time: Duration, longest: &Cause) -> String {
    let (time, beside, most) = (seconds(time), names(history, &longest.beside), seconds(longest.time));
    match longest.rule {
        Rule::Memory { node, declared, free } => format!(
            "For {time} it did not fit into memory beside those that ran: it needs {} on {node}, \
             and {beside} for example left {} of {} there ({most}).",
            bytes(declared),
            bytes(free),
            bytes(history.capacity.on(node)),
        ),
        Rule::Cell { most: jobs } => {
            let policy = history.policy.map_or_else(|| "the policy".into(), |policy| policy.to_string());
            let jobs = plural(jobs as usize, "job");
            format!(
                "For {time} others had its nodes, and {policy} gives a node to {jobs} at a time; {beside} \
                 had them longest ({most})."
            )
        }
        Rule::Turn => {
            format!(
                "For {time} memory would have held it beside those that ran, but another slot had its turn."
            )
        }
        Rule::Idle => format!("For {time} no job ran, because jobs were being started or switched."),
    }
}

/// The kind of cause that kept a job from running longest, in a few words for a table.
pub(super) fn in_short(history: &History, causes: &[Cause]) -> String {
    let total = |rule: &Rule| -> Duration {
        causes.iter().filter(|cause| alike(&cause.rule, rule)).map(|cause| cause.time).sum()
    };
    // Of several equal ones the first counts, which is the longest cause of its kind.
    let Some(cause) = causes.iter().rev().max_by_key(|cause| total(&cause.rule)) else { return "–".into() };
    let time = total(&cause.rule);
    let others = if time > cause.time { " and others" } else { "" };
    let beside = names(history, &cause.beside);
    let why = match cause.rule {
        Rule::Memory { .. } => format!("no room beside {beside}{others}"),
        Rule::Cell { .. } => format!("{beside}{others} had its nodes"),
        Rule::Turn => format!("{beside}{others} had the turn"),
        Rule::Idle => "no job ran: start or switch".into(),
    };
    format!("{why} ({})", seconds(time))
}

fn names(history: &History, jobs: &[JobId]) -> String {
    list(&jobs.iter().map(|job| history.name(*job)).collect::<Vec<_>>())
}

fn switching_in_words(report: &Report) -> String {
    let set = &report.set;
    let (total, hidden) =
        report.steps.values().fold((Duration::ZERO, Duration::ZERO), |(total, hidden), step| {
            (total + step.total, hidden + step.hidden)
        });
    let share = if total.is_zero() { 0.0 } else { hidden.as_secs_f64() / total.as_secs_f64() };
    format!(
        "{} moved {} out of memory and {} in. For {} ({} of the makespan) switching kept the nodes from \
         running anything; {} of the time its steps took was hidden behind jobs that computed.",
        plural(set.switches as usize, "switch"),
        bytes(set.bytes_out),
        bytes(set.bytes_in),
        seconds(set.exposed),
        percent(set.overhead),
        percent(share),
    )
}

fn memory_in_words(report: &Report) -> Option<String> {
    let fullest = report.memory.iter().max_by_key(|memory| memory.peak)?;
    let over: Vec<String> = report
        .memory
        .iter()
        .filter(|memory| !memory.is_within())
        .map(|memory| memory.node.to_string())
        .collect();
    let within = if over.is_empty() {
        "No node was ever above it.".to_string()
    } else {
        format!("{} went above the limit.", list(&over))
    };
    Some(format!(
        "The fullest node, {}, held at most {} of its {}. {within}",
        fullest.node,
        bytes(fullest.peak),
        bytes(fullest.capacity),
    ))
}
