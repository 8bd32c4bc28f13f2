//! The matrix as a grid and in words: which jobs share a slot, and why each landed where it did.
//!
//! Called by `coswitch explain`, by reports, and by tests, which compare the grid with a picture.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

use crate::{
    Cluster, ConfigError, Decision, Event, JobId, JobSpec, Landing, Matrix, MemoryRule, Misfit, Policy,
    RejectReason, Row, Scheduler, SchedulerConfig, SimTime,
};

/// Why the matrix looks as it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The policy.
    pub policy: Policy,
    /// The matrix as a picture.
    pub grid: String,
    /// One for each row, in the order of turns.
    pub sets: Vec<SetExplanation>,
    /// One for each job, in the order of numbers.
    pub jobs: Vec<JobExplanation>,
}

/// A row in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetExplanation {
    /// Its jobs.
    pub jobs: Vec<JobId>,
    /// The row in words.
    pub text: String,
}

/// A job's place in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobExplanation {
    /// The job.
    pub job: JobId,
    /// What the user calls it.
    pub name: String,
    /// Where it is and why.
    pub text: String,
}

/// The matrix that `jobs` would get, all of them being there, packed in the order in which they arrive.
///
/// # Errors
/// Where the settings make no sense.
pub fn explain_jobs(
    cluster: Cluster,
    config: SchedulerConfig,
    mut jobs: Vec<JobSpec>,
) -> Result<Explanation, ConfigError> {
    let mut scheduler = Scheduler::new(cluster, config)?;
    let mut rejected = Vec::new();
    jobs.sort_by_key(|job| job.arrival);
    for together in jobs.chunk_by(|a, b| a.arrival == b.arrival) {
        let event = Event::Submitted { jobs: together.to_vec() };
        for decision in scheduler.on_event(SimTime::default(), event) {
            if let Decision::Rejected { job, reason } = decision {
                let spec = together.iter().find(|spec| spec.id == job).expect("it was just submitted");
                rejected.push(rejection(spec, &reason));
            }
        }
    }
    let mut explanation = explain(&scheduler);
    explanation.jobs.extend(rejected);
    explanation.jobs.sort_by_key(|job| job.job);
    Ok(explanation)
}

/// The matrix as it is now.
#[must_use]
pub fn explain(scheduler: &Scheduler) -> Explanation {
    let matrix = scheduler.matrix();
    let name = |job: JobId| scheduler.job(job).map_or_else(|| job.to_string(), |state| state.spec.name);
    let queue: Vec<JobId> = scheduler.queue().collect();
    let set = |(turn, row): (usize, &Row)| SetExplanation {
        jobs: row.jobs().collect(),
        text: set_in_words(turn, matrix.rows().len(), row, matrix, &name),
    };
    let jobs = scheduler.jobs().filter(|state| !state.observed.is_ended()).map(|state| {
        let text = match (&state.landing, queue.iter().position(|job| *job == state.spec.id)) {
            (_, Some(ahead)) => format!("queues, with {} ahead", count(ahead, "job")),
            (Some(landing), None) => landing_in_words(landing, &name),
            (None, None) => unreachable!("a job that has not ended is queued or has landed"),
        };
        JobExplanation { job: state.spec.id, name: state.spec.name, text }
    });
    Explanation {
        policy: scheduler.config().policy,
        grid: grid(matrix, name),
        sets: matrix.rows().iter().enumerate().map(set).collect(),
        jobs: jobs.collect(),
    }
}

fn rejection(spec: &JobSpec, reason: &RejectReason) -> JobExplanation {
    JobExplanation { job: spec.id, name: spec.name.clone(), text: format!("can never run: {reason}") }
}

fn set_in_words(
    turn: usize,
    turns: usize,
    row: &Row,
    matrix: &Matrix,
    name: &impl Fn(JobId) -> String,
) -> String {
    let members = row.jobs().map(name).collect::<Vec<_>>().join(", ");
    let fullest = matrix.cluster().nodes().max_by_key(|(node, _)| row.memory_on(*node));
    let (node, capacity) = fullest.expect("a cluster has nodes");
    let used = row.memory_on(node);
    let fits = match matrix.limits().memory {
        MemoryRule::MustFit => "at most",
        MemoryRule::Ignored if used > capacity => "more than fits, the system swaps:",
        MemoryRule::Ignored => "memory is not looked at:",
    };
    format!("turn {} of {turns}, {}: {members}; {fits} {used} of {capacity} on {node}", turn + 1, row.slot)
}

fn landing_in_words(landing: &Landing, name: &impl Fn(JobId) -> String) -> String {
    let mut text = format!("{} on {}", landing.slot, count(landing.placement.blocks().len(), "node"));
    if landing.beside.is_empty() {
        text.push_str(", alone at first");
    } else {
        let names: Vec<String> = landing.beside.iter().map(|job| name(*job)).collect();
        write!(text, ", beside {}", names.join(", ")).expect("a string takes all");
    }
    for (slot, misfit) in &landing.refused_by {
        write!(text, "; {slot} {misfit}").expect("a string takes all");
    }
    text
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cells { needs, open } => write!(f, "has a place on {open} of the {needs} nodes it needs"),
            Self::Memory { node, needs, free } => write!(f, "has {free} left on {node}, not {needs}"),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "policy {}, {}\n", self.policy, count(self.sets.len(), "row"))?;
        writeln!(f, "{}\n", self.grid)?;
        self.sets.iter().try_for_each(|set| writeln!(f, "{}", set.text))?;
        writeln!(f)?;
        self.jobs.iter().try_for_each(|job| writeln!(f, "{} ({}): {}", job.name, job.job, job.text))
    }
}

impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&grid(self, |job| job.to_string()))
    }
}

/// The matrix as a picture: rows in the order of turns, `>` before the one that has it; in a cell its jobs, each with its
/// number of ranks there, and their memory.
#[must_use]
pub fn grid(matrix: &Matrix, name: impl Fn(JobId) -> String) -> String {
    let nodes: Vec<_> = matrix.cluster().nodes().collect();
    let head = nodes.iter().map(|(node, capacity)| format!("{node} {capacity}"));
    let mut lines = vec![std::iter::once(String::new()).chain(head).collect::<Vec<_>>()];
    for (turn, row) in matrix.rows().iter().enumerate() {
        let mark = if turn == 0 { '>' } else { ' ' };
        let cells = nodes.iter().map(|(node, _)| {
            let jobs = row.jobs_on(*node);
            let jobs: Vec<String> = jobs
                .map(|seat| format!("{}*{}", name(seat.spec.id), seat.placement.count_on(*node)))
                .collect();
            if jobs.is_empty() {
                "-".into()
            } else {
                format!("{} = {}", jobs.join(" "), row.memory_on(*node))
            }
        });
        lines.push(std::iter::once(format!("{mark} {}", row.slot)).chain(cells).collect());
    }
    let widths: Vec<usize> = (0..=nodes.len())
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    let print = |line: &Vec<String>| {
        let cells: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        cells.join(" | ").trim_end().to_string()
    };
    lines.iter().map(print).collect::<Vec<_>>().join("\n")
}

fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}
