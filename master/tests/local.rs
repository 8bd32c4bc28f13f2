//! `coswitch simulate local`: node schedulers on a cluster given by options.

mod common;

use std::{fs, path::Path, process::Output};

use common::figure;

const LOCAL: [&str; 3] = ["local", "--jobs", "200"];

fn local(directory: &Path, arguments: &[&str]) -> Output {
    common::simulate(directory, &[&LOCAL[..], arguments].concat())
}

fn stdout(directory: &Path, arguments: &[&str]) -> String {
    common::stdout(directory, &[&LOCAL[..], arguments].concat())
}

#[test]
fn one_scheduler_has_metrics_of_system_nodes_and_tasks() {
    let directory = tempfile::tempdir().unwrap();
    let pre =
        ["--model", "pre", "--nodes", "3", "--mrql", "5", "--pdt", "0.8", "--maxm", "2", "--seeds", "3"];
    let answer = stdout(directory.path(), &[&pre[..], &["--csv", "tasks.csv", "--output", "json"]].concat());
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["nodes"].as_array().unwrap().len(), 3);
    assert_eq!(answer["shape"]["queue_length"], 5.0);
    assert!(answer["nodes"][2]["coscheduling"].as_f64().unwrap() > 0.0);
    let tasks = fs::read_to_string(directory.path().join("tasks.csv")).unwrap();
    assert!(
        tasks.starts_with("node,task,application,TaskCoDe,TaskThDe,TaskD,") && tasks.lines().count() > 200
    );
    let csv = |mco| stdout(directory.path(), &[&pre[..], &["--mco", mco, "--output", "csv"]].concat());
    let [none, many] = ["0", "7"].map(csv);
    assert!(figure(&none, "SystemD").abs() < 1e-9, "no process is overtaken: {none}");
    assert!(figure(&many, "SystemCoDe") > figure(&none, "SystemCoDe") && figure(&many, "SystemD") > 0.0);
    assert_eq!(csv("7"), many, "the same seeds give the same bytes");
    assert!(stdout(directory.path(), &pre).contains("NodeThDe"));
}

#[test]
fn the_decisions_of_one_scheduler_are_drawn_for_each_node() {
    let directory = tempfile::tempdir().unwrap();
    let drawn = |model| {
        stdout(directory.path(), &["--model", model, "--nodes", "3", "--svg", "decisions.svg"]);
        fs::read_to_string(directory.path().join("decisions.svg")).unwrap()
    };
    let dcs = drawn("dcs");
    assert!(dcs.starts_with("<svg xmlns=") && dcs.ends_with("</svg>\n"), "{dcs}");
    for part in [">node-2<", ">application 1<", ">local ", " was ready ", " spun "] {
        assert!(dcs.contains(part), "{part} of {dcs}");
    }
    assert_eq!(drawn("dcs"), dcs, "the same seed gives the same bytes");
    assert_ne!(drawn("pre"), dcs);
}

#[test]
fn a_given_cluster_compares_all_schedulers_without_table_4_1() {
    let directory = tempfile::tempdir().unwrap();
    let own = ["--nodes", "2", "--pdt", "0.2", "--cf", "0", "--turn-local", "--ring", "--grain", "0.3"];
    let text = stdout(directory.path(), &own);
    assert!(text.contains("2 nodes, MRQL 2, pdt 0.2") && !text.contains("NSTATIONS"), "{text}");
    let text = stdout(directory.path(), &[&own[..], &["--cpus", "2"]].concat());
    assert!(text.contains("2 nodes of 2 processors, MRQL 2"), "{text}");
    let csv = stdout(directory.path(), &[&own[..], &["--output", "csv"]].concat());
    assert_eq!(csv.lines().count(), 1 + 13 * 7, "{csv}");
    // With a frequency of 0 no task ever sends, so there is nothing to coschedule.
    assert!(
        csv.lines().filter(|line| line.contains("SystemCoDe")).all(|line| line.contains("SystemCoDe,0,")),
        "{csv}"
    );
}

#[test]
fn options_that_local_does_not_use_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let cases: [(&[&str], &str); 9] = [
        (&["--model", "gang"], "there is no node scheduler `gang`; there are lin, imp,"),
        (&["--model", "lin", "--mco", "2"], "--mco bounds `dyn` and `pre`"),
        (&["--csv", "x.csv"], "give --model"),
        (&["--pdt", "1.5"], "pdt = 1.5: it must be above 0 and at most 1"),
        (&["--policy", "gang"], "leave --policy out"),
        (&["--queue", "easy"], "leave --queue out"),
        (&["--workload", "a.swf"], "leave --workload out"),
        (&["--svg", "x.svg"], "give --model"),
        (&["--memory", "1GiB"], "leave --memory out"),
    ];
    for (arguments, said) in cases {
        let output = local(directory.path(), arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(said), "{arguments:?} says {error}");
    }
}
