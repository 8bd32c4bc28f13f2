//! The checks of the programs are checked: a network that damages a single message must not go unnoticed.

use std::{path::Path, process::Command, process::Output};

use coswitch_examples::{Program, mpi_prefix};
use tempfile::TempDir;

use crate::support::{programs, run_with};

/// A library that damages one message, built from `fault.c`.
struct FaultyNetwork {
    _folder: TempDir,
    library: String,
}

impl FaultyNetwork {
    fn build() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let library = folder.path().join("fault.so").display().to_string();
        let status = Command::new(mpi_prefix().join("bin/mpicc"))
            .args(["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", &library])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mpiexec/fault.c"))
            .status()
            .expect("the MPI wrapper starts");
        assert!(status.success());
        Self { _folder: folder, library }
    }

    fn run(&self, fault: &str, at: u32, program: Program, arguments: &[&str]) -> Output {
        let at = at.to_string();
        let variables = [("LD_PRELOAD", self.library.as_str()), ("FAULT", fault), ("FAULT_AT", &at)];
        run_with(&variables, &programs().path(program), 2, arguments)
    }
}

#[test]
fn ring_check_notices_one_damaged_message_and_says_what_is_wrong() {
    let network = FaultyNetwork::build();
    let arguments = ["--rounds", "100", "--max-bytes", "64KiB", "--timeout", "5"];
    let cases = [
        ("flip", 1, "wrong checksum"),
        ("flip", 300, "wrong checksum"),
        ("shorten", 300, "bytes instead of"),
        ("duplicate", 300, "duplicated: a message"),
        ("drop", 300, "stalled in round"),
    ];
    for (fault, at, name) in cases {
        let output = network.run(fault, at, Program::RingCheck, &arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{fault} at {at} went unnoticed");
        assert!(said.contains(name), "{fault} at {at}: {said}");
    }
}

#[test]
fn heat_notices_one_flipped_bit_in_a_face() {
    let network = FaultyNetwork::build();
    let output = network.run("flip", 40, Program::Heat, &["--memory", "2MiB", "--steps", "100"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("VERIFICATION FAILED"));
}
