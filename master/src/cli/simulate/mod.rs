//! `coswitch simulate`: runs the policies against a model instead of a machine.
//!
//! A run file, or a workload with `--policy`, goes to the time-sharing engine, which drives the scheduler of
//! `coswitch run`. A workload log without `--policy` goes to the space-sharing engine, which drives queues
//! and allocators. Files are read and written here; everything between is pure, so the same command prints
//! the same bytes with any number of threads.
//!
//! | file | what |
//! | --- | --- |
//! | `timeshare`, `spaceshare`, `local` | one mode each |
//! | `replay` | repeats the decisions of a run |
//! | `workload`, `costs` | reads workloads and cost files |
//! | `unused_options` | rejects options that the mode ignores |
//! | `answer` | tables, JSON and CSV |

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
    spaceshare::{AllocatorName, ChoiceError, QueueName},
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
    /// A run file, a log in the Standard Workload Format (`.swf`, `.swf.gz`), a testbed workload
    /// (`.workload`: start, PEs, command), the directory of a run, whose decisions are repeated and compared,
    /// or the word `local`, which compares the node schedulers of local coscheduling and computes Table 4.1
    /// of Solsona's thesis.
    #[arg(required_unless_present = "lublin")]
    file: Option<PathBuf>,
    /// Take the jobs from this log, the nodes and the scheduler from the run file.
    #[arg(long, value_name = "LOG")]
    workload: Option<PathBuf>,
    /// Draw this many jobs from the model of Lublin and Feitelson instead of reading a log, for the number of
    /// processors of the machine.
    #[arg(long, value_name = "JOBS", value_parser = at_most(20_000_000))]
    #[arg(conflicts_with_all = ["workload", "jobs"])]
    lublin: Option<u32>,
    /// Factor on the arrival rate of the model: 2 is twice the published load.
    #[arg(long, default_value_t = 1.0, requires = "lublin", value_parser = load)]
    load: f64,
    /// Take only the first N jobs.
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Run time of each job of a testbed workload, whose format has none [default: 60s].
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    run_time: Option<std::time::Duration>,
    /// Share time under this policy: batch, cosched, gang, hybrid or paired.
    #[arg(long, value_parser = policy)]
    policy: Option<Policy>,
    /// Time for which a slot stays active.
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    quantum: Option<std::time::Duration>,
    /// Number of nodes, instead of that of the file; of one processor each, or of `--cpus`.
    #[arg(long, value_parser = at_most(1 << 24))]
    nodes: Option<u32>,
    /// Arrange the nodes as a mesh of this width and height, for allocators of meshes: `25x16`.
    #[arg(long, value_parser = mesh, value_name = "WxH", conflicts_with = "nodes")]
    mesh: Option<Mesh>,
    /// Memory that a node offers to jobs.
    #[arg(long, value_name = "BYTES")]
    node_memory: Option<Bytes>,
    /// Memory of a rank where the log has none: `64MiB`, `uniform:LOW..HIGH`, `log-uniform:LOW..HIGH`, or
    /// `like:LOG`, drawn from the values of another log [default: 64MiB].
    #[arg(long, value_name = "DISTRIBUTION", value_parser = memory)]
    memory: Option<MemoryDistribution>,
    /// Choose nodes of space-sharing jobs with this allocator [default: first-fit].
    #[arg(long)]
    allocator: Option<AllocatorName>,
    /// Start waiting jobs in this order: fcfs, easy, conservative or aging; or `rms`, which also suspends
    /// jobs, in slices of `--quantum` [default: fcfs].
    #[arg(long)]
    queue: Option<Queue>,
    /// A file with the node sets, node groups and queues of a machine.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "mesh", "cpus"])]
    machine: Option<PathBuf>,
    /// Number of CPUs of a node; jobs get boxes of nodes × CPUs. For the allocator `boxes` and the queue
    /// `rms`. Under `local` the tasks of a node share them.
    #[arg(long, value_name = "N", conflicts_with = "mesh", value_parser = at_most(64))]
    cpus: Option<u32>,
    /// Under `rms`: CPUs that jobs may have in all timeslices together [default: all CPUs once].
    #[arg(long, value_name = "CPUS")]
    usage_limit: Option<u32>,
    /// Simulate N seeds, and print means with their confidence intervals.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_most(100_000))]
    seeds: u32,
    /// The first seed.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Simulate N seeds at a time.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_most(1024))]
    threads: u32,
    /// Cost file, or the directory of a run, from whose journal the costs are fitted.
    #[arg(long, value_name = "PATH")]
    costs: Option<PathBuf>,
    /// Order in which the jobs of two slots change places: sequential, overlapped or prefetch.
    #[arg(long, value_parser = order)]
    switching: Option<SwitchOrder>,
    /// Let jobs outside of their turn stay in memory while it has free capacity.
    #[arg(long)]
    residency: bool,
    /// Write every job of the first seed to this file, as comma-separated values.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write a picture of the first seed to this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the jobs of the first seed to this file in the Standard Workload Format (`.swf`, `.swf.gz`),
    /// each with its wait and its memory.
    #[arg(long, value_name = "FILE")]
    swf: Option<PathBuf>,
    #[command(flatten)]
    local: local::Local,
}

/// The value of `--queue`: an order of starting, or RMS, which gives nodes for a timeslice.
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

/// Numbers from 1 to `most`.
fn at_most(most: i64) -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=most)
}

/// Within a factor of a thousand of the published load: beyond, arrivals leave the calendar.
fn load(text: &str) -> Result<f64, String> {
    let load = text.parse().ok().filter(|load| (0.001..=1000.0).contains(load));
    load.ok_or_else(|| format!("`{text}` is not a number from 0.001 to 1000"))
}

/// A distribution by name, or the values of a log.
fn memory(text: &str) -> Result<MemoryDistribution, String> {
    match text.strip_prefix("like:") {
        Some(log) => workload::memories(Path::new(log))
            .map(MemoryDistribution::Empirical)
            .map_err(|error| format!("{error:#}")),
        None => text.parse().map_err(|error: MemoryDistributionError| error.to_string()),
    }
}

/// A mesh with no more nodes than `--nodes` admits.
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
    /// The settings, with the switching options of the command line.
    fn with_switching(&self, mut config: SchedulerConfig) -> SchedulerConfig {
        config.switching = self.switching.unwrap_or(config.switching);
        if self.residency {
            config.residency = Residency::Planned;
        }
        config
    }

    fn is_local(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file == Path::new("local") && !file.exists())
    }

    /// Whether the answer is available as comma-separated values.
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

/// Fails if there is no job to simulate.
fn require_jobs(any: bool, skipped: Skipped) -> Result<(), Failure> {
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
