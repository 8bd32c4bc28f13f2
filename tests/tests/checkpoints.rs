//! Jobs that never leave memory are checkpointed while they run, and go back to that where a node is lost.

use std::{fs, path::Path, time::Duration};

use coswitch_report::journal::{Event, RunEvent};
use coswitch_tests::{
    cluster::{RUN_LIMIT, STEP_LIMIT},
    master::Master,
    seed::{seed, span},
    serving::{CLEAN_LIMIT, VERIFIED, accepted, check_right, end, serve, state, submit, wait_served},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Computes for so long that it is checkpointed more than once.
const HEAT: &[&str] = &["{bin}/heat", "--memory", "40MiB", "--seconds", "7"];
/// One job alone has all turns. Nodes that fail so often make a checkpoint every few seconds worth while.
const CLUSTER: &str = r#"
cluster: {nodes: 2, memory: 150MiB, store: "{store}", mean_time_between_failures: 2s}
scheduler: {policy: gang, quantum: 400ms, residency: none}
"#;
const RUN: &str = r#"
cluster: {nodes: 2, memory: 150MiB, store: "{store}", mean_time_between_failures: 2s}
scheduler: {policy: gang, quantum: 400ms, residency: none}
jobs:
  - {name: heat, ranks: 2, memory: 60MiB, command: ["{bin}/heat", --memory, 40MiB, --seconds, "7"]}
"#;
/// A store without room for any snapshot; `park: suspend` needs none.
const FULL: &str = r#"
cluster:
  {nodes: 2, memory: 150MiB, store: [{directory: "{store}", size: 20MiB}], mean_time_between_failures: 2s}
scheduler: {policy: gang, quantum: 400ms, park: suspend}
jobs:
  - {name: heat, ranks: 2, memory: 60MiB, command: ["{bin}/heat", --memory, 40MiB, --seconds, "7"]}
"#;

fn count(events: &[RunEvent], is: fn(&Event) -> bool) -> usize {
    events.iter().filter(|event| is(&event.kind)).count()
}

fn is_checkpointed(event: &Event) -> bool {
    matches!(event, Event::JobCheckpointed { .. })
}

fn is_launched(event: &Event) -> bool {
    matches!(event, Event::JobLaunched { .. })
}

fn check_output(out: &Path) {
    let said = fs::read_to_string(out.join("heat").join("rank-0.out")).expect("an output");
    assert_eq!(said.matches(VERIFIED).count(), 1, "{said}");
}

fn kill_daemons(daemons: impl IntoIterator<Item = u32>) {
    for daemon in daemons {
        kill(Pid::from_raw(daemon.cast_signed()), Signal::SIGKILL).expect("it runs");
    }
}

#[test]
fn a_job_alone_is_checkpointed_while_it_runs_and_goes_on_from_there_when_a_daemon_is_killed() {
    let mut seed = seed();
    let mut master = Master::run(RUN);
    master.wait_until("a checkpoint", STEP_LIMIT, |master| count(&master.events(), is_checkpointed) > 0);
    std::thread::sleep(span(&mut seed, Duration::from_millis(1500)));
    kill_daemons(master.processes("coswitchd").into_iter().take(1));
    let out = master.out();
    let ended = master.end_with(RUN_LIMIT, CLEAN_LIMIT, || check_output(&out));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(count(&ended.events, |event| matches!(event, Event::NodeLost { .. })), 1);
    assert_eq!(count(&ended.events, is_launched), 1, "it has not begun again");
    let repeated = ended.events.iter().find_map(|event| match event.kind {
        Event::JobRepeats { work, .. } => Some(work),
        _ => None,
    });
    let lost_at = ended.events.iter().find(|event| matches!(event.kind, Event::NodeLost { .. }));
    let began = ended.events.iter().find(|event| matches!(event.kind, Event::JobRunning { .. }));
    let ran = lost_at.expect("it was").at.since(began.expect("it did").at);
    assert!(repeated.expect("it goes back") < ran, "{repeated:?} of {ran:?}");
    for event in &ended.events {
        if let Event::JobCheckpointed { bytes, stood_still, .. } = event.kind {
            assert!(bytes.0 > 40 << 20, "{bytes}");
            assert!(!stood_still.is_zero());
            eprintln!("{bytes} were written, the job stood still for {stood_still:?}");
        }
    }
}

/// It writes line after line to a file of its own, and the same to one that it has removed, and to another
/// one at the same path.
const WRITER: &str = r#"
cluster: {nodes: 1, memory: 150MiB, store: "{store}", mean_time_between_failures: 2s}
scheduler: {policy: gang, quantum: 400ms, residency: none}
jobs:
  - name: writer
    ranks: 1
    memory: 60MiB
    command:
      - /bin/sh
      - -c
      - "exec 3> {store}/../own 4> {store}/../removed; rm {store}/../removed; line=0;
        end=$(($(date +%s) + 7));
        while [ $(date +%s) -lt $end ]; do
        line=$((line + 1)); echo $line >&3; echo $line >&4; echo $line >> {store}/../removed; sleep 0.01;
        done; echo $line"
"#;

#[test]
fn a_file_that_a_job_writes_goes_back_with_it_and_what_was_written_since_is_kept_elsewhere() {
    let mut master = Master::run(WRITER);
    master.wait_until("a checkpoint", STEP_LIMIT, |master| count(&master.events(), is_checkpointed) > 0);
    std::thread::sleep(Duration::from_millis(700));
    kill_daemons(master.processes("coswitchd"));
    let (out, dir) = (master.out(), master.store().join(".."));
    let ended = master.end_with(RUN_LIMIT, CLEAN_LIMIT, || {
        let read = |name: &str| fs::read_to_string(dir.join(name)).expect("it is there");
        let last: usize = fs::read_to_string(out.join("writer/rank-0.out")).unwrap().trim().parse().unwrap();
        let lines: String = (1..=last).map(|line| format!("{line}\n")).collect();
        assert_eq!(read("own"), lines, "each line once");
        let aside = read("own.foreign-1");
        let numbers: Vec<usize> = aside.lines().map(|line| line.parse().expect("a number")).collect();
        assert!(numbers.len() > 10 && numbers.windows(2).all(|two| two[0] + 1 == two[1]), "{aside}");
        let repeated = read("removed").lines().count() - last;
        assert!(repeated >= numbers.len() - 1, "{repeated} lines of {last} twice: it is not the job's file");
    });
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(count(&ended.events, is_launched), 1, "it has not begun again");
}

#[test]
fn a_checkpoint_survives_all_daemons_and_the_master() {
    let mut master = serve(CLUSTER);
    accepted(&submit(&master, &["--name", "alone"], HEAT));
    master.wait_until("a checkpoint", STEP_LIMIT, |master| count(&master.events(), is_checkpointed) > 0);
    master.kill();
    kill_daemons(master.processes("coswitchd"));
    master.start_next();
    wait_served(&mut master);
    assert_eq!(master.user(&["wait"]).code, Some(0));
    check_right(&master, "alone");
    assert_eq!(count(&end(master).events, is_launched), 1, "it has gone on where it was");
}

#[test]
fn a_new_master_goes_on_with_a_job_that_was_being_checkpointed() {
    let mut seed = seed();
    let mut master = serve(CLUSTER);
    accepted(&submit(&master, &["--name", "alone"], HEAT));
    master.wait_until("a checkpoint", STEP_LIMIT, |master| count(&master.events(), is_checkpointed) > 0);
    for _ in 0..3 {
        std::thread::sleep(span(&mut seed, Duration::from_millis(1500)));
        if state(&master, "alone") == "done" {
            break;
        }
        master.kill();
        master.start_next();
        wait_served(&mut master);
    }
    assert_eq!(master.user(&["wait"]).code, Some(0));
    check_right(&master, "alone");
    assert_eq!(count(&end(master).events, is_launched), 1);
}

#[test]
fn a_checkpoint_for_which_there_is_no_room_leaves_the_job_running() {
    let master = Master::run(FULL);
    let out = master.out();
    let ended = master.end_with(RUN_LIMIT, CLEAN_LIMIT, || check_output(&out));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(count(&ended.events, is_checkpointed), 0);
    let refused = count(
        &ended.events,
        |event| matches!(event, Event::JobNotCheckpointed { reason, .. } if reason.contains("find room")),
    );
    assert!(refused > 0, "{}", ended.stderr);
    assert_eq!(count(&ended.events, is_launched), 1);
}
