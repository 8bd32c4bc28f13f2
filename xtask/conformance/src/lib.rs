//! MPICH's own test suite, run over libfabric's tcp provider and under coswitch.
//!
//! `cargo xtask conformance` fetches and builds the suite, and starts the program of this package. [`list`]
//! reads MPICH's lists of tests, [`verdict`] judges what a test said, [`run_file`] puts tests into one
//! job set. `tests/tests/conformance.rs` runs a part of them.

mod coswitch;
pub mod list;
mod mpiexec;
mod page;
mod results;
pub mod run_file;
mod runner;
pub mod verdict;

pub use runner::conformance;

use std::path::{Path, PathBuf};

/// The prefix of `cargo xtask setup`.
#[must_use]
pub fn prefix() -> PathBuf {
    std::env::var_os("COSWITCH_PREFIX").map_or_else(|| "/opt/coswitch".into(), PathBuf::from)
}

/// Where the suite lies once it has been fetched.
#[must_use]
pub fn suite(prefix: &Path) -> PathBuf {
    prefix.join("conformance/test/mpi")
}
