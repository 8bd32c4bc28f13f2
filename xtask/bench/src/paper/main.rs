//! The evaluation of paper 003 (§5) on this machine, behind `cargo xtask paper`: real programs, real memory pressure, real swap.
//!
//! Each [`experiment`] is a few calls of `coswitch compare` on a file of `examples/paper/`; [`page`] writes what came of
//! it beside what the paper says, claim by claim. Scaled to two cores and minutes: what can be compared are shapes and
//! ratios, not seconds.

mod compared;
mod experiment;
mod page;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use coswitch_policies::Bytes;
use coswitch_tests::swap::SwapFile;

use experiment::Part;

/// Jobs that do not fit go there; the paper's nodes had ten times their memory.
const SWAP: Bytes = Bytes::mib(4096);

/// Repeat the paper's experiments, and write what came of them.
#[derive(Parser)]
#[command(name = "cargo xtask paper", max_term_width = 110)]
struct Arguments {
    /// Which [default: all of them].
    #[arg(value_enum)]
    parts: Vec<Part>,
    /// How often each policy runs.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=20))]
    repeat: u32,
    /// A run that takes longer is ended, and counts as slower than all others.
    #[arg(long, default_value = "150s", value_name = "TIME")]
    limit: String,
    /// Where the page goes; only written where all parts are run, or a file is named.
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let all = arguments.parts.is_empty();
    let parts = if all { Part::value_variants().to_vec() } else { arguments.parts.clone() };
    let _swap = SwapFile::of(SWAP);
    let mut sections = Vec::new();
    for part in parts {
        eprintln!("{part:?} ...");
        let section = part
            .carry_out(arguments.repeat, &arguments.limit)
            .with_context(|| format!("failed to repeat {part:?}"))?;
        eprintln!("{section}");
        sections.push(section);
    }
    let page = arguments.page.as_deref().or(all.then_some(Path::new("docs/paper-results.md")));
    let Some(page) = page else { return Ok(()) };
    let text = page::whole(&sections, arguments.repeat, &arguments.limit);
    fs::write(page, text).with_context(|| format!("failed to write {}", page.display()))
}
