//! `cargo xtask check`: format, texts, lints and dependencies, as CI has them.

mod references;
mod subjects;
mod tree;
mod width;

use crate::command;
use crate::setup;
use crate::test::PROFILE;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use std::fmt;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(1200);

/// A rule that a text breaks, and where.
#[derive(Debug, PartialEq)]
struct Finding {
    /// A file with its line, or a commit.
    place: String,
    problem: String,
}

impl Finding {
    /// `index` counts lines from 0.
    fn in_line(file: &Path, index: usize, problem: impl Into<String>) -> Finding {
        Finding { place: format!("{}:{}", file.display(), index + 1), problem: problem.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.problem)
    }
}

/// Runs all checks, quick ones first, and ends at the first that fails.
pub(crate) fn run(args: &setup::Args) -> Result<()> {
    let workspace = Workspace::new(args)?;
    let formatted = command::show(&mut workspace.cargo(&["fmt", "--all", "--check"]), LIMIT);
    formatted.context("the format differs: run `cargo fmt --all`")?;
    check_texts(workspace.root())?;
    // In its profile, so that `cargo xtask test` finds build scripts and macros compiled.
    let lints = ["clippy", "--profile", PROFILE, "--workspace", "--all-targets", "--", "-D", "warnings"];
    command::show(&mut workspace.cargo(&lints), LIMIT).context("clippy reports problems")?;
    check_dependencies(&workspace, args).context("deny.toml forbids a dependency")
}

/// What neither rustfmt nor clippy looks at: the width of comments and strings, references, commit subjects.
fn check_texts(root: &Path) -> Result<()> {
    let texts = tree::texts(root)?;
    let mut findings = width::check(&texts, width::limit(root)?);
    findings.extend(references::check(root, &texts));
    findings.extend(subjects::check(root)?);
    findings.iter().for_each(|finding| eprintln!("{finding}"));
    if !findings.is_empty() {
        bail!("{} lines or commits break a rule for texts", findings.len());
    }
    Ok(())
}

/// Bans, licences and sources. Not advisories: not every machine can reach the git repository they are in.
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
