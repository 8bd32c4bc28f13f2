//! Time sharing at size: the scheduler of the live master under `hybrid`, on as many nodes as no cluster of ours has.
//!
//! Jobs come in waves, each of which fills so many rows, and the next one when the last is about done: the backlog is the same
//! whatever the number of jobs and nodes. Sizes (up to 128 nodes) and run times (cut at two hours) are those of the
//! model of Lublin and Feitelson, memory is log-uniform. An event is a job that arrives, ends, changes its row, enters
//! memory or leaves it; a switch is as many as it moves. No journal is kept. The sizes of a curve are measured in turns, and the
//! median of the rounds counts: the first time also finds memory that the machine has not given out yet.

use std::{collections::BTreeSet, fmt, fs, str::FromStr, time::Duration};

use super::{curve, processor_time};
use crate::{
    figure::{Bound, Figure},
    pairs::{interval, median},
};
use anyhow::{Context, Result, bail};
use coswitch_policies::{
    Bytes, Cluster, Decision, JobId, JobSpec, Policy, SchedulerConfig, SchedulerEvent, SimTime, SlotId,
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
/// How much of its own work a wave is given until the next one comes.
const SLACK: f64 = 2.5;

/// How many jobs, on how many nodes, in waves of how many rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    jobs: u32,
    pub(super) nodes: u32,
    rows: u32,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.jobs, self.nodes, self.rows)
    }
}

impl FromStr for Size {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let numbers = text.split(':').map(str::parse).collect::<Result<Vec<u32>, _>>()?;
        let [jobs, nodes, rows] = numbers[..] else { bail!("a size is JOBS:NODES:ROWS") };
        Ok(Self { jobs, nodes, rows })
    }
}

/// Six jobs a node are a wave of so many rows: about 20 waves, five, and little more than one.
pub(super) const MANY_ROWS: [Size; 3] = [
    Size { jobs: 60_000, nodes: 500, rows: 16 },
    Size { jobs: 60_000, nodes: 2_000, rows: 16 },
    Size { jobs: 60_000, nodes: 8_000, rows: 16 },
];

/// What a simulation was and what it took.
struct Took {
    seconds: f64,
    events: u64,
    /// That had turns, in all.
    rows: usize,
}

impl Took {
    fn nanos(&self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
        {
            self.seconds * 1e9 / self.events as f64
        }
    }
}

/// The large one, and how the cost of an event grows.
pub(super) fn measure(rounds: u32) -> Result<Vec<Figure>> {
    let size = |jobs, nodes, rows| Size { jobs, nodes, rows };
    let by_jobs = |jobs: [u32; 3], nodes, rows| jobs.map(|jobs| (jobs, size(jobs, nodes, rows)));
    let by_nodes = |jobs, nodes: [u32; 3], rows| nodes.map(|nodes| (nodes, size(jobs, nodes, rows)));
    let few = [10_000, 40_000, 160_000];
    let mut figures = vec![
        growth("one row, with the jobs", by_jobs(few, 1_000, 1), rounds)?,
        growth("one row, with the nodes", by_nodes(100_000, [1_000, 10_000, 50_000], 1), rounds)?,
        // 5, 20 and 80 waves.
        growth("16 rows, with the jobs", by_jobs([7_500, 30_000, 120_000], 250, 16), rounds)?,
        growth("16 rows, with the nodes", MANY_ROWS.map(|size| (size.nodes, size)), rounds)?,
    ];
    figures.extend(large(size(1_000_000, 100_000, 4))?);
    Ok(figures)
}

/// What a size costs is told by what the smallest one cost in the same round: the machine is faster in one minute than in the next. Every
/// other round goes from the largest to the smallest.
fn growth(of: &str, points: [(u32, Size); 3], rounds: u32) -> Result<Figure> {
    let round = |round: u32| -> Result<Vec<Took>> {
        if round.is_multiple_of(2) {
            return points.iter().map(|(_, size)| run(*size)).collect();
        }
        let mut falling = points.iter().rev().map(|(_, size)| run(*size)).collect::<Result<Vec<_>>>()?;
        falling.reverse();
        Ok(falling)
    };
    let rounds = (0..5 * rounds).map(round).collect::<Result<Vec<_>>>()?;
    let grown = |at: usize| {
        let point = move |round: &Vec<Took>, at: usize| (points[at].0, round[at].nanos());
        rounds.iter().map(move |round| curve::growth(&[point(round, 0), point(round, at)]))
    };
    let steeper = |a: &usize, b: &usize| median(grown(*a)).total_cmp(&median(grown(*b)));
    let steepest = (1..points.len()).max_by(steeper).expect("there are larger ones");
    let (low, high) = interval(grown(steepest));
    let told = (0..).zip(&points).zip(&rounds[0]).map(|((at, (n, _)), Took { events, rows, .. })| {
        let cost = median(rounds.iter().map(|round| round[at].nanos()));
        format!("{n}: {cost:.0} ns, {events} events, {rows} rows one after the other")
    });
    let told = told.collect::<Vec<_>>().join("; ");
    let name = format!("growth of the cost of an event, hybrid, {of}, by that of the logarithm");
    let figure = Figure::bounded(name, median(grown(steepest)), "x", Bound::AtMost(1.0));
    Ok(figure.of(format!("{told}; median of {}, 95 %: {low:.2} to {high:.2}", rounds.len())))
}

fn large(size: Size) -> Result<[Figure; 2]> {
    // Forgets the peak so far.
    fs::write("/proc/self/clear_refs", "5").context("failed to begin a new peak of memory")?;
    let took = run(size)?;
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = crate::memory::kibibytes(&status, "VmHWM:")? * 1024.0 / GIB;
    let Size { jobs, nodes, rows } = size;
    let name = format!("hybrid, {jobs} jobs on {nodes} nodes in waves of {rows} rows");
    let detail = format!(
        "{} events, {:.0} ns each, {} rows one after the other, one core",
        took.events,
        took.nanos(),
        took.rows
    );
    Ok([
        Figure::bounded(format!("{name}: peak memory"), peak, "GiB", Bound::AtMost(8.0)),
        Figure::plain(format!("{name}: time"), took.seconds, "s").of(detail),
    ])
}

/// Only simulates, and says how many events that were.
pub(super) fn events(size: Size) -> Result<u64> {
    Ok(run(size)?.events)
}

fn run(size: Size) -> Result<Took> {
    let jobs = waves(size);
    let cluster = Cluster::uniform(size.nodes, NODE_MEMORY);
    let config = SchedulerConfig::new(Policy::Hybrid, QUANTUM);
    let mut counts = Counts::default();
    let began = processor_time()?;
    let report = simulate_telling(
        &cluster,
        &config,
        &jobs,
        &CostModel::default(),
        Faults::default(),
        usize::MAX,
        &mut |step| counts.add(&step),
    )
    .context("the simulation did not end")?;
    let seconds = (processor_time()? - began).as_secs_f64();
    anyhow::ensure!(report.metrics.jobs.len() == jobs.len(), "jobs were lost");
    eprintln!("{} jobs, {} nodes: {seconds:.1} s, {} events", size.jobs, size.nodes, counts.events);
    Ok(Took { seconds, events: counts.events, rows: counts.rows.len() })
}

#[derive(Default)]
struct Counts {
    events: u64,
    rows: BTreeSet<SlotId>,
}

impl Counts {
    fn add(&mut self, step: &Step) {
        self.events += match &step.event {
            SchedulerEvent::Submitted { jobs } => jobs.len() as u64,
            SchedulerEvent::Finished { .. } => 1,
            _ => 0,
        };
        for decision in &step.decisions {
            match decision {
                Decision::Moved(_) => self.events += 1,
                Decision::Switch(plan) => {
                    self.events += (plan.outgoing.len() + plan.incoming.len()) as u64;
                    self.rows.insert(plan.slot);
                }
                _ => {}
            }
        }
    }
}

/// The jobs, in waves.
#[allow(clippy::cast_precision_loss, reason = "jobs and seconds are far below 2^53")]
fn waves(size: Size) -> Vec<SimJob> {
    let log =
        lublin::generate(7, &lublin::Settings { jobs: size.jobs, nodes: 128, interactive: true, load: 1.0 });
    let room = f64::from(size.rows) * f64::from(size.nodes) * NODE_MEMORY.0 as f64;
    let (mut filled, mut work_s, mut arrival) = (0.0, 0.0, Duration::ZERO);
    let drawn = log.records.iter().zip(0..).filter_map(|(record, id)| {
        let (run, ranks) = (record.run?.clamp(1, RUN_MAX), record.size()?);
        let memory_per_rank = MEMORY.draw(7, record.number);
        if filled > room {
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
        Some(SimJob { spec, work: Duration::from_secs(run), communication: None })
    });
    drawn.collect()
}
