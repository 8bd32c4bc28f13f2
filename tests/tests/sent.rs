//! Programs that are sent to their nodes (paper 004, §4.3): real daemons, by the tree and by sessions; jobs
//! are switched by CRIU, lose daemons, disks and masters, and verify. Nothing of a program is left.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use coswitch_daemon::{node::standing_daemon, protocol::Wait};
use coswitch_dispatcher::protocol::AppOutcome;
use coswitch_examples::Program;
use coswitch_policies::{Bytes, JobId, NodeId};
use coswitch_report::journal::{Event, RunEvent};
use coswitch_tests::{
    cluster::{ClusterSpec, JobStatus, RUN_LIMIT, STEP_LIMIT, TestCluster, run_in, run_on},
    job::TestJob,
    master::Master,
    serving::{
        accepted, check_right, end, serve, serve_from_own_parts, state, submit, switches, wait_served,
    },
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// More than the master asks by their sessions.
const MANY: u32 = 12;
/// Fragments of half a MiB.
const PROGRAM: Bytes = Bytes::mib(6);

/// A program with bytes after its end, which the loader does not look at: a large one.
fn large(cluster: &TestCluster, program: Program, name: &str) -> PathBuf {
    let path = cluster.dir().join(name);
    let mut bytes = fs::read(coswitch_tests::parts::programs().path(program)).expect("it is built");
    let padding = (bytes.len()..PROGRAM.0 as usize).map(|at| (at * 7) as u8);
    bytes.extend(padding);
    fs::write(&path, bytes).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("its owner may");
    path
}

fn sent(program: &Path, arguments: &[&str], says: Option<&'static str>) -> TestJob {
    let name = program.file_name().expect("a name").to_string_lossy().into_owned();
    TestJob::new(&name, &program.display().to_string(), arguments, says).sent()
}

/// The program that has come with a job to a node.
fn come(cluster: &TestCluster, node: u32, job: JobId) -> Option<PathBuf> {
    cluster.store(NodeId(node)).program(&job.to_string()).expect("a store")
}

fn is_sealed_everywhere(cluster: &TestCluster, job: JobId, nodes: u32) -> bool {
    (0..nodes).all(|node| cluster.is_sealed(NodeId(node), job))
}

#[test]
fn many_nodes_run_what_was_sent_and_need_nothing_else_to_switch_it() {
    run_on(MANY, |cluster| {
        let program = large(cluster, Program::Heat, "large-heat");
        let longer = ["--memory", "2MiB", "--seconds", "3"];
        let spec =
            sent(&program, &longer, Some("VERIFICATION SUCCESSFUL")).on(MANY, MANY).waiting(Wait::Block);
        let job = cluster.launch(spec);
        assert_eq!(*cluster.wait_for_order(job), JobStatus::Running);
        // A job runs as soon as its ranks exist; some of them have yet to execute their program.
        let ranks = |cluster: &TestCluster| cluster.processes(job, "large-heat");
        cluster.poll_until("the ranks", STEP_LIMIT, |cluster| ranks(cluster).len() == MANY as usize);
        let ranks = ranks(cluster);
        let files: Vec<PathBuf> = (0..MANY)
            .map(|node| come(cluster, node, job).expect("each node has a file of its own"))
            .collect();
        for rank in ranks {
            let runs = fs::read_link(format!("/proc/{rank}/exe")).expect("it runs");
            assert!(files.contains(&runs), "{}", runs.display());
        }
        assert!(files.iter().all(|file| fs::read(file).ok() == fs::read(&program).ok()));
        fs::remove_file(&program).expect("it is there");

        assert!(cluster.park(job));
        cluster.poll_until("the seals", STEP_LIMIT, |cluster| is_sealed_everywhere(cluster, job, MANY));
        // One node has lost its file, another one has something else: the snapshots have it.
        fs::remove_file(&files[3]).expect("it is there");
        fs::remove_file(&files[7]).and_then(|()| fs::write(&files[7], "damaged")).expect("it is there");
        assert!(cluster.restore(job));
        cluster.verify(job, RUN_LIMIT);
        let gone = |cluster: &TestCluster| (0..MANY).all(|node| come(cluster, node, job).is_none());
        cluster.poll_until("the programs to go", STEP_LIMIT, gone);
    });
}

/// What became of a job that should not have begun.
fn lost(cluster: &mut TestCluster, job: JobId) -> String {
    match cluster.wait_for_end(job, STEP_LIMIT) {
        AppOutcome::Lost { reason } => reason,
        outcome => panic!("{job} has ended with {outcome:?}"),
    }
}

#[test]
fn nodes_without_room_and_files_that_are_no_program_are_named_and_leave_nothing() {
    let small = Some(Bytes::mib(4));
    run_in(ClusterSpec { nodes: 2, store_max: small, ..ClusterSpec::default() }, |cluster| {
        let program = large(cluster, Program::Null, "too-large");
        let job = cluster.launch(sent(&program, &[], None).on(2, 2));
        let reason = lost(cluster, job);
        assert!(reason.contains("failed to launch it: its program could not be kept"), "{reason}");
        assert!(reason.contains("the store is full: 6291456 bytes are needed"), "{reason}");

        let (missing, empty) = (cluster.dir().join("missing"), cluster.dir().join("empty"));
        let job = cluster.launch(sent(&missing, &[], None).on(2, 2));
        let reason = lost(cluster, job);
        assert!(reason.contains("missing cannot be read: No such file"), "{reason}");
        fs::write(&empty, "").expect("a file");
        let job = cluster.launch(sent(&empty, &[], None).on(2, 2));
        assert!(lost(cluster, job).contains("empty is empty"));

        // As every program without a first line that names its interpreter: a shell tries it.
        let text = cluster.dir().join("text");
        fs::write(&text, "nothing that a kernel executes").expect("a file");
        let job = cluster.launch(sent(&text, &[], None).on(2, 2));
        match cluster.wait_for_end(job, STEP_LIMIT) {
            AppOutcome::RankFailed { exit, .. } => {
                assert!(format!("{exit:?}").contains("127"), "{exit:?}");
            }
            outcome => panic!("{outcome:?}"),
        }
        for node in 0..2 {
            let left = fs::read_dir(cluster.tiers(NodeId(node)).remove(0)).expect("a store").count();
            assert_eq!(left, 0, "node {node} has something left");
        }
        let job = cluster.launch(TestJob::program(Program::Null, &[]).sent().on(2, 2));
        cluster.verify(job, RUN_LIMIT);
    });
}

#[test]
fn a_node_that_is_lost_on_the_way_takes_the_launch_back_and_the_next_one_succeeds() {
    run_on(MANY, |cluster| {
        let program = large(cluster, Program::Heat, "heat");
        let longer = ["--memory", "2MiB", "--seconds", "3"];
        let spec =
            sent(&program, &longer, Some("VERIFICATION SUCCESSFUL")).on(MANY, MANY).waiting(Wait::Block);
        // It has others below it in the tree.
        let inner = NodeId(0);
        let daemon = Pid::from_raw(cluster.daemon(inner).cast_signed());
        kill(daemon, Signal::SIGSTOP).expect("it runs");
        let job = cluster.launch(spec.clone());
        cluster.run_for(Duration::from_millis(1500));
        assert_eq!(cluster.jobs[&job].status, JobStatus::Ordered(coswitch_policies::Order::Launch));
        kill(daemon, Signal::SIGKILL).expect("it stands still");
        assert_eq!(*cluster.wait_for_order(job), JobStatus::Unlaunched);
        let gone = |cluster: &TestCluster| (1..MANY).all(|node| come(cluster, node, job).is_none());
        cluster.poll_until("what has come to go", STEP_LIMIT, gone);
        cluster.restart(inner);
        let job = cluster.launch(spec);
        assert_eq!(*cluster.wait_for_order(job), JobStatus::Running);
        cluster.verify(job, RUN_LIMIT);
    });
}

fn count(events: &[RunEvent], is: impl Fn(&Event) -> bool) -> usize {
    events.iter().filter(|event| is(&event.kind)).count()
}

fn sent_programs(events: &[RunEvent]) -> usize {
    count(events, |event| matches!(event, Event::ProgramSent { .. }))
}

fn copied(events: &[RunEvent]) -> usize {
    count(events, |event| matches!(event, Event::JobCopied { .. }))
}

fn kill_daemons(master: &Master) {
    for pid in master.processes("coswitchd") {
        let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
    }
}

const SERVED: &[&str] = &["{bin}/heat", "--memory", "40MiB", "--seconds", "4"];

/// One node, on which two jobs of two ranks do not fit together.
const NARROW: &str = r#"
cluster: {nodes: 1, memory: 250MiB, store: "{store}"}
scheduler: {policy: gang, quantum: 500ms, residency: none}
"#;

#[test]
fn jobs_whose_program_was_sent_take_turns_and_survive_daemons_and_masters() {
    let mut master = serve(NARROW);
    let names = accepted(&submit(&master, &["--array", "1-2", "--send"], SERVED));
    for _ in 0..2 {
        let before = switches(&master.events());
        master.wait_until("turns", RUN_LIMIT, |master| switches(&master.events()) >= before + 2);
        let is_back = |event: &Event| matches!(event, Event::NodeBack { .. });
        let backs = count(&master.events(), is_back);
        kill_daemons(&master);
        master.wait_until("the daemon", STEP_LIMIT, |master| count(&master.events(), is_back) > backs);
        master.kill();
        master.start_next();
        wait_served(&mut master);
    }
    assert_eq!(master.user(&["wait"]).code, Some(0));
    names.iter().for_each(|name| check_right(&master, name));
    let stores = fs::read_dir(master.store()).expect("a directory").flatten();
    for node in stores.map(|entry| entry.path()) {
        let is_empty = || fs::read_dir(&node).is_ok_and(|mut found| found.next().is_none());
        master.wait_until("the programs to go", STEP_LIMIT, |_| is_empty());
    }
    let events = end(master).events;
    assert!(sent_programs(&events) >= 2, "{}", sent_programs(&events));
}

/// Three nodes, whose snapshots are on a second one as well.
const COPIED: &str = r#"
cluster: {nodes: 3, memory: 150MiB, store: "{store}", copies: 1}
scheduler: {policy: gang, quantum: 400ms, residency: none}
"#;

/// The directory of a node's snapshots.
fn store_of(master: &Master, node: u32) -> PathBuf {
    let mut entries = fs::read_dir(master.store()).expect("a directory").flatten().map(|entry| entry.path());
    let ending = format!("-n{node}");
    entries.find(|path| path.to_string_lossy().ends_with(&ending)).expect("the node has a store")
}

#[test]
fn a_program_moves_with_the_part_of_a_node_that_stays_away() {
    let mut master = serve_from_own_parts(COPIED);
    accepted(&submit(&master, &["--name", "kept", "--send"], SERVED));
    master.wait_until("it to run", STEP_LIMIT, |master| state(master, "kept") == "running");
    assert_eq!(master.user(&["park", "kept"]).code, Some(0));
    master.wait_until("the copies", STEP_LIMIT, |master| copied(&master.events()) >= 2);
    // No other daemon can be started, and nothing of the node's disk is left.
    let (program, store) = (master.parts().join("coswitchd"), store_of(&master, 1));
    fs::rename(&program, program.with_extension("away")).expect("it can be renamed");
    let name = store.file_name().expect("a name").to_string_lossy().replace("coswitch-", "");
    fs::read_dir(&store).expect("a store").flatten().for_each(|entry| {
        fs::remove_dir_all(entry.path()).expect("it can be removed");
    });
    let daemon = standing_daemon(&name).expect("a daemon").pid.cast_signed();
    kill(Pid::from_raw(daemon), Signal::SIGKILL).expect("it runs");
    let moved = |event: &Event| matches!(event, Event::JobMoved { from: NodeId(1), to: NodeId(2), .. });
    master.wait_until("its part to move", STEP_LIMIT, |master| count(&master.events(), moved) == 1);
    fs::rename(program.with_extension("away"), &program).expect("it can be renamed");
    assert_eq!(master.user(&["resume", "kept"]).code, Some(0));
    assert_eq!(master.user(&["wait"]).code, Some(0));
    check_right(&master, "kept");
    let events = end(master).events;
    assert_eq!(sent_programs(&events), 1, "the snapshot has it");
}
