//! Replay: from the journal of a live run the scheduler makes the same decisions again in the simulator.

use std::{process::Command, time::Duration};

use coswitch_report::journal::Event;
use coswitch_tests::{cluster::RUN_LIMIT, master::Master, parts};
use serde_json::Value;

/// Gangs that take turns with sequential switches; one arrives while others run.
const PLAIN: &str = r#"
cluster: {nodes: 2, memory: 128MiB, store: "{store}"}
scheduler: {policy: hybrid, quantum: 500ms, switching: sequential, residency: none}
jobs:
  - name: computes
    command: ["{bin}/ep", --class, W, --seconds, "2"]
    ranks: 2
    memory: 70MiB
  - name: other
    command: ["{bin}/ring-check", --seconds, "2", --max-bytes, 64KiB]
    ranks: 2
    memory: 70MiB
  - name: late
    command: ["{bin}/ep", --class, S]
    ranks: 2
    memory: 50MiB
    arrival: 1s
"#;

/// A run whose decisions depend on measurements: the pairs of jobs, and the time at which the next row is
/// fetched.
const MEASURED: &str = r#"
cluster: {nodes: 2, memory: 160MiB, network: {rate: 100Mbit}, store: "{store}"}
scheduler: {policy: paired, quantum: 1200ms, switching: prefetch, residency: planned}
jobs:
  - name: talks
    command: ["{bin}/cg", --class, W, --seconds, "1"]
    ranks: 2
    memory: 75MiB
    count: 2
  - name: computes
    command: ["{bin}/ep", --class, W, --seconds, "2"]
    ranks: 2
    memory: 75MiB
"#;

fn run_and_replay(run_file: &str) -> Vec<Event> {
    let master = Master::run(run_file);
    let out = master.out();
    let mut replayed = None;
    let ended = master.end_with(RUN_LIMIT, Duration::ZERO, || {
        replayed =
            Command::new(parts::coswitch()).args(["simulate", "--output", "json"]).arg(&out).output().ok();
    });
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let replayed = replayed.expect("coswitch starts");
    let complaints = String::from_utf8_lossy(&replayed.stderr);
    assert!(replayed.status.success(), "{complaints}\n{:#?}", ended.events);
    let counts: Value = serde_json::from_slice(&replayed.stdout).expect("it answers in JSON");
    let is_decision = |kind: &&Event| matches!(kind, Event::SwitchStarted { .. } | Event::SlotStarted { .. });
    let kinds: Vec<Event> = ended.events.into_iter().map(|event| event.kind).collect();
    let events = kinds.iter().filter(is_decision).count();
    assert_eq!(counts["decisions"], events, "each decision was compared");
    kinds
}

#[test]
fn replay_of_a_live_run_makes_the_same_decisions() {
    let events = run_and_replay(PLAIN);
    let restored = |kind: &&Event| matches!(kind, Event::SwitchEnded { bytes_in, .. } if bytes_in.0 > 0);
    assert!(events.iter().any(|kind| restored(&kind)), "there is something to decide: {events:#?}");
}

#[test]
fn replay_of_a_live_run_with_measurements_makes_the_same_decisions() {
    let events = run_and_replay(MEASURED);
    assert!(events.iter().any(|kind| matches!(kind, Event::JobMeasured { .. })), "{events:#?}");
}
