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
/// A machine without a way to the internet may let connections wait.
const FETCH_LIMIT: Duration = Duration::from_secs(60);
/// Set in the environment of a CI that reaches the internet: there advisories that cannot be fetched are a
/// failure.
const ADVISORIES_REQUIRED: &str = "COSWITCH_REQUIRE_ADVISORIES";

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
    check_dependencies(&workspace, args)
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

/// Bans, licences and sources; then the security advisories.
fn check_dependencies(workspace: &Workspace, args: &setup::Args) -> Result<()> {
    let program = setup::cargo_deny(args)?;
    let deny = |arguments: &[&str]| {
        let mut deny = workspace.here(&program);
        deny.args(["--workspace", "--all-features"]).args(arguments);
        deny
    };
    let mut rules = deny(&["check", "--hide-inclusion-graph", "bans", "licenses", "sources"]);
    command::show(&mut rules, LIMIT).context("deny.toml forbids a dependency")?;
    match command::run(&mut deny(&["fetch", "db"]), FETCH_LIMIT) {
        Ok(_) => command::show(&mut deny(&["check", "--hide-inclusion-graph", "advisories"]), LIMIT)
            .context("a dependency has a security advisory"),
        Err(error) => not_checked(&error, std::env::var_os(ADVISORIES_REQUIRED).is_some()),
    }
}

/// Not every machine can reach the git repository that the advisories are in: that is no failure of this
/// tree, and no success either.
fn not_checked(error: &anyhow::Error, required: bool) -> Result<()> {
    let why = format!("{error:#}");
    let why = why.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    let line = "!".repeat(80);
    eprintln!("\n{line}\nSECURITY ADVISORIES ARE NOT CHECKED: their database cannot be fetched here");
    eprintln!("{}\nwhere it can: `cargo deny check advisories`, or", why.trim());
    eprintln!("`{ADVISORIES_REQUIRED}=1 cargo xtask check`, which fails without it\n{line}");
    if required {
        bail!("the security advisories were to be checked ({ADVISORIES_REQUIRED}) and could not be");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advisories_that_cannot_be_fetched_fail_where_they_are_required() {
        let error = anyhow::anyhow!("cargo-deny ended with 1:\nfailed to fetch");
        assert!(not_checked(&error, false).is_ok());
        let refused = not_checked(&error, true).unwrap_err().to_string();
        assert!(
            refused.contains("security advisories") && refused.contains(ADVISORIES_REQUIRED),
            "{refused}"
        );
    }
}
