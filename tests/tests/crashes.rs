//! A daemon is killed at each phase of a dump and of a restore: its job computes no more, and can be brought back from a
//! valid snapshot; never both, never neither.

use std::{fs, path::PathBuf, time::Duration};

use coswitch_ckpt::{Criu, SegmentFile, processes};
use coswitch_daemon::cgroup::JobCgroup;
use coswitch_dispatcher::protocol::{AppOutcome, Order};
use coswitch_examples::Program;
use coswitch_policies::{Bytes, JobId, NodeId};
use coswitch_tests::{
    act::Act,
    seed::{Seed, seed, span},
    stage::{Life, PATIENCE, Scenery, Stage, play_in},
};
use nix::{
    sys::{
        signal::{Signal, kill},
        wait::waitpid,
    },
    unistd::Pid,
};

const NODE: NodeId = NodeId(0);
const RANKS: usize = 2;
const NAME: &str = "ring-check";

/// Brings a running job to the phase that its daemon is to be killed in.
type Reach = fn(&mut Stage, JobId, &mut Seed);

fn epochs(stage: &Stage, job: JobId) -> usize {
    stage.images(NODE, job).len()
}

fn park_sealed(stage: &mut Stage, job: JobId) {
    assert!(stage.park(job));
    stage.until_some_time("the seal", PATIENCE, |stage| stage.is_sealed(NODE, job));
}

/// A job that has one valid snapshot and has run on since.
fn crash(reach: Reach) {
    crash_in(Scenery { nodes: 1, ..Scenery::default() }, reach);
}

/// Its valid snapshot is in the first directory, which has no room for another.
fn crash_on_the_way_to_the_second_tier(arena: Bytes, reach: Reach) {
    crash_in(Scenery { nodes: 1, arena: Some(arena), two_tiers: true }, reach);
}

fn crash_in(scenery: Scenery, reach: Reach) {
    let mut seed = seed();
    let two_tiers = scenery.two_tiers;
    play_in(scenery, |stage| {
        let act = Act::program(Program::RingCheck, &["--rounds", "100000000", "--max-bytes", "256KiB"]);
        let job = stage.launch(act.on(RANKS as u32, 1));
        assert_eq!(*stage.settle(job), Life::Running);
        stage.run_for(Duration::from_millis(300));
        park_sealed(stage, job);
        assert!(stage.restore(job));
        stage.run_for(Duration::from_millis(200));
        stage.fill(NODE, two_tiers);
        reach(stage, job, &mut seed);

        kill(Pid::from_raw(stage.daemon(NODE).cast_signed()), Signal::SIGKILL).expect("it runs");
        let outcome = stage.end_of(job, PATIENCE);
        assert!(matches!(outcome, AppOutcome::Lost { .. }), "{outcome:?}");
        stage.until_some_time("the job to compute no more", PATIENCE, |stage| {
            let inside = stage.cgroup(NODE, job).pids().expect("the group stays");
            let strays = stage.checkpointers(NODE);
            let is_placed = |criu: &u32| strays.contains(criu) || inside.contains(&criu.cast_signed());
            // CRIU's probes of the kernel may outlive it, but they trace nobody.
            let is_held = |pid: &i32| strays.contains(&tracer(*pid));
            stage.processes_of_run("criu").iter().all(is_placed)
                && !inside.iter().any(is_held)
                && !inside.into_iter().any(computes)
        });
        come_back(stage, job);
    });
}

/// What a restore has left stopped has never run; nor has what still is CRIU, which may wait for ever for dead tracees
/// and goes with the group.
fn computes(pid: i32) -> bool {
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    comm.trim() != "criu" && processes::state(Pid::from_raw(pid)) == processes::ProcessState::Alive
}

/// 0 for none.
fn tracer(pid: i32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.map_or(0, |tracer| tracer.trim().parse().expect("a process id"))
}

/// What a daemon that takes over would do: the whole tree is there again, stopped.
fn come_back(stage: &Stage, job: JobId) {
    let cgroup = stage.cgroup(NODE, job);
    clear(&cgroup);
    let path = stage.segment(NODE, job);
    let (snapshot, passed_over) = stage.store(NODE).latest_intact(&job.to_string()).unwrap();
    let snapshot = snapshot.unwrap_or_else(|| panic!("neither running nor restorable: {passed_over:?}"));
    snapshot.load_segment(&path).unwrap();
    let groups: Vec<PathBuf> = cgroup.procs().iter().map(|file| file.parent().unwrap().into()).collect();
    let request = snapshot.restore_request(groups, Some(SegmentFile::at(&path).unwrap()), PATIENCE);
    let restored = snapshot.restore(&Criu::locate().unwrap(), &request).unwrap();
    let ranks = stage.processes(job, NAME);
    clear(&cgroup);
    waitpid(restored.root, None).unwrap();
    assert_eq!((restored.pids.len(), ranks.len()), (1 + RANKS, RANKS));
}

fn clear(cgroup: &JobCgroup) {
    cgroup.kill().unwrap();
    cgroup.thaw().unwrap();
    cgroup.wait_empty(PATIENCE).unwrap();
}

#[test]
fn while_it_freezes() {
    crash(|stage, job, seed| {
        stage.order(job, Order::Park);
        stage.run_for(span(seed, Duration::from_millis(10)));
    });
}

#[test]
fn when_the_network_is_flushed() {
    crash(|stage, job, _| assert_eq!(*stage.obey(job, Order::Suspend), Life::Suspended));
}

#[test]
fn in_the_middle_of_a_dump() {
    crash(|stage, job, seed| {
        stage.order(job, Order::Park);
        stage.until_some_time("the dump to begin", PATIENCE, |stage| epochs(stage, job) == 2);
        stage.run_for(span(seed, Duration::from_millis(80)));
    });
}

#[test]
fn before_the_snapshot_is_sealed() {
    crash(|stage, job, _| assert!(stage.park(job)));
}

#[test]
fn in_the_middle_of_a_restore() {
    crash(|stage, job, seed| {
        park_sealed(stage, job);
        stage.order(job, Order::Prefetch);
        stage.until_some_time("the restore to begin", PATIENCE, |stage| {
            !stage.cgroup(NODE, job).pids().expect("the group stays").is_empty()
        });
        stage.run_for(span(seed, Duration::from_millis(60)));
    });
}

#[test]
fn when_it_is_restored_and_stopped() {
    crash(|stage, job, _| {
        park_sealed(stage, job);
        assert_eq!(*stage.obey(job, Order::Prefetch), Life::Suspended);
    });
}

/// Where the newest snapshot lies, or is being written: 0 for the first directory.
fn tier(stage: &Stage, job: JobId) -> usize {
    let newest = stage.images(NODE, job).remove(0).root;
    stage.tiers(NODE).iter().position(|tier| *tier == newest).expect("it is in one of them")
}

fn dump_to_the_second(stage: &mut Stage, job: JobId, seed: &mut Seed) {
    stage.order(job, Order::Park);
    stage.until_some_time("the dump to begin", PATIENCE, |stage| epochs(stage, job) == 2);
    assert_eq!(tier(stage, job), 1);
    stage.run_for(span(seed, Duration::from_millis(80)));
}

#[test]
fn in_the_middle_of_a_dump_to_the_second_tier_through_the_arena_and_without() {
    crash_on_the_way_to_the_second_tier(Bytes::mib(256), dump_to_the_second);
    crash_on_the_way_to_the_second_tier(Bytes(0), dump_to_the_second);
}

#[test]
fn before_the_snapshot_in_the_second_tier_is_sealed() {
    for arena in [Bytes::mib(256), Bytes(0)] {
        crash_on_the_way_to_the_second_tier(arena, |stage, job, _| {
            assert!(stage.park(job));
            assert_eq!(tier(stage, job), 1);
        });
    }
}

#[test]
fn in_the_middle_of_a_restore_from_the_second_tier() {
    crash_on_the_way_to_the_second_tier(Bytes(0), |stage, job, seed| {
        park_sealed(stage, job);
        assert_eq!(tier(stage, job), 1);
        stage.order(job, Order::Prefetch);
        stage.until_some_time("the restore to begin", PATIENCE, |stage| {
            !stage.cgroup(NODE, job).pids().expect("the group stays").is_empty()
        });
        stage.run_for(span(seed, Duration::from_millis(60)));
    });
}
