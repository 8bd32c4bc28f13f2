//! Tries the packages: they are installed and removed again in a copy of this machine's file system, an
//! overlay in a mount namespace of its own, which ends with it.

use crate::command;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(300);
/// What is tried, step by step.
const SCRIPT: &str = "xtask/package/trial.sh";

pub(super) fn run(workspace: &Workspace, packages: &[PathBuf]) -> Result<()> {
    let mut trial = Command::new("unshare");
    trial
        .args(["--mount", "--propagation", "private", "sh"])
        .arg(workspace.root().join(SCRIPT))
        .args(packages);
    // The rest of the environment is of this machine, and none of its variables may help.
    trial
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LC_ALL", "C");
    let said = command::run(&mut trial, LIMIT).context("a package does not install and remove cleanly")?;
    for line in said.lines().filter(|line| line.starts_with("trial: ")) {
        eprintln!("{line}");
    }
    Ok(())
}
