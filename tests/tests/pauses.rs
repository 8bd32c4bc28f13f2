//! Pauses: the master, a daemon, or what the master writes to stands still for a while. No work is lost, and
//! what was lost for good is still cleaned up.

use std::{fs::File, thread, time::Duration};

use coswitch_report::journal::{Event, JobOutcome};
use coswitch_tests::{
    cluster::{RUN_LIMIT, STEP_LIMIT},
    master::{Ended, Master},
};
use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    sys::signal::{Signal, kill},
    unistd::{Pid, pipe, write},
};

/// Two gangs that take turns: one verifies its messages, and one needs fifteen seconds of its own on any
/// machine. `{cluster}` stands for further settings.
const TURNS: &str = r#"
cluster: {nodes: 2, memory: 192MiB, store: "{store}"{cluster}}
scheduler: {policy: gang, quantum: 700ms, switching: sequential, residency: none}
jobs:
  - name: traffic
    command: ["{bin}/ring-check", --rounds, "500", --max-bytes, 256KiB]
    ranks: 4
    memory: 80MiB
  - name: ticks
    command: [/bin/sh, -c, "i=0; while [ $i -lt 150 ]; do sleep 0.1; i=$((i+1)); done"]
    ranks: 2
    memory: 90MiB
"#;

/// Longer than the silence after which a peer was given up once.
const PAUSE: Duration = Duration::from_secs(15);
const CLEAN_LIMIT: Duration = Duration::from_secs(8);

fn run_file(cluster: &str) -> String {
    TURNS.replace("{cluster}", cluster)
}

fn started(cluster: &str) -> Master {
    let mut master = Master::run(&run_file(cluster));
    wait_for_a_switch(&mut master);
    master
}

fn wait_for_a_switch(master: &mut Master) {
    master.wait_until("a switch", RUN_LIMIT, |master| {
        let ended = |kind: &Event| matches!(kind, Event::SwitchEnded { bytes_out, .. } if bytes_out.0 > 0);
        master.events().iter().any(|event| ended(&event.kind))
    });
}

fn assert_all_verified(ended: &Ended) {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for job in ["traffic", "ticks"] {
        assert_eq!(ended.job(job)["outcome"], serde_json::to_value(JobOutcome::Exit(0)).unwrap());
    }
}

fn signal_one(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).expect("it runs");
}

#[test]
fn jobs_wait_for_a_stopped_master_and_verify() {
    let master = started("");
    master.signal(Signal::SIGSTOP);
    thread::sleep(PAUSE);
    assert_eq!(master.processes("coswitchd").len(), 2, "the daemons wait");
    master.signal(Signal::SIGCONT);
    let ended = master.end(RUN_LIMIT, Duration::ZERO);
    assert_all_verified(&ended);
    let frozen = ended.events.iter().filter_map(|event| match event.kind {
        Event::JobsStoodStill { frozen, .. } => Some(frozen),
        _ => None,
    });
    let frozen: Vec<_> = frozen.collect();
    assert!(frozen.len() == 2 && frozen.iter().all(|frozen| *frozen > PAUSE / 3), "{frozen:?}");
    let warnings = ended.report.as_ref().unwrap()["warnings"].to_string();
    assert!(warnings.contains("stood still"), "{warnings}");
}

/// While daemons start, connect to the master and to each other, and while ranks are launched.
#[test]
fn a_run_begins_although_its_master_is_stopped_meanwhile() {
    for after in [50, 150, 300, 600] {
        let text = run_file("").replace("-lt 150", "-lt 20").replace("\"500\"", "\"20\"");
        let master = Master::run(&text);
        thread::sleep(Duration::from_millis(after));
        master.signal(Signal::SIGSTOP);
        thread::sleep(PAUSE / 2);
        master.signal(Signal::SIGCONT);
        assert_all_verified(&master.end(RUN_LIMIT, Duration::ZERO));
    }
}

#[test]
fn a_stopped_daemon_is_waited_for_and_its_jobs_verify() {
    let master = started("");
    let daemon = master.processes("coswitchd")[0];
    signal_one(daemon, Signal::SIGSTOP);
    thread::sleep(Duration::from_secs(10));
    signal_one(daemon, Signal::SIGCONT);
    let ended = master.end(RUN_LIMIT, Duration::ZERO);
    assert_all_verified(&ended);
    let was_silent = |kind: &Event| matches!(kind, Event::NodeWasSilent { .. });
    assert!(ended.events.iter().any(|event| was_silent(&event.kind)), "{ended:?}");
}

#[test]
fn nothing_outlives_a_master_that_is_killed_while_it_is_stopped() {
    let master = started("");
    master.signal(Signal::SIGSTOP);
    thread::sleep(Duration::from_secs(8));
    master.signal(Signal::SIGKILL);
    assert_eq!(master.end(STEP_LIMIT, CLEAN_LIMIT).code, None);
}

#[test]
fn daemons_end_when_their_patience_with_a_stopped_master_ends_and_it_starts_others() {
    let mut master = started(", stop_after: 7s");
    master.signal(Signal::SIGSTOP);
    master.wait_until("the daemons to end", STEP_LIMIT, |master| master.processes("coswitchd").is_empty());
    master.signal(Signal::SIGCONT);
    assert_all_verified(&master.end(RUN_LIMIT, CLEAN_LIMIT));
}

#[test]
fn a_terminal_that_hangs_up_ends_no_run() {
    let master = started("");
    master.signal(Signal::SIGHUP);
    assert_all_verified(&master.end(RUN_LIMIT, Duration::ZERO));
}

/// A pipe that is full, and its end for reading.
fn full_pipe() -> (File, File) {
    let (reader, writer) = pipe().expect("a pipe");
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("a pipe does not need to block");
    while write(&writer, &[b'x'; 4096]).is_ok() {}
    while write(&writer, b"x").is_ok() {}
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).expect("a pipe may block");
    (reader.into(), writer.into())
}

#[test]
fn a_run_ends_well_although_nobody_reads_what_it_shows() {
    let (_unread, shown) = full_pipe();
    let master = Master::showing(shown.into(), &run_file(""));
    let ended = master.end(RUN_LIMIT, Duration::ZERO);
    assert_all_verified(&ended);
}
