//! `cargo xtask conformance`: fetches and builds MPICH's test suite, and starts the program that runs it.
//!
//! The suite comes from Debian's source package and stays in the prefix. Programs of it that do not compile
//! are left out; the page lists them.

use crate::command;
use crate::setup::{
    self, apt,
    private_apt::{PrivateApt, Suite},
};
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(1800);
const RUN_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// The version that the page speaks of is in the first; the other stands in where that is archived.
const SUITES: [Suite; 2] = [Suite::Bookworm, Suite::Trixie];
/// Directories of `coswitch_conformance::list::LEFT_OUT`.
const NOT_RUN: [&str; 6] = ["spawn", "cxx", "ckpoint", "ft", "perf", "manual"];
/// The tests of `cargo xtask test`: a line of MPICH's lists each, with its directory.
const SAMPLE: &str = "tests/tests/conformance.txt";

/// Options of `cargo xtask conformance`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    setup: setup::Args,
    /// Passed on: `--help` after `--` lists the options (`--only DIR`, `--sample N` and others).
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    setup::run(&args.setup)?;
    let workspace = Workspace::new(&args.setup)?;
    let suite = configured(&args.setup.prefix)?;
    build_all(&suite);
    command::show(&mut workspace.build(crate::test::PROFILE), LIMIT).context("the build failed")?;
    let mut program = workspace.program_of(crate::test::PROFILE, "coswitch-conformance");
    command::show(program.args(&args.rest), RUN_LIMIT)
        .context("a test that passes over tcp does not pass under coswitch, or the suite could not be run")
}

/// Builds the tests that `cargo xtask test` runs.
pub(crate) fn ensure_sample(prefix: &Path, root: &Path) -> Result<()> {
    let text = fs::read_to_string(root.join(SAMPLE)).with_context(|| format!("cannot read {SAMPLE}"))?;
    let tests = text.lines().filter(|line| !line.starts_with('#'));
    let names: Vec<&str> = tests.filter_map(|line| line.split_whitespace().next()).collect();
    if names.iter().all(|name| suite_of(prefix).join(name).is_file()) {
        return Ok(());
    }
    let suite = configured(prefix)?;
    build_support(&suite);
    for name in names {
        let (directory, program) = name.rsplit_once('/').with_context(|| format!("{SAMPLE}: {name}"))?;
        make(&suite, directory, &[program])
            .with_context(|| format!("cannot build {name} of MPICH's tests"))?;
    }
    Ok(())
}

/// As in `coswitch_conformance::suite`.
fn suite_of(prefix: &Path) -> PathBuf {
    prefix.join("conformance/test/mpi")
}

/// The suite, fetched and configured where that has not been done before.
fn configured(prefix: &Path) -> Result<PathBuf> {
    let (home, suite) = (prefix.join("conformance"), suite_of(prefix));
    let stamp = home.join("configured");
    if stamp.is_file() {
        return Ok(suite);
    }
    apt::ensure_tools(apt::SUITE)?;
    if home.exists() {
        fs::remove_dir_all(&home).with_context(|| format!("cannot replace {}", home.display()))?;
    }
    eprintln!("fetching and configuring MPICH's test suite into {}", home.display());
    let mut refusals = Vec::new();
    for debian in SUITES {
        match fetch(&home, debian) {
            Ok(()) => break,
            Err(error) => refusals.push(format!("{}: {error:#}", debian.name())),
        }
    }
    ensure!(suite.is_dir(), "no source package of MPICH could be fetched\n{}", refusals.join("\n"));
    allow_f08(&suite.join("configure"))?;
    let mut configure = Command::new("./configure");
    configure.arg(format!("--with-mpi={}", prefix.join("mpi").display())).current_dir(&suite);
    configure.args(["--enable-fortran=all", "--enable-threads=multiple", "--enable-silent-rules"]);
    command::run(configure.args(["--disable-cxx", "--disable-spawn"]), LIMIT)?;
    fs::write(&stamp, "")?;
    Ok(suite)
}

fn fetch(home: &Path, debian: Suite) -> Result<()> {
    let apt = PrivateApt::new(home.join("apt"), debian.line("deb-src"))?;
    let archive = apt.source("mpich")?;
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(archive).arg("-C").arg(home);
    command::run(tar.args(["--strip-components=1", "--wildcards", "*/test/mpi"]), LIMIT).map(drop)
}

/// The suite's `configure` builds the tests of `mpi_f08` only where MPICH's own `configure` calls it, since
/// it does not try whether the wrapper knows the module. The wrapper of the set-up does.
fn allow_f08(configure: &Path) -> Result<()> {
    const ONLY_BY_MPICH: &str = r#""$enable_f08" = "yes" -a "$FROM_MPICH" = "yes""#;
    let text =
        fs::read_to_string(configure).with_context(|| format!("cannot read {}", configure.display()))?;
    fs::write(configure, text.replace(ONLY_BY_MPICH, r#""$enable_f08" = "yes""#))
        .with_context(|| format!("cannot write {}", configure.display()))
}

/// Builds what compiles; the runner finds out what is missing.
fn build_all(suite: &Path) {
    build_support(suite);
    let listed = fs::read_dir(suite).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let is_run = |path: &PathBuf| !NOT_RUN.iter().any(|name| path.ends_with(name));
    let is_built = |path: &PathBuf| path.join("Makefile").is_file() && path.join("testlist").is_file();
    let mut directories: Vec<PathBuf> = listed.filter(|path| is_run(path) && is_built(path)).collect();
    directories.sort();
    for directory in directories {
        let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if make(suite, &name, &["--keep-going"]).is_err() {
            eprintln!("{name}: not all tests compile");
        }
    }
}

fn build_support(suite: &Path) {
    for directory in ["util", "dtpools"] {
        // What needs them fails, and says so.
        make(suite, directory, &["--keep-going"]).ok();
    }
}

fn make(suite: &Path, directory: &str, arguments: &[&str]) -> Result<()> {
    let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut make = Command::new("make");
    make.arg("-C")
        .arg(suite.join(directory))
        .arg(format!("-j{jobs}"))
        .args(arguments)
        .env_remove("MAKEFLAGS");
    command::run(&mut make, LIMIT).map(drop)
}
