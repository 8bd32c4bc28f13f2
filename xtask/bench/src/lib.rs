//! The benchmarks behind `cargo xtask bench`: each measures, compares, and holds its figures against its targets.
//!
//! What is compared is measured in turns, in the same minutes on the same machine, and the figure is the median of the
//! pairs' ratios: the machine's mood is in both halves of a pair. A figure without a bound is shown for what it is.
//! Run from `target/release`, beside the programs that are measured.

mod bare;
mod figure;
mod flush;
mod hand;
mod launch;
mod memory;
mod mpiexec;
mod orders;
mod pages;
mod pairs;
pub mod paper;
mod parts;
mod pingpong;
mod sim;
mod stage;
mod store;
mod switch;
mod tcp;
mod together;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};

use figure::Figure;

/// Measure, and say for each target what it is, what is allowed, and whether it is met.
#[derive(Parser)]
#[command(name = "cargo xtask bench", max_term_width = 110)]
struct Arguments {
    /// Which [default: all of them].
    #[arg(value_enum)]
    names: Vec<Name>,
    /// Exit with code 1 where a target is missed.
    #[arg(long)]
    check: bool,
    /// Print one JSON value instead of the table.
    #[arg(long)]
    json: bool,
    /// Measure each pair so many times instead of the benchmark's own number.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// The workload log for `sim`: SDSC-Par-1996-3.1-cln.swf of the Parallel Workloads Archive. One is drawn where none is given.
    #[arg(long, value_name = "SWF", env = "COSWITCH_SWF")]
    log: Option<PathBuf>,
    /// `sim` also counts the instructions of an event, by valgrind, which must be installed: two minutes more.
    #[arg(long)]
    instructions: bool,
    /// Does one simulation and prints its events: what `--instructions` counts.
    #[arg(long, value_name = "JOBS:NODES:ROWS", hide = true)]
    only: Option<sim::Size>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Name {
    /// ping-pong, flush and switch
    Driver,
    // First: its trees are born where this process is, and the others make it move into networks of their own.
    /// A tree of 1 GiB out of memory and back, against criu called by hand and against copying; how contents are stored
    Pages,
    /// Latency and bandwidth between two nodes, against libfabric's tcp; within a node, against MPICH's shared memory
    PingPong,
    /// How long the network takes to empty, by what is in flight
    Flush,
    /// Two jobs of 512 MiB change places, against criu called by hand
    Switch,
    /// Whole runs: the orders of a switch where memory holds both sets
    Orders,
    /// Whole runs: the order that is chosen where memory does not hold both, against the other forced
    NearOutOfCore,
    /// Whole runs: what is moved, by who stays in memory
    Residency,
    /// Whole runs: parking by criu, by page-out, by suspending, and leaving it to swap
    Parks,
    /// Pages that a job has not changed between two cuts; writing with and without the page cache
    Store,
    /// What an idle daemon holds, and what rings take
    Memory,
    /// A program that does nothing, against mpiexec
    Launch,
    /// Jobs simulated in a second, against AccaSim; what an event costs as jobs and nodes grow
    Sim,
}

impl Name {
    const SINGLE: [Name; 12] = [
        Name::PingPong,
        Name::Flush,
        Name::Switch,
        Name::Pages,
        Name::Orders,
        Name::NearOutOfCore,
        Name::Residency,
        Name::Parks,
        Name::Store,
        Name::Memory,
        Name::Launch,
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
        match self {
            Name::Driver => unreachable!("replaced by its parts"),
            Name::PingPong => pingpong::measure(rounds.unwrap_or(7)),
            Name::Flush => flush::measure(rounds.unwrap_or(7)),
            Name::Switch => switch::measure(rounds.unwrap_or(7)),
            Name::Pages => pages::measure(rounds.unwrap_or(7)),
            Name::Orders => orders::orders(rounds.unwrap_or(3)),
            Name::NearOutOfCore => orders::near_out_of_core(rounds.unwrap_or(1)),
            Name::Residency => orders::rotations(),
            Name::Parks => orders::parks(rounds.unwrap_or(1)),
            Name::Store => store::measure(rounds.unwrap_or(5)),
            Name::Memory => memory::measure(),
            Name::Launch => launch::measure(rounds.unwrap_or(15)),
            Name::Sim => sim::measure(rounds.unwrap_or(3), arguments.log.as_deref(), arguments.instructions),
        }
    }
}

/// `cargo xtask bench`.
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

/// Measures and prints; says whether a target was missed.
fn run(arguments: &Arguments) -> Result<bool> {
    if let Some(size) = arguments.only {
        return sim::only(size).map(|()| false);
    }
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
        // Minutes pass between them.
        measured.iter().for_each(|figure| eprint!("{figure}"));
        figures.extend(measured);
    }
    figure::print(&figures, &conditions, arguments.json)?;
    Ok(figures.iter().any(Figure::is_missed))
}
