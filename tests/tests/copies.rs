//! Copies of sealed snapshots on other nodes: a node that loses its disk loses no work.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use coswitch_daemon::node::standing_daemon;
use coswitch_policies::{JobId, NodeId};
use coswitch_report::journal::{Event, RunEvent};
use coswitch_tests::{
    cluster::{RUN_LIMIT, STEP_LIMIT},
    master::{Ended, Master},
    serving::{
        ENDLESS, HEAT, accepted, check_right, end, serve, serve_from_own_parts, state, submit, wait_served,
    },
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

const TWO: &str = r#"
cluster: {nodes: 2, memory: 150MiB, store: "{store}", copies: 1}
scheduler: {policy: gang, quantum: 400ms, residency: none}
"#;

const THREE: &str = r#"
cluster: {nodes: 3, memory: 150MiB, store: "{store}", copies: 1}
scheduler: {policy: gang, quantum: 400ms, residency: none}
"#;

fn count(events: &[RunEvent], is: impl Fn(&Event) -> bool) -> usize {
    events.iter().filter(|event| is(&event.kind)).count()
}

fn copied(events: &[RunEvent]) -> usize {
    count(events, |event| matches!(event, Event::JobCopied { .. }))
}

/// Parts of jobs that were copied.
fn copies(events: &[RunEvent]) -> BTreeSet<(JobId, NodeId)> {
    let of = |event: &RunEvent| match &event.kind {
        Event::JobCopied { job, node, .. } => Some((*job, *node)),
        _ => None,
    };
    events.iter().filter_map(of).collect()
}

fn warned(ended: &Ended, of: &str) -> bool {
    count(&ended.events, |event| matches!(event, Event::Warning { text } if text.contains(of))) > 0
}

fn launches(ended: &Ended) -> usize {
    count(&ended.events, |event| matches!(event, Event::JobLaunched { .. }))
}

/// A cluster with one job, which is parked and copied.
fn parked(cluster: &str, nodes: usize) -> Master {
    let mut master = serve(cluster);
    accepted(&submit(&master, &["--name", "kept"], HEAT));
    master.wait_until("it to run", STEP_LIMIT, |master| state(master, "kept") == "running");
    assert_eq!(master.user(&["park", "kept"]).code, Some(0));
    master.wait_until("the copies", STEP_LIMIT, |master| copied(&master.events()) >= nodes);
    master
}

/// The parked job goes on, and is right.
fn resumed(master: Master) -> Ended {
    assert_eq!(master.user(&["resume", "kept"]).code, Some(0));
    assert_eq!(master.user(&["wait"]).code, Some(0));
    check_right(&master, "kept");
    end(master)
}

/// The directory of a node's snapshots.
fn store_of(master: &Master, node: u32) -> PathBuf {
    let entries = fs::read_dir(master.store()).expect("a directory").flatten();
    let ending = format!("-n{node}");
    let own = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(&ending));
    entries.map(|entry| entry.path()).find(own).expect("the node has a store")
}

fn empty(dir: &PathBuf) {
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        fs::remove_dir_all(entry.path()).expect("it can be removed");
    }
}

/// Kills the daemon of a node.
fn lose(master: &Master, node: u32) {
    let store = store_of(master, node);
    let name = store.file_name().expect("a name").to_string_lossy().into_owned();
    let name = name.strip_prefix("coswitch-").expect("a store of coswitch");
    let daemon = standing_daemon(name).expect("a daemon").pid.cast_signed();
    kill(Pid::from_raw(daemon), Signal::SIGKILL).expect("it runs");
}

fn wait_for_loss(master: &mut Master) {
    let is_back = |event: &Event| matches!(event, Event::NodeBack { .. });
    master.wait_until("the node", STEP_LIMIT, |master| count(&master.events(), is_back) == 1);
}

#[test]
fn a_node_that_comes_back_with_an_empty_disk_gets_its_part_back() {
    let mut master = parked(TWO, 2);
    empty(&store_of(&master, 1));
    lose(&master, 1);
    wait_for_loss(&mut master);
    // What it held for the other node is made again.
    master.wait_until("the copies", STEP_LIMIT, |master| copied(&master.events()) >= 3);
    assert_eq!(launches(&resumed(master)), 1, "it has gone on where it was");
}

#[test]
fn a_damaged_copy_is_refused_and_the_job_begins_again() {
    let mut master = parked(TWO, 2);
    let copies = store_of(&master, 0).join(".copies");
    let mut chunks: Vec<PathBuf> = Vec::new();
    for owned in fs::read_dir(&copies).expect("copies").flatten() {
        let epochs = fs::read_dir(owned.path()).expect("epochs").flatten();
        chunks.extend(epochs.map(|epoch| epoch.path().join("chunks")));
    }
    assert_eq!(chunks.len(), 1, "{chunks:?}");
    let file = fs::File::options().write(true).open(&chunks[0]).expect("a file");
    file.write_all_at(b"damaged", 4711).expect("it can be written");
    empty(&store_of(&master, 1));
    lose(&master, 1);
    wait_for_loss(&mut master);
    let ended = resumed(master);
    assert_eq!(launches(&ended), 2, "nothing of the copy was used");
    assert!(warned(&ended, "no copy can be used"), "{}", ended.stderr);
}

/// A new master knows from the nodes which copies there are.
#[test]
fn a_disk_that_is_lost_with_the_master_costs_no_work() {
    let mut master = parked(TWO, 2);
    empty(&store_of(&master, 1));
    master.kill();
    lose(&master, 1);
    master.start_next();
    wait_served(&mut master);
    assert_eq!(launches(&resumed(master)), 1, "it has gone on where it was");
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flat_map(below).filter(|path| path.is_file()).collect()
}

#[test]
fn the_key_of_the_images_lies_beside_the_certificates_alone_and_opens_all_of_them() {
    let master = parked(TWO, 2);
    let cluster = master.out().join("cluster.json");
    let standing = fs::read(&cluster).expect("a cluster that stays");
    let standing: serde_json::Value = serde_json::from_slice(&standing).expect("it is JSON");
    let hex = standing["sealing_key"].as_str().expect("a key").to_owned();
    let digits = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal digits");
    let raw: Vec<u8> = (0..hex.len()).step_by(2).map(digits).collect();
    assert_eq!(raw.len(), 32);
    let own = store_of(&master, 0).file_name().expect("a name").to_string_lossy().into_owned();
    let node = own.strip_prefix("coswitch-").expect("a store of coswitch");
    let dirs = [
        master.out(),
        master.store(),
        Path::new("/dev/shm").join(&own),
        Path::new("/run/coswitch").join(node),
    ];
    let holds = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap_or_default();
        let has = |key: &[u8]| bytes.windows(key.len()).any(|found| found == key);
        has(hex.as_bytes()) || has(&raw)
    };
    let found: Vec<PathBuf> = dirs.iter().flat_map(|dir| files(dir)).filter(holds).collect();
    assert_eq!(found, [cluster]);

    let store = master.store().display().to_string();
    let out = master.out().display().to_string();
    let verified = master.user(&["images", "--store", &store, "verify", "--run", &out]);
    let images = verified.json["images"].as_array().expect("images");
    let states: Vec<_> = images.iter().map(|image| &image["state"]).collect();
    assert!(states.len() >= 2 && states.iter().all(|state| *state == "intact"), "{states:?}");
    resumed(master);
}

/// Makes each attempt to start another daemon fail, until it is called again.
fn switch_program(master: &Master) {
    let program = master.parts().join("coswitchd");
    let away = program.with_extension("away");
    let (from, to) = if program.exists() { (&program, &away) } else { (&away, &program) };
    fs::rename(from, to).expect("it can be renamed");
}

fn moved(events: &[RunEvent]) -> usize {
    count(events, |event| matches!(event, Event::JobMoved { from: NodeId(1), to: NodeId(2), .. }))
}

#[test]
fn the_part_of_a_node_that_stays_away_runs_on_another_one() {
    let mut master = serve_from_own_parts(THREE);
    accepted(&submit(&master, &["--name", "kept"], HEAT));
    master.wait_until("it to run", STEP_LIMIT, |master| state(master, "kept") == "running");
    assert_eq!(master.user(&["park", "kept"]).code, Some(0));
    master.wait_until("the copies", STEP_LIMIT, |master| copied(&master.events()) >= 2);
    switch_program(&master);
    lose(&master, 1);
    master.wait_until("its part to move", STEP_LIMIT, |master| moved(&master.events()) == 1);
    // A new master knows where its parts are.
    switch_program(&master);
    master.kill();
    master.start_next();
    wait_served(&mut master);
    assert_eq!(launches(&resumed(master)), 1, "it has gone on where it was");
}

#[test]
fn jobs_that_take_turns_repeat_only_what_came_after_the_seal_when_a_node_stays_away() {
    let mut master = serve_from_own_parts(THREE);
    // Copies get what jobs that compute leave of the processors: they last longer than turns.
    let long = ["{bin}/heat", "--memory", "40MiB", "--seconds", "6"];
    let names = accepted(&submit(&master, &["--array", "1-2"], &long));
    master.wait_until("a whole copy of each", RUN_LIMIT, |master| {
        let copies = copies(&master.events());
        let of_job = |job| [0, 1].iter().all(|node| copies.contains(&(JobId(job), NodeId(*node))));
        of_job(0) && of_job(1)
    });
    switch_program(&master);
    lose(&master, 1);
    assert_eq!(master.user(&["wait"]).code, Some(0));
    names.iter().for_each(|name| check_right(&master, name));
    switch_program(&master);
    let ended = end(master);
    assert_eq!((launches(&ended), moved(&ended.events)), (2, 2), "both have moved, none began again");
}

/// Copies go as snapshots come, and stay as few.
#[test]
fn copies_of_jobs_that_take_turns_are_made_beside_them_and_removed() {
    let mut master = serve(TWO);
    let names = accepted(&submit(&master, &["--array", "1-2"], ENDLESS));
    master.wait_until("copies", RUN_LIMIT, |master| copied(&master.events()) >= 4);
    names.iter().for_each(|name| assert_eq!(master.user(&["cancel", name]).code, Some(0)));
    let entries = fs::read_dir(master.store()).expect("a directory").flatten();
    for node in entries.map(|entry| entry.path()) {
        let left = || fs::read_dir(&node).is_ok_and(|mut found| found.next().is_some());
        master.wait_until("the copies to go", STEP_LIMIT, |_| !left());
    }
    end(master);
}
