//! The benchmarks of `cargo xtask bench`: each measures, compares, and judges its figures by their bounds.
//!
//! coswitch and its peer run in turns, in the same minutes on the same machine, and the figure is the median
//! of the pairs' ratios: the state of the machine is in both halves of a pair. A figure without a bound is
//! only shown. The program runs from `target/release`, beside the programs that it measures.

mod bare;
mod bcs;
mod checkpoint;
mod control;
mod figure;
mod flush;
mod grain_jobs;
mod hand;
mod launch;
mod launch_curve;
mod links;
mod local;
mod memory;
mod mixes;
mod mpiexec;
mod operations;
mod orders;
mod pages;
mod pairs;
pub mod paper;
mod pingpong;
mod programs;
mod sim;
mod slices;
mod stage;
mod standing;
mod store;
mod switch;
mod tables;
mod tcp;
mod together;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};

use figure::Figure;

/// Measure, and print each figure with its bound and whether it is met.
#[derive(Parser)]
#[command(name = "cargo xtask bench", max_term_width = 110)]
struct Arguments {
    /// The benchmarks to run [default: all].
    #[arg(value_enum)]
    names: Vec<Name>,
    /// Exit with code 1 where a bound is missed.
    #[arg(long)]
    check: bool,
    /// Print one JSON value instead of the table.
    #[arg(long)]
    json: bool,
    /// Pairs to measure, instead of the benchmark's own number.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// The numbers of nodes, instead of the benchmark's own, for `control`, `heartbeats`, `slices` and
    /// `launch-curve`.
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=512))]
    nodes: Vec<u32>,
    /// The workload log for `sim`, SDSC-Par-1996-3.1-cln.swf of the Parallel Workloads Archive [default: one
    /// drawn from the model].
    #[arg(long, value_name = "SWF", env = "COSWITCH_SWF")]
    log: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Name {
    /// ping-pong, flush and switch
    Driver,
    // First: its trees start in the network namespace of this process, which the other benchmarks leave.
    /// A tree of 1 GiB out of memory and back, against criu called by hand and against copying; size of
    /// contents in the store
    Pages,
    /// Latency, bandwidth, message rate, one-sided operations and collectives between two nodes, against
    /// libfabric's tcp; latency and bandwidth within a node, against MPICH's shared memory
    PingPong,
    /// Latency and bandwidth between two nodes whose links are encrypted, against the same in the clear
    Links,
    /// Time to empty the network, by the bytes in flight
    Flush,
    /// Two jobs of 512 MiB change places, against criu called by hand
    Switch,
    /// A job of 512 MiB is checkpointed while it runs, against criu called by hand
    Checkpoint,
    /// Whole runs: the orders of a switch where memory holds both sets
    Orders,
    /// Whole runs: the order chosen where memory does not hold both sets, against the other forced
    NearOutOfCore,
    /// Whole runs: bytes moved with and without a residency plan
    Residency,
    /// Whole runs: parking by criu, by page-out, by suspending, and without switching, by swap
    Parks,
    /// Pages that a job has not changed between two cuts; writing with and without the page cache
    Store,
    /// Memory of an idle daemon, and of rings
    Memory,
    /// Packets and processor time of the master and of many daemons, idle and when a set stops and goes on
    Control,
    /// Packets and processor time of the master and of many idle daemons, heard by their sessions and by the
    /// tree
    Heartbeats,
    /// A cluster that stays: daemons up on virtual nodes, by ssh, in Slurm; a planned restart; a lost node;
    /// copies of snapshots, forecasts
    Standing,
    /// Node schedulers: how long a message waits for a rank that shares its processor, and the shares of all
    Local,
    /// Node schedulers: jobs of different kinds, and local tasks, on the same processors; also simulated
    Mixes,
    /// Node schedulers: the classes of FCS (paper 000, Table 2.1), what the coscheduling degree depends on
    /// (paper 001, Table 4.1), each also simulated
    Tables,
    /// Buffered coscheduling: programs as Sweep3D and SAGE whose messages go by slots; the order of messages
    Bcs,
    /// Warm gang switching: what two jobs lose that take slices, by their length, on 2, 8 and 32 nodes
    Slices,
    /// Launch of an empty program, against mpiexec
    Launch,
    /// Launch of a program of 4, 8 and 12 MB that is sent to 1 to 64 nodes, idle and loaded, beside mpiexec;
    /// a model of it
    LaunchCurve,
    /// Jobs simulated in a second, against AccaSim; cost of an event as jobs and nodes grow
    Sim,
}

impl Name {
    const SINGLE: [Name; 23] = [
        Name::PingPong,
        Name::Links,
        Name::Flush,
        Name::Switch,
        Name::Checkpoint,
        Name::Pages,
        Name::Orders,
        Name::NearOutOfCore,
        Name::Residency,
        Name::Parks,
        Name::Store,
        Name::Memory,
        Name::Control,
        Name::Heartbeats,
        Name::Standing,
        Name::Local,
        Name::Mixes,
        Name::Tables,
        Name::Bcs,
        Name::Slices,
        Name::Launch,
        Name::LaunchCurve,
        Name::Sim,
    ];

    fn parts(self) -> Vec<Name> {
        match self {
            Name::Driver => vec![Name::PingPong, Name::Flush, Name::Switch],
            single => vec![single],
        }
    }

    fn measure(self, arguments: &Arguments) -> Result<Vec<Figure>> {
        let rounds = arguments.rounds;
        let nodes = |own: &[u32]| match arguments.nodes.is_empty() {
            true => own.to_vec(),
            false => arguments.nodes.clone(),
        };
        match self {
            Name::Driver => unreachable!("replaced by its parts"),
            Name::PingPong => pingpong::measure(rounds.unwrap_or(7)),
            Name::Links => links::measure(rounds.unwrap_or(7)),
            Name::Control => {
                let each = nodes(&[control::NODES]).into_iter().map(control::measure);
                Ok(each.collect::<Result<Vec<_>>>()?.concat())
            }
            Name::Heartbeats => {
                let of = |nodes| control::heartbeats(rounds.unwrap_or(3), nodes);
                let each = nodes(&[control::NODES]).into_iter().map(of);
                Ok(each.collect::<Result<Vec<_>>>()?.concat())
            }
            Name::Standing => standing::measure(rounds.unwrap_or(5)),
            Name::Flush => flush::measure(rounds.unwrap_or(7)),
            Name::Switch => switch::measure(rounds.unwrap_or(7)),
            Name::Checkpoint => checkpoint::measure(rounds.unwrap_or(7)),
            Name::Pages => pages::measure(rounds.unwrap_or(7)),
            Name::Orders => orders::orders(rounds.unwrap_or(3)),
            Name::NearOutOfCore => orders::near_out_of_core(rounds.unwrap_or(1)),
            Name::Residency => orders::rotations(),
            Name::Parks => orders::parks(rounds.unwrap_or(1)),
            Name::Store => store::measure(rounds.unwrap_or(5)),
            Name::Memory => memory::measure(),
            Name::Local => local::measure(rounds.unwrap_or(3)),
            Name::Mixes => mixes::measure(rounds.unwrap_or(3)),
            Name::Tables => tables::measure(rounds.unwrap_or(1)),
            Name::Bcs => bcs::measure(rounds.unwrap_or(3)),
            Name::Slices => slices::measure(&nodes(&slices::NODES), rounds.unwrap_or(2)),
            Name::Launch => launch::measure(rounds.unwrap_or(15)),
            Name::LaunchCurve => launch_curve::measure(&nodes(&launch_curve::NODES), rounds.unwrap_or(5)),
            Name::Sim => sim::measure(rounds.unwrap_or(3), arguments.log.as_deref()),
        }
    }
}

#[must_use]
pub fn bench() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(missed) if missed && arguments.check => ExitCode::FAILURE,
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures and prints; returns whether a bound was missed.
fn run(arguments: &Arguments) -> Result<bool> {
    let mut names: Vec<Name> = arguments.names.iter().flat_map(|name| name.parts()).collect();
    if names.is_empty() {
        names = Name::SINGLE.to_vec();
    }
    names.sort_unstable();
    names.dedup();
    let conditions = figure::Conditions::now();
    let mut figures = Vec::new();
    for name in names {
        eprintln!("measuring {name:?} ...");
        let measured = name.measure(arguments);
        let measured = measured.with_context(|| format!("failed to measure {name:?}"))?;
        // At once: minutes pass between benchmarks.
        measured.iter().for_each(|figure| eprint!("{figure}"));
        figures.extend(measured);
    }
    figure::print(&figures, &conditions, arguments.json)?;
    Ok(figures.iter().any(Figure::is_missed))
}
