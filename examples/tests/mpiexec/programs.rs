//! Tests that the programs verify and reject wrong usage.

use std::process::{ExitStatus, Output};

use coswitch_examples::{Program, mpi_prefix, python_script};

use crate::support::{programs, run};

fn assert_verified(output: &Output, what: &str) {
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("VERIFICATION SUCCESSFUL"),
        "{what}: {}\n{said}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

fn code(status: ExitStatus) -> i32 {
    status.code().expect("the program was not killed")
}

#[test]
fn every_program_verifies_on_one_two_and_four_ranks() {
    let programs = programs();
    let cases: [(Program, &[&str]); 6] = [
        (Program::Bt, &["--class", "S"]),
        (Program::Cg, &["--class", "S"]),
        (Program::Ep, &["--class", "S"]),
        (Program::Is, &["--class", "S", "--repeat", "2"]),
        (Program::Heat, &["--memory", "2MiB", "--steps", "50"]),
        (Program::RingCheck, &["--rounds", "40", "--max-bytes", "256KiB"]),
    ];
    for (program, arguments) in cases {
        for ranks in [1, 2, 4] {
            let what = format!("{} on {ranks} ranks", program.name());
            assert_verified(&run(&programs.path(program), ranks, arguments), &what);
        }
    }
}

#[test]
fn all_programs_but_cg_take_three_ranks() {
    let programs = programs();
    let cases: [(Program, &[&str]); 5] = [
        (Program::Bt, &["--seconds", "0.1"]),
        (Program::Ep, &[]),
        (Program::Is, &[]),
        (Program::Heat, &["--memory", "1MiB", "--steps", "20"]),
        (Program::RingCheck, &["--rounds", "20", "--max-bytes", "64KiB"]),
    ];
    for (program, arguments) in cases {
        assert_verified(&run(&programs.path(program), 3, arguments), program.name());
    }
}

#[test]
fn python_script_verifies() {
    let python = mpi_prefix().join("bin/python");
    let script = python_script();
    for ranks in [1, 2] {
        let output = run(&python, ranks, &[script.to_str().expect("a path in UTF-8"), "--rounds", "3"]);
        assert_verified(&output, &format!("pi.py on {ranks} ranks"));
    }
}

#[test]
fn ring_check_prints_its_count_of_errors_last() {
    let output = run(&programs().path(Program::RingCheck), 2, &["--rounds", "20", "--seed", "7"]);
    let said = String::from_utf8_lossy(&output.stdout);
    let last = said.lines().find(|line| line.ends_with("messages, 0 errors")).expect("the line exists");
    let count =
        last.strip_prefix("ring-check: ").and_then(|rest| rest.split(' ').next()).expect("the prefix exists");
    assert!(count.parse::<u64>().expect("a number") > 0);
}

#[test]
fn pingpong_prints_one_line_of_json() {
    let output = run(&programs().path(Program::Pingpong), 2, &["--iterations", "20"]);
    let said = String::from_utf8_lossy(&output.stdout);
    let line: serde_json::Value = serde_json::from_str(&said).expect("the output is JSON");
    assert_eq!(line["latency"]["bytes"], 1);
    assert!(line["latency"]["median_us"].as_f64().expect("a number") > 0.0);
    assert!(line["bandwidth"]["mb_per_s"].as_f64().expect("a number") > 0.0);
}

#[test]
fn operations_verify_and_print_one_line_of_json() {
    let output = run(&programs().path(Program::Operations), 2, &["--iterations", "10"]);
    let said = String::from_utf8_lossy(&output.stdout);
    let line: serde_json::Value = serde_json::from_str(&said).expect("the output is JSON");
    assert_eq!(line["verified"], true);
    for part in ["message", "put", "large_get", "accumulate", "allreduce", "large_alltoall"] {
        assert!(line[part]["median_us"].as_f64().expect("a number") > 0.0, "{part}: {line}");
    }
}

#[test]
fn null_program_prints_nothing() {
    let output = run(&programs().path(Program::Null), 2, &[]);
    assert!(output.status.success());
    assert!(output.stdout.is_empty());
}

#[test]
fn wrong_usage_ends_with_code_two_and_a_reason() {
    let programs = programs();
    let cases: [(Program, u32, &[&str], &str); 8] = [
        (Program::Bt, 2, &["--class", "C"], "--class: cannot use the value C"),
        (Program::Bt, 1, &["--seconds"], "--seconds needs a value"),
        (Program::Cg, 3, &[], "power of two"),
        (Program::Is, 1, &["--class", "C"], "choose S, W, A or B"),
        (Program::Ep, 1, &["--repeat", "many"], "cannot read the value many"),
        (Program::Heat, 1, &["--memory", "12parsec"], "cannot read the value 12parsec"),
        (Program::Heat, 1, &["--step", "3"], "unknown argument --step"),
        (Program::Pingpong, 1, &[], "at least 2 ranks"),
    ];
    for (program, ranks, arguments, reason) in cases {
        let output = run(&programs.path(program), ranks, arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(code(output.status), 2, "{} {arguments:?}", program.name());
        assert!(said.contains(reason), "{} {arguments:?} said {said}", program.name());
    }
}
