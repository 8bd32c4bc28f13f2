//! `cargo xtask test`: set-up, a build, and every test of the workspace.
//!
//! Arguments are passed on to `cargo test`. Without any, the suites run in [lanes](crate::suites).
//! All in one optimised profile, `ci`: tests that switch jobs run the programs built just before, and nothing
//! is compiled twice.

use crate::command;
use crate::conformance;
use crate::package;
use crate::setup;
use crate::suites;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::time::Duration;

/// Of the root `Cargo.toml`; `cargo xtask check` uses it too.
pub(crate) const PROFILE: &str = "ci";
pub(crate) const BUILD_LIMIT: Duration = Duration::from_secs(1800);
const LIMIT: Duration = Duration::from_secs(3600);

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    setup: setup::Args,
    /// Passed to `cargo test`, for example packages and tests [default: all].
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// What tests need beside a build.
pub(crate) fn prepare(setup: &setup::Args) -> Result<Workspace> {
    setup::run(setup)?;
    setup::for_tests(setup)?;
    let workspace = Workspace::new(setup)?;
    conformance::ensure_sample(&setup.prefix, workspace.root())?;
    command::show(&mut workspace.make_programs(), BUILD_LIMIT)
        .context("the example programs do not compile")?;
    Ok(workspace)
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let workspace = prepare(&args.setup)?;
    match args.rest.is_empty() {
        true => all(&workspace),
        false => {
            command::show(&mut workspace.build(PROFILE), BUILD_LIMIT).context("the build failed")?;
            let mut test = workspace.cargo(&["test", "--profile", PROFILE, "--no-fail-fast"]);
            command::show(test.args(&args.rest), LIMIT).context("tests failed")
        }
    }
}

/// The tests of each crate for itself, the packages, and then the suites of the whole. All of them run
/// whatever fails.
fn all(workspace: &Workspace) -> Result<()> {
    let messages = build(workspace)?;
    let mut test = workspace.cargo(&["test", "--profile", PROFILE, "--no-fail-fast", "--workspace"]);
    let tested = command::show(test.args(["--exclude", suites::PACKAGE]), LIMIT).context("tests failed");
    let explored = models(workspace).context("a model of shared memory failed");
    let packed = package::test(workspace, PROFILE).context("the packages are not as they should be");
    let ended = suites::run(workspace, &messages);
    tested.and(explored).and(packed).and(ended)
}

/// Programs and tests at once: tests ask dependencies for more, and these would be compiled twice. Returns
/// what cargo says of it.
pub(crate) fn build(workspace: &Workspace) -> Result<String> {
    let mut build = workspace.build(PROFILE);
    build.args(["--lib", "--bins", "--tests", "--message-format=json-render-diagnostics"]);
    command::stdout(&mut build, BUILD_LIMIT).context("the build failed")
}

/// Every order in which threads may see what lies in shared memory: `daemon/ring/src/models.rs`.
fn models(workspace: &Workspace) -> Result<()> {
    let mut models =
        workspace.cargo(&["test", "--profile", PROFILE, "-p", "coswitch-ring", "--lib", "models"]);
    models.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", workspace.target().join("loom"));
    command::show(&mut models, LIMIT)
}
