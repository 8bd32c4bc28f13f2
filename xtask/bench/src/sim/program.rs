//! Child processes with a time limit.

use std::{
    path::Path,
    process::{Command, Output},
};

use anyhow::{Result, ensure};

/// The program, ended by `timeout` where it takes longer.
pub(super) fn bounded(seconds: u32, program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.arg("--kill-after=5").arg(seconds.to_string()).arg(program);
    command
}

/// The output of a program that ended in time and without an error.
pub(super) fn done(output: Output, seconds: u32) -> Result<Output> {
    // The codes of `timeout` for a program that it ended, and ended by force.
    let late = matches!(output.status.code(), Some(124 | 137));
    ensure!(!late, "a program was not done after {seconds} s");
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().take(3).collect::<Vec<_>>().join(" / ");
    ensure!(output.status.success(), "a program ended with {}: {last}", output.status);
    Ok(output)
}
