//! Ends of `coswitch run`: at any instant and for any reason the exit code is right and nothing is left of
//! the run.

use std::{fs, time::Duration};

use coswitch_policies::{Cause, JobId};
use coswitch_report::journal::{self, Event, JobOutcome, RunEvent, RunOutcome};
use coswitch_tests::{
    cluster::{RUN_LIMIT, STEP_LIMIT},
    master::Master,
    seed::{seed, span},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Two gangs that never end and take turns, with a switch about every second.
const ENDLESS: &str = r#"
cluster: {nodes: 2, memory: 192MiB, store: "{store}"}
scheduler: {policy: gang, quantum: 700ms, switching: sequential, residency: none}
jobs:
  - name: traffic
    command: ["{bin}/ring-check", --rounds, "100000000", --max-bytes, 256KiB]
    ranks: 4
    memory: 80MiB
  - name: cg
    command: ["{bin}/cg", --class, A, --repeat, "100000"]
    ranks: 2
    memory: 90MiB
"#;

/// Daemons notice the master's death by its closed connection, at the latest by missing heartbeats.
const CLEAN_LIMIT: Duration = Duration::from_secs(8);

fn switches(master: &Master) -> usize {
    let ended = |kind: &Event| matches!(kind, Event::SwitchEnded { bytes_out, .. } if bytes_out.0 > 0);
    master.events().iter().filter(|event| ended(&event.kind)).count()
}

fn wait_for_switches(master: &mut Master, count: usize) {
    master.wait_until("switches", RUN_LIMIT, |master| switches(master) >= count);
}

/// Whether the job's ranks run and no switch has begun since.
fn computes(master: &Master, job: u32) -> bool {
    let mut last = None;
    for event in master.events() {
        match event.kind {
            Event::JobRunning { job: JobId(number) } if number == job => last = Some(true),
            Event::SwitchStarted { .. } => last = Some(false),
            _ => {}
        }
    }
    last == Some(true)
}

fn kill_one(master: &Master, name: &str) {
    let victim = *master.processes(name).last().expect("there is such a process");
    kill(Pid::from_raw(victim.cast_signed()), Signal::SIGKILL).expect("it runs");
}

/// Two jobs that soon use more memory than they declare, and more than the store takes of a node.
const NOWHERE_TO_GO: &str = r#"
cluster: {nodes: 2, memory: 192MiB, store: [{directory: "{store}", size: 40MiB}]}
scheduler: {policy: gang, quantum: 200ms, switching: sequential, residency: none}
jobs:
  - name: heat
    command: ["{bin}/heat", --memory, 72MiB, --seconds, "3"]
    ranks: 2
    memory: 24MiB
    count: 2
"#;

#[test]
fn jobs_for_which_the_store_is_full_run_to_their_ends() {
    let ended = Master::run(NOWHERE_TO_GO).end(RUN_LIMIT, Duration::ZERO);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let rejected = ended.events.iter().filter(|event| match &event.kind {
        Event::SwitchEnded { misplaced, .. } => misplaced.iter().any(|job| job.cause == Cause::NoRoom),
        _ => false,
    });
    assert!(rejected.count() > 3, "three failures of its own would have ended it: {ended:?}");
    let warned = |event: &RunEvent| match &event.kind {
        Event::Warning { text } => text.contains("the store is full"),
        _ => false,
    };
    assert!(ended.events.iter().any(warned), "{ended:?}");
}

#[test]
fn run_that_exceeds_its_time_limit_is_ended_with_its_own_exit_code() {
    let master = Master::with_arguments(&["run", "--limit", "3s"], ENDLESS);
    let ended = master.end(RUN_LIMIT, Duration::ZERO);
    assert_eq!(ended.code, Some(5), "{ended:?}");
    let last = ended.events.last().map(|event| &event.kind);
    assert_eq!(last, Some(&Event::RunEnded { outcome: RunOutcome::TimedOut }));
}

#[test]
fn interrupted_run_ends_all_jobs_with_its_own_exit_code() {
    let mut master = Master::run(ENDLESS);
    wait_for_switches(&mut master, 2);
    master.signal(Signal::SIGINT);
    let ended = master.end(STEP_LIMIT, Duration::ZERO);
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    assert!(matches!(
        ended.events.last().unwrap().kind,
        Event::RunEnded { outcome: RunOutcome::Interrupted }
    ));
}

#[test]
fn run_interrupted_while_its_nodes_are_made_ends_like_any_other() {
    let mut master = Master::run(ENDLESS);
    let journal = master.out().join(journal::FILE_NAME);
    master.wait_until("the journal", STEP_LIMIT, |_| journal.exists());
    master.signal(Signal::SIGTERM);
    let ended = master.end(STEP_LIMIT, Duration::ZERO);
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
}

#[test]
fn run_interrupted_at_any_instant_leaves_nothing() {
    let mut seed = seed();
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut master = Master::run(ENDLESS);
        master.wait_until("the start", STEP_LIMIT, |master| !master.events().is_empty());
        std::thread::sleep(span(&mut seed, Duration::from_secs(4)));
        master.signal(signal);
        let ended = master.end(STEP_LIMIT, Duration::ZERO);
        assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    }
}

#[test]
fn nothing_outlives_a_killed_master() {
    let mut seed = seed();
    for switched in [0, 1] {
        let mut master = Master::run(ENDLESS);
        wait_for_switches(&mut master, switched);
        std::thread::sleep(span(&mut seed, Duration::from_secs(2)));
        master.signal(Signal::SIGKILL);
        let ended = master.end(STEP_LIMIT, CLEAN_LIMIT);
        assert_eq!(ended.code, None);
    }
}

#[test]
fn job_with_a_killed_rank_fails_with_the_signal_and_the_others_succeed() {
    let mut master = Master::run(
        r#"
cluster: {nodes: 2, memory: 256MiB}
scheduler: {policy: gang, quantum: 1s, switching: sequential, residency: none}
jobs:
  - name: victim
    command: ["{bin}/ring-check", --rounds, "100000000"]
    ranks: 2
    memory: 90MiB
  - name: other
    command: ["{bin}/cg", --class, A, --seconds, "2"]
    ranks: 2
    memory: 90MiB
"#,
    );
    wait_for_switches(&mut master, 1);
    // The rank must compute: killing a process that is being restored would only make the restore fail.
    master.wait_until("the victim's turn", RUN_LIMIT, |master| computes(master, 0));
    kill_one(&master, "ring-check");
    let ended = master.end(RUN_LIMIT, Duration::ZERO);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(ended.job("victim")["outcome"], serde_json::to_value(JobOutcome::Signal(9)).unwrap());
    assert_eq!(ended.job("other")["outcome"], serde_json::to_value(JobOutcome::Exit(0)).unwrap());
}

#[test]
fn missing_program_is_rejected_before_any_process_starts() {
    let master = Master::run(
        r#"
cluster: {nodes: 1, memory: 256MiB}
jobs:
  - name: nothing
    command: ["{bin}/no-such-program"]
    ranks: 1
    memory: 50MiB
"#,
    );
    let ended = master.end(STEP_LIMIT, Duration::ZERO);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.events.is_empty());
}

#[test]
fn damaged_image_of_a_parked_job_fails_only_that_job() {
    let mut master = Master::run(
        r#"
cluster: {nodes: 2, memory: 192MiB, store: "{store}"}
scheduler: {policy: gang, quantum: 2s, switching: sequential, residency: none}
jobs:
  - name: victim
    command: ["{bin}/ring-check", --rounds, "100000000"]
    ranks: 2
    memory: 90MiB
  - name: other
    command: ["{bin}/cg", --class, A, --seconds, "3"]
    ranks: 2
    memory: 90MiB
"#,
    );
    let manifest = |master: &Master| {
        let node = fs::read_dir(master.store()).ok()?.flatten().find(|node| node.path().ends_with("n1"));
        let node = node.or_else(|| fs::read_dir(master.store()).ok()?.flatten().next())?;
        let epoch = node.path().join("job-0/epoch-1");
        epoch.join("manifest.json").exists().then_some(epoch)
    };
    master.wait_until("the first snapshot", RUN_LIMIT, |master| manifest(master).is_some());
    let epoch = manifest(&master).unwrap();
    let pages = fs::read_dir(epoch.join("images")).unwrap().flatten().map(|entry| entry.path());
    let largest = pages.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&largest).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    let ended = master.end(RUN_LIMIT, Duration::ZERO);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let why = ended.job("victim")["outcome"].to_string();
    assert!(
        why.contains("could not be restored") && why.contains(largest.file_name().unwrap().to_str().unwrap()),
        "{why}"
    );
    assert_eq!(ended.job("other")["outcome"], serde_json::to_value(JobOutcome::Exit(0)).unwrap());
}
