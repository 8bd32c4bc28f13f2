//! `cargo xtask soak`: random tests, with new seeds and for longer than in CI: the simulation of the control
//! plane or, with `--live`, a real cluster whose daemons and masters are killed.

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
    /// Real jobs, daemons and masters, and nothing of them may grow.
    #[arg(long)]
    live: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let workspace = Workspace::new(&args.setup)?;
    let time = Duration::from_secs(args.minutes * 60);
    if args.live {
        setup::run(&args.setup)?;
        command::show(&mut workspace.make_programs(), BUILD_LIMIT)
            .context("the example programs do not compile")?;
        command::show(&mut workspace.build(PROFILE), BUILD_LIMIT).context("the build failed")?;
    }
    let (test, variable): (&[&str], _) = match args.live {
        // All packages, as they were built: for one alone, cargo would compile what it needs again.
        true => (&["--workspace", "--test", "soak", "--"], "COSWITCH_SOAK_LIVE"),
        false => (&["-p", "coswitch", "--lib", "--", TEST, "--exact"], "COSWITCH_SOAK"),
    };
    let mut cargo = workspace.cargo(&["test", "--profile", PROFILE]);
    cargo.args(test).arg("--nocapture").env(variable, time.as_secs().to_string());
    command::show(&mut cargo, BUILD_LIMIT + time).context("the soak failed")
}
