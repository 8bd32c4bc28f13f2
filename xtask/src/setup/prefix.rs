//! The prefix: directory of all that set-up installs beside the distribution. The daemon looks there as well.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};

/// The prefix used unless `COSWITCH_PREFIX` names another.
pub(super) const DEFAULT: &str = "/opt/coswitch";

/// An absolute directory; its parts are named only here.
pub(super) struct Prefix(PathBuf);

impl Prefix {
    /// Creates the directory where it is missing.
    pub(super) fn new(path: &Path) -> Result<Prefix> {
        ensure!(path.is_absolute(), "the prefix must be an absolute path, not {}", path.display());
        std::fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Prefix(path.to_owned()))
    }

    /// The private CRIU and its libraries.
    pub(super) fn criu(&self) -> PathBuf {
        self.0.join("criu")
    }

    /// The patched binary of the private CRIU.
    pub(super) fn criu_binary(&self) -> PathBuf {
        self.criu().join("bin/criu")
    }

    /// The stamp of the CRIU in use, also of the distribution's.
    pub(super) fn criu_stamp(&self) -> PathBuf {
        self.0.join("criu.stamp")
    }

    /// The virtual environment that holds MPICH and mpi4py.
    pub(super) fn mpi(&self) -> PathBuf {
        self.0.join("mpi")
    }

    /// The sshd of the tests of hosts.
    pub(super) fn sshd(&self) -> PathBuf {
        self.0.join("sshd")
    }

    /// The Slurm of the tests of allocations.
    pub(super) fn slurm(&self) -> PathBuf {
        self.0.join("slurm")
    }

    /// Tools of the developers; a cargo installation root.
    pub(super) fn tools(&self) -> PathBuf {
        self.0.join("tools")
    }
}
