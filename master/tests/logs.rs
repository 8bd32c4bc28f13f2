//! `coswitch simulate`: reads and writes of workloads.

mod common;

use std::{fs, path::Path};

use common::{figure, simulate};

const RUN: &str = "cluster: {nodes: 2, memory: 1GiB}\nscheduler: {policy: gang, quantum: 5s}\njobs:\n\
    \x20 - {name: a, command: [not/built], ranks: 2, memory: 100MiB, count: 2, alone: 20s, arrival: 3s}\n";

fn stdout(directory: &Path, arguments: &[&str]) -> String {
    common::stdout(directory, &[arguments, &["--output", "csv"]].concat())
}

#[test]
fn a_written_log_gives_the_same_simulation_again() {
    let directory = tempfile::tempdir().unwrap();
    let stdout = |arguments: &[&str]| stdout(directory.path(), arguments);
    let drawn = stdout(&["--lublin", "200", "--nodes", "16", "--load", "4", "--swf", "drawn.swf.gz"]);
    assert_eq!(stdout(&["drawn.swf.gz"]), drawn, "nodes and jobs are in the log");
    let gang = ["--policy", "gang", "--node-memory", "1GiB"];
    let memory = ["--memory", "log-uniform:64MiB..900MiB", "--swf", "turns.swf"];
    let turns = stdout(&[&["--lublin", "40", "--nodes", "16", "--load", "9"][..], &gang, &memory].concat());
    let again = stdout(&[&["turns.swf"][..], &gang].concat());
    let differ = |name| (figure(&again, name) - figure(&turns, name)).abs();
    assert!(differ("makespan_s") < 0.01 && differ("switches") < 0.1, "memory is in the log, in KiB: {again}");
    assert!(figure(&turns, "switches") > 9.0 && figure(&turns, "expansion_factor") > 1.0);
    let text = fs::read_to_string(directory.path().join("turns.swf")).unwrap();
    let waited = |line: &str| !line.starts_with(';') && line.split(' ').nth(2) != Some("0");
    assert!(text.lines().any(waited), "{text}");
    fs::write(directory.path().join("run.yaml"), RUN).unwrap();
    stdout(&["run.yaml", "--swf", "run.swf"]);
    let text = fs::read_to_string(directory.path().join("run.swf")).unwrap();
    assert!(text.contains("; MaxNodes: 2\n1 3 0 20 2 -1 102400 2 "), "{text}");
}

#[test]
fn memory_is_drawn_from_the_values_of_another_log() {
    let directory = tempfile::tempdir().unwrap();
    let record = |number, kib| format!("{number} 0 -1 9 1 -1 {kib} 1 -1 -1 1 1 1 1 1 1 -1 -1\n");
    fs::write(directory.path().join("has.swf"), record(1, "2048") + &record(2, "-1") + &record(3, "7168"))
        .unwrap();
    fs::write(directory.path().join("none.swf"), record(1, "-1")).unwrap();
    let lublin = ["--lublin", "50", "--nodes", "8", "--policy", "hybrid", "--swf", "drawn.swf"];
    stdout(directory.path(), &[&lublin[..], &["--memory", "like:has.swf"]].concat());
    let text = fs::read_to_string(directory.path().join("drawn.swf")).unwrap();
    let jobs = text.lines().filter(|line| !line.starts_with(';'));
    let of = |line: &str| line.split(' ').nth(6).unwrap().to_owned();
    let drawn: std::collections::BTreeSet<String> = jobs.map(of).collect();
    assert_eq!(drawn.into_iter().collect::<Vec<_>>(), ["2048", "7168"]);
    let wrong = simulate(directory.path(), &[&lublin[..], &["--memory", "like:none.swf"]].concat());
    let error = String::from_utf8_lossy(&wrong.stderr);
    assert!(wrong.status.code() == Some(2) && error.contains("says what memory it took"), "{error}");
}

#[test]
fn a_testbed_workload_runs_for_the_given_time_and_the_answer_says_so() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.workload"), "0 4 ./a.out -x\n").unwrap();
    let output = simulate(directory.path(), &["a.workload", "--nodes", "4"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("does not say how long a job runs: 60s each"), "{text}");
    let answer = stdout(directory.path(), &["a.workload", "--nodes", "4", "--run-time", "5min"]);
    assert!((figure(&answer, "makespan_s") - 300.0).abs() < 1e-9, "{answer}");
}

#[test]
fn a_workload_without_usable_jobs_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("empty.swf", "; MaxNodes: 8\n");
    write("large.swf", "; MaxNodes: 8\n1 0 -1 100 9 -1 -1 9 -1 -1 1 1 1 1 1 1 -1 -1\n");
    write("good.swf", "; MaxNodes: 8\n1 0 -1 100 4 -1 -1 4 -1 -1 1 1 1 1 1 1 -1 -1\n");
    write("vast.swf", "; MaxNodes: 4294967295\n1 0 -1 100 4 -1 -1 4 -1 -1 1 1 1 1 1 1 -1 -1\n");
    write("a.workload", "0 4 ./a.out\n");
    let cases: [(&[&str], &str); 12] = [
        (&["vast.swf"], "says that there are 4294967295 nodes, and at most 16777216 are simulated"),
        (&["vast.swf", "--policy", "gang"], "give --nodes"),
        (&["a.workload", "--nodes", "4", "--run-time", "1500ms"], "whole seconds"),
        (&["empty.swf"], "there is no job to simulate"),
        (&["empty.swf", "--policy", "gang"], "there is no job to simulate"),
        (&["large.swf"], "left out are 0 without a run time, 0 without a size, 1 too large"),
        (&["good.swf", "--run-time", "5s"], "--run-time is for testbed workloads"),
        (&["good.swf", "--memory", "1GiB"], "--memory is about jobs that share time"),
        (&["good.swf", "--model", "pre"], "--model is about node schedulers"),
        (&["good.swf", "--policy", "gang", "--pdt", "0.5"], "--pdt is about node schedulers"),
        (&["--lublin", "5", "--jobs", "3"], "cannot be used with"),
        (&[".", "--csv", "x.csv"], "is decided again as it was: leave --csv out"),
    ];
    for (arguments, said) in cases {
        let output = simulate(directory.path(), arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(said), "{arguments:?} says {error}");
    }
}
