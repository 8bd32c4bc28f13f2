//! This source tree: its root, its target directory, and commands that run in it.

use crate::setup;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The tree, and the prefix for its programs.
pub(crate) struct Workspace {
    root: PathBuf,
    target: PathBuf,
    prefix: PathBuf,
}

impl Workspace {
    /// The tree that this program was built from.
    pub(crate) fn new(setup: &setup::Args) -> Result<Workspace> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in no workspace")?;
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
        // A relative one is relative to where cargo was called.
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            Some(_) => std::path::absolute(target)?,
            None => root.join(target),
        };
        Ok(Workspace { root: root.to_owned(), target, prefix: setup.prefix.clone() })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// A program of the release build.
    pub(crate) fn program(&self, name: &str) -> Command {
        self.program_of("release", name)
    }

    /// A program of the build in a profile.
    pub(crate) fn program_of(&self, profile: &str, name: &str) -> Command {
        self.here(self.target.join(profile).join(name))
    }

    /// The cargo that runs us.
    pub(crate) fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = self.here(std::env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from));
        command.env("CARGO_TARGET_DIR", &self.target).args(arguments);
        // Set by the cargo that runs us, for this package alone.
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_")) {
                command.env_remove(name);
            }
        }
        command.env_remove("CARGO_MANIFEST_DIR").env_remove("CARGO_MANIFEST_PATH");
        command
    }

    /// Builds the whole workspace in a profile, because programs look for each other in one directory.
    pub(crate) fn build(&self, profile: &str) -> Command {
        self.cargo(&["build", "--profile", profile, "--workspace"])
    }

    /// Builds the example programs.
    pub(crate) fn make_programs(&self) -> Command {
        let mut make = self.here("make");
        make.args(["--silent", "-C", "examples/mpi"]);
        make.arg(format!("MPICC={}", self.prefix.join("mpi/bin/mpicc").display())).env_remove("MAKEFLAGS");
        make
    }

    /// Any program, in the tree's root.
    pub(crate) fn here(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).env("COSWITCH_PREFIX", &self.prefix);
        command
    }
}
