//! Time sharing at size: the scheduler of the live master under `hybrid`, on up to 100,000 nodes.
//!
//! Jobs come in waves, each of which fills a number of rows, and the next one when the last is about done:
//! the backlog is the same whatever the number of jobs and nodes. Sizes (up to 128 nodes) and run times (cut
//! at two hours) are those of the model of Lublin and Feitelson, memory is log-uniform. An event is a job
//! that arrives, ends, changes its row, enters memory or leaves it; a switch is as many events as it moves
//! jobs. No journal is kept.

use std::{fs, time::Duration};

use super::{curve, processor_time};
use crate::figure::{Bound, Figure};
use anyhow::{Context, Result};
use coswitch_policies::{
    Bytes, Cluster, Decision, JobId, JobSpec, Policy, SchedulerConfig, SchedulerEvent, SimTime,
};
use coswitch_sim::{
    CostModel, Faults, SimJob, Step, simulate_telling,
    workload::{lublin, memory::MemoryDistribution},
};

const NODE_MEMORY: Bytes = Bytes::mib(1024);
const MEMORY: MemoryDistribution = MemoryDistribution::LogUniform(Bytes::mib(64), Bytes::mib(900));
const QUANTUM: Duration = Duration::from_secs(900);
const RUN_MAX: u64 = 7200;
const GIB: f64 = (1_u64 << 30) as f64;
/// The time until the next wave comes, in terms of the work of a wave.
const SLACK: f64 = 2.5;

/// How many jobs, on how many nodes, in waves of how many rows.
#[derive(Clone, Copy, Debug)]
struct Size {
    jobs: u32,
    nodes: u32,
    rows: u32,
}

struct Took {
    seconds: f64,
    events: u64,
}

impl Took {
    fn nanos(&self) -> f64 {
        self.seconds * 1e9 / self.events as f64
    }
}

/// How the cost of an event grows, and one large simulation.
pub(super) fn measure() -> Result<Vec<Figure>> {
    let cost = |jobs, nodes| Ok::<f64, anyhow::Error>(run(Size { jobs, nodes, rows: 16 })?.nanos());
    let jobs = [(7_500, cost(7_500, 250)?), (120_000, cost(120_000, 250)?)];
    let nodes = [(500, cost(60_000, 500)?), (8_000, cost(60_000, 8_000)?)];
    let mut figures = vec![
        curve::growth("hybrid, 16 rows, with the jobs", jobs),
        curve::growth("hybrid, 16 rows, with the nodes", nodes),
    ];
    figures.extend(large(Size { jobs: 1_000_000, nodes: 100_000, rows: 4 })?);
    Ok(figures)
}

fn large(size: Size) -> Result<[Figure; 2]> {
    // Forgets the peak so far.
    fs::write("/proc/self/clear_refs", "5").context("failed to begin a new peak of memory")?;
    let took = run(size)?;
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = crate::memory::kibibytes(&status, "VmHWM:")? * 1024.0 / GIB;
    let Size { jobs, nodes, rows } = size;
    let name = format!("hybrid, {jobs} jobs on {nodes} nodes in waves of {rows} rows");
    let detail = format!("{} events, {:.0} ns each, one core", took.events, took.nanos());
    Ok([
        Figure::bounded(format!("{name}: peak memory"), peak, "GiB", Bound::AtMost(8.0)),
        Figure::bounded(format!("{name}: time"), took.seconds, "s", Bound::AtMost(300.0)).of(detail),
    ])
}

fn run(size: Size) -> Result<Took> {
    let jobs = waves(size);
    let cluster = Cluster::uniform(size.nodes, NODE_MEMORY);
    let config = SchedulerConfig::new(Policy::Hybrid, QUANTUM);
    let mut events = 0;
    let began = processor_time()?;
    let report = simulate_telling(
        &cluster,
        &config,
        &jobs,
        &CostModel::default(),
        Faults::default(),
        usize::MAX,
        &mut |step| events += events_of(&step),
    )
    .context("the simulation did not end")?;
    let seconds = (processor_time()? - began).as_secs_f64();
    anyhow::ensure!(report.metrics.jobs.len() == jobs.len(), "jobs were lost");
    eprintln!("{} jobs, {} nodes: {seconds:.1} s, {events} events", size.jobs, size.nodes);
    Ok(Took { seconds, events })
}

fn events_of(step: &Step) -> u64 {
    let happened = match &step.event {
        SchedulerEvent::Submitted { jobs } => jobs.len(),
        SchedulerEvent::Finished { .. } => 1,
        _ => 0,
    };
    let decided = step.decisions.iter().map(|decision| match decision {
        Decision::Moved(_) => 1,
        Decision::Switch(plan) => plan.outgoing.len() + plan.incoming.len(),
        _ => 0,
    });
    (happened + decided.sum::<usize>()) as u64
}

/// The jobs, in waves.
fn waves(size: Size) -> Vec<SimJob> {
    let log =
        lublin::generate(7, &lublin::Settings { jobs: size.jobs, nodes: 128, interactive: true, load: 1.0 });
    let offered = f64::from(size.rows) * f64::from(size.nodes) * NODE_MEMORY.0 as f64;
    let (mut filled, mut work_s, mut arrival) = (0.0, 0.0, Duration::ZERO);
    let drawn = log.records.iter().zip(0..).filter_map(|(record, id)| {
        let (run, ranks) = (record.run?.clamp(1, RUN_MAX), record.size()?);
        let memory_per_rank = MEMORY.draw(7, record.number);
        if filled > offered {
            arrival += Duration::from_secs_f64(SLACK * work_s / f64::from(size.nodes));
            (filled, work_s) = (0.0, 0.0);
        }
        filled += f64::from(ranks) * memory_per_rank.0 as f64;
        work_s += f64::from(ranks) * run as f64;
        let spec = JobSpec {
            id: JobId(id),
            name: "".into(),
            ranks,
            memory_per_rank,
            arrival: SimTime::from(arrival),
        };
        Some(SimJob {
            spec,
            work: Duration::from_secs(run),
            communication: None,
            memory: None,
            processors: 1,
            priority: 0,
            limit: None,
            queue: Default::default(),
        })
    });
    drawn.collect()
}
