//! The master of a cluster is killed at any instant: its jobs go on, and the next master takes them over.

use std::{env, fs, os::unix::fs::PermissionsExt, time::Duration};

use coswitch::run_name::RunName;
use coswitch_daemon::node::{node_name, standing_daemon};
use coswitch_policies::{JobId, NodeId};
use coswitch_report::journal::{self, Event, RunEvent};
use coswitch_tests::{
    cluster::{RUN_LIMIT, STEP_LIMIT},
    master::Master,
    parts,
    seed::{seed, span},
    serving::{
        CLEAN_LIMIT, ENDLESS, HEAT, accepted, check_right, end, serve, serve_with, state, submit, switches,
        wait_served,
    },
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Two jobs of 90 MiB on each node do not fit together.
const CLUSTER: &str = r#"
cluster: {nodes: 2, memory: 150MiB, store: "{store}"}
scheduler: {policy: gang, quantum: 400ms, residency: none}
"#;
/// The jobs of a test stay in memory between their turns.
const ROOMY: &str = r#"
cluster: {nodes: 3, memory: 400MiB, store: "{store}"}
scheduler: {policy: gang, quantum: 2s}
"#;
/// A master lives at most so long.
const LIFE: Duration = Duration::from_millis(2500);
/// A cluster is without a master at most so long.
const PAUSE: Duration = Duration::from_millis(500);
/// Of one cluster.
const KILLS: usize = 12;

fn is_switching(events: &[RunEvent]) -> bool {
    let last = events.iter().rev().find_map(|event| match event.kind {
        Event::SwitchStarted { .. } => Some(true),
        Event::SwitchEnded { .. } => Some(false),
        _ => None,
    });
    last == Some(true)
}

fn takeovers(events: &[RunEvent]) -> usize {
    events.iter().filter(|event| matches!(event.kind, Event::MasterReplaced { .. })).count()
}

/// `COSWITCH_KILLS` says how many masters are killed.
#[test]
fn at_whatever_instant_a_master_is_killed_each_job_ends_right() {
    let all: usize = env::var("COSWITCH_KILLS").map_or(KILLS, |text| text.parse().expect("a number"));
    let mut seed = seed();
    let (mut killed, mut switching, mut taken_over) = (0, 0, 0);
    while killed < all {
        let mut master = serve(CLUSTER);
        let mut names = Vec::new();
        for _ in 0..KILLS.min(all - killed) {
            // Not each master lives to answer.
            if seed.chance(800) {
                wait_served(&mut master);
                names.extend(accepted(&submit(&master, &[], HEAT)));
            }
            std::thread::sleep(span(&mut seed, LIFE));
            master.kill();
            switching += usize::from(is_switching(&master.events()));
            std::thread::sleep(span(&mut seed, PAUSE));
            master.start_next();
            killed += 1;
        }
        wait_served(&mut master);
        let waited = master.user(&["wait"]);
        assert_eq!(waited.code, Some(0), "{waited:?}");
        names.iter().for_each(|name| check_right(&master, name));
        taken_over += takeovers(&end(master).events);
    }
    eprintln!("{killed} masters were killed, {switching} in a switch; {taken_over} took over");
}

#[test]
fn jobs_run_on_without_a_master_and_one_that_has_ended_meanwhile_counts_once() {
    let mut master = serve(CLUSTER);
    let short = accepted(&submit(&master, &["--name", "short"], HEAT));
    master.wait_until("it to run", STEP_LIMIT, |master| state(master, "short") == "running");
    master.kill();
    // Its two seconds pass.
    std::thread::sleep(Duration::from_secs(4));
    master.start_next();
    wait_served(&mut master);
    assert_eq!(master.user(&["wait"]).code, Some(0));
    check_right(&master, &short[0]);
    let ended = end(master);
    let launches = ended.events.iter().filter(|event| matches!(event.kind, Event::JobLaunched { .. }));
    assert_eq!(launches.count(), 1);
}

/// The number of the last archive; 0 where there is none.
fn archives(master: &Master) -> u32 {
    journal::missing_archive(&master.events()).map_or(0, |(archive, _)| archive)
}

#[test]
fn a_cluster_whose_journal_is_compacted_is_taken_over_as_any_other() {
    let mut master = serve_with(&["--journal-max", "4KiB"], CLUSTER);
    let mut names = Vec::new();
    for _ in 0..3 {
        let before = archives(&master);
        names.extend(accepted(&submit(&master, &["--array", "1-2"], HEAT)));
        master.wait_until("a compaction", RUN_LIMIT, |master| archives(master) > before);
        master.kill();
        master.start_next();
        wait_served(&mut master);
    }
    assert_eq!(master.user(&["wait"]).code, Some(0));
    names.iter().for_each(|name| check_right(&master, name));
    let why = master.user(&["why", &names[0]]);
    assert!(why.stdout.contains("it has ended: ok"), "{why:?}");
    let before = archives(&master);
    master.wait_until("one more compaction", RUN_LIMIT, |master| {
        let late = submit(master, &["--name", "late", "--wait"], &["{bin}/heat", "--seconds", "0"]);
        assert_eq!(late.code, Some(0), "{late:?}");
        archives(master) > before
    });
    let (out, long) = (master.out(), names.len());
    master.wait_until("the lines of jobs that have ended to be short", STEP_LIMIT, |_| {
        let jobs = fs::read_to_string(out.join("jobs.jsonl")).expect("the jobs");
        let first = jobs.lines().find(|line| line.contains(&names[0])).expect("its line");
        first.contains(r#""env":{}"#) && first.contains(r#""arguments":[]"#)
    });
    let size = fs::metadata(out.join("journal.jsonl")).expect("a journal").len();
    assert!(size < 100 << 10, "{size} bytes");
    let report = end(master).report.expect("a report");
    let jobs = report["jobs"].as_array().expect("jobs");
    assert!(jobs.len() > long && jobs.iter().all(|job| job["outcome"]["exit"] == 0), "{jobs:?}");
}

#[test]
fn a_cluster_without_a_master_is_kept_by_clean_and_ended_when_asked() {
    let mut master = serve(CLUSTER);
    accepted(&submit(&master, &["--array", "1-2"], ENDLESS));
    master.wait_until("a switch", RUN_LIMIT, |master| switches(&master.events()) >= 1);
    master.kill();
    let kept = master.user(&["clean"]);
    assert!(kept.code == Some(0) && kept.json["standing"].as_array().is_some_and(|names| names.len() == 2));
    assert!(!master.processes("ring-check").is_empty(), "its jobs go on");
    let ended = master.user(&["clean", "--standing"]);
    assert!(ended.code == Some(0) && ended.json["removed"].as_array().is_some_and(|names| names.len() == 2));
    assert_eq!(master.end(RUN_LIMIT, CLEAN_LIMIT).code, None);
}

#[test]
fn a_second_master_and_another_cluster_are_refused() {
    let mut master = serve(CLUSTER);
    accepted(&submit(&master, &["--name", "endless"], ENDLESS));
    master.wait_until("it to run", STEP_LIMIT, |master| state(master, "endless") == "running");
    let refused = |master: &Master, options: &[&str], file: &str, code: i32, why: &str| {
        let all = [&["serve", "--quiet", "--out", "out"], options, &[file]].concat();
        let answer = master.user(&all);
        assert!(answer.code == Some(code) && answer.stderr.contains(why), "{all:?}: {answer:?}");
    };
    // As if the master were writing an event: what it has written so far is not cut off.
    let journal = master.out().join("journal.jsonl");
    master.signal(Signal::SIGSTOP);
    let whole = fs::read(&journal).expect("a journal");
    let torn = [&whole, &b"{\"at\":"[..]].concat();
    fs::write(&journal, &torn).expect("a journal");
    refused(&master, &["--socket", "other.sock"], "jobs.yaml", 4, "has a master already");
    assert_eq!(fs::read(&journal).expect("a journal"), torn);
    master.kill();
    let path = master.out().with_file_name("jobs.yaml");
    let text = fs::read_to_string(&path).expect("the run file").replace("150MiB", "160MiB");
    fs::write(path.with_file_name("other.yaml"), text).expect("a run file");
    refused(&master, &[], "other.yaml", 2, "describes another cluster");
    master.start_next();
    wait_served(&mut master);
    // Its ranks may have waited for the master that stood still.
    master.wait_until("it to run on", STEP_LIMIT, |master| state(master, "endless") == "running");
    assert_eq!(master.user(&["cancel", "endless"]).code, Some(0));
    let ended = end(master);
    let launches = ended.events.iter().filter(|event| matches!(event.kind, Event::JobLaunched { .. }));
    assert_eq!(launches.count(), 1, "nothing has happened to it");
}

/// What ran on a lost daemon goes back to its snapshot, or begins again; what has ended stays ended.
#[test]
fn jobs_go_on_where_a_daemon_has_gone_too() {
    let mut master = serve(CLUSTER);
    accepted(&submit(&master, &["--name", "before"], HEAT));
    assert_eq!(master.user(&["wait"]).code, Some(0));
    accepted(&submit(&master, &["--array", "1-2"], HEAT));
    accepted(&submit(&master, &["--name", "last", "--after", "before", "--after", "heat-1"], HEAT));
    master.wait_until("a switch", RUN_LIMIT, |master| switches(&master.events()) >= 1);
    master.kill();
    let daemon = master.processes("coswitchd")[0];
    kill(Pid::from_raw(daemon.cast_signed()), Signal::SIGKILL).expect("it runs");
    master.start_next();
    wait_served(&mut master);
    assert_eq!(master.user(&["wait"]).code, Some(0));
    ["before", "heat-1", "heat-2", "last"].iter().for_each(|name| check_right(&master, name));
    end(master);
}

/// A systemd that ends all services sends SIGTERM, as one does that ends this service alone.
#[test]
fn a_shutdown_of_the_masters_machine_leaves_the_cluster_to_the_next_master() {
    let tools = tempfile::tempdir().expect("a directory");
    let systemctl = tools.path().join("systemctl");
    let only = "[ \"$*\" = \"show --property=SystemState --value\" ] && [ ! -e \"$0.started\" ]";
    fs::write(&systemctl, format!("#!/bin/sh\n{only} && echo stopping || echo running\n")).expect("a script");
    fs::set_permissions(&systemctl, fs::Permissions::from_mode(0o755)).expect("it can be executed");
    let path = format!("{}:{}", tools.path().display(), env::var("PATH").unwrap_or_default());
    let serve = ["serve", "--socket", "serve.sock"];
    let mut master = Master::in_environment(&[("PATH", path)], &serve, CLUSTER);
    wait_served(&mut master);
    accepted(&submit(&master, &["--name", "endless"], ENDLESS));
    master.wait_until("it to run", STEP_LIMIT, |master| state(master, "endless") == "running");
    let ranks = endless_ranks(&master);
    master.signal(Signal::SIGTERM);
    assert!(master.wait(RUN_LIMIT).success());
    assert_eq!(endless_ranks(&master), ranks, "it goes on without a master");
    fs::write(tools.path().join("systemctl.started"), "").expect("a file");
    master.start_next();
    wait_served(&mut master);
    master.wait_until("it to run", STEP_LIMIT, |master| state(master, "endless") == "running");
    assert_eq!(endless_ranks(&master), ranks, "they are the same processes");
    end(master);
}

/// The daemon of a node, while the first master of the cluster lives.
fn daemon(master: &Master, node: NodeId) -> Pid {
    let run = RunName::of(master.pid()).expect("the master lives").to_string();
    let daemon = standing_daemon(&node_name(&run, node)).expect("the node has a daemon");
    Pid::from_raw(daemon.pid.cast_signed())
}

/// The processes of the job that does not end.
fn endless_ranks(master: &Master) -> Vec<u32> {
    let mut ranks = master.processes("ring-check");
    ranks.sort_unstable();
    ranks
}

/// The daemon stands still. A job on the other nodes goes on as if nothing had happened.
#[test]
fn a_daemon_that_lives_and_does_not_answer_keeps_no_master_from_the_other_nodes() {
    let mut master = serve(ROOMY);
    accepted(&submit(&master, &["--name", "endless"], ENDLESS));
    master.wait_until("it to run", STEP_LIMIT, |master| state(master, "endless") == "running");
    let launched = master.events().into_iter().find_map(|event| match event.kind {
        Event::JobLaunched { placement, .. } => Some(placement),
        _ => None,
    });
    let used: Vec<NodeId> = launched.expect("a launch").nodes().collect();
    let silent = (0..3).map(NodeId).find(|node| !used.contains(node)).expect("a node without the job");
    let heat = format!("{}/heat", parts::program_directory());
    let options = ["submit", "--name", "wide", "--ranks", "3", "--memory", "90MiB", "--"];
    let wide = [&options[..], &[heat.as_str(), "--memory", "40MiB", "--seconds", "6"]].concat();
    accepted(&master.user(&wide));
    master.wait_until("its turn", STEP_LIMIT, |master| state(master, "wide") == "running");
    let (daemon, ranks) = (daemon(&master, silent), endless_ranks(&master));
    assert_eq!(ranks.len(), 2);
    master.kill();
    kill(daemon, Signal::SIGSTOP).expect("it runs");
    master.start_next();
    wait_served(&mut master);
    assert_eq!(master.user(&["wait", "wide"]).code, Some(0));
    check_right(&master, "wide");
    master.wait_until("its turn", STEP_LIMIT, |master| state(master, "endless") == "running");
    assert_eq!(endless_ranks(&master), ranks, "they are the same processes");
    assert_eq!(master.user(&["cancel", "endless"]).code, Some(0));
    let events = end(master).events;
    // The node has another daemon before the master asks what its node holds.
    assert!(!events.iter().any(|event| matches!(event.kind, Event::NodeLost { .. })));
    assert_eq!(takeovers(&events), 1);
    let endless = JobId(0);
    let was_disturbed = |event: &RunEvent| match event.kind {
        Event::JobDisplaced { job, .. } | Event::JobRepeats { job, .. } => job == endless,
        _ => false,
    };
    assert!(!events.iter().any(was_disturbed), "it has lost a node");
    let launches = events.iter().filter(|event| match event.kind {
        Event::JobLaunched { job, .. } => job == endless,
        _ => false,
    });
    assert_eq!(launches.count(), 1);
}
