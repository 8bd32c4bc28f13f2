//! Jobs that are scripts: their processes come and go all the time.

use std::fs;

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
