//! The sshd of the tests of hosts: the distribution's, unpacked and not installed. Installing it would start
//! a server on this machine, and change the version of its ssh.

use std::{fs, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result};

use super::{Prefix, apt};
use crate::command;

const LIMIT: Duration = Duration::from_secs(300);
const PROGRAM: &str = "usr/sbin/sshd";
/// With the library that only it needs.
const PACKAGES: [&str; 2] = ["openssh-server", "libwrap0"];

pub(super) fn ensure(prefix: &Prefix) -> Result<String> {
    apt::ensure_tools(apt::SSH)?;
    let home = prefix.sshd();
    let state = home.join(PROGRAM).display().to_string();
    if home.join(PROGRAM).exists() {
        return Ok(state);
    }
    let new = home.with_extension("new");
    fs::remove_dir_all(&new).ok();
    unpack(&new).context("cannot unpack the distribution's sshd")?;
    fs::rename(&new, &home)?;
    Ok(format!("{state} (unpacked)"))
}

fn unpack(root: &Path) -> Result<()> {
    let packages = root.join("packages");
    fs::create_dir_all(&packages)?;
    let download = || command::run(apt::download(&PACKAGES).current_dir(&packages), LIMIT);
    // The lists may be missing or old.
    download().or_else(|_| apt::update().and_then(|_| download()))?;
    for package in fs::read_dir(&packages)? {
        command::run(Command::new("dpkg-deb").arg("-x").arg(package?.path()).arg(root), LIMIT)?;
    }
    Ok(fs::remove_dir_all(packages)?)
}
