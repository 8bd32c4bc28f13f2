//! `cargo xtask package`: a Debian package and a tarball of a release, with a bill of materials.
//!
//! ```text
//!   programs ─┐
//!   manual ───┼─▶ tree (bin, lib, share) ─┬─▶ coswitch_VERSION_ARCH.deb
//!   units ────┘                           └─▶ coswitch-VERSION-MACHINE-linux.tar.zst
//! ```
//!
//! Two builds of one commit give the same bytes: times are the commit's, owners root, entries sorted, and no
//! path of the machine is in a program.

mod build;
mod deb;
mod licenses;
mod sbom;
mod tarball;
mod tree;
mod trial;

use crate::command;
use crate::setup::{self, apt};
use crate::suites;
use crate::test;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(300);
/// The texts that go into packages: maintainer scripts, installers, configuration.
const TEXTS: &str = "xtask/package";

/// Options of `cargo xtask package`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    setup: setup::Args,
    /// Install the packages in a copy of this machine's file system and remove them again.
    #[arg(long)]
    test: bool,
    /// Run the suites of the whole with the programs of the release, beside which they are put.
    #[arg(long)]
    suites: bool,
    /// Make no release: do with the programs that a profile has built, such as `ci`, what CI does.
    #[arg(long, value_name = "PROFILE", conflicts_with_all = ["test", "suites"])]
    only_test: Option<String>,
}

/// What is packed: the version, and the commit that the times come from.
struct Release {
    version: String,
    commit: String,
    /// Seconds since 1970.
    time: u64,
    /// The same as ISO 8601 writes it.
    date: String,
    /// As the kernel says it.
    machine: String,
    /// As Debian says it.
    architecture: &'static str,
}

/// Builds a release and packs it.
pub(crate) fn run(args: &Args) -> Result<()> {
    apt::ensure_tools(apt::PACKAGING)?;
    let workspace = Workspace::new(&args.setup)?;
    if let Some(profile) = &args.only_test {
        return test(&workspace, profile);
    }
    let release = Release::of(workspace.root())?;
    let programs = build::release(&workspace)?;
    let made = pack(&workspace, &release, &programs, &workspace.target().join("package"))?;
    if args.test {
        trial::run(&workspace, &made)?;
    }
    if args.suites {
        let workspace = test::prepare(&args.setup)?;
        suites::run_beside(&workspace, &test::build(&workspace)?, &programs)?;
    }
    for package in &made {
        eprintln!("{}  {}", setup::pins::sha256(package)?, package.display());
    }
    Ok(())
}

/// Packs the programs of a profile that is built already, twice, and tries what comes of it.
pub(crate) fn test(workspace: &Workspace, profile: &str) -> Result<()> {
    apt::ensure_tools(apt::PACKAGING)?;
    let release = Release::of(workspace.root())?;
    let programs = workspace.target().join(profile);
    let places = ["package-test", "package-test-again"].map(|name| workspace.target().join(name));
    let [first, again] = &places;
    let made = pack(workspace, &release, &programs, first)?;
    for (one, other) in made.iter().zip(pack(workspace, &release, &programs, again)?) {
        ensure!(fs::read(one)? == fs::read(&other)?, "{} and {} differ", one.display(), other.display());
    }
    trial::run(workspace, &made)?;
    places.iter().try_for_each(fs::remove_dir_all).context("cannot remove the packages of the test")
}

/// Makes the packages in a new directory, and their sums beside them.
fn pack(workspace: &Workspace, release: &Release, programs: &Path, home: &Path) -> Result<[PathBuf; 2]> {
    for left in ["tree", "deb", "manual"] {
        remove(&home.join(left))?;
    }
    fs::create_dir_all(home).with_context(|| format!("cannot make {}", home.display()))?;
    let manual = home.join("manual");
    command::run(workspace.here(programs.join("coswitch-manual")).arg(&manual), LIMIT)
        .context("the manual could not be written")?;
    let tree = tree::lay_out(workspace, release, programs, &manual, home)?;
    let made = [
        deb::make(workspace.root(), release, &tree, home)?,
        tarball::make(workspace.root(), release, &tree, home)?,
    ];
    let sums = made.iter().map(|package| {
        let name = package.file_name().unwrap_or_default().to_string_lossy();
        Ok(format!("{}  {name}\n", setup::pins::sha256(package)?))
    });
    fs::write(home.join("SHA256SUMS"), sums.collect::<Result<String>>()?)?;
    Ok(made)
}

impl Release {
    fn of(root: &Path) -> Result<Self> {
        let git = |arguments: &[&str]| {
            let mut git = Command::new("git");
            git.current_dir(root).env("TZ", "UTC").args(["-c", "safe.directory=*"]).args(arguments);
            command::run(&mut git, LIMIT).map(|said| said.trim().to_owned())
        };
        let changed = git(&["status", "--porcelain"])?;
        if !changed.is_empty() {
            eprintln!(
                "WARNING: the tree differs from its commit, so the packages cannot be made again:\n{changed}"
            );
        }
        let time = git(&["log", "-1", "--format=%ct"])?.parse().context("git says no time")?;
        let machine = nix::sys::utsname::uname()?.machine().to_string_lossy().into_owned();
        let architecture = match machine.as_str() {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => anyhow::bail!("no packages are made for {other}"),
        };
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let date = git(&["log", "-1", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%cd"])?;
        Ok(Self { version, commit: git(&["rev-parse", "HEAD"])?, time, date, machine, architecture })
    }

    /// A program that takes its times from the commit.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SOURCE_DATE_EPOCH", self.time.to_string()).env("LC_ALL", "C").env("TZ", "UTC");
        command
    }
}

fn remove(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", directory.display()))
        }
        _ => Ok(()),
    }
}

/// The paths of all files and links below a directory, relative to it and sorted.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(&next).with_context(|| format!("cannot list {}", next.display()))? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => left.push(entry.path()),
                false => found.push(entry.path().strip_prefix(directory)?.to_owned()),
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn release() -> Release {
        let [version, commit, date] = ["1.2.3", "0123", "2026-11-27T06:32:25Z"].map(str::to_owned);
        Release {
            version,
            commit,
            time: 1_795_761_145,
            date,
            machine: "x86_64".into(),
            architecture: "amd64",
        }
    }

    #[test]
    fn the_times_of_a_release_are_those_of_its_commit() {
        let release = Release::of(Path::new("..")).unwrap();
        let mut date = release.command("date");
        let said =
            command::run(date.arg("-d").arg(format!("@{}", release.time)).arg("+%Y-%m-%dT%H:%M:%SZ"), LIMIT);
        assert_eq!(said.unwrap().trim(), release.date);
        assert_eq!(release.commit.len(), 40);
    }
}
