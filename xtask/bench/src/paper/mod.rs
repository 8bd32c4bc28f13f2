//! The evaluation of paper 003 (§5) on this machine, behind `cargo xtask paper`: real programs, real memory pressure, real swap.
//!
//! ```text
//!   parts: what is run ─▶ measure: child processes, each bounded ─▶ results: docs/paper/results.json, after each part
//!                                  claims: what is to be seen, in pure code ◀──┘──▶ figures, plot: docs/paper/*.svg
//!                                                    └──▶ page: docs/paper-results.md
//! ```
//!
//! Scaled to two cores and minutes: what can be compared are shapes and ratios, not seconds. A part that fails is told
//! on the page, and the others are not held up by it.

mod arm;
mod call;
mod claims;
mod figures;
mod measure;
mod page;
mod parts;
mod plot;
mod results;

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
use parts::Part;
use results::{Measured, Results};

/// Jobs that do not fit go there; the paper's nodes had ten times their memory.
const SWAP: Bytes = Bytes::mib(4096);

/// Repeat the paper's experiments, and write what came of them.
#[derive(Parser)]
#[command(name = "cargo xtask paper", max_term_width = 110)]
struct Arguments {
    /// Only these; what was measured of the others before stays on the page.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    only: Vec<Part>,
    /// Go on where an earlier call stopped: run what has not been measured.
    #[arg(long, conflicts_with = "only")]
    resume: bool,
    /// Run nothing: draw and write again what was measured.
    #[arg(long, conflicts_with_all = ["only", "resume"])]
    draw: bool,
    /// How often each policy runs.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=20))]
    repeat: u32,
    /// Begin no further repetition that would not end in this time; all is run once.
    #[arg(long, default_value = "30m", value_name = "TIME", value_parser = parse_duration)]
    within: Duration,
    /// A run that takes longer is ended, counts as slower than all others, and is not repeated.
    #[arg(long, default_value = "60s", value_name = "TIME", value_parser = parse_duration)]
    limit: Duration,
    /// Where `paper-results.md` and `paper/` with its pictures go.
    #[arg(long, default_value = "docs", value_name = "DIR")]
    out: PathBuf,
    /// Measure this one part that is no comparison and print it: a process of its own, whose failure is its own.
    #[arg(long, hide = true)]
    part: Option<Part>,
}

/// The program.
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
    if let Some(part) = arguments.part {
        return measure::print_curves(part, arguments.repeat);
    }
    let files = arguments.out.join("paper");
    fs::create_dir_all(&files).with_context(|| format!("failed to make {}", files.display()))?;
    let kept = files.join("results.json");
    let afresh = arguments.only.is_empty() && !arguments.resume && !arguments.draw;
    let mut results = if afresh { Results::default() } else { Results::load(&kept)? };
    if arguments.draw {
        return write(&results, &arguments.out);
    }
    let wanted = |part: &Part| match arguments.only.is_empty() {
        true => !results.parts.get(part).is_some_and(Measured::is_whole),
        false => arguments.only.contains(part),
    };
    let parts: Vec<Part> = Part::value_variants().iter().copied().filter(wanted).collect();
    let stop = Stop::listen()?;
    let began = Instant::now();
    let swap = SwapFile::of(SWAP);
    for (at, part) in parts.iter().enumerate() {
        let share = parts::share(&parts[at..], arguments.within.saturating_sub(began.elapsed()));
        let title = part.title();
        eprintln!(
            "[{}/{}] {title}: up to {} s; {} s since the start",
            at + 1,
            parts.len(),
            share.as_secs(),
            began.elapsed().as_secs()
        );
        let measured = measure::measure(*part, arguments.repeat, share, arguments.limit, &stop);
        if stop.is_asked() {
            drop(swap);
            bail!("stopped; `cargo xtask paper --resume` goes on from here");
        }
        eprintln!("      took {:.0} s", measured.took_s);
        results.parts.insert(*part, measured);
        results.save(&kept)?;
        write(&results, &arguments.out)?;
    }
    eprintln!("{} parts in {} s", parts.len(), began.elapsed().as_secs());
    Ok(())
}

/// The pictures and the page.
fn write(results: &Results, out: &Path) -> Result<()> {
    for (part, measured) in &results.parts {
        for (name, svg) in figures::of(*part, measured) {
            let path = out.join("paper").join(name);
            fs::write(&path, svg).with_context(|| format!("failed to write {}", path.display()))?;
        }
    }
    if let Some(svg) = figures::fairness(results) {
        fs::write(out.join("paper/fairness.svg"), svg)?;
    }
    let page = out.join("paper-results.md");
    let text = page::page(results);
    fs::write(&page, &text).with_context(|| format!("failed to write {}", page.display()))?;
    Ok(())
}
