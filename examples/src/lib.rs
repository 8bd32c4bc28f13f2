//! Examples: small MPI programs that verify their results, and run files that use them.
//!
//! The programs are written in C (`mpi/`, see its README) and built by `make` with the MPI wrapper. This
//! package gives the paths of programs and run files, and builds the programs for the demo, the tests and the
//! benchmarks. It runs nothing.

use std::path::{Path, PathBuf};

mod build;
mod program;

pub use build::{BuildError, Programs, build};
pub use program::{JobFile, Program};

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Directory of the MPI installation that set-up creates: `COSWITCH_PREFIX/mpi`, or `/opt/coswitch/mpi`.
pub fn mpi_prefix() -> PathBuf {
    std::env::var_os("COSWITCH_PREFIX")
        .map_or_else(|| PathBuf::from("/opt/coswitch"), PathBuf::from)
        .join("mpi")
}

/// The mpi4py script, to be run with the interpreter of [`mpi_prefix`].
pub fn python_script() -> PathBuf {
    folder().join("mpi/pi.py")
}
