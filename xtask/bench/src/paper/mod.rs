//! `cargo xtask paper`: the evaluation of paper 003 (§5) on this machine, with real programs, memory pressure
//! and swap.
//!
//! ```text
//!   experiments ─▶ measure: bounded child processes ─▶ results: docs/paper/results.json, after each one
//!                             claims: verdicts, pure ◀──┘──▶ pictures, plot: docs/paper/*.svg
//!                                        └──▶ page: docs/paper-results.md
//! ```
//!
//! Scaled to two cores and minutes: shapes and ratios can be compared, seconds cannot. The page reports an
//! experiment that failed; the others run.

mod arm;
mod call;
mod claims;
mod experiments;
mod measure;
mod page;
mod pictures;
mod plot;
mod results;
mod work;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use coswitch_policies::{Bytes, parse_duration};
use coswitch_tests::swap::SwapFile;

use call::Stop;
use experiments::Experiment;
use results::{Measured, Results};

/// For jobs that do not fit; the paper's nodes had ten times their memory.
const SWAP: Bytes = Bytes::mib(4096);

/// Repeat the paper's experiments, and write their results.
#[derive(Parser)]
#[command(name = "cargo xtask paper", max_term_width = 110)]
struct Arguments {
    /// Only these; earlier results of the others stay on the page.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    only: Vec<Experiment>,
    /// Go on where an earlier call stopped.
    #[arg(long, conflicts_with = "only")]
    resume: bool,
    /// Run nothing: draw and write earlier results again.
    #[arg(long, conflicts_with_all = ["only", "resume"])]
    draw: bool,
    /// Repetitions of each policy.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=20))]
    repeat: u32,
    /// Begin no further repetition that would not end in this time; everything runs once.
    #[arg(long, default_value = "75m", value_name = "TIME", value_parser = parse_duration)]
    within: Duration,
    /// A run that takes longer is ended, counts as slower than all others, and does not run again.
    #[arg(long, default_value = "180s", value_name = "TIME", value_parser = parse_duration)]
    limit: Duration,
    /// The directory of `paper-results.md` and of `paper/` with its pictures.
    #[arg(long, default_value = "docs", value_name = "DIR")]
    out: PathBuf,
    /// Measure the curves of this experiment and print them: the child process of an experiment.
    #[arg(long = "part", hide = true)]
    experiment: Option<Experiment>,
}

#[must_use]
pub fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    if let Some(experiment) = arguments.experiment {
        return measure::print_curves(experiment, arguments.repeat);
    }
    let files = arguments.out.join("paper");
    fs::create_dir_all(&files).with_context(|| format!("failed to make {}", files.display()))?;
    let kept = files.join("results.json");
    let afresh = arguments.only.is_empty() && !arguments.resume && !arguments.draw;
    let mut results = if afresh { Results::default() } else { Results::load(&kept)? };
    if arguments.draw {
        return write(&results, &arguments.out);
    }
    let wanted = |experiment: &Experiment| match arguments.only.is_empty() {
        true => !results.experiments.get(experiment).is_some_and(Measured::is_whole),
        false => arguments.only.contains(experiment),
    };
    let experiments: Vec<Experiment> = Experiment::value_variants().iter().copied().filter(wanted).collect();
    let stop = Stop::listen()?;
    let began = Instant::now();
    let swap = SwapFile::of(SWAP);
    for (at, experiment) in experiments.iter().enumerate() {
        let share = experiments::share(&experiments[at..], arguments.within.saturating_sub(began.elapsed()));
        let title = experiment.title();
        eprintln!(
            "[{}/{}] {title}: up to {} s; {} s since the start",
            at + 1,
            experiments.len(),
            share.as_secs(),
            began.elapsed().as_secs()
        );
        let measured = measure::measure(*experiment, arguments.repeat, share, arguments.limit, &stop);
        if stop.is_asked() {
            drop(swap);
            bail!("stopped; `cargo xtask paper --resume` goes on from here");
        }
        eprintln!("      took {:.0} s", measured.took_s);
        results.experiments.insert(*experiment, measured);
        results.save(&kept)?;
        write(&results, &arguments.out)?;
    }
    eprintln!("{} experiments in {} s", experiments.len(), began.elapsed().as_secs());
    Ok(())
}

/// Writes the pictures and the page.
fn write(results: &Results, out: &Path) -> Result<()> {
    for (experiment, measured) in &results.experiments {
        for (name, svg) in pictures::of(*experiment, measured) {
            let path = out.join("paper").join(name);
            fs::write(&path, svg).with_context(|| format!("failed to write {}", path.display()))?;
        }
    }
    if let Some(svg) = pictures::fairness(results) {
        fs::write(out.join("paper/fairness.svg"), svg)?;
    }
    let page = out.join("paper-results.md");
    let text = page::page(results);
    fs::write(&page, &text).with_context(|| format!("failed to write {}", page.display()))?;
    Ok(())
}
