//! `cargo xtask test`: set-up, a build, and every test of the workspace.
//!
//! All in one optimised profile, `ci`: tests that switch jobs run the programs built just before, and nothing
//! is compiled twice.

use crate::command;
use crate::conformance;
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::time::Duration;

/// Of the root `Cargo.toml`; `cargo xtask check` uses it too.
pub(crate) const PROFILE: &str = "ci";
const BUILD_LIMIT: Duration = Duration::from_secs(1800);
const LIMIT: Duration = Duration::from_secs(3600);

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    setup: setup::Args,
    /// Passed to `cargo test`, for example packages and tests [default: --workspace].
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    setup::run(&args.setup)?;
    setup::for_tests(&args.setup)?;
    let workspace = Workspace::new(&args.setup)?;
    conformance::ensure_sample(&args.setup.prefix, workspace.root())?;
    command::show(&mut workspace.build(PROFILE), BUILD_LIMIT).context("the build failed")?;
    command::show(&mut workspace.make_programs(), BUILD_LIMIT)
        .context("the example programs do not compile")?;
    let mut test = workspace.cargo(&["test", "--profile", PROFILE, "--no-fail-fast"]);
    match args.rest.is_empty() {
        true => test.arg("--workspace"),
        false => test.args(&args.rest),
    };
    command::show(&mut test, LIMIT).context("tests failed")
}
