//! `cargo xtask bench` and `cargo xtask paper`: build, and start the programs that measure.

use crate::command;
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::time::Duration;

const BUILD_LIMIT: Duration = Duration::from_secs(1800);
const LIMIT: Duration = Duration::from_secs(4 * 3600);

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    setup: setup::Args,
    /// Passed on: `--help` lists the benchmarks or experiments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Only the program's answer goes to standard output, so that `--json` is JSON.
pub(crate) fn run(args: &Args, program: &str) -> Result<()> {
    setup::run(&args.setup)?;
    let workspace = Workspace::new(&args.setup)?;
    command::show(&mut workspace.build("release"), BUILD_LIMIT).context("the release build failed")?;
    command::show(&mut workspace.make_programs(), BUILD_LIMIT)
        .context("the example programs do not compile")?;
    command::show(workspace.program(program).args(&args.rest), LIMIT)
        .with_context(|| format!("{program} failed, or missed a bound"))
}
