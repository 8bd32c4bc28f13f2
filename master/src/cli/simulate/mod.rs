//! `coswitch simulate`: the same policies against a model instead of a machine.
//!
//! A run file, or a workload with `--policy`, goes to the time-sharing engine, which drives the very scheduler of `coswitch
//! run`; a workload log without it to the space-sharing engine, which drives queues and allocators. Reading and
//! writing files is done here; everything between is pure, so that the same command prints the same bytes, with any number
//! of threads.

mod answer;
mod costs;
mod local;
mod replay;
mod spaceshare;
mod timeshare;
mod unused_options;
mod workload;

use std::{
    fs,
    path::{Path, PathBuf},
    str::FromStr,
};

use anyhow::{Context, anyhow};
use coswitch_policies::{
    Bytes, Policy, Residency, SchedulerConfig, SwitchOrder, parse_duration, spaceshare::allocate::Mesh,
};
use coswitch_sim::{
    spaceshare::{AllocatorName, ChoiceError, QueueName, mesh_of},
    workload::{
        Skipped,
        memory::{MemoryDistribution, MemoryDistributionError},
    },
};

use super::{
    Exit, Failure, Output,
    compare::{order, policy},
};
pub(super) use costs::load as load_costs;

/// Simulate a run file, a workload log or a workload model; start nothing.
#[derive(Debug, clap::Args)]
pub(crate) struct Simulate {
    /// A run file, or a log in the Standard Workload Format (`.swf`, `.swf.gz`), or a testbed workload (`.workload`:
    /// start, PEs, command), or the directory of a run, whose decisions are made again and compared; or the word `local`: the
    /// node schedulers of local coscheduling beside each other, and Table 4.1 of Solsona's thesis.
    #[arg(required_unless_present = "lublin")]
    file: Option<PathBuf>,
    /// Take the jobs from this log, the nodes and the scheduler from the run file.
    #[arg(long, value_name = "LOG")]
    workload: Option<PathBuf>,
    /// Draw so many jobs from the model of Lublin and Feitelson instead of reading a log, for as many processors as there are.
    #[arg(long, value_name = "JOBS", conflicts_with_all = ["workload", "jobs"], value_parser = clap::value_parser!(u32).range(1..=20_000_000))]
    lublin: Option<u32>,
    /// How many times as often as published the model's jobs come.
    #[arg(long, default_value_t = 1.0, requires = "lublin", value_parser = load)]
    load: f64,
    /// Take only the first so many jobs.
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// How long each job of a testbed workload runs, which its format leaves open [default: 60s].
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    run_time: Option<std::time::Duration>,
    /// Share time under this policy: batch, cosched, gang, hybrid or paired.
    #[arg(long, value_parser = policy)]
    policy: Option<Policy>,
    /// How long a slot stays active.
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    quantum: Option<std::time::Duration>,
    /// So many nodes, instead of what the file says.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    nodes: Option<u32>,
    /// The nodes are a mesh of this width and height, for allocators that look at it: `25x16`.
    #[arg(long, value_parser = mesh, value_name = "WxH", conflicts_with = "nodes")]
    mesh: Option<Mesh>,
    /// What a node holds of jobs, in memory.
    #[arg(long, value_name = "BYTES")]
    node_memory: Option<Bytes>,
    /// Where the log does not say it, draw the memory of a rank: `64MiB`, `uniform:LOW..HIGH`, `log-uniform:LOW..HIGH`, or
    /// `like:LOG`, one of the values of another log [default: 64MiB].
    #[arg(long, value_name = "DISTRIBUTION", value_parser = memory)]
    memory: Option<MemoryDistribution>,
    /// Who chooses nodes for jobs that have them to themselves [default: first-fit].
    #[arg(long)]
    allocator: Option<AllocatorName>,
    /// Which of the waiting jobs starts: fcfs, easy, conservative or aging; or `rms`, which suspends jobs as well, in slices of
    /// `--quantum` [default: fcfs].
    #[arg(long)]
    queue: Option<Queue>,
    /// A machine of several node sets: a file with its sets, groups and queues.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "mesh", "cpus"])]
    machine: Option<PathBuf>,
    /// A node has so many CPUs, and jobs get boxes of nodes × CPUs: for the allocator `boxes` and the queue `rms`.
    #[arg(long, value_name = "N", conflicts_with = "mesh", value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: Option<u32>,
    /// Under `rms`: CPUs that jobs may have in all timeslices together [default: all CPUs once].
    #[arg(long, value_name = "CPUS")]
    usage_limit: Option<u32>,
    /// Simulate so many seeds, and tell means with their confidence intervals.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    seeds: u32,
    /// The first seed.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Simulate so many seeds at a time.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// How long switches take: a file of costs, or the directory of a run (the costs are fitted from its journal).
    #[arg(long, value_name = "PATH")]
    costs: Option<PathBuf>,
    /// In which order the jobs of two slots change places: sequential, overlapped or prefetch.
    #[arg(long, value_parser = order)]
    switching: Option<SwitchOrder>,
    /// Let jobs out of their turn stay in memory while there is room.
    #[arg(long)]
    residency: bool,
    /// Write every job of the first seed to this file, as comma-separated values.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write a picture of the first seed to this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the jobs of the first seed to this file in the Standard Workload Format (`.swf`, `.swf.gz`), each with the wait
    /// and the memory it had.
    #[arg(long, value_name = "FILE")]
    swf: Option<PathBuf>,
    #[command(flatten)]
    local: local::Local,
}

/// Who says which job has nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Order(QueueName),
    Rms,
}

impl FromStr for Queue {
    type Err = ChoiceError;
    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        if text == "rms" {
            return Ok(Self::Rms);
        }
        let add = |error: ChoiceError| ChoiceError { known: error.known + ", rms", ..error };
        text.parse().map(Self::Order).map_err(add)
    }
}

/// Within a thousand times of what was published: beyond, the arrivals leave the calendar.
fn load(text: &str) -> Result<f64, String> {
    let load = text.parse().ok().filter(|load| (0.001..=1000.0).contains(load));
    load.ok_or_else(|| format!("`{text}` is not a number from 0.001 to 1000"))
}

/// A distribution by its name, or the values of a log.
fn memory(text: &str) -> Result<MemoryDistribution, String> {
    match text.strip_prefix("like:") {
        Some(log) => workload::memories(Path::new(log))
            .map(MemoryDistribution::Empirical)
            .map_err(|error| format!("{error:#}")),
        None => text.parse().map_err(|error: MemoryDistributionError| error.to_string()),
    }
}

/// So many nodes in each direction, together no more than `--nodes` takes.
fn mesh(text: &str) -> Result<Mesh, String> {
    let sides =
        text.split_once('x').and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
    match sides {
        Some((width, height))
            if width > 0 && height > 0 && u64::from(width) * u64::from(height) <= 1 << 24 =>
        {
            Ok(Mesh { width, height })
        }
        _ => Err(format!("`{text}` is not a width and a height such as `25x16`")),
    }
}

impl Simulate {
    /// The settings with what the command line says of switching.
    fn switched(&self, mut config: SchedulerConfig) -> SchedulerConfig {
        config.switching = self.switching.unwrap_or(config.switching);
        if self.residency {
            config.residency = Residency::Planned;
        }
        config
    }

    /// Whether node schedulers are asked for.
    fn is_local(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file == Path::new("local") && !file.exists())
    }

    /// Whether the answer can be had as comma-separated values.
    pub(crate) fn answers_with_a_table(&self) -> bool {
        if self.is_local() {
            return local::answers_with_a_table(self);
        }
        !self.file.as_ref().is_some_and(|file| file.is_dir())
    }

    pub(crate) fn carry_out(mut self, output: Output) -> Result<Exit, Failure> {
        if let Some(wrong) = self.unused_option() {
            return Err(Failure::Workload(anyhow!(wrong)));
        }
        self.nodes = self.nodes.or_else(|| self.mesh.map(|mesh| mesh.units()));
        if self.is_local() {
            return local::simulate(&self, output);
        }
        if let Some(run) = self.file.as_ref().filter(|file| file.is_dir()) {
            let replayed =
                replay::replay_run(run).with_context(|| format!("failed to replay {}", run.display()));
            output.print(&replayed.map_err(Failure::Workload)?).context("failed to print")?;
            return Ok(Exit::Done);
        }
        let is_run_file = self.file.as_ref().is_some_and(|file| workload::is_run_file(file));
        let shares_time = is_run_file || self.policy.is_some();
        if let Some(wrong) = self.option_of_other_mode(shares_time) {
            return Err(Failure::Workload(anyhow!(wrong)));
        }
        if shares_time {
            output.print(&timeshare::simulate(&self, is_run_file)?).context("failed to print")?;
        } else {
            output.print(&spaceshare::simulate(&self)?).context("failed to print")?;
        }
        Ok(Exit::Done)
    }

    fn allocator(&self) -> AllocatorName {
        self.allocator.unwrap_or_default()
    }

    fn queue(&self) -> Queue {
        self.queue.unwrap_or(Queue::Order(QueueName::default()))
    }

    /// The mesh of so many nodes: nodes × CPUs, where nodes are divided.
    fn mesh_of(&self, nodes: u32) -> Mesh {
        match (self.mesh, self.allocator()) {
            (Some(mesh), _) => mesh,
            (None, AllocatorName::Boxes) => Mesh { width: nodes, height: self.cpus() },
            (None, _) => mesh_of(nodes),
        }
    }

    fn cpus(&self) -> u32 {
        self.cpus.unwrap_or(1)
    }

    fn seeds(&self) -> Vec<u64> {
        (0..u64::from(self.seeds)).map(|n| self.seed.wrapping_add(n)).collect()
    }

    fn threads(&self) -> usize {
        self.threads as usize
    }
}

/// Nothing could be told of no job at all.
fn some_jobs(any: bool, skipped: Skipped) -> Result<(), Failure> {
    if any {
        return Ok(());
    }
    let why = if skipped.total() > 0 { format!(": left out are {skipped}") } else { String::new() };
    Err(Failure::Workload(anyhow!("there is no job to simulate{why}")))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let written = fs::write(path, text).with_context(|| format!("failed to write {}", path.display()));
    written.map_err(Failure::Workload)
}
