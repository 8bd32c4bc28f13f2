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

/// Eight jobs of each size of a machine, one after the other: half of the time all processors are in use.
fn halves(header: &str, sizes: &[u32]) -> String {
    let each = sizes.iter().flat_map(|size| std::iter::repeat_n(size, 8));
    let job = |(number, size): (usize, &u32)| {
        let submit = 200 * (number - 1);
        format!("{number} {submit} 0 100 {size} -1 -1 {size} 100 -1 1 1 1 1 1 1 -1 -1\n")
    };
    header.to_owned() + &(1..).zip(each).map(job).collect::<String>()
}

/// The headers of three logs of the Parallel Workloads Archive.
const CURIE: &str = "; MaxNodes: 5544\n; MaxProcs: 93312\n";
const ATLAS: &str = "; MaxNodes: 1152\n; MaxProcs: 9216\n";
const OSC: &str = "; MaxNodes: 57\n; MaxProcs: 178\n";

#[test]
fn a_log_of_nodes_with_several_processors_is_simulated_on_all_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let logs = [
        ("curie", CURIE, 93_312, "93312 processors in 5544 nodes of 16 or 17 on average"),
        ("atlas", ATLAS, 9216, "9216 processors in 1152 nodes of 8"),
        ("osc", OSC, 178, "178 processors in 57 nodes of 3 or 4 on average"),
    ];
    for (name, header, processors, read) in logs {
        let file = format!("{name}.swf");
        fs::write(directory.path().join(&file), halves(header, &[processors, processors / 2, 1])).unwrap();
        let json = |more: &[&str]| -> serde_json::Value {
            let output = simulate(directory.path(), &[&[&*file, "--output", "json"][..], more].concat());
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            serde_json::from_slice(&output.stdout).unwrap()
        };
        let figure = |answer: &serde_json::Value, name: &str| {
            let mut figures = answer["figures"].as_array().unwrap().iter();
            figures.find(|figure| figure["name"] == name).unwrap()["mean"].as_f64().unwrap()
        };
        for queue in ["fcfs", "easy", "conservative"] {
            let answer = json(&["--queue", queue]);
            assert_eq!(answer["skipped"]["too_large"], 0, "{name}: nothing that ran is left out");
            // No job waits, neither in the log nor here.
            let (own, here) =
                (answer["log"]["utilisation"].as_f64().unwrap(), figure(&answer, "utilisation"));
            assert!((own - here).abs() < 1e-9 && (0.2..0.3).contains(&own), "{name}: {own} and {here}");
            assert_eq!(answer["log"]["processors"], processors);
            assert!(answer["log"]["machine"].as_str().unwrap().starts_with(read), "{}", answer["log"]);
        }
        // Nodes that are divided evenly hold at most a node more.
        for mode in [&["--allocator", "boxes"][..], &["--queue", "rms"]] {
            let answer = json(mode);
            let all = u32::try_from(answer["log"]["processors"].as_u64().unwrap()).unwrap();
            assert!((processors..processors + 17).contains(&all), "{}", answer["log"]);
            assert_eq!(answer["skipped"]["too_large"], 0);
        }
        let turns = json(&["--policy", "gang", "--memory", "1MiB"]);
        let (own, here) = (&turns["log"]["utilisation"], figure(&turns, "utilisation_processors"));
        assert!((own.as_f64().unwrap() - here).abs() < 0.02, "{name}: {own} and {here}");
        assert!(figure(&turns, "wait_mean_s") < 1.0 && turns["skipped"]["too_large"] == 0, "{turns}");
        let output = simulate(directory.path(), &[&file]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.starts_with(&format!("{file}: {read}")), "{text}");
        assert!(text.contains(" utilisation_of_log "), "{text}");
    }
}

#[test]
fn two_small_jobs_share_a_node_of_several_processors_and_its_memory() {
    let directory = tempfile::tempdir().unwrap();
    let job = |number, size| format!("{number} 0 0 1000 {size} -1 102400 {size} -1 -1 1 1 1 1 1 1 -1 -1\n");
    let log = format!("; MaxNodes: 1\n; MaxProcs: 8\n{}{}", job(1, 5), job(2, 3));
    fs::write(directory.path().join("a.swf"), log).unwrap();
    let run = |more: &[&str]| {
        let hybrid = ["a.swf", "--policy", "hybrid", "--quantum", "10s", "--swf", "done.swf"];
        stdout(directory.path(), &[&hybrid[..], more].concat())
    };
    let both = run(&["--node-memory", "800MiB"]);
    assert!(figure(&both, "makespan_s") < 1010.0, "each has its processors: {both}");
    let text = fs::read_to_string(directory.path().join("done.swf")).unwrap();
    assert!(text.contains(" 1000 5 -1 102400 5 "), "memory is by processor: {text}");
    let turns = run(&["--node-memory", "700MiB"]);
    assert!(figure(&turns, "makespan_s") > 1900.0, "they do not fit together: {turns}");
}

#[test]
fn a_job_larger_than_the_header_says_shows_how_large_the_machine_was() {
    let directory = tempfile::tempdir().unwrap();
    let log = halves("; MaxNodes: 4\n; MaxProcs: 16\n", &[16, 24]);
    fs::write(directory.path().join("a.swf"), log).unwrap();
    let text = |more: &[&str]| {
        let output = simulate(directory.path(), &[&["a.swf"][..], more].concat());
        String::from_utf8(output.stdout).unwrap()
    };
    let said = "a.swf: 24 processors in 6 nodes of 4 (the log's header: MaxNodes 4, MaxProcs 16; but job 9 \
                ran on 24 processors)";
    assert!(text(&[]).starts_with(said), "{}", text(&[]));
    assert!(!text(&[]).contains("left out"));
    let given = text(&["--nodes", "16"]);
    assert!(given.starts_with("a.swf: 16 nodes of one processor, as given"), "{given}");
    assert!(given.contains("8 too large"), "{given}");
}

#[test]
fn a_workload_without_usable_jobs_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("empty.swf", "; MaxNodes: 8\n");
    write("large.swf", "; MaxNodes: 8\n1 0 -1 100 9 -1 -1 9 -1 -1 1 1 1 1 1 1 -1 -1\n");
    write("bare.swf", "; Computer: x\n1 0 -1 100 9 -1 -1 9 -1 -1 1 1 1 1 1 1 -1 -1\n");
    write("sizeless.swf", "; MaxProcs: 8\n1 0 -1 100 -1 -1 -1 -1 -1 -1 1 1 1 1 1 1 -1 -1\n");
    write("absurd.swf", "; MaxNodes: 8\n1 0 -1 100 4294967295 -1 -1 9 -1 -1 1 1 1 1 1 1 -1 -1\n");
    write("fat.swf", "; MaxNodes: 2\n; MaxProcs: 256\n1 0 -1 100 9 -1 -1 9 -1 -1 1 1 1 1 1 1 -1 -1\n");
    write("good.swf", "; MaxNodes: 8\n1 0 -1 100 4 -1 -1 4 -1 -1 1 1 1 1 1 1 -1 -1\n");
    write("vast.swf", "; MaxNodes: 4294967295\n1 0 -1 100 4 -1 -1 4 -1 -1 1 1 1 1 1 1 -1 -1\n");
    write("a.workload", "0 4 ./a.out\n");
    let cases: [(&[&str], &str); 18] = [
        (
            &["vast.swf"],
            "4294967295 nodes of one processor (the log's header: MaxNodes 4294967295), and at most",
        ),
        (&["vast.swf", "--policy", "gang"], "give --nodes"),
        (&["a.workload", "--nodes", "4", "--run-time", "1500ms"], "whole seconds"),
        (&["empty.swf"], "there is no job to simulate"),
        (&["empty.swf", "--policy", "gang"], "there is no job to simulate"),
        (&["large.swf", "--nodes", "8"], "left out are 0 without a run time, 0 without a size, 1 too large"),
        (
            &["bare.swf"],
            "no MaxNodes or MaxProcs in its header): give --nodes; its largest job had 9 processors",
        ),
        (&["bare.swf", "--policy", "gang"], "no MaxNodes or MaxProcs in its header): give --nodes"),
        (&["sizeless.swf"], "left out are 0 without a run time, 1 without a size"),
        (&["absurd.swf"], "but job 1 ran on 4294967295 processors), and at most 16777216 are simulated"),
        (&["fat.swf", "--allocator", "boxes"], "up to 64 processors, and those of the log have 128"),
        (&["fat.swf", "--queue", "rms"], "up to 64 processors, and those of the log have 128"),
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
