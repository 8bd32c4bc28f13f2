//! Partitions of a run file that are wrong: for each, `check` names line and field.

use std::{fs, process::Command};

use serde_json::Value;

const BAD_INPUT: i32 = 2;

/// With one thing in it to replace.
const RUN: &str = "cluster: {nodes: 2, memory: 1GiB}
scheduler:
  policy: batch
  partitions:
    - {name: day, nodes: [0], priority: 5, users: [root, 1000]}
    - {name: night, nodes: [1]}
jobs:
  - {name: ep, command: [sh, -c, exit], ranks: 1, memory: 20MiB, partition: day}
";

/// The exit code and the answer of `coswitch check`.
fn check(run_file: &str) -> (Option<i32>, Value) {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("run.yaml"), run_file).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_coswitch"));
    let output = command
        .current_dir(directory.path())
        .args(["--output", "json", "check", "run.yaml"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), serde_json::from_str(&text).unwrap_or_else(|_| panic!("{output:?}")))
}

#[test]
fn priority_and_users_of_a_partition_are_read() {
    let (code, answer) = check(RUN);
    assert_eq!(code, Some(0), "{answer}");
    let queue = &answer["scheduler"]["sets"]["layout"]["queues"][0];
    assert_eq!((&queue["rank"], &queue["users"][0]["name"]), (&5.into(), &"root".into()), "{answer}");
    let numbers = [0, 1].map(|place| queue["users"][place]["number"].as_u64());
    assert_eq!(numbers, [Some(0), Some(1000)]);
    let other = &answer["scheduler"]["sets"]["layout"]["queues"][1];
    assert!(other["rank"].is_null() && other["users"].is_null(), "all users, and no priority: {other}");
}

#[test]
fn each_mistake_is_reported_with_line_and_field() {
    let path = "scheduler.partitions[0]";
    for (old, new, field, says) in [
        ("priority: 5", "priority: high", "priority", "not a whole number from -1000 to 1000"),
        ("priority: 5", "priority: 1001", "priority", "not a whole number from -1000 to 1000"),
        ("[root, 1000]", "[root, nobody-here]", "users[1]", "this machine has no user `nobody-here`"),
        ("[root, 1000]", "[-1]", "users[0]", "this machine has no user `-1`"),
        ("[root, 1000]", "[]", "users", "it takes jobs of no user"),
        ("[root, 1000]", "root", "users", "belongs"),
        ("priority: 5", "prioritty: 5", "prioritty", "did you mean `priority`?"),
    ] {
        let (code, answer) = check(&RUN.replace(old, new));
        assert_eq!(code, Some(BAD_INPUT), "{new}: {answer}");
        let [problem] = answer["problems"].as_array().unwrap().as_slice() else { panic!("{new}: {answer}") };
        assert_eq!(problem["field"], format!("{path}.{field}"), "{new}: {answer}");
        assert_eq!(problem["line"], 5, "{new}: {answer}");
        assert!(problem.to_string().contains(says), "{new}: {answer}");
    }
}

#[test]
fn a_word_for_heartbeats_that_is_none_is_refused() {
    let (code, answer) = check(&RUN.replace("memory: 1GiB}", "memory: 1GiB, heartbeats: treee}"));
    assert_eq!(code, Some(BAD_INPUT), "{answer}");
    let problem = &answer["problems"][0];
    assert_eq!((&problem["field"], &problem["line"]), (&"cluster.heartbeats".into(), &1.into()));
    assert!(problem.to_string().contains("did you mean `tree`?"), "{problem}");
}
