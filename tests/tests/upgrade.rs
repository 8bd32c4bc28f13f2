//! The daemons of a cluster are replaced at any instant: its jobs go on where they were, and so they do where
//! the new program is of no use.

use std::{env, fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use coswitch::run_name::RunName;
use coswitch_daemon::handover::{Compatible, compatible};
use coswitch_report::journal::{Event, RunEvent};
use coswitch_tests::{
    cluster::{RUN_LIMIT, STEP_LIMIT},
    master::{Answered, Master},
    seed::{seed, span},
    serving::{HEAT, accepted, check_right, end, serve, serve_from_own_parts, state, submit, switches},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Two jobs of 90 MiB on each node fit together.
const ROOMY: &str = r#"
cluster: {nodes: 2, memory: 300MiB, store: "{store}"}
scheduler: {policy: hybrid, quantum: 1s}
"#;
/// They do not.
const NARROW: &str = r#"
cluster: {nodes: 2, memory: 150MiB, store: "{store}"}
scheduler: {policy: gang, quantum: 400ms, residency: none}
"#;
/// All ranks are on one node. Two jobs fit, and take turns.
const ALONE: &str = r#"
cluster: {nodes: 1, memory: 400MiB, store: "{store}"}
scheduler: {policy: gang, quantum: 2s}
"#;
const LONG: &[&str] = &["{bin}/heat", "--memory", "40MiB", "--seconds", "8"];
const UPGRADES: usize = 5;
const BETWEEN: Duration = Duration::from_millis(900);

fn upgraded(events: &[RunEvent]) -> usize {
    events.iter().filter(|event| matches!(event.kind, Event::DaemonReplaced { .. })).count()
}

/// How many parts have a record on their nodes ([`coswitch_daemon::survival`]); the master is the first one.
fn records(master: &Master) -> usize {
    let run = RunName::of(master.pid()).expect("it runs");
    let notes = (0..2).map(|node| format!("/run/coswitch/{run}-n{node}"));
    let files = notes.flat_map(|notes| fs::read_dir(notes).expect("the notes of a node").flatten());
    files.filter(|file| file.file_name().to_string_lossy().starts_with("part-")).count()
}

fn assert_refused(answer: &Answered, why: &str) {
    assert_eq!(answer.code, Some(2), "{answer:?}");
    let said = answer.json["error"].as_str().unwrap_or_default();
    assert!(said.contains(why), "{answer:?}");
}

/// As a package manager does: the file of a program that runs is not written to.
fn install(program: &Path, text: &str) {
    let new = program.with_extension("new");
    fs::write(&new, text).expect("a program");
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).expect("it may be executed");
    fs::rename(new, program).expect("it takes the place of the other");
}

fn ranks(master: &Master) -> Vec<u32> {
    let mut ranks = master.processes("heat");
    ranks.sort_unstable();
    ranks
}

#[test]
fn ranks_live_on_when_their_daemons_are_replaced_and_when_these_cannot_be() {
    let mut seed = seed();
    let mut master = serve_from_own_parts(ROOMY);
    let names = ["one", "two"];
    for name in names {
        accepted(&submit(&master, &["--name", name], LONG));
    }
    let all_run = |master: &Master| names.iter().all(|name| state(master, name) == "running");
    master.wait_until("both to run", STEP_LIMIT, |master| all_run(master) && ranks(master).len() == 4);
    let (before, daemons) = (ranks(&master), master.processes("coswitchd"));

    let would = master.user(&["upgrade", "--dry-run"]);
    assert_eq!((would.code, would.json[1]["pause"].is_null()), (Some(0), true), "{would:?}");
    assert_refused(&master.user(&["upgrade", "node-2"]), "there is no node-2");
    for _ in 0..2 {
        std::thread::sleep(span(&mut seed, BETWEEN));
        let done = master.user(&["upgrade"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!((0..2).all(|node| done.json[node]["jobs"].as_array().is_some_and(|jobs| jobs.len() == 2)));
        assert!((0..2).all(|node| done.json[node]["pause"].is_object()), "{done:?}");
    }
    assert_eq!(upgraded(&master.events()), 4);
    // A part that runs on several nodes is no more what it was when its daemon was replaced.
    master.wait_until("no record of them", STEP_LIMIT, |master| records(master) == 0);

    // Nothing is stopped for a program that is no daemon, or speaks otherwise.
    let daemon = master.parts().join("coswitchd");
    let right = fs::read(&daemon).expect("a program");
    install(&daemon, "#!/bin/sh\nexit 1\n");
    assert_refused(&master.user(&["upgrade", "1"]), "it has ended with exit status: 1");
    let other = Compatible { protocol: 1, ..compatible() };
    let speaks = |said: &Compatible| serde_json::to_string(said).expect("plain data");
    install(&daemon, &format!("#!/bin/sh\necho '{}'\n", speaks(&other)));
    assert_refused(&master.user(&["upgrade", "1"]), "version 1 of the control protocol");
    assert_eq!((ranks(&master), master.processes("coswitchd")), (before, daemons), "all are the same");
    assert!(all_run(&master));

    // One that cannot even begin costs its node.
    let lies = format!("#!/bin/sh\n[ $1 = versions ] && echo '{}' || exit 1\n", speaks(&compatible()));
    install(&daemon, &lies);
    assert_refused(&master.user(&["upgrade", "1"]), "the node is lost");
    let new = daemon.with_extension("new");
    fs::write(&new, right)
        .and_then(|()| fs::set_permissions(&new, fs::Permissions::from_mode(0o755)))
        .expect("a program");
    fs::rename(new, &daemon).expect("it is back");
    let waited = master.user(&["wait"]);
    assert_eq!(waited.code, Some(0), "{waited:?}");
    names.iter().for_each(|name| check_right(&master, name));
    end(master);
}

/// Their launchers are no children of the daemons that come after.
#[test]
fn jobs_that_have_survived_a_daemon_live_on_when_the_next_one_is_replaced() {
    let mut master = serve(ALONE);
    let names = ["one", "two"];
    for name in names {
        accepted(&submit(&master, &["--name", name], LONG));
    }
    master.wait_until("a turn", STEP_LIMIT, |master| {
        let mut states = names.map(|name| state(master, name));
        states.sort_unstable();
        states == ["running", "suspended"] && ranks(master).len() == 4
    });
    let before = ranks(&master);
    let daemon = master.processes("coswitchd")[0];
    kill(Pid::from_raw(daemon.cast_signed()), Signal::SIGKILL).expect("it runs");
    let survived = |event: &&RunEvent| matches!(event.kind, Event::JobSurvived { .. });
    master.wait_until("the next daemon", STEP_LIMIT, |master| {
        master.events().iter().filter(survived).count() == 2
    });
    for _ in 0..2 {
        let done = master.user(&["upgrade", "node-0"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        assert_eq!(ranks(&master), before, "they are the same processes");
    }
    let waited = master.user(&["wait"]);
    assert_eq!(waited.code, Some(0), "{waited:?}");
    names.iter().for_each(|name| check_right(&master, name));
    let events = end(master).events;
    assert_eq!(upgraded(&events), 2);
    let goes_back = |event: &RunEvent| {
        matches!(event.kind, Event::NodeBack { .. } | Event::JobRepeats { .. } | Event::JobDisplaced { .. })
    };
    let told: Vec<&RunEvent> = events.iter().filter(|event| goes_back(event)).collect();
    assert!(matches!(told[..], [RunEvent { kind: Event::NodeBack { .. }, .. }]), "{told:?}");
}

/// `COSWITCH_UPGRADES` says how often.
#[test]
fn at_whatever_instant_daemons_are_replaced_each_job_ends_right() {
    let all = env::var("COSWITCH_UPGRADES").map_or(UPGRADES, |text| text.parse().expect("a number"));
    let mut seed = seed();
    let master = serve(NARROW);
    let mut names = Vec::new();
    for number in 0..all {
        if number % 2 == 0 {
            names.extend(accepted(&submit(&master, &[], HEAT)));
        }
        std::thread::sleep(span(&mut seed, BETWEEN));
        let nodes: &[&str] = if seed.chance(500) { &["upgrade", "node-0"] } else { &["upgrade"] };
        let done = master.user(nodes);
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    let waited = master.user(&["wait"]);
    assert_eq!(waited.code, Some(0), "{waited:?}");
    names.iter().for_each(|name| check_right(&master, name));
    let events = end(master).events;
    assert!(upgraded(&events) >= all && switches(&events) > 0);
    assert!(
        !events.iter().any(|event| matches!(event.kind, Event::JobRepeats { .. })),
        "nothing is repeated"
    );
}

/// The nodes have no master for longer than they wait for one.
#[test]
fn what_is_sealed_outlives_the_patience_of_the_nodes() {
    let mut master = serve(&NARROW.replace("nodes: 2,", "nodes: 2, stop_after: 6s,"));
    let names: Vec<String> = (0..2).flat_map(|_| accepted(&submit(&master, &[], HEAT))).collect();
    let stored = |master: &Master| {
        let stored = |event: &&RunEvent| matches!(event.kind, Event::SnapshotStored { .. });
        master.events().iter().filter(stored).count()
    };
    master.wait_until("snapshots of both jobs", STEP_LIMIT, |master| stored(master) >= 4);
    master.kill();
    let began = std::time::Instant::now();
    while !master.processes("coswitchd").is_empty() {
        assert!(began.elapsed() < RUN_LIMIT, "the nodes do not give up");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(ranks(&master).is_empty());
    master.start_next();
    coswitch_tests::serving::wait_served(&mut master);
    let waited = master.user(&["wait"]);
    assert_eq!(waited.code, Some(0), "{waited:?}");
    names.iter().for_each(|name| check_right(&master, name));
    let events = end(master).events;
    let launches = events.iter().filter(|event| matches!(event.kind, Event::JobLaunched { .. }));
    assert_eq!(launches.count(), names.len(), "they go on from their snapshots");
}
