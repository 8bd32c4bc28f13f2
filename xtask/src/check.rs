//! `cargo xtask check`: format, lints and dependencies, as CI has them.

use crate::command;
use crate::setup;
use crate::test::PROFILE;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(1200);

/// Runs the three; the first that fails ends it.
pub(crate) fn run(args: &setup::Args) -> Result<()> {
    let workspace = Workspace::new(args)?;
    let formatted = command::show(&mut workspace.cargo(&["fmt", "--all", "--check"]), LIMIT);
    formatted.context("the format differs: `cargo fmt --all` mends it")?;
    // In its profile, so that `cargo xtask test` finds build scripts and macros compiled.
    let lints = ["clippy", "--profile", PROFILE, "--workspace", "--all-targets", "--", "-D", "warnings"];
    command::show(&mut workspace.cargo(&lints), LIMIT).context("clippy has complaints")?;
    check_dependencies(&workspace, args).context("a dependency is not allowed by deny.toml")
}

/// Bans, licences and sources. Not advisories: their database is a git repository that is not to be had everywhere.
fn check_dependencies(workspace: &Workspace, args: &setup::Args) -> Result<()> {
    let program = setup::cargo_deny(args)?;
    let mut deny = std::process::Command::new(program);
    deny.current_dir(workspace.root()).args([
        "--workspace",
        "--all-features",
        "check",
        "--hide-inclusion-graph",
    ]);
    command::show(deny.args(["bans", "licenses", "sources"]), LIMIT)
}
