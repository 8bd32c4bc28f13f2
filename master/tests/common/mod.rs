//! Runs `coswitch simulate` as a user does.

use std::{
    path::Path,
    process::{Command, Output},
};

pub(crate) fn simulate(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coswitch"));
    command.current_dir(directory).arg("simulate").args(arguments).output().unwrap()
}

/// The standard output of a successful simulation.
pub(crate) fn stdout(directory: &Path, arguments: &[&str]) -> String {
    let output = simulate(directory, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The first value of a line of the table.
pub(crate) fn figure(csv: &str, name: &str) -> f64 {
    let line = csv.lines().find(|line| line.starts_with(&format!("{name},"))).unwrap();
    line.split(',').nth(1).unwrap().parse().unwrap()
}
