//! Hosts whose disk is full or slow: jobs wait for their turns, and lose nothing.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use coswitch_policies::NodeId;
use coswitch_report::journal::{Event, RunEvent, SwitchStep};
use coswitch_tests::{
    cluster::{RUN_LIMIT, STEP_LIMIT},
    hosts::{self, Hosts},
    master::Master,
    serving::{CLEAN_LIMIT, VERIFIED, switches},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

const NAMES: [&str; 2] = ["alpha", "beta"];
const LOST_AFTER: Duration = Duration::from_secs(11);

/// Two jobs of 90 MiB on each node do not fit together. The second host keeps its images in `store`.
fn run_file(store: &str) -> String {
    format!(
        "cluster:\n  nodes: [alpha, {{host: beta, store: {store}}}]\n  memory: 150MiB\n  arena: 32MiB\n  \
         lost_after: {}s\n\
         scheduler: {{policy: gang, quantum: 400ms, residency: none}}\n\
         jobs: [{{name: heat, count: 2, ranks: 2, memory: 90MiB, \
         command: [\"{{bin}}/heat\", --memory, 40MiB, --seconds, \"2\"]}}]\n",
        LOST_AFTER.as_secs()
    )
}

/// The run to its end, after `meanwhile`: both jobs are right.
fn events_of(hosts: &Hosts, store: &str, meanwhile: impl FnOnce(&mut Master)) -> Vec<RunEvent> {
    let mut master = Master::on_hosts(hosts, &["run"], &run_file(store));
    meanwhile(&mut master);
    let out = master.out();
    let ended = master.end_with(RUN_LIMIT, CLEAN_LIMIT, || {
        for job in ["heat-1", "heat-2"] {
            let said = fs::read_to_string(out.join(job).join("rank-0.out")).expect("an output");
            assert!(said.contains(VERIFIED), "{job}: {said}");
        }
    });
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    ended.events
}

#[test]
fn a_job_that_the_disk_of_one_host_cannot_take_keeps_its_turn() {
    hosts::beside(&NAMES, |hosts| {
        let small = hosts.own().join("store/small").display().to_string();
        hosts.run(1, &["mkdir", &small]);
        // One image is larger.
        hosts.run(1, &["mount", "-t", "tmpfs", "-o", "size=30m,mode=700", "small", &small]);
        let events = events_of(hosts, &small, |_| ());
        let has_no_room = |event: &&RunEvent| format!("{:?}", event.kind).contains("NoRoom");
        assert!(events.iter().filter(has_no_room).count() > 1, "{events:?}");
    });
}

/// The process that writes stands still: as long as a disk that answers nothing.
#[test]
fn a_disk_that_answers_nothing_for_longer_than_lost_after_loses_no_node() {
    hosts::beside(&NAMES, |hosts| {
        let store = hosts.own().join("store").display().to_string();
        let events = events_of(hosts, &store, |master| {
            master.wait_until("a switch", STEP_LIMIT, |master| switches(&master.events()) > 0);
            let began = Instant::now();
            let writer = loop {
                let mut all = hosts.processes(1).into_iter();
                let writer =
                    all.find(|(_, name)| name == "criu").map(|(pid, _)| Pid::from_raw(pid.cast_signed()));
                if let Some(writer) = writer.filter(|writer| kill(*writer, Signal::SIGSTOP).is_ok()) {
                    break writer;
                }
                assert!(began.elapsed() < STEP_LIMIT, "nothing is written");
            };
            thread::sleep(LOST_AFTER + LOST_AFTER / 4);
            kill(writer, Signal::SIGCONT).expect("it is there");
        });
        let is_slow = |event: &RunEvent| match event.kind {
            Event::StepDone { node, step, began, ended, .. } => {
                let writes = matches!(step, SwitchStep::Dump | SwitchStep::Restore);
                node == NodeId(1) && writes && ended.since(began) > LOST_AFTER
            }
            _ => false,
        };
        assert!(events.iter().any(is_slow), "{events:?}");
        assert!(!events.iter().any(|event| matches!(event.kind, Event::NodeLost { .. })), "{events:?}");
    });
}
