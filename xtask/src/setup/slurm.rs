//! The Slurm of the tests of allocations.

use std::{fs, os::unix::fs::symlink, path::Path};

use anyhow::Result;

use super::{Prefix, unpacked};

/// With the libraries that only they need.
const PACKAGES: [&str; 8] = [
    "slurmctld",
    "slurmd",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "munge",
    "libmunge2",
    "libhwloc15",
    "liblua5.1-0",
];
/// What Debian's alternatives add to the names of programs.
const SUFFIX: &str = "-wlm";

pub(super) fn ensure(prefix: &Prefix) -> Result<String> {
    let state = unpacked::ensure(&prefix.slurm(), "usr/sbin/munged", &PACKAGES)?;
    name_programs(&prefix.slurm().join("usr/sbin"))?;
    Ok(state)
}

/// Gives the programs the names by which they start each other, which only an installation does.
fn name_programs(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(usual) = name.strip_suffix(SUFFIX)
            && !directory.join(usual).exists()
        {
            symlink(&name, directory.join(usual))?;
        }
    }
    Ok(())
}
