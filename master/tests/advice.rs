//! Warnings about run files that are right: `explain` and `simulate` say what a run would say.

use std::{fs, process::Command};

use serde_json::Value;

/// Two jobs of 800 MiB a node that take turns; a switch takes about a second by the built-in costs.
const RUN: &str = "cluster: {nodes: 2, memory: 1000MiB}
scheduler: {policy: gang, quantum: 400ms, switching: sequential}
jobs:
  - {name: cg, command: [./nowhere/cg], ranks: 2, memory: 800MiB, count: 2, alone: 60s}
";

/// What a command says about a run file, in words and in JSON.
fn ask(run_file: &str, arguments: &[&str]) -> (String, Value) {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("run.yaml"), run_file).unwrap();
    fs::write(
        directory.path().join("fast.yaml"),
        "dump: {fixed_s: 0.0, bytes_per_s: 1e12}\n\
         restore: {fixed_s: 0.0, bytes_per_s: 1e12}\nflush_s: 0.001\n",
    )
    .unwrap();
    let answer = |format| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_coswitch"));
        command.current_dir(directory.path()).args(["--output", format]).args(arguments);
        let output = command.arg("run.yaml").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    (answer("human"), serde_json::from_str(&answer("json")).unwrap())
}

#[test]
fn quantum_shorter_than_a_switch_is_told_with_what_auto_would_take() {
    let (text, json) = ask(RUN, &["explain"]);
    let warning = "warning: the quantum of 400 ms is shorter than a switch, in which no job runs: 1.1 s";
    assert!(text.contains(warning) && text.contains("`quantum: auto` would take about 54 s"), "{text}");
    assert!(json["warnings"][0].as_str().unwrap().contains("built-in cost model"), "{json}");
    let (text, _) = ask(RUN, &["simulate"]);
    assert!(text.contains(warning), "{text}");
}

#[test]
fn advice_goes_by_the_given_costs_and_bounds() {
    let (text, json) = ask(RUN, &["explain", "--costs", "fast.yaml"]);
    assert!(!text.contains("warning") && json["warnings"] == serde_json::json!([]), "{text}");
    let bounded = RUN.replace("quantum: 400ms", "quantum: 400ms, overhead: 5%, quantum_max: 15s");
    let (text, _) = ask(&bounded, &["explain"]);
    assert!(text.contains("about 15 s, its longest, and let fewer slots take turns"), "{text}");
    let (text, _) = ask(&RUN.replace("400ms", "auto"), &["explain"]);
    assert!(!text.contains("warning"), "{text}");
    let (text, _) = ask(&RUN.replace("400ms", "30s"), &["explain"]);
    assert!(!text.contains("warning"), "{text}");
}

#[test]
fn sets_that_overlap_beyond_memory_are_told() {
    let words = "400ms, needs: declared, short_of_memory: swap";
    let sequential = RUN.replace("400ms", words).replace("400ms", "30s");
    let (text, _) = ask(&sequential, &["explain"]);
    assert!(!text.contains("warning"), "a sequential switch is within memory: {text}");
    let prefetches = sequential.replace("switching: sequential", "switching: prefetch");
    let (text, json) = ask(&prefetches, &["explain"]);
    let warning = "(`short_of_memory: swap`); a set and the next need 1.6GiB on node-0 of 1000MiB (and too";
    assert!(text.contains(warning), "{text}");
    assert!(json["warnings"][0].as_str().unwrap().ends_with("the kernel will swap"), "{json}");
    let (text, _) = ask(&prefetches, &["simulate"]);
    assert!(text.contains(warning), "{text}");
    let (text, _) = ask(&prefetches.replace("1000MiB", "1600MiB"), &["explain"]);
    assert!(!text.contains("warning"), "{text}");
}

#[test]
fn jobs_that_stay_in_memory_beyond_it_are_told() {
    let suspends = RUN.replace("400ms", "10s, park: suspend");
    let (text, json) = ask(&suspends, &["explain"]);
    let warning = "jobs are never taken out of memory (`park: suspend`); together they need 1.6GiB on node-0";
    assert!(text.contains(warning) && text.contains("no job leaves memory for its turn"), "{text}");
    assert!(json["warnings"][0].as_str().unwrap().ends_with("the kernel will swap"), "{json}");
    let (text, _) = ask(&suspends, &["simulate"]);
    assert!(text.contains(warning), "{text}");
    let (text, _) = ask(&suspends.replace("1000MiB", "2000MiB"), &["explain"]);
    assert!(!text.contains("warning"), "{text}");
}
