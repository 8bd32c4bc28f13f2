//! The measured programs: those of this build, and the examples.

use std::{path::PathBuf, sync::OnceLock};

use anyhow::{Context, Result, ensure};
use coswitch_examples::{Program, Programs, mpi_prefix};

/// A program or library of this build, beside this one.
pub(crate) fn built(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("failed to find this program")?;
    let path = own.with_file_name(name);
    ensure!(path.is_file(), "{} is missing; `cargo xtask bench` builds it", path.display());
    Ok(path)
}

/// An example program, built if it is out of date.
pub(crate) fn example(program: Program) -> Result<String> {
    static PROGRAMS: OnceLock<Programs> = OnceLock::new();
    if PROGRAMS.get().is_none() {
        let programs = coswitch_examples::build(&mpi_prefix().join("bin/mpicc"))?;
        let _ = PROGRAMS.set(programs);
    }
    let programs = PROGRAMS.get().expect("just set");
    Ok(programs.path(program).display().to_string())
}
