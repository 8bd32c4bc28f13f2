//! Tests of the programs' own checks: they must detect a network that damages a single message.

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
fn ring_check_detects_and_names_the_damage_to_one_message() {
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
        assert!(!output.status.success(), "{fault} at {at} was not detected");
        assert!(said.contains(name), "{fault} at {at}: {said}");
    }
}

#[test]
fn heat_and_bt_detect_one_flipped_bit_in_a_face() {
    let network = FaultyNetwork::build();
    let heat = network.run("flip", 40, Program::Heat, &["--memory", "2MiB", "--steps", "100"]);
    let bt = network.run("flip", 40, Program::Bt, &["--class", "S"]);
    for output in [heat, bt] {
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stdout).contains("VERIFICATION FAILED"));
    }
}
