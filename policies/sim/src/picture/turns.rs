//! Time sharing as a picture: a band for each node, as high as its memory; in it the jobs that run, as high as their working
//! sets, turn by turn. Hatched columns are switches during which nothing ran.

use std::collections::BTreeMap;

use coswitch_policies::{Bytes, Cluster, JobId, NodeId};

use super::svg::{Axis, GREY, LEFT, RIGHT, Svg, colour};
use crate::{SimJob, SimReport};

/// More nodes than this are not drawn: they would be lines.
const NODES_MAX: usize = 16;
/// Two turns of a job closer together than this are drawn as one.
const JOIN: f64 = 0.4;
const TOP: f64 = 64.0;
const GAP: f64 = 8.0;

/// A job on a node for a while: where, from when to when in seconds, and how much of the memory.
struct Stay {
    job: JobId,
    from: f64,
    to: f64,
    memory: u64,
}

/// The picture of a simulated run.
#[must_use]
pub fn turns(title: &str, cluster: &Cluster, jobs: &[SimJob], report: &SimReport) -> String {
    let end = report.times.jobs.iter().map(|job| job.finished.0).max().unwrap_or(0);
    let axis = Axis::new(0.0, seconds(end));
    let nodes: Vec<(NodeId, Bytes)> = cluster.nodes().take(NODES_MAX).collect();
    #[allow(clippy::cast_precision_loss, reason = "at most 16")]
    let band = (300.0 / nodes.len().max(1) as f64).clamp(24.0, 110.0);
    #[allow(clippy::cast_precision_loss, reason = "at most 16")]
    let bottom = TOP + (band + GAP) * nodes.len() as f64;
    let names = names(jobs);
    let metrics = &report.metrics;
    let about = format!(
        "{} nodes, {} jobs: makespan {:.1} s, {} switches, {:.1} % of the time lost to them, {} dumped and {} restored",
        cluster.len(),
        jobs.len(),
        metrics.makespan.as_secs_f64(),
        report.switches,
        100.0 * metrics.overhead,
        report.bytes_out,
        report.bytes_in,
    );
    let keys = names.len().min(24).div_ceil(8).max(1);
    #[allow(clippy::cast_precision_loss, reason = "at most 3")]
    let mut svg = Svg::new(bottom + 36.0 + 20.0 * keys as f64, title, &about);
    let mut top = TOP;
    for (node, capacity) in nodes {
        draw_node(&mut svg, axis, (top, band), node, capacity, jobs, report, &names);
        top += band + GAP;
    }
    draw_switches(&mut svg, axis, bottom, report);
    axis.draw(&mut svg, TOP, bottom - GAP);
    draw_keys(&mut svg, bottom + 34.0, &names);
    svg.end()
}

#[allow(clippy::too_many_arguments, reason = "a band of the picture above")]
fn draw_node(
    svg: &mut Svg,
    axis: Axis,
    (top, band): (f64, f64),
    node: NodeId,
    capacity: Bytes,
    jobs: &[SimJob],
    report: &SimReport,
    names: &BTreeMap<JobId, String>,
) {
    let peak = report.memory_peak.get(node.0 as usize).copied().unwrap_or_default();
    let whole = capacity.max(peak).0.max(1);
    svg.text((LEFT - 8.0, top + band / 2.0), "end", GREY, &node.to_string());
    svg.text((LEFT - 8.0, top + band / 2.0 + 14.0), "end", GREY, &capacity.to_string());
    svg.line((LEFT, top + band), (RIGHT, top + band), 0.5);
    let stays = stays(node, axis, jobs, report);
    for (stay, below) in stays.iter().zip(stack(&stays)) {
        let share = |bytes: u64| bytes as f64 / whole as f64 * band;
        let (x, width) = (axis.x(stay.from), axis.x(stay.to) - axis.x(stay.from));
        let height = share(stay.memory).max(1.5);
        let y = (top + band - share(below) - height).max(top);
        let name = names.get(&stay.job).map_or("", String::as_str);
        let tip = format!("{name}: {:.2} s to {:.2} s, {}", stay.from, stay.to, Bytes(stay.memory));
        svg.block((x, y), ((width - 0.3).max(0.3), (height - 0.6).max(0.8)), colour(stay.job.0), &tip);
        if width > 7.0 * name.len() as f64 + 6.0 && height > 13.0 {
            svg.text((x + width / 2.0, y + height / 2.0 + 4.0), "middle", "#fff", name);
        }
    }
    if peak > capacity {
        let full = top + band - capacity.0 as f64 / whole as f64 * band;
        svg.line((LEFT, full), (RIGHT, full), 1.0);
        svg.text((RIGHT, full - 3.0), "end", GREY, "above this line the node swaps");
    }
}

/// Who was on `node`, in the order of time; turns too close together to be told apart are joined.
fn stays(node: NodeId, axis: Axis, jobs: &[SimJob], report: &SimReport) -> Vec<Stay> {
    let specs: BTreeMap<JobId, &SimJob> = jobs.iter().map(|job| (job.spec.id, job)).collect();
    let mut stays: Vec<Stay> = Vec::new();
    for times in report.times.jobs.iter().filter(|times| times.nodes.contains(&node)) {
        let share = u32::try_from(times.nodes.len()).unwrap_or(1).max(1);
        let memory =
            specs.get(&times.job).map_or(0, |job| job.spec.memory_of(job.spec.ranks.div_ceil(share)).0);
        let begin = stays.len();
        for span in &times.active {
            let (from, to) = (seconds(span.from.0), seconds(span.to.0));
            match stays[begin..].last_mut() {
                Some(last) if axis.x(from) - axis.x(last.to) < JOIN => last.to = to,
                _ => stays.push(Stay { job: times.job, from, to, memory }),
            }
        }
    }
    stays.sort_by(|a, b| a.from.total_cmp(&b.from).then(a.job.cmp(&b.job)));
    stays
}

/// How much memory lies below each stay: the lowest gap between those that are there at the same time.
fn stack(stays: &[Stay]) -> Vec<u64> {
    let mut placed: Vec<(f64, u64, u64)> = Vec::new();
    let mut below = Vec::with_capacity(stays.len());
    for stay in stays {
        placed.retain(|(to, ..)| *to > stay.from);
        placed.sort_by_key(|(_, bottom, _)| *bottom);
        let mut bottom = 0;
        for (_, other, memory) in &placed {
            if bottom + stay.memory <= *other {
                break;
            }
            bottom = bottom.max(other + memory);
        }
        placed.push((stay.to, bottom, stay.memory));
        below.push(bottom);
    }
    below
}

fn draw_switches(svg: &mut Svg, axis: Axis, bottom: f64, report: &SimReport) {
    for span in &report.times.switches {
        let (from, to) = (seconds(span.from.0), seconds(span.to.0));
        let width = axis.x(to) - axis.x(from);
        if width >= 0.3 {
            let tip = format!("switch: {:.2} s from {from:.2} s on", to - from);
            svg.block((axis.x(from), TOP), (width, bottom - GAP - TOP), "url(#moving)", &tip);
        }
    }
}

fn draw_keys(svg: &mut Svg, top: f64, names: &BTreeMap<JobId, String>) {
    let (mut x, mut y) = (LEFT, top);
    for (job, name) in names.iter().take(24) {
        if x > RIGHT - 100.0 {
            (x, y) = (LEFT, y + 18.0);
        }
        x = svg.key(x, y, colour(job.0), name);
    }
    if names.len() > 24 {
        svg.text((x, y), "start", GREY, &format!("and {} more", names.len() - 24));
    }
}

fn names(jobs: &[SimJob]) -> BTreeMap<JobId, String> {
    jobs.iter().map(|job| (job.spec.id, job.spec.name.clone())).collect()
}

#[allow(clippy::cast_precision_loss, reason = "a place in a picture")]
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}
