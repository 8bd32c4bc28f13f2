//! `cargo xtask soak`: the simulation of the control plane, for longer than in CI and with seeds that nobody
//! has tried.

use crate::command;
use crate::setup;
use crate::test::PROFILE;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::time::Duration;

/// The name of the test in package `coswitch`.
const TEST: &str = "engine::simulation::never_both_never_neither";
const BUILD_LIMIT: Duration = Duration::from_secs(1800);

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    setup: setup::Args,
    /// How long, after the build.
    #[arg(long, value_name = "MINUTES", default_value_t = 10)]
    minutes: u64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let workspace = Workspace::new(&args.setup)?;
    let time = Duration::from_secs(args.minutes * 60);
    let mut test = workspace.cargo(&["test", "--profile", PROFILE, "-p", "coswitch", "--lib", "--"]);
    test.args([TEST, "--exact", "--nocapture"]).env("COSWITCH_SOAK", time.as_secs().to_string());
    command::show(&mut test, BUILD_LIMIT + time).context("the simulation failed")
}
