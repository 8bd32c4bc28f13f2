//! `coswitch simulate local`, from the command line: node schedulers on a cluster of one's own.

mod common;

use std::{fs, path::Path, process::Output};

use common::figure;

const LOCAL: [&str; 3] = ["local", "--jobs", "200"];

fn local(directory: &Path, arguments: &[&str]) -> Output {
    common::simulate(directory, &[&LOCAL[..], arguments].concat())
}

fn told(directory: &Path, arguments: &[&str]) -> String {
    common::told(directory, &[&LOCAL[..], arguments].concat())
}

#[test]
fn one_scheduler_is_told_by_system_by_node_and_by_task() {
    let directory = tempfile::tempdir().unwrap();
    let pre =
        ["--model", "pre", "--nodes", "3", "--mrql", "5", "--pdt", "0.8", "--maxm", "2", "--seeds", "3"];
    let answer = told(directory.path(), &[&pre[..], &["--csv", "tasks.csv", "--output", "json"]].concat());
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["nodes"].as_array().unwrap().len(), 3);
    assert_eq!(answer["shape"]["queue_length"], 5.0);
    assert!(answer["nodes"][2]["coscheduling"].as_f64().unwrap() > 0.0);
    let tasks = fs::read_to_string(directory.path().join("tasks.csv")).unwrap();
    assert!(
        tasks.starts_with("node,task,application,TaskCoDe,TaskThDe,TaskD,") && tasks.lines().count() > 200
    );
    let csv = |mco| told(directory.path(), &[&pre[..], &["--mco", mco, "--output", "csv"]].concat());
    let [none, many] = ["0", "7"].map(csv);
    assert!(figure(&none, "SystemD").abs() < 1e-9, "nobody is overtaken: {none}");
    assert!(figure(&many, "SystemCoDe") > figure(&none, "SystemCoDe") && figure(&many, "SystemD") > 0.0);
    assert_eq!(csv("7"), many, "the same seeds give the same bytes");
    assert!(told(directory.path(), &pre).contains("NodeThDe"));
}

#[test]
fn a_cluster_of_ones_own_has_all_schedulers_beside_each_other_and_no_table() {
    let directory = tempfile::tempdir().unwrap();
    let own = ["--nodes", "2", "--pdt", "0.2", "--cf", "0", "--turn-local", "--ring", "--grain", "0.3"];
    let text = told(directory.path(), &own);
    assert!(text.contains("2 nodes, MRQL 2, pdt 0.2") && !text.contains("NSTATIONS"), "{text}");
    let csv = told(directory.path(), &[&own[..], &["--output", "csv"]].concat());
    assert_eq!(csv.lines().count(), 1 + 13 * 7, "{csv}");
    // With a frequency of 0..=0 nobody ever sends, and there is nothing to coschedule with.
    assert!(
        csv.lines().filter(|line| line.contains("SystemCoDe")).all(|line| line.contains("SystemCoDe,0,")),
        "{csv}"
    );
}

#[test]
fn what_local_would_not_heed_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let cases: [(&[&str], &str); 9] = [
        (&["--model", "gang"], "there is no node scheduler `gang`; there are lin, imp,"),
        (&["--model", "lin", "--mco", "2"], "--mco bounds `dyn` and `pre`"),
        (&["--csv", "x.csv"], "give --model"),
        (&["--pdt", "1.5"], "pdt = 1.5: it must be above 0 and at most 1"),
        (&["--policy", "gang"], "leave --policy out"),
        (&["--queue", "easy"], "leave --queue out"),
        (&["--workload", "a.swf"], "leave --workload out"),
        (&["--svg", "x.svg"], "leave --svg out"),
        (&["--memory", "1GiB"], "leave --memory out"),
    ];
    for (arguments, said) in cases {
        let output = local(directory.path(), arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(said), "{arguments:?} says {error}");
    }
}
