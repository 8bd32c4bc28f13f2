//! Programs that the suites start: this build's binaries, the example programs, the MPI library's Python
//! interpreter.

use std::{path::PathBuf, sync::OnceLock};

use coswitch::install::Installation;
use coswitch_examples::{Programs, mpi_prefix};

/// The installation of this build, beside the test executables.
///
/// # Panics
/// If a part is missing; the message says how to build it.
#[must_use]
pub fn installation() -> Installation {
    Installation::find().unwrap_or_else(|missing| panic!("{missing}; `cargo xtask test` builds all of them"))
}

/// The program `coswitch` of this build.
///
/// # Panics
/// If it is missing; the message says how to build it.
#[must_use]
pub fn coswitch() -> PathBuf {
    let program = installation().daemon.with_file_name("coswitch");
    assert!(program.is_file(), "{} is missing; `cargo xtask test` builds it", program.display());
    program
}

/// The example programs, built once.
///
/// # Panics
/// If they cannot be built.
#[must_use]
pub fn programs() -> &'static Programs {
    static PROGRAMS: OnceLock<Programs> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        coswitch_examples::build(&mpi_prefix().join("bin/mpicc")).unwrap_or_else(|error| panic!("{error}"))
    })
}

/// The directory of the example programs.
///
/// # Panics
/// If they cannot be built.
#[must_use]
pub fn program_directory() -> String {
    let null = programs().path(coswitch_examples::Program::Null);
    null.parent().expect("a program lies in a directory").display().to_string()
}

/// The Python interpreter with mpi4py.
///
/// # Panics
/// If it is missing; the message says how to install it.
#[must_use]
pub fn python() -> PathBuf {
    let python = mpi_prefix().join("bin/python");
    assert!(python.is_file(), "{} is missing; `cargo xtask setup` installs it", python.display());
    python
}
