//! Picture of the turns of a time-sharing run: each node is a band as high as its memory, with the running
//! jobs as high as their working sets. Hatched columns are switches during which no job ran.

use std::collections::BTreeMap;

use coswitch_policies::{Bytes, Cluster, NodeId};

use super::{
    keys::Keys,
    load::load_of_turns,
    stays::{Stay, lanes, seconds},
};
use crate::{
    SimJob, SimReport,
    picture::{Axis, GREY, LEFT, RIGHT, Svg},
};

/// Up to this many nodes, each has a band with its name; beyond, bands are as thin as necessary.
const NAMED_MAX: usize = 16;
/// With more nodes or blocks than this a picture is unreadable and megabytes large: the load chart is drawn
/// instead.
const NODES_MAX: usize = 4096;
const BLOCKS_MAX: usize = 20_000;
const TOP: f64 = 64.0;
const GAP: f64 = 8.0;
/// Height of all bands together, where they are thin.
const THIN_HEIGHT: f64 = 400.0;

/// A stay with its vertical position and height.
struct Block(Stay, f64, f64);

#[derive(Clone, Copy)]
struct Bands {
    height: f64,
    gap: f64,
}

impl Bands {
    fn of(nodes: usize) -> Self {
        let nodes_f = nodes.max(1) as f64;
        if nodes > NAMED_MAX {
            Self { height: THIN_HEIGHT / nodes_f, gap: 0.0 }
        } else {
            Self { height: (300.0 / nodes_f).clamp(24.0, 110.0), gap: GAP }
        }
    }

    fn top(self, node: usize) -> f64 {
        TOP + (self.height + self.gap) * node as f64
    }
}

#[must_use]
pub fn turns(title: &str, cluster: &Cluster, jobs: &[SimJob], report: &SimReport) -> String {
    let end = report.times.jobs.iter().map(|job| job.finished.0).max().unwrap_or(0);
    let axis = Axis::new(0.0, seconds(end));
    let nodes: Vec<(NodeId, Bytes)> = cluster.nodes().take(NODES_MAX).collect();
    let lanes = lanes(&nodes, axis, jobs, report);
    let is_thin = lanes.len() > NAMED_MAX;
    let thin = if is_thin { thin_blocks(&lanes) } else { Vec::new() };
    let blocks = if is_thin { thin.len() } else { lanes.iter().map(Vec::len).sum() };
    let bands = Bands::of(lanes.len());
    let bottom = bands.top(lanes.len());
    let metrics = &report.metrics;
    let about = format!(
        "{} nodes, {} jobs: makespan {:.1} s, {} switches, {:.1} % of the time lost to them, {} dumped \
         and {} restored",
        cluster.len(),
        jobs.len(),
        metrics.makespan.as_secs_f64(),
        report.switches,
        100.0 * metrics.overhead,
        report.bytes_out,
        report.bytes_in,
    );
    if cluster.len() > NODES_MAX || blocks > BLOCKS_MAX {
        return load_of_turns(title, &about, &report.times);
    }
    let keys = Keys::of(jobs, report);
    let mut svg = Svg::new(bottom + 36.0 + 20.0 * keys.lines(), title, &about);
    if is_thin {
        thin.iter().for_each(|Block(stay, y, height)| draw_stay(&mut svg, axis, stay, (*y, *height), &keys));
        svg.line((LEFT, bottom), (RIGHT, bottom), 0.5);
        svg.text((LEFT - 8.0, TOP + 12.0), "end", GREY, "node-0");
        svg.text((LEFT - 8.0, bottom), "end", GREY, &format!("node-{}", lanes.len() - 1));
    } else {
        for (place, ((node, capacity), stays)) in nodes.iter().zip(&lanes).enumerate() {
            draw_node(
                &mut svg,
                axis,
                (bands.top(place), bands.height),
                *node,
                *capacity,
                stays,
                report,
                &keys,
            );
        }
    }
    draw_switches(&mut svg, axis, bottom - bands.gap, report);
    axis.draw(&mut svg, TOP, bottom - bands.gap);
    keys.draw(&mut svg, bottom + 34.0);
    svg.end()
}

#[allow(clippy::too_many_arguments, reason = "a band of the picture above")]
fn draw_node(
    svg: &mut Svg,
    axis: Axis,
    (top, band): (f64, f64),
    node: NodeId,
    capacity: Bytes,
    stays: &[Stay],
    report: &SimReport,
    keys: &Keys,
) {
    let peak = report.memory_peak.get(node.0 as usize).copied().unwrap_or_default();
    let whole = capacity.max(peak).0.max(1);
    svg.text((LEFT - 8.0, top + band / 2.0), "end", GREY, &node.to_string());
    svg.text((LEFT - 8.0, top + band / 2.0 + 14.0), "end", GREY, &capacity.to_string());
    svg.line((LEFT, top + band), (RIGHT, top + band), 0.5);
    for stay in stays {
        let share = |bytes: u64| bytes as f64 / whole as f64 * band;
        let height = share(stay.memory).max(1.5);
        let y = (top + band - share(stay.below) - height).max(top);
        draw_stay(svg, axis, stay, (y, height - 0.6), keys);
    }
    if peak > capacity {
        let full = top + band - capacity.0 as f64 / whole as f64 * band;
        svg.line((LEFT, full), (RIGHT, full), 1.0);
        svg.text((RIGHT, full - 3.0), "end", GREY, "above this line the node swaps");
    }
}

/// Blocks of thin bands: jobs on a node at the same time divide its band by their memory; neighbouring nodes
/// with the same single job at the same time form one block.
fn thin_blocks(lanes: &[Vec<Stay>]) -> Vec<Block> {
    let bands = Bands::of(lanes.len());
    let key = |stay: &Stay| (stay.job, stay.from.to_bits(), stay.to.to_bits());
    let (mut blocks, mut open) = (Vec::new(), BTreeMap::<_, (usize, Stay)>::new());
    for node in 0..=lanes.len() {
        let stays = lanes.get(node).map_or(&[][..], Vec::as_slice);
        let (whole, shared): (Vec<Stay>, Vec<Stay>) =
            stays.iter().partition(|stay| stay.memory >= stay.whole);
        let here: BTreeMap<_, Stay> = whole.into_iter().map(|stay| (key(&stay), stay)).collect();
        open.retain(|key, (first, stay)| {
            let goes_on = here.contains_key(key);
            if !goes_on {
                let top = bands.top(*first);
                blocks.push(Block(*stay, top, bands.top(node) - top - 0.3));
            }
            goes_on
        });
        for (key, stay) in here {
            open.entry(key).or_insert((node, stay));
        }
        for stay in shared {
            let share = |bytes: u64| bytes as f64 / stay.whole as f64 * bands.height;
            blocks.push(Block(
                stay,
                bands.top(node + 1) - share(stay.below + stay.memory),
                share(stay.memory),
            ));
        }
    }
    blocks
}

fn draw_stay(svg: &mut Svg, axis: Axis, stay: &Stay, (y, height): (f64, f64), keys: &Keys) {
    let (x, width) = (axis.x(stay.from), axis.x(stay.to) - axis.x(stay.from));
    let name = keys.names.get(&stay.job).map_or("", String::as_str);
    let tip = format!("{name}: {:.2} s to {:.2} s, {}", stay.from, stay.to, Bytes(stay.memory));
    let size = ((width - 0.3).max(0.3), height.max(0.4));
    svg.block((x, y), size, keys.colour(stay.job), &tip);
    svg.name_block((x, y), size, name);
}

fn draw_switches(svg: &mut Svg, axis: Axis, bottom: f64, report: &SimReport) {
    for span in &report.times.switches {
        let (from, to) = (seconds(span.from.0), seconds(span.to.0));
        let width = axis.x(to) - axis.x(from);
        if width >= 0.3 {
            let tip = format!("switch: {:.2} s from {from:.2} s on", to - from);
            svg.block((axis.x(from), TOP), (width, bottom - TOP), "url(#moving)", &tip);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use coswitch_policies::{JobId, JobSpec, Policy, SchedulerConfig, SimTime};

    use super::*;
    use crate::{CostModel, Faults, simulate};

    /// The picture of jobs of these sizes, each on its own nodes, and the number of blocks of jobs in it.
    fn drawn(nodes: u32, ranks: &[u32], policy: Policy) -> (String, usize) {
        let spec = |(id, ranks): (u32, &u32)| JobSpec {
            id: JobId(id),
            name: format!("job-{id}").into(),
            ranks: *ranks,
            memory_per_rank: Bytes::mib(300),
            arrival: SimTime(0),
        };
        let job = |spec: JobSpec| SimJob {
            spec,
            work: Duration::from_secs(60),
            communication: None,
            memory: None,
            processors: 1,
            priority: 0,
            limit: None,
            queue: Default::default(),
        };
        let jobs: Vec<SimJob> = (0..).zip(ranks).map(spec).map(job).collect();
        let config = SchedulerConfig::new(policy, Duration::from_secs(20));
        let cluster = Cluster::uniform(nodes, Bytes::mib(1024));
        let cost = CostModel::default();
        let report = simulate(&cluster, &config, &jobs, &cost, Faults::default(), 100_000).unwrap();
        let svg = turns("", &cluster, &jobs, &report);
        let blocks = svg.matches("<title>job-").count();
        (svg, blocks)
    }

    #[test]
    fn a_gang_on_many_nodes_is_one_block_for_each_of_its_turns() {
        let (svg, blocks) = drawn(100, &[100, 60], Policy::Gang);
        assert!((4..=8).contains(&blocks), "{blocks} blocks");
        assert!(svg.contains("node-99"), "{svg}");
        let (svg, blocks) = drawn(5000, &[5000, 60, 4000], Policy::Gang);
        assert!(
            svg.contains(">waiting<") && svg.contains(">5000<") && blocks == 0,
            "beyond, load is drawn: {svg}"
        );
    }

    #[test]
    fn of_many_jobs_those_that_used_most_are_named_in_colours_of_their_own() {
        let ranks: Vec<u32> = (1..=20).collect();
        let (svg, _) = drawn(32, &ranks, Policy::Hybrid);
        assert!(svg.contains("and 8 that used less"), "{svg}");
        let named = |job: u32| svg.contains(&format!(">job-{job}</text>"));
        assert!(named(19) && named(8) && !named(0));
    }
}
