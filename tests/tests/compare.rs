//! `coswitch compare` on real programs: every policy runs `--repeat` times, and its figures are those of its
//! runs.

use std::{fs, time::Duration};

use coswitch_report::journal::{self, Event};
use coswitch_tests::{cluster::RUN_LIMIT, master::Master};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// Two jobs, each of which fits alone and which do not fit together.
const TWO: &str = r#"
cluster: {nodes: 2, memory: 128MiB}
scheduler: {policy: cosched, quantum: 700ms}
jobs:
  - {name: heat, command: ["{bin}/heat", --memory, 40MiB, --seconds, "1"], ranks: 2, memory: 70MiB}
  - {name: cg, command: ["{bin}/cg", --class, W, --seconds, "1"], ranks: 2, memory: 70MiB}
"#;

#[test]
fn policies_take_turns_and_each_is_reported_with_its_own_runs() {
    let arguments =
        ["compare", "--policies", "batch,gang", "--switching", "sequential,prefetch", "--repeat", "2"];
    let master = Master::with_arguments(&arguments, TWO);
    let out = master.out();
    let mut switched = Vec::new();
    let ended = master.end_with(2 * RUN_LIMIT, Duration::ZERO, || {
        for run in ["batch/turn-1", "batch/turn-2", "gang-sequential/turn-1", "gang-prefetch/turn-2"] {
            let events =
                journal::read(&out.join(run).join(journal::FILE_NAME)).expect("a journal of each run");
            switched.push(coswitch_report::fold(&events).set.switches);
            let said = fs::read_to_string(out.join(run).join("heat/rank-0.out")).unwrap();
            assert!(said.contains("VERIFICATION SUCCESSFUL"), "{run}: {said}");
        }
        assert!(out.join("alone/cg").join(journal::FILE_NAME).exists(), "times alone are measured");
    });
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(switched[..2], [0, 0], "batch does not switch");
    let report = ended.report.expect("a comparison");
    let arms = report["arms"].as_array().unwrap();
    let told = |arm: &Value| {
        (arm["policy"].as_str().map(str::to_owned), arm["switching"].as_str().map(str::to_owned))
    };
    let names: Vec<_> = arms.iter().map(told).collect();
    let gang = |order: &str| (Some("gang".to_owned()), Some(order.to_owned()));
    assert_eq!(names, [(Some("batch".into()), None), gang("sequential"), gang("prefetch")]);
    for arm in arms {
        assert_eq!(
            (arm["done"].as_u64(), arm["failed"].as_u64(), arm["timed_out"].as_u64()),
            (Some(2), Some(0), Some(0))
        );
        let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("no number in {arm}"));
        let [median, min, max] = ["median", "min", "max"].map(|of| number(&arm["makespan"][of]));
        assert!(0.0 < min && min <= median && median <= max, "{arm}");
        assert!(number(&arm["by_best"]) >= 1.0 && number(&arm["by_batch"]) > 0.0, "{arm}");
        assert!((0.0..=1.0).contains(&number(&arm["waiting"])), "{arm}");
        assert!(number(&arm["tradeoff"]) > 0.0, "the times alone are known: {arm}");
    }
    assert_eq!(arms[0]["by_batch"].as_f64(), Some(1.0));
}

#[test]
fn job_too_large_for_a_policy_is_rejected_before_any_run() {
    let too_large = TWO.replace("memory: 128MiB", "memory: 64MiB");
    let ended = Master::with_arguments(&["compare", "--policies", "cosched,hybrid"], &too_large)
        .end(RUN_LIMIT, Duration::ZERO);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("larger than a node"), "{}", ended.stderr);
}

fn has_begun(master: &Master, run: &str) -> bool {
    let events = journal::read(&master.out().join(run).join(journal::FILE_NAME)).unwrap_or_default();
    events.iter().any(|event| matches!(event.kind, Event::JobRunning { .. }))
}

/// Interrupts a comparison of four runs while jobs run in `run`.
fn interrupted_in(run: &str, signal: Signal) -> (Value, String) {
    let arguments = ["compare", "--policies", "batch,gang", "--repeat", "2", "--limit", "10m"];
    let mut master = Master::telling(&arguments, TWO);
    master.wait_until(run, 2 * RUN_LIMIT, |master| has_begun(master, run));
    master.signal(signal);
    let ended = master.end(RUN_LIMIT, Duration::ZERO);
    assert_eq!(ended.code, Some(130), "{ended:?}");
    (ended.report.expect("a comparison"), ended.stderr)
}

#[test]
fn interrupted_comparison_is_of_the_runs_that_have_ended() {
    let (report, stderr) = interrupted_in("gang-prefetch/turn-1", Signal::SIGINT);
    assert_eq!(report["partial"], json!({"stopped": "interrupted", "ended": 1, "planned": 4}));
    assert_eq!((&report["arms"][0]["done"], &report["arms"][1]["done"]), (&json!(1), &json!(0)));
    assert!(report["arms"][0]["makespan"]["median"].as_f64().unwrap() > 1.0, "{report}");
    for line in [
        "comparing: 2 jobs alone first, then 4 runs (2 policies × 2 turns); each run ends after 10 min",
        "alone 1 of 2: heat",
        "comparing: 4 runs are to come, about ",
        "run 1 of 4: batch, turn 1, about ",
        "run 1 of 4: batch: done in ",
        "3 runs left, about ",
        "run 2 of 4: gang, prefetch, turn 1, about ",
    ] {
        assert!(stderr.contains(line), "no line {line:?} in {stderr}");
    }
}

#[test]
fn comparison_that_is_interrupted_while_jobs_run_alone_has_no_runs() {
    let (report, _) = interrupted_in("alone/cg", Signal::SIGTERM);
    assert_eq!(report["partial"], json!({"stopped": "interrupted", "ended": 0, "planned": 4}));
    assert_eq!(report["arms"][0]["makespan"], Value::Null);
}

#[test]
fn comparison_begins_no_run_once_its_time_is_over() {
    let known = TWO.replace("ranks: 2", "alone: 1s, ranks: 2");
    let arguments = ["compare", "--policies", "batch,gang,hybrid", "--repeat", "2", "--within", "500ms"];
    let ended = Master::with_arguments(&arguments, &known).end(2 * RUN_LIMIT, Duration::ZERO);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let report = ended.report.expect("a comparison");
    assert_eq!(report["partial"], json!({"stopped": "within", "ended": 1, "planned": 6}));
}
