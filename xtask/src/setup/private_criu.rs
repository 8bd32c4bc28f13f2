//! A private copy of a newer Debian's CRIU, with all of its libraries and its loader, in a directory of ours.
//!
//! apt resolves and authenticates the packages against an empty status file (so that the closure is complete
//! down to libc6), and keeps its lists, cache and status inside our directory: the system's packages are
//! neither read nor changed. The program is then patched to use the loader and libraries beside it. The paths
//! are absolute, so the copy must stay where it was installed.

use super::{Prefix, apt};
use crate::command;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(300);
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const MIRROR: &str = "http://deb.debian.org/debian";

/// A Debian suite with a newer CRIU.
#[derive(Clone, Copy)]
pub(super) enum Suite {
    Sid,
    Forky,
    Trixie,
}

impl Suite {
    /// The newest first; the older ones stand in when the newest is broken on the day.
    pub(super) const IN_ORDER: [Suite; 3] = [Suite::Sid, Suite::Forky, Suite::Trixie];

    pub(super) fn name(self) -> &'static str {
        match self {
            Suite::Sid => "sid",
            Suite::Forky => "forky",
            Suite::Trixie => "trixie",
        }
    }
}

/// Replaces the private copy by that of `suite`.
pub(super) fn install(prefix: &Prefix, suite: Suite) -> Result<()> {
    apt::ensure_tools(apt::PATCHELF)?;
    let home = prefix.criu();
    if home.exists() {
        fs::remove_dir_all(&home).with_context(|| format!("cannot replace {}", home.display()))?;
    }
    let root = home.join("root");
    let packages = download(&home.join("apt"), suite)?;
    for package in &packages {
        command::run(Command::new("dpkg-deb").arg("-x").args([package, &root]), LIMIT)?;
    }
    fs::remove_dir_all(home.join("apt"))?;
    give_own_loader(&root, &prefix.criu_binary())
}

/// Downloads criu and everything it depends on; returns the package files.
fn download(apt_home: &Path, suite: Suite) -> Result<Vec<PathBuf>> {
    for dir in ["lists/partial", "cache/archives/partial", "parts"] {
        fs::create_dir_all(apt_home.join(dir))?;
    }
    fs::write(apt_home.join("status"), "")?;
    fs::write(
        apt_home.join("sources.list"),
        format!("deb [signed-by={KEYRING}] {MIRROR} {} main\n", suite.name()),
    )?;
    command::run(apt_get(apt_home).arg("update"), LIMIT)?;
    command::run(apt_get(apt_home).args(["install", "-y", "--download-only", "criu"]), LIMIT)?;
    let mut packages: Vec<PathBuf> = fs::read_dir(apt_home.join("cache/archives"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .collect();
    packages.sort();
    if packages.is_empty() {
        bail!("apt downloaded nothing from {}", suite.name());
    }
    Ok(packages)
}

fn apt_get(home: &Path) -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    let mut option = |name: &str, value: &Path| {
        command.arg("-o").arg(format!("{name}={}", value.display()));
    };
    option("Dir::Etc::SourceList", &home.join("sources.list"));
    option("Dir::Etc::SourceParts", &home.join("parts"));
    option("Dir::Etc::Preferences", Path::new("/dev/null"));
    option("Dir::Etc::PreferencesParts", &home.join("parts"));
    option("Dir::State", home);
    option("Dir::State::Lists", &home.join("lists"));
    option("Dir::State::status", &home.join("status"));
    option("Dir::Cache", &home.join("cache"));
    command.args(["-o", "APT::Install-Recommends=0"]);
    // apt would otherwise download as user _apt, who may not read a private prefix.
    command.args(["-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none"]);
    command
}

/// Copies the program and makes it use the loader and libraries beside it.
fn give_own_loader(root: &Path, binary: &Path) -> Result<()> {
    let libraries = libc_directory(root)?;
    let original =
        [root.join("usr/sbin/criu"), root.join("usr/bin/criu")].into_iter().find(|path| path.exists());
    let original = original.context("the package holds no program criu")?;
    let wanted = command::run(Command::new("patchelf").arg("--print-interpreter").arg(&original), LIMIT)?;
    let loader_name = Path::new(wanted.trim()).file_name().context("criu names no loader")?;
    let loader = libraries.join(loader_name);
    if !loader.exists() {
        bail!("the packages hold no loader {}", loader.display());
    }
    fs::create_dir_all(binary.parent().context("a program lies in a directory")?)?;
    fs::copy(&original, binary)?;
    let mut patch = Command::new("patchelf");
    patch.arg("--set-interpreter").arg(&loader);
    // DT_RPATH, unlike DT_RUNPATH, also serves the libraries that our libraries need.
    patch.arg("--force-rpath").arg("--set-rpath").arg(&libraries).arg(binary);
    command::run(&mut patch, LIMIT)?;
    Ok(())
}

/// The directory of the machine's triplet, found by the C library in it.
fn libc_directory(root: &Path) -> Result<PathBuf> {
    let triplets = fs::read_dir(root.join("usr/lib"))?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut with_libc = triplets.filter(|dir| dir.join("libc.so.6").exists());
    with_libc.next().with_context(|| format!("the packages hold no C library below {}", root.display()))
}
