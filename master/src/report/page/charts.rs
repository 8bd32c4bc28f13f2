//! What the page's script draws, as one JSON value a run: seconds from the start of the run, mebibytes.

use std::collections::BTreeMap;

use coswitch_policies::{Bytes, JobId, NodeId, metrics::Span};
use serde::Serialize;

use super::{
    super::{
        Report,
        history::{History, Sample, Step},
        lives::{State, within},
    },
    blocks::{Block, blocks},
    palette::Palette,
    words::{bytes, clock, mib, seconds},
};
use crate::journal::Phase;

/// More steps than this are joined with their neighbours.
const STEPS_MAX: usize = 5000;
/// Points of all memory curves together.
const POINTS_MAX: usize = 60_000;

/// One run.
#[derive(Debug, Serialize)]
pub(super) struct Charts {
    end: f64,
    capacity: f64,
    nodes: Vec<String>,
    blocks: Vec<BlockMark>,
    steps: Vec<StepMark>,
    memory: Vec<MemoryCurve>,
    /// The length of a column, where not every stay is drawn.
    pub(super) column: Option<f64>,
}

/// A job in the memory of a node.
#[derive(Debug, Serialize)]
struct BlockMark {
    job: usize,
    node: u32,
    from: f64,
    to: f64,
    /// Shares of the node's memory.
    low: f64,
    high: f64,
    state: State,
    says: String,
}

/// A part of a step of a switch that was hidden, or one that was exposed.
#[derive(Debug, PartialEq, Serialize)]
struct StepMark {
    node: u32,
    lane: &'static str,
    from: f64,
    to: f64,
    hidden: bool,
    says: String,
}

/// What the jobs of a node held.
#[derive(Debug, Serialize)]
struct MemoryCurve {
    node: u32,
    at: Vec<f64>,
    used: Vec<f64>,
    jobs: Vec<JobCurve>,
}

/// What one job held.
#[derive(Debug, Serialize)]
struct JobCurve {
    job: usize,
    used: Vec<f64>,
}

/// The charts of a run.
pub(super) fn charts(history: &History, palette: &Palette) -> Charts {
    let (blocks, column) = blocks(history);
    Charts {
        end: clock(history.end),
        capacity: mib(history.capacity),
        nodes: (0..history.nodes).map(|node| NodeId(node).to_string()).collect(),
        blocks: blocks.iter().map(|block| block_mark(history, palette, block)).collect(),
        steps: step_marks(history),
        memory: memory_curves(history, palette),
        column: column.map(|column| clock(coswitch_policies::SimTime(column))),
    }
}

fn block_mark(history: &History, palette: &Palette, block: &Block) -> BlockMark {
    let name = history.name(block.job);
    let does = match block.state {
        State::Waiting | State::Parked => "is out of memory",
        State::Coming => "is brought in",
        State::Running => "runs",
        State::Suspended => "is suspended in memory",
        State::Leaving => "leaves memory",
    };
    let needs = bytes(Bytes(block.high.0 - block.low.0));
    #[allow(clippy::cast_precision_loss, reason = "a place in a picture")]
    let share = |bytes: Bytes| {
        let share = bytes.0 as f64 / history.capacity.0.max(1) as f64;
        (share * 1e4).round() / 1e4
    };
    BlockMark {
        says: format!("{name} {does} on {}, {}; declared {needs}", block.node, when(block.span)),
        job: palette.index(&name),
        node: block.node.0,
        from: clock(block.span.from),
        to: clock(block.span.to),
        low: share(block.low),
        high: share(block.high),
        state: block.state,
    }
}

/// `from 3.2 s for 0.5 s`.
fn when(span: Span) -> String {
    format!("from {:.2} s for {}", clock(span.from), seconds(span.length()))
}

/// The lane in which a step is drawn.
const fn lane(phase: Phase) -> &'static str {
    match phase {
        Phase::Freeze | Phase::Flush => "flush",
        Phase::Dump | Phase::Release => "dump",
        Phase::Seal => "seal",
        Phase::Launch | Phase::Restore | Phase::Thaw => "restore",
    }
}

/// A part of a step.
#[derive(Clone, Copy)]
struct Part<'a> {
    step: &'a Step,
    span: Span,
    hidden: bool,
    joined: u32,
}

fn step_marks(history: &History) -> Vec<StepMark> {
    let computing = history.lives.computing();
    let mut parts: Vec<Part<'_>> = history
        .steps
        .iter()
        .flat_map(|step| split(step, &computing))
        .filter(|part| part.span.from < part.span.to)
        .collect();
    parts.sort_by_key(|part| {
        (part.step.node, lane(part.step.phase), part.hidden, part.span.from, part.step.job)
    });
    if parts.len() > STEPS_MAX {
        parts = join(&parts, history.end.0 / 1500);
    }
    parts.iter().map(|part| step_mark(history, part)).collect()
}

/// The hidden and the exposed parts of a step.
fn split<'a>(step: &'a Step, computing: &[Span]) -> Vec<Part<'a>> {
    let mut parts = Vec::new();
    let mut from = step.span.from;
    let mut tell = |from, to, hidden| parts.push(Part { step, span: Span { from, to }, hidden, joined: 1 });
    for covered in within(step.span, computing) {
        tell(from, covered.from, false);
        tell(covered.from, covered.to, true);
        from = covered.to;
    }
    tell(from, step.span.to, false);
    parts
}

/// Parts of one lane of which nobody would see that they are apart.
fn join<'a>(parts: &[Part<'a>], gap: u64) -> Vec<Part<'a>> {
    let mut joined: Vec<Part<'a>> = Vec::new();
    for part in parts {
        let alike = |last: &Part<'_>| {
            let key = |part: &Part<'_>| (part.step.node, lane(part.step.phase), part.hidden);
            key(last) == key(part) && part.span.from.0 <= last.span.to.0.saturating_add(gap)
        };
        match joined.last_mut().filter(|last| alike(last)) {
            Some(last) => {
                last.span.to = last.span.to.max(part.span.to);
                last.joined += 1;
            }
            None => joined.push(*part),
        }
    }
    joined
}

fn step_mark(history: &History, part: &Part<'_>) -> StepMark {
    let Step { switch, job, node, phase, bytes: moved, span } = *part.step;
    let fate = if part.hidden { "hidden: somebody computed" } else { "exposed: nobody computed" };
    let says = if part.joined > 1 {
        format!("{} steps on {node}, {}; {fate}", part.joined, when(part.span))
    } else {
        let moved = if moved.0 > 0 { format!(", {} moved", bytes(moved)) } else { String::new() };
        let of = if part.span == span { String::new() } else { format!(" of {}", seconds(span.length())) };
        format!(
            "{switch}: {} {} on {node}, {}{of}{moved}; {fate}",
            phase.doing(),
            history.name(job),
            when(part.span)
        )
    };
    StepMark {
        node: node.0,
        lane: lane(phase),
        from: clock(part.span.from),
        to: clock(part.span.to),
        hidden: part.hidden,
        says,
    }
}

/// The highest sample of each stretch of time.
fn memory_curves(history: &History, palette: &Palette) -> Vec<MemoryCurve> {
    let lines = history.samples.len() * (history.jobs.len() + 1);
    let bins = (POINTS_MAX / lines.max(1)).clamp(60, 600) as u64;
    let width = (history.end.0 / bins).max(1);
    let curve = |(node, samples): (&NodeId, &Vec<Sample>)| {
        let bins = samples.chunk_by(|a, b| a.at.0 / width == b.at.0 / width);
        let highest: Vec<&Sample> =
            bins.filter_map(|bin| bin.iter().max_by_key(|sample| sample.used)).collect();
        MemoryCurve {
            node: node.0,
            at: highest.iter().map(|sample| clock(sample.at)).collect(),
            used: highest.iter().map(|sample| mib(sample.used)).collect(),
            jobs: history.jobs.keys().map(|job| job_curve(history, palette, *job, &highest)).collect(),
        }
    };
    history.samples.iter().map(curve).collect()
}

fn job_curve(history: &History, palette: &Palette, job: JobId, samples: &[&Sample]) -> JobCurve {
    let held = |sample: &&Sample| {
        let of = sample.by_job.iter().find(|held| held.job == job);
        mib(of.map_or(Bytes(0), |held| held.used))
    };
    JobCurve { job: palette.index(&history.name(job)), used: samples.iter().map(held).collect() }
}

/// Who held what when a node was fullest.
pub(super) fn fullest(history: &History, node: NodeId) -> Option<(f64, BTreeMap<JobId, Bytes>)> {
    let fullest = history.samples.get(&node)?.iter().max_by_key(|sample| sample.used)?;
    Some((clock(fullest.at), fullest.by_job.iter().map(|held| (held.job, held.used)).collect()))
}

/// A part of a job's turnaround.
#[derive(Debug, Serialize)]
pub(super) struct Bar {
    run: String,
    job: String,
    part: &'static str,
    seconds: f64,
    says: String,
}

/// The bars of a run, four for each job that ended.
pub(super) fn bars(label: &str, report: &Report) -> Vec<Bar> {
    let of = |job: &super::super::JobReport| -> Vec<Bar> {
        let Some(times) = &job.times else { return Vec::new() };
        let parts = [
            ("running", times.run),
            ("waiting", times.wait),
            ("suspended", times.suspended),
            ("parked", times.parked),
        ];
        let bar = |(part, span): (&'static str, std::time::Duration)| Bar {
            run: label.into(),
            job: job.name.clone(),
            part,
            seconds: (span.as_secs_f64() * 1e3).round() / 1e3,
            says: format!(
                "{} in {label}: {part} for {} of {}",
                job.name,
                seconds(span),
                seconds(times.turnaround)
            ),
        };
        parts.map(bar).into()
    };
    report.jobs.iter().flat_map(of).collect()
}
