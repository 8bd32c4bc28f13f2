//! The data of a run's charts, as JSON for the page's script: times in seconds from the start of the run,
//! memory in mebibytes.

use std::{collections::BTreeMap, time::Duration};

use coswitch_policies::{Bytes, JobId, NodeId};
use serde::Serialize;

use super::{
    blocks::{Block, blocks},
    palette::Palette,
    steps::{StepMark, step_marks},
};
use crate::{
    history::{History, Sample},
    lives::LifeStage,
    report::{JobReport, Report},
    words::{clock, mib, seconds},
};

/// Points of all memory curves together.
const POINTS_MAX: usize = 40_000;
#[derive(Debug, Serialize)]
pub(super) struct Charts {
    end: f64,
    /// Memory of each node for jobs.
    limits: Vec<f64>,
    nodes: Vec<String>,
    blocks: Vec<BlockMark>,
    steps: Vec<StepMark>,
    memory: Vec<MemoryCurve>,
    /// Shorter stays are left out.
    #[serde(skip)]
    pub(super) shortest: Duration,
    /// Steps are summed by columns of time.
    #[serde(skip)]
    pub(super) in_columns: bool,
}

/// A job in the memory of a node; `low` and `high` are shares of that memory.
#[derive(Debug, Serialize)]
struct BlockMark {
    job: usize,
    node: u32,
    from: f64,
    to: f64,
    low: f64,
    high: f64,
    #[serde(rename = "state")]
    stage: LifeStage,
}

/// The memory that the jobs of a node held.
#[derive(Debug, Serialize)]
struct MemoryCurve {
    node: u32,
    at: Vec<f64>,
    used: Vec<f64>,
    jobs: Vec<JobCurve>,
}

/// The memory that one job held.
#[derive(Debug, Serialize)]
struct JobCurve {
    job: usize,
    used: Vec<f64>,
}

pub(super) fn charts(history: &History, palette: &Palette) -> Charts {
    let (blocks, shortest) = blocks(history);
    let (steps, in_columns) = step_marks(history);
    Charts {
        end: clock(history.end),
        limits: (0..history.nodes).map(|node| mib(history.capacity.on(NodeId(node)))).collect(),
        nodes: (0..history.nodes).map(|node| NodeId(node).to_string()).collect(),
        blocks: blocks.iter().map(|block| block_mark(history, palette, block)).collect(),
        steps,
        memory: memory_curves(history, palette),
        shortest,
        in_columns,
    }
}

fn block_mark(history: &History, palette: &Palette, block: &Block) -> BlockMark {
    let name = history.name(block.job);
    let share = |bytes: Bytes| {
        let share = bytes.0 as f64 / history.capacity.on(block.node).0.max(1) as f64;
        (share * 1e4).round() / 1e4
    };
    BlockMark {
        job: palette.index(&name),
        node: block.node.0,
        from: clock(block.span.from),
        to: clock(block.span.to),
        low: share(block.low),
        high: share(block.high),
        stage: block.stage,
    }
}

/// For each stretch of time the highest sample.
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
    let used = |sample: &&Sample| {
        let memory = sample.by_job.iter().find(|memory| memory.job == job);
        mib(memory.map_or(Bytes(0), |memory| memory.used))
    };
    JobCurve { job: palette.index(&history.name(job)), used: samples.iter().map(used).collect() }
}

/// The time of a node's highest sample, and the memory of each job then.
pub(super) fn fullest(history: &History, node: NodeId) -> Option<(f64, BTreeMap<JobId, Bytes>)> {
    let fullest = history.samples.get(&node)?.iter().max_by_key(|sample| sample.used)?;
    Some((clock(fullest.at), fullest.by_job.iter().map(|memory| (memory.job, memory.used)).collect()))
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

/// The bars of a run: four for each job that ended.
pub(super) fn bars(label: &str, report: &Report) -> Vec<Bar> {
    let of = |job: &JobReport| -> Vec<Bar> {
        let Some(times) = &job.times else { return Vec::new() };
        let parts = [
            ("running", times.run),
            ("waiting", times.wait),
            ("suspended", times.suspended),
            ("parked", times.parked),
        ];
        let bar = |(part, span): (&'static str, Duration)| Bar {
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
