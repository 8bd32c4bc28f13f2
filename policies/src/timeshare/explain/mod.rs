//! Explanation of a matrix: which jobs share a slot, as a grid and in words, and why each job has its row.
//!
//! Called by `coswitch explain`, by reports, and by tests, which compare the grid with a picture.

mod grid;

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    fmt::{self, Write as _},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    Bytes, Cluster, Communication, ConfigError, Decision, JobId, JobSpec, Landing, Matrix, MemoryRule,
    NodeId, NodeWait, Packing, Placement, Policy, RejectReason, RejectionCause, Residency, Rotation, Row,
    Scheduler, SchedulerConfig, SchedulerEvent, SimTime, SlotId,
    spaceshare::queue::QueueId,
    timeshare::alternate::{self, Alternate, BackfilledJob},
};

pub use grid::grid;

/// Why the matrix looks as it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    pub policy: Policy,
    pub grid: String,
    /// Whether it was known how much jobs communicate.
    #[serde(default)]
    pub measured: bool,
    /// One for each row, in the order of turns.
    pub sets: Vec<SetExplanation>,
    /// One for each job, in the order of numbers.
    pub jobs: Vec<JobExplanation>,
}

/// The set of jobs of a row, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetExplanation {
    pub jobs: Vec<JobId>,
    /// Jobs of other rows that go on in its turn.
    #[serde(rename = "fillers")]
    pub backfilled: Vec<JobId>,
    /// The most that leaves any node when the turn passes to this row and no job may wait in memory.
    pub out: Bytes,
    /// The most that then comes to any node.
    pub into: Bytes,
    pub text: String,
}

/// A job's place in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobExplanation {
    pub job: JobId,
    /// What the user calls it.
    pub name: String,
    /// Where it is and why.
    pub text: String,
    /// Its row and its ranks by node; `None` for a job that queues or can never run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assigned: Option<(SlotId, Placement)>,
}

/// The matrix that `jobs` would get if none ended, packed in the order in which they arrive; for some it is
/// `known` how much they communicate. `alternate: partial`, which no scheduler carries out, is drawn into the
/// matrix without it. `limits` is how long jobs run at most, where that is known; `queues` are those that are
/// not the first.
///
/// # Errors
/// Where the settings make no sense.
pub fn explain_jobs(
    cluster: Cluster,
    config: SchedulerConfig,
    mut jobs: Vec<JobSpec>,
    known: &BTreeMap<JobId, Communication>,
    limits: Vec<(JobId, Duration)>,
    queues: Vec<(JobId, QueueId)>,
) -> Result<Explanation, ConfigError> {
    let alternate = config.alternate;
    let carried_out = if alternate == Alternate::Partial { Alternate::None } else { alternate };
    let mut scheduler = Scheduler::new(cluster, SchedulerConfig { alternate: carried_out, ..config })?;
    for (&job, &communication) in known {
        scheduler.on_event(SimTime::default(), SchedulerEvent::Measured { job, communication });
    }
    scheduler.on_event(SimTime::default(), SchedulerEvent::Limited { left: limits });
    scheduler.on_event(SimTime::default(), SchedulerEvent::Grouped { queues });
    let mut rejected = Vec::new();
    jobs.sort_by_key(|job| job.arrival);
    for together in jobs.chunk_by(|a, b| a.arrival == b.arrival) {
        let event = SchedulerEvent::Submitted { jobs: together.to_vec() };
        for decision in scheduler.on_event(SimTime::default(), event) {
            if let Decision::Rejected { job, reason } = decision {
                let spec = together.iter().find(|spec| spec.id == job).expect("it was just submitted");
                rejected.push(rejection(spec, &reason));
            }
        }
    }
    let mut explanation = Explanation { measured: !known.is_empty(), ..drawn(&scheduler, alternate) };
    for job in &mut explanation.jobs {
        if let Some(share) = known.get(&job.job) {
            let percent = f64::from(share.get()) / 10.0;
            write!(job.text, "; communicates {percent} % of its time").expect("a string takes all");
        }
    }
    explanation.jobs.extend(rejected);
    explanation.jobs.sort_by_key(|job| job.job);
    Ok(explanation)
}

/// The matrix as it is now.
#[must_use]
pub fn explain(scheduler: &Scheduler) -> Explanation {
    drawn(scheduler, scheduler.config().alternate)
}

fn drawn(scheduler: &Scheduler, alternate: Alternate) -> Explanation {
    let matrix = scheduler.matrix();
    let name =
        |job: JobId| scheduler.job(job).map_or_else(|| job.to_string(), |state| state.spec.name.into());
    let queue: Vec<JobId> = scheduler.queue().collect();
    let (turns, rotation) = (matrix.rows().len(), scheduler.config().rotation);
    let (_, running) = alternate::round(matrix, scheduler.config().alternate);
    let backfilled = backfilled_jobs(matrix, alternate);
    let set = |(turn, row): (usize, Row<'_>)| {
        let last = (turn + turns - 1) % turns;
        let out = most(matrix, running[last].difference(&running[turn]));
        let into = most(matrix, running[turn].difference(&running[last]));
        let place = match rotation {
            Rotation::Set => format!("turn {} of {turns}, {}", turn + 1, row.slot),
            Rotation::Job if turn == 0 => format!("{} runs first", row.slot),
            Rotation::Job => format!("{} waits", row.slot),
        };
        let mut text = set_in_words(&place, row, matrix, &name);
        if !backfilled[turn].is_empty() {
            let names: Vec<String> = backfilled[turn].iter().map(|backfilled| name(backfilled.job)).collect();
            let part = if alternate == Alternate::Partial { "all or a part of " } else { "" };
            write!(text, "; on idle nodes {part}{} goes on", names.join(", ")).expect("a string takes all");
        }
        if turns > 1 && rotation == Rotation::Job && turn == 0 {
            text.push_str("; at the end of each turn the job that ran for longest makes room for ");
            text.push_str("the job that waited for longest");
        }
        if turns > 1 && rotation == Rotation::Set {
            text.push_str(&match scheduler.config().residency {
                Residency::None => format!("; its turn moves {out} out and {into} in"),
                Residency::Planned => format!("; its turn moves at most {out} out and {into} in"),
                Residency::Always => "; no job leaves memory for its turn".into(),
            });
        }
        SetExplanation {
            jobs: row.jobs().collect(),
            backfilled: backfilled[turn].iter().map(|backfilled| backfilled.job).collect(),
            out,
            into,
            text,
        }
    };
    let jobs = scheduler.jobs().filter(|state| !state.observed.is_ended()).map(|state| {
        let text = match (&state.landing, queue.iter().position(|job| *job == state.spec.id)) {
            (_, Some(ahead)) => queued_in_words(scheduler, state.spec.id, ahead),
            (Some(landing), None) => landing_in_words(landing, scheduler, &name),
            (None, None) => "held by its user".into(),
        };
        let assigned = state.landing.map(|landing| (landing.slot, landing.placement));
        JobExplanation { job: state.spec.id, name: state.spec.name.into(), text, assigned }
    });
    Explanation {
        policy: scheduler.config().policy,
        measured: false,
        grid: grid::with_backfilled(matrix, &backfilled, name),
        sets: matrix.rows().enumerate().map(set).collect(),
        jobs: jobs.collect(),
    }
}

fn queued_in_words(scheduler: &Scheduler, job: JobId, ahead: usize) -> String {
    let mut text = format!("queues, with {} ahead", count(ahead, "job"));
    if let Some(wait) = scheduler.node_wait(SimTime::default(), job) {
        let NodeWait { queue, needs, free, .. } = wait;
        let is = if free == 1 { "is" } else { "are" };
        let of = wait.group.as_ref().map_or(String::new(), |group| format!(" of the group `{group}`"));
        write!(text, " (`{queue}`); it needs {}{of}, and {free} {is} free", count(needs as usize, "node"))
            .expect("a string takes all");
        if let Some(hours) = wait.hours() {
            write!(text, "; {hours}").expect("a string takes all");
        }
    }
    text
}

/// The backfilled jobs of each row, with their nodes there.
fn backfilled_jobs(matrix: &Matrix, alternate: Alternate) -> Vec<Vec<BackfilledJob>> {
    let turns = 0..matrix.rows().len();
    if alternate == Alternate::Partial {
        return turns.map(|turn| alternate::backfilled(matrix, turn, alternate, |_| true)).collect();
    }
    let whole = |job: JobId| {
        let nodes = matrix.assignment_of(job)?.placement.nodes().collect();
        Some(BackfilledJob { job, nodes })
    };
    let (backfilled, _) = alternate::round(matrix, alternate);
    backfilled.into_iter().map(|jobs| jobs.into_iter().filter_map(whole).collect()).collect()
}

fn rejection(spec: &JobSpec, reason: &RejectReason) -> JobExplanation {
    let text = format!("can never run: {reason}");
    JobExplanation { job: spec.id, name: spec.name.to_string(), text, assigned: None }
}

/// The working sets of `jobs` on the node that has most of them.
fn most<'a>(matrix: &Matrix, jobs: impl Iterator<Item = &'a JobId>) -> Bytes {
    let mut by_node: BTreeMap<NodeId, Bytes> = BTreeMap::new();
    for assignment in jobs.filter_map(|job| matrix.assignment_of(*job)) {
        for node in assignment.placement.nodes() {
            let used = by_node.entry(node).or_default();
            *used = used.saturating_add(assignment.memory_on(node));
        }
    }
    by_node.into_values().max().unwrap_or_default()
}

fn set_in_words(place: &str, row: Row<'_>, matrix: &Matrix, name: &impl Fn(JobId) -> String) -> String {
    let members = row.jobs().map(name).collect::<Vec<_>>().join(", ");
    let fullest = matrix.cluster().nodes().min_by_key(|(node, _)| Reverse(row.memory_on(*node)));
    let (node, capacity) = fullest.expect("a cluster has nodes");
    let used = row.memory_on(node);
    let fits = match matrix.limits().memory {
        MemoryRule::MustFit => "at most",
        MemoryRule::Ignored if used > capacity => "more than fits, the system swaps:",
        MemoryRule::Ignored => "memory is not looked at:",
    };
    format!("{place}: {members}; {fits} {used} of {capacity} on {node}")
}

fn landing_in_words(landing: &Landing, scheduler: &Scheduler, name: &impl Fn(JobId) -> String) -> String {
    let mut text = format!("{} on {}", landing.slot, count(landing.placement.width(), "node"));
    // A job that has left the row since is not named.
    let is_there =
        |job: &&JobId| scheduler.matrix().row_of(**job).is_some_and(|row| row.slot == landing.slot);
    let names: Vec<String> = landing.beside.iter().filter(is_there).map(|job| name(*job)).collect();
    if names.is_empty() {
        text.push_str(", the first there");
    } else {
        write!(text, ", beside {}", names.join(", ")).expect("a string takes all");
    }
    for (slot, rejection_cause) in &landing.refused_by {
        write!(text, "; {slot} {rejection_cause}").expect("a string takes all");
    }
    text.push_str(preference(landing, scheduler));
    text
}

/// Why it took no earlier row, where none of those refused it.
fn preference(landing: &Landing, scheduler: &Scheduler) -> &'static str {
    let config = scheduler.config();
    let asked = scheduler.matrix().rows().take_while(|row| row.slot != landing.slot).count();
    match (config.packing, config.policy) {
        _ if asked <= landing.refused_by.len() => "",
        (Packing::Exact { .. }, _) => "; the search for the fewest rows put it there",
        (_, Policy::Paired) => "; exchanged, so that jobs that compute and jobs that communicate share nodes",
        (Packing::BestFit, _) => "; it fills this row best",
        (Packing::Buddy, _) => "; its block is the least loaded of all rows",
        (Packing::FirstFit, _) => "",
    }
}

impl fmt::Display for RejectionCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cells { needs, open } => write!(f, "has a place on {open} of the {needs} nodes it needs"),
            Self::Memory { node, needs, free } => write!(f, "has {free} left on {node}, not {needs}"),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mixed = match (self.policy, self.measured) {
            (Policy::Paired, true) => "; packed by memory, and mixed by how much each job communicates",
            (Policy::Paired, false) => {
                "; packed by memory, and mixed anew once it is measured how much each job communicates"
            }
            _ => "",
        };
        writeln!(f, "policy {}, {}{mixed}\n", self.policy, count(self.sets.len(), "row"))?;
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

fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;
