//! `cargo xtask paper`: builds, and hands over to the paper's experiments, which are a program of their own.

use crate::command;
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::time::Duration;

const BUILD_LIMIT: Duration = Duration::from_secs(1800);
const LIMIT: Duration = Duration::from_secs(4 * 3600);

/// Options of `cargo xtask paper`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    setup: setup::Args,
    /// Passed on; `--help` lists the experiments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Runs them; all of them write `docs/paper-results.md`.
pub(crate) fn run(args: &Args) -> Result<()> {
    setup::run(&args.setup)?;
    let workspace = Workspace::new(&args.setup)?;
    command::show(&mut workspace.build("release"), BUILD_LIMIT).context("the release build failed")?;
    command::show(&mut workspace.make_programs(), BUILD_LIMIT)
        .context("the example programs do not compile")?;
    command::show(workspace.program("coswitch-paper").args(&args.rest), LIMIT)
        .context("the experiments failed")
}
