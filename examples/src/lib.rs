//! Runnable walk-throughs: small MPI programs that check themselves, and job sets that use them.
//!
//! The programs are C (`mpi/`, see its README) and are built by `make` with the MPI wrapper; this package
//! knows where they and the job sets lie, and builds them for the demo, the tests and the benchmarks. Nothing
//! here runs them.

use std::path::{Path, PathBuf};

mod build;
mod program;

pub use build::{BuildError, Programs, build};
pub use program::{JobFile, Program};

/// The folder of this package in the source tree.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The MPI installation that set-up makes: `COSWITCH_PREFIX/mpi`, or `/opt/coswitch/mpi`.
pub fn mpi_prefix() -> PathBuf {
    std::env::var_os("COSWITCH_PREFIX")
        .map_or_else(|| PathBuf::from("/opt/coswitch"), PathBuf::from)
        .join("mpi")
}

/// The mpi4py script; run it with the interpreter of [`mpi_prefix`].
pub fn python_script() -> PathBuf {
    folder().join("mpi/pi.py")
}
