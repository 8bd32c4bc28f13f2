//! MPICH and mpi4py from the Python package index, in a virtual environment of their own.
//!
//! The distribution's MPICH is built without libfabric and cannot load our driver; these wheels carry MPICH
//! `ch4:ofi` with a libfabric that loads providers. pip installs them, because a wheel unzipped by hand lacks
//! exec bits.

use super::{Prefix, apt, pins};
use crate::command;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(600);

/// Makes the environment where it is missing or incomplete; returns its state.
pub(super) fn ensure(prefix: &Prefix) -> Result<String> {
    let home = prefix.mpi();
    let names: Vec<String> = pins::wheels().map(|(name, version, _)| format!("{name} {version}")).collect();
    let state = format!("{}: {}", names.join(", "), home.display());
    if is_complete(&home) {
        return Ok(state);
    }
    command::run(Command::new(apt::python()).args(["-m", "venv", "--clear"]).arg(&home), LIMIT)
        .context("cannot make a virtual environment")?;
    let mut pip = Command::new(home.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]);
    // pip compares every wheel with its hash before it unpacks one.
    let requirements = home.join("requirements.txt");
    fs::write(&requirements, pins::REQUIREMENTS)?;
    pip.arg("--require-hashes").arg("--requirement").arg(&requirements);
    command::run(&mut pip, LIMIT).context("cannot install the MPI library")?;
    ensure!(is_complete(&home), "pip installed the MPI library incompletely into {}", home.display());
    check_device(&home)?;
    Ok(format!("{state} (installed)"))
}

/// Looks for the installed distributions and for the programs we call, without starting Python.
fn is_complete(home: &Path) -> bool {
    let programs = ["bin/mpicc", "bin/mpiexec", "bin/mpichversion", "bin/python"];
    programs.iter().all(|program| home.join(program).exists())
        && site_packages(home).is_some_and(|site| {
            pins::wheels()
                .all(|(name, version, _)| site.join(format!("{name}-{version}.dist-info/RECORD")).exists())
        })
}

fn site_packages(home: &Path) -> Option<std::path::PathBuf> {
    let versions = fs::read_dir(home.join("lib")).ok()?;
    versions.filter_map(|entry| Some(entry.ok()?.path().join("site-packages"))).find(|site| site.is_dir())
}

fn check_device(home: &Path) -> Result<()> {
    let text = command::run(&mut Command::new(home.join("bin/mpichversion")), Duration::from_secs(30))?;
    let device = text.lines().find(|line| line.contains("Device:")).unwrap_or("no device named");
    ensure!(device.contains("ch4:ofi"), "the installed MPICH is not built for libfabric: {device}");
    Ok(())
}
