//! Packages of the distribution that the tests need, unpacked and not installed: installing them would start
//! servers on this machine, or change the version of its programs.

use std::{fs, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result};

use super::apt;
use crate::command;

const LIMIT: Duration = Duration::from_secs(300);

/// Unpacks `packages` to `home`, unless `program` of them is there.
pub(super) fn ensure(home: &Path, program: &str, packages: &[&str]) -> Result<String> {
    let state = home.join(program).display().to_string();
    if home.join(program).exists() {
        return Ok(state);
    }
    let new = home.with_extension("new");
    fs::remove_dir_all(&new).ok();
    unpack(&new, packages).with_context(|| format!("cannot unpack the distribution's {program}"))?;
    fs::rename(&new, home)?;
    Ok(format!("{state} (unpacked)"))
}

fn unpack(root: &Path, packages: &[&str]) -> Result<()> {
    let downloads = root.join("packages");
    fs::create_dir_all(&downloads)?;
    let download = || command::run(apt::download(packages).current_dir(&downloads), LIMIT);
    // The lists may be missing or old.
    download().or_else(|_| apt::update().and_then(|_| download()))?;
    for package in fs::read_dir(&downloads)? {
        command::run(Command::new("dpkg-deb").arg("-x").arg(package?.path()).arg(root), LIMIT)?;
    }
    Ok(fs::remove_dir_all(downloads)?)
}
