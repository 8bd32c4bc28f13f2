//! `coswitch simulate`: the same command prints the same bytes.

mod common;

use std::{fs, io::Write as _, path::Path, process::Command};

use common::{figure, simulate, stdout};
use flate2::{Compression, write::GzEncoder};

/// The programs do not exist on this machine.
const RUN: &str = "cluster: {nodes: 2, memory: 1000MiB}
scheduler: {policy: hybrid, quantum: 10s}
jobs:
  - {name: cg, command: [./nowhere/cg], ranks: 2, memory: 400MiB, count: 2, alone: 60s}
  - {name: ep, command: [nowhere-ep], ranks: 2, memory: 400MiB, count: 2, alone: 60s}
";

#[test]
fn measured_communication_decides_the_rows_of_paired_in_the_simulator_and_in_explain() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("run.yaml"), RUN).unwrap();
    fs::write(directory.path().join("costs.yaml"), "communication: {cg: 0.9, ep: 0.05}\n").unwrap();
    let makespan = |arguments: &[&str]| -> f64 {
        figure(
            &stdout(directory.path(), &[&["run.yaml", "--output", "csv"], arguments].concat()),
            "makespan_s",
        )
    };
    let [unknown, alike, mixed] = [
        makespan(&["--policy", "paired"]),
        makespan(&["--costs", "costs.yaml"]),
        makespan(&["--policy", "paired", "--costs", "costs.yaml"]),
    ];
    assert!(mixed < 0.7 * alike && alike < unknown, "{mixed}, {alike} and {unknown} s");
    let run = fs::read_to_string(directory.path().join("run.yaml")).unwrap().replace("hybrid", "paired");
    fs::write(directory.path().join("paired.yaml"), run).unwrap();
    let mut explain = Command::new(env!("CARGO_BIN_EXE_coswitch"));
    explain.current_dir(directory.path()).args(["explain", "paired.yaml", "--costs", "costs.yaml"]);
    let answer = String::from_utf8(explain.output().unwrap().stdout).unwrap();
    assert!(answer.contains("> slot-0 | cg-2*1 ep-1*1 = 800MiB"), "{answer}");
    assert!(
        answer.contains("exchanged, so that") && answer.contains("communicates 90 % of its time"),
        "{answer}"
    );
    assert!(answer.contains("all turns once: "), "{answer}");
}

#[test]
fn a_mesh_has_the_given_sides_and_local_compares_the_node_schedulers() {
    let directory = tempfile::tempdir().unwrap();
    let on = |mesh| {
        let arguments = [
            "--lublin",
            "300",
            "--mesh",
            mesh,
            "--load",
            "3",
            "--allocator",
            "contiguous",
            "--output",
            "json",
        ];
        let output = simulate(directory.path(), &arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["nodes"].clone()
    };
    assert_eq!(on("25x16"), 400);
    assert_eq!(simulate(directory.path(), &["--lublin", "9", "--mesh", "25x"]).status.code(), Some(2));
    let study = |threads| {
        let output = simulate(directory.path(), &["local", "--jobs", "10", "--threads", threads]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let alone = study("1");
    assert!(alone.contains("NSTATIONS") && alone.contains("All node schedulers"), "{alone}");
    assert!(alone.contains("One seed has no interval"), "{alone}");
    assert_eq!(alone, study("2"));
}

/// Standard output, the table of jobs and the picture.
fn everything(directory: &Path, arguments: &[&str]) -> (Vec<u8>, String, String) {
    let mut all = arguments.to_vec();
    all.extend(["--output", "json", "--csv", "jobs.csv", "--svg", "run.svg"]);
    let output = simulate(directory, &all);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |name| fs::read_to_string(directory.join(name)).unwrap();
    (output.stdout, read("jobs.csv"), read("run.svg"))
}

const SPACE: [&str; 9] =
    ["--lublin", "3000", "--nodes", "64", "--load", "2", "--queue", "easy", "--allocator=m2db"];
const TURNS: [&str; 10] = [
    "--lublin",
    "60",
    "--nodes",
    "16",
    "--load",
    "20",
    "--policy",
    "hybrid",
    "--memory",
    "log-uniform:64MiB..900MiB",
];

const PAIRED: [&str; 13] = [
    "--lublin",
    "40",
    "--nodes",
    "8",
    "--load",
    "20",
    "--policy",
    "paired",
    "--switching",
    "prefetch",
    "--residency",
    "--memory",
    "uniform:64MiB..900MiB",
];

#[test]
fn two_runs_and_any_number_of_threads_give_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    for arguments in [SPACE.as_slice(), TURNS.as_slice(), PAIRED.as_slice()] {
        let run = |threads| {
            let seeds = ["--seeds", "4", "--threads", threads];
            everything(directory.path(), &[arguments, &seeds].concat())
        };
        let alone = run("1");
        assert_eq!(alone, run("1"), "a second run");
        assert_eq!(alone, run("2"), "two threads");
        let answer: serde_json::Value = serde_json::from_slice(&alone.0).unwrap();
        assert_eq!(answer["seeds"], serde_json::json!([1, 2, 3, 4]));
        let figures = answer["figures"].as_array().unwrap();
        let differs =
            figures.iter().filter_map(|figure| figure["half_width"].as_f64()).any(|width| width > 0.0);
        assert!(differs, "seeds differ");
        assert!(alone.1.lines().count() > 30 && alone.2.starts_with("<svg"));
    }
}

const LOG: &str = "; MaxNodes: 8\n1 0 -1 100 8 -1 -1 8 -1 -1 1 1 1 1 1 1 -1 -1\n\
                   2 10 -1 50 4 -1 -1 4 -1 -1 1 1 1 1 1 1 -1 -1\n\
                   3 20 -1 50 4 -1 -1 4 -1 -1 1 1 1 1 1 1 -1 -1\n";

#[test]
fn a_gzipped_log_gives_the_same_answer() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.swf"), LOG).unwrap();
    let mut zip = GzEncoder::new(Vec::new(), Compression::default());
    zip.write_all(LOG.as_bytes()).unwrap();
    fs::write(directory.path().join("a.swf.gz"), zip.finish().unwrap()).unwrap();
    let plain = everything(directory.path(), &["a.swf"]);
    assert_eq!(plain.1, everything(directory.path(), &["a.swf.gz"]).1);
    let jobs: Vec<&str> = plain.1.lines().skip(1).collect();
    assert_eq!(jobs, ["1,0,8,0,0,100,100,1.0000", "2,0,4,10,90,50,140,2.8000", "3,0,4,20,80,50,130,2.6000"]);
}

#[test]
fn a_log_under_a_policy_goes_to_the_scheduler_of_a_run() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.swf"), LOG).unwrap();
    let hybrid = ["a.swf", "--policy", "hybrid", "--memory", "64MiB", "--quantum", "10s"];
    let answer: serde_json::Value = serde_json::from_slice(&everything(directory.path(), &hybrid).0).unwrap();
    let figure = |name: &str| {
        let figures = answer["figures"].as_array().unwrap().iter();
        figures.clone().find(|figure| figure["name"] == name).unwrap()["mean"].as_f64().unwrap()
    };
    assert!(figure("switches").abs() < f64::EPSILON, "everything fits in memory");
    assert!(figure("wait_mean_s") < 1.0 && figure("makespan_s") >= 100.0);
    assert_eq!(answer["months"], serde_json::json!([]), "the log does not say when it began");
    fs::write(directory.path().join("a.swf"), format!("; UnixStartTime: 820090437\n{LOG}")).unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&everything(directory.path(), &hybrid).0).unwrap();
    assert_eq!((&answer["months"][0]["month"], &answer["months"][0]["jobs"]), (&12.into(), &3.into()));
    assert!((answer["months"][0]["utilisation"].as_f64().unwrap() - figure("utilisation")).abs() < 1e-9);
}

#[test]
fn an_invalid_workload_is_reported_with_code_2() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("bad.swf", &LOG.replace(" 50 4 ", " fifty 4 "));
    write("nodes.swf", LOG.trim_start_matches("; MaxNodes: 8\n"));
    write("good.swf", LOG);
    write("costs.yaml", "dump: {fixed_s: 0.1, bytes_per_s: 0}\n");
    write("run.yaml", RUN);
    write("old.yaml", &(MACHINE.to_owned() + "age_factor: -1\n"));
    write("part.yaml", &(MACHINE.to_owned() + "partition: 7\n"));
    let cases: [(&[&str], &str); 17] = [
        (&["--lublin", "9", "--machine", "part.yaml"], "no job is in partition 7"),
        (&["good.swf", "--lublin", "9"], "the jobs are those of good.swf: leave --lublin out"),
        (&["good.swf", "--workload", "good.swf"], "leave --workload out"),
        (&["run.yaml", "--jobs", "2"], "the jobs are those of run.yaml: leave --jobs out"),
        (&["local", "--policy", "gang"], "`local` is a study of its own: leave --policy out"),
        (&[".", "--quantum", "1s"], "is decided again as it was: leave --quantum out"),
        (&["good.swf", "--machine", "old.yaml"], "`age_factor` is -1; it is from 0 to 1000000"),
        (&["--lublin", "9", "--load", "0"], "`0` is not a number from 0.001 to 1000"),
        (&["bad.swf"], "line 3: field 4 (run time) is `fifty`"),
        (&["nodes.swf"], "give --nodes"),
        (&["none.swf"], "failed to read none.swf"),
        (&["good.swf", "--seeds", "3"], "every seed of this simulation is the same"),
        (&["good.swf", "--policy", "gang", "--costs", "costs.yaml"], "is not a rate above zero"),
        (&["good.swf", "--allocator", "tetris"], "there are first-fit, contiguous"),
        (
            &["good.swf", "--policy", "gang", "--queue", "fcfs"],
            "--queue is about jobs that have their nodes to",
        ),
        (
            &["good.swf", "--switching", "prefetch"],
            "--switching is about jobs that share time: give --policy",
        ),
        (&["good.swf", "--policy", "gang", "--quantum", "0s"], "the quantum is zero"),
    ];
    for (arguments, said) in cases {
        let output = simulate(directory.path(), arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(said), "{arguments:?} says {error}");
    }
}

/// Two queues on two node sets; the second queue is closed by day.
const MACHINE: &str = "sets: [{name: thin, width: 8}, {name: fat, width: 8, height: 2}]
groups: [{name: all, sets: [thin, fat]}, {name: night, prime: [], sets: [fat]}]
queues: [{name: small, group: all, priority: 3}, {name: \"2\", group: night, hours: 2}]
";

#[test]
fn node_sets_divided_nodes_and_rms_work_from_the_command_line() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("machine.yaml", MACHINE);
    // From nine in the morning: a small job, a job of the night queue, and a job too large for both sets
    // together.
    let record = |number, submit, nodes, queue| {
        format!("{number} {submit} -1 600 {nodes} -1 -1 {nodes} -1 -1 1 1 1 1 {queue} 1 -1 -1\n")
    };
    let log = format!(
        "; StartTime: Wed Dec 27 09:00:00 PST 1995\n; Queue: 1 small\n{}{}{}",
        record(1, 0, 8, 1),
        record(2, 10, 16, 2),
        record(3, 20, 25, 1),
    );
    write("log.swf", &log);
    let stdout = |arguments: &[&str]| {
        let output = simulate(directory.path(), arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let figure = |csv: &str, name: &str| -> f64 {
        let line = csv.lines().find(|line| line.starts_with(name)).unwrap();
        line.split(',').nth(1).unwrap().parse().unwrap()
    };
    for queue in ["fcfs", "easy", "conservative", "aging"] {
        let csv = stdout(&["log.swf", "--machine", "machine.yaml", "--queue", queue, "--output", "csv"]);
        assert_eq!(csv.lines().next(), Some("metric,mean,half_width_95,seeds"));
        // The second waits from ten seconds past nine until five in the afternoon.
        assert!((figure(&csv, "wait_max_s") - (8.0 * 3600.0 - 10.0)).abs() < 1.0, "{queue}: {csv}");
        let [thin, fat, all] =
            ["utilisation_thin", "utilisation_fat", "utilisation,"].map(|name| figure(&csv, name));
        assert!(thin > 0.0 && fat > 0.0 && (thin * 8.0 + fat * 16.0 - all * 24.0).abs() < 1e-9, "{csv}");
        assert!((figure(&csv, "wait_mean_s_queue_2") - (8.0 * 3600.0 - 10.0)).abs() < 1.0, "{csv}");
        assert!(figure(&csv, "utilisation_1995-12") > 0.0, "{csv}");
    }
    // A job above its queue's limit is left out, and the model draws for the existing nodes.
    write("limits.yaml", &MACHINE.replace("priority: 3", "priority: 3, nodes: 7, running: 1"));
    let limited = |order| {
        let arguments = ["log.swf", "--machine", "limits.yaml", "--queue", order, "--output", "json"];
        simulate(directory.path(), &arguments)
    };
    assert_eq!(limited("easy").status.code(), Some(2), "a limit that EASY would ignore");
    let answer: serde_json::Value = serde_json::from_slice(&limited("aging").stdout).unwrap();
    assert_eq!(answer["skipped"]["too_large"], 2);
    let model = stdout(&["--lublin", "50", "--machine", "machine.yaml"]);
    assert!(model.starts_with("Lublin-Feitelson, 50 jobs for 24 nodes"), "{model}");
    let lublin = ["--lublin", "400", "--nodes", "16", "--cpus", "4", "--load", "3", "--output", "csv"];
    let boxes = stdout(&[&lublin[..], &["--allocator", "boxes", "--queue", "easy"]].concat());
    assert!(figure(&boxes, "utilisation") > 0.1, "{boxes}");
    let rms = |limit| {
        stdout(&[&lublin[..], &["--queue", "rms", "--usage-limit", limit, "--quantum", "10min"]].concat())
    };
    let [alone, shared] = ["64", "256"].map(|limit| figure(&rms(limit), "bounded_slowdown_mean"));
    assert!(shared < alone, "short jobs need not wait for long ones: {shared} and {alone}");
    let refused: [&[&str]; 6] = [
        &["local", "--output", "csv"],
        &["--lublin", "9", "--cpus", "4"],
        &["--lublin", "9", "--queue", "easy", "--usage-limit", "4"],
        &["log.swf", "--queue", "rms", "--machine", "machine.yaml"],
        &["log.swf", "--machine", "log.swf"],
        &["log.swf", "--queue", "lifo"],
    ];
    for arguments in refused {
        assert_eq!(simulate(directory.path(), arguments).status.code(), Some(2), "{arguments:?}");
    }
}
