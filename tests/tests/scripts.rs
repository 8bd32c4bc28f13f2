//! Jobs that are scripts: their processes come and go all the time, and one goes on where another has ended.

use std::fs;

use coswitch_report::journal::Event;
use coswitch_tests::{
    cluster::RUN_LIMIT,
    master::Master,
    serving::{CLEAN_LIMIT, switches},
};

/// The shell makes each child by `vfork`, and waits in it for half of the time.
const SHELLS: &str = r#"
cluster: {nodes: 1, memory: 150MiB, store: "{store}"}
scheduler: {policy: gang, quantum: 300ms, residency: none, switching: sequential}
jobs:
  - name: shell
    command:
      - /bin/sh
      - -c
      - "end=$(($(date +%s) + 8)); while [ $(date +%s) -lt $end ]; do /bin/true; done; echo whole"
    ranks: 1
    memory: 90MiB
    count: 2
"#;

#[test]
fn shells_that_start_programs_without_a_pause_are_switched() {
    let master = Master::run(SHELLS);
    let out = master.out();
    let ended = master.end_with(RUN_LIMIT, CLEAN_LIMIT, || {
        for job in ["shell-1", "shell-2"] {
            let said = fs::read_to_string(out.join(job).join("rank-0.out")).expect("an output");
            assert_eq!(said, "whole\n", "{job}");
        }
    });
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(switches(&ended.events) > 5, "{:?}", ended.events);
}

const CHAIN: &str = r#"
cluster: {nodes: 1, memory: 150MiB, store: "{store}"}
scheduler: {policy: gang, quantum: 300ms}
jobs:
  - name: part
    count: 2
    ranks: 1
    memory: 9MiB
    command: [/bin/sh, -c, "sleep 1; echo part >> {store}/../sum"]
  - {name: sum, after: [part], ranks: 1, memory: 9MiB, command: [/bin/sh, -c, "wc -l < {store}/../sum"]}
  - {name: fails, after: [sum], ranks: 1, memory: 9MiB, command: [/bin/false]}
  - {name: never, after: [sum, fails], ranks: 1, memory: 9MiB, command: [/bin/true]}
"#;

#[test]
fn jobs_of_a_run_file_follow_those_that_they_name() {
    let master = Master::run(CHAIN);
    let out = master.out();
    let ended = master.end_with(RUN_LIMIT, CLEAN_LIMIT, || {
        let said = fs::read_to_string(out.join("sum/rank-0.out")).expect("an output");
        assert_eq!(said, "2\n", "both parts came before");
    });
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let outcomes: Vec<String> = ended
        .events
        .iter()
        .filter_map(|event| match &event.kind {
            Event::JobFinished { job, outcome, .. } if job.0 > 1 => Some(outcome.to_string()),
            _ => None,
        })
        .collect();
    let follows = "job-3, which it was to follow, did not succeed";
    assert!(outcomes[0] == "ok" && outcomes[2].contains(follows), "{outcomes:?}");
}
