//! apt beside the system's: lists, cache and status in a directory of ours, so that packages of other
//! suites are downloaded and authenticated while those of the system are neither read nor changed.

use super::pins;
use crate::command;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(300);
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const MIRROR: &str = "http://deb.debian.org/debian";

/// A suite of Debian.
#[derive(Clone, Copy)]
pub(crate) enum Suite {
    Sid,
    Forky,
    Trixie,
    Bookworm,
}

impl Suite {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Suite::Sid => "sid",
            Suite::Forky => "forky",
            Suite::Trixie => "trixie",
            Suite::Bookworm => "bookworm",
        }
    }

    /// A line of a list of sources; `kind` is `deb` or `deb-src`.
    pub(crate) fn line(self, kind: &str) -> String {
        format!("{kind} [signed-by={KEYRING}] {MIRROR} {} main\n", self.name())
    }
}

/// An apt with a directory of its own, which is removed when it is dropped.
pub(crate) struct PrivateApt(PathBuf);

impl PrivateApt {
    /// Reads the lists of `sources`.
    pub(crate) fn new(home: PathBuf, sources: String) -> Result<Self> {
        for dir in ["lists/partial", "cache/archives/partial", "parts", "fetched"] {
            fs::create_dir_all(home.join(dir)).with_context(|| format!("cannot make {}", home.display()))?;
        }
        let apt = Self(home);
        fs::write(apt.0.join("status"), "")?;
        fs::write(apt.0.join("sources.list"), sources)?;
        command::run(apt.get().arg("update"), LIMIT)?;
        Ok(apt)
    }

    /// Downloads a package and everything it depends on; returns the package files.
    pub(crate) fn with_dependencies(&self, package: &str) -> Result<Vec<PathBuf>> {
        command::run(self.get().args(["install", "-y", "--download-only", package]), LIMIT)?;
        self.files("cache/archives", ".deb")
    }

    /// Downloads these packages alone; returns the package files.
    pub(crate) fn packages(&self, packages: &[&str]) -> Result<Vec<PathBuf>> {
        let mut get = self.get();
        command::run(get.current_dir(self.0.join("fetched")).arg("download").args(packages), LIMIT)?;
        self.files("fetched", ".deb")
    }

    /// Downloads the sources of a package and returns their archive: of upstream, not of the packaging.
    pub(crate) fn source(&self, package: &str) -> Result<PathBuf> {
        let mut get = self.get();
        get.current_dir(self.0.join("fetched")).args(["source", "--download-only", package]);
        command::run(&mut get, LIMIT)?;
        let archives = self.files("fetched", "")?.into_iter();
        let of_upstream = |path: &PathBuf| path.display().to_string().contains(".orig.tar.");
        let mut found =
            archives.filter(|path| of_upstream(path) && path.extension().is_none_or(|e| e != "asc"));
        let archive =
            found.next().with_context(|| format!("the sources of {package} have no upstream archive"))?;
        pins::check(std::slice::from_ref(&archive))?;
        Ok(archive)
    }

    /// Extracts package files below `root`, where they are those of the table or not in it.
    pub(crate) fn unpack(&self, packages: &[PathBuf], root: &Path) -> Result<()> {
        pins::check(packages)?;
        packages.iter().try_for_each(|package| {
            command::run(Command::new("dpkg-deb").arg("-x").args([package, root]), LIMIT).map(drop)
        })
    }

    fn files(&self, below: &str, ending: &str) -> Result<Vec<PathBuf>> {
        let entries = fs::read_dir(self.0.join(below))?.filter_map(|entry| Some(entry.ok()?.path()));
        let mut files: Vec<PathBuf> =
            entries.filter(|path| path.is_file() && path.display().to_string().ends_with(ending)).collect();
        files.sort();
        ensure!(!files.is_empty(), "apt downloaded nothing");
        Ok(files)
    }

    fn get(&self) -> Command {
        let home = &self.0;
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
}

impl Drop for PrivateApt {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}
