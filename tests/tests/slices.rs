//! Warm gang switching: jobs that are in memory together take slices, and none computes in a slice of others.

use std::{
    fs,
    time::{Duration, Instant},
};

use coswitch_report::journal::{Event, RunEvent};
use coswitch_tests::{
    cluster::{RUN_LIMIT, STEP_LIMIT},
    master::{Ended, Master},
    seed::{seed, span},
    serving::{accepted, check_right, end, serve, state, submit, wait_served},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Each job has one rank, and the node a processor for each, where the machine has two.
const ONE_NODE: &str = r#"
cluster: {nodes: 1, memory: 1GiB, store: "{store}"}
scheduler: {policy: hybrid, slice: 300ms}
jobs:
  - {name: one, ranks: 1, memory: 60MiB, command: ["{bin}/heat", --memory, 20MiB, --seconds, "4"]}
  - {name: two, ranks: 1, memory: 60MiB, command: ["{bin}/heat", --memory, 20MiB, --seconds, "4"]}
"#;
/// Two sets of two jobs, which switch by CRIU while each of them takes slices.
const TWO_SETS: &str = r#"
cluster: {nodes: 2, memory: 200MiB, store: "{store}"}
scheduler: {policy: hybrid, quantum: 2s, residency: none, slice: 5ms}
jobs:
  - {name: heat, count: 2, ranks: 2, memory: 90MiB, command: ["{bin}/heat", --memory, 40MiB, --seconds, "2"]}
  - {name: ring, count: 2, ranks: 2, memory: 90MiB,
     command: ["{bin}/ring-check", --seconds, "2", --max-bytes, 64KiB]}
"#;
const SERVED: &str = r#"
cluster: {nodes: 2, memory: 400MiB, store: "{store}"}
scheduler: {policy: hybrid, quantum: 60s, slice: 10ms}
"#;
const LONG: &[&str] = &["{bin}/heat", "--memory", "40MiB", "--seconds", "4"];

/// The processor time of a process.
fn used(pid: u32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

fn rows(events: &[RunEvent]) -> Vec<usize> {
    let rows = |event: &RunEvent| match &event.kind {
        Event::SlicesBegun { rows, .. } => Some(rows.len()),
        _ => None,
    };
    events.iter().filter_map(rows).collect()
}

/// The warm switches of a run; no job has computed in a slice of others.
fn warm_switches(ended: &Ended) -> u64 {
    let slices = &ended.report.as_ref().expect("a report")["slices"];
    assert_eq!(slices["overlap_s"], 0.0, "{slices}");
    slices["switches"].as_u64().expect("a number")
}

/// By the run times that the kernel counts, read from outside.
#[test]
fn two_jobs_never_compute_at_the_same_time() {
    let mut master = Master::run(ONE_NODE);
    master.wait_until("both ranks", STEP_LIMIT, |master| {
        master.processes("heat").len() == 2 && rows(&master.events()).contains(&2)
    });
    let ranks = master.processes("heat");
    let read = || -> Option<Vec<Duration>> { ranks.iter().map(|pid| used(*pid)).collect() };
    std::thread::sleep(Duration::from_millis(100));
    let (began, before) = (Instant::now(), read().expect("both live"));
    std::thread::sleep(Duration::from_secs(3));
    let (after, passed) = (read().expect("both live"), began.elapsed());
    let computed: Vec<Duration> = before.iter().zip(&after).map(|(before, after)| *after - *before).collect();
    let both: Duration = computed.iter().sum();
    assert!(both <= passed, "{computed:?} in {passed:?}");
    assert!(computed.iter().all(|one| *one > both / 4), "each has its slices: {computed:?}");
    let ended = master.end(RUN_LIMIT, Duration::ZERO);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    warm_switches(&ended);
}

#[test]
fn sets_that_leave_memory_take_slices_while_they_are_there() {
    let ended = Master::run(TWO_SETS).end(RUN_LIMIT, Duration::ZERO);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(rows(&ended.events).iter().all(|rows| *rows <= 4));
    let cold = ended.report.as_ref().expect("a report")["set"]["switches"].as_u64().expect("a number");
    assert!(warm_switches(&ended) > cold && cold > 0);
}

/// A job that stands still because it is not its slice is whole for the next daemon, and for the next master.
#[test]
fn slices_go_on_under_the_next_daemon_and_the_next_master() {
    let mut seed = seed();
    let mut master = serve(SERVED);
    let names = ["one", "two"];
    names.iter().for_each(|name| drop(accepted(&submit(&master, &["--name", name], LONG))));
    master.wait_until("slices", STEP_LIMIT, |master| rows(&master.events()).contains(&2));
    for _ in 0..2 {
        std::thread::sleep(span(&mut seed, Duration::from_millis(800)));
        let daemons = master.processes("coswitchd");
        let _ = kill(Pid::from_raw(daemons[0].cast_signed()), Signal::SIGKILL);
        let strobes = rows(&master.events()).len();
        master.wait_until("the next strobe", STEP_LIMIT, |master| rows(&master.events()).len() > strobes);
        master.kill();
        master.start_next();
        wait_served(&mut master);
    }
    let waited = master.user(&["wait"]);
    assert_eq!(waited.code, Some(0), "{waited:?}");
    for name in names {
        assert_eq!(state(&master, name), "done");
        check_right(&master, name);
    }
    end(master);
}
