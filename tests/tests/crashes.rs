//! Crashes: a daemon is killed at each phase of a dump and of a restore. Its job then no longer computes, can
//! be restored from a valid snapshot, and goes on from there under another daemon.

use std::{fs, path::PathBuf, time::Duration};

use coswitch_ckpt::{Criu, SegmentFile, processes};
use coswitch_daemon::cgroup::JobCgroup;
use coswitch_dispatcher::protocol::Order;
use coswitch_examples::Program;
use coswitch_policies::{Bytes, JobId, NodeId};
use coswitch_tests::{
    cluster::{ClusterSpec, JobStatus, STEP_LIMIT, TestCluster, run_in},
    job::TestJob,
    seed::{Seed, seed, span},
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

/// Brings a running job to the phase in which its daemon shall be killed.
type ReachPhase = fn(&mut TestCluster, JobId, &mut Seed);

fn epochs(cluster: &TestCluster, job: JobId) -> usize {
    cluster.images(NODE, job).len()
}

fn park_sealed(cluster: &mut TestCluster, job: JobId) {
    assert!(cluster.park(job));
    cluster.poll_until("the seal", STEP_LIMIT, |cluster| cluster.is_sealed(NODE, job));
}

/// Kills the daemon of a job that has one valid snapshot and has run on since.
fn crash(reach: ReachPhase) {
    crash_in(ClusterSpec { nodes: 1, ..ClusterSpec::default() }, reach);
}

/// As [`crash`]; the valid snapshot is in the first directory, which is then full.
fn crash_on_the_way_to_the_second_tier(arena: Bytes, reach: ReachPhase) {
    crash_in(ClusterSpec { nodes: 1, arena: Some(arena), two_tiers: true, ..ClusterSpec::default() }, reach);
}

fn crash_in(cluster_spec: ClusterSpec, reach: ReachPhase) {
    let mut seed = seed();
    let two_tiers = cluster_spec.two_tiers;
    run_in(cluster_spec, |cluster| {
        let spec = TestJob::program(Program::RingCheck, &["--rounds", "100000000", "--max-bytes", "256KiB"]);
        let job = cluster.launch(spec.on(RANKS as u32, 1));
        assert_eq!(*cluster.wait_for_order(job), JobStatus::Running);
        cluster.run_for(Duration::from_millis(300));
        park_sealed(cluster, job);
        assert!(cluster.restore(job));
        cluster.run_for(Duration::from_millis(200));
        cluster.fill(NODE, two_tiers);
        reach(cluster, job, &mut seed);

        kill(Pid::from_raw(cluster.daemon(NODE).cast_signed()), Signal::SIGKILL).expect("it runs");
        cluster.wait_until("the loss of the node", STEP_LIMIT, |cluster| cluster.lost.contains_key(&NODE));
        cluster.wait_until("the job to rest at its snapshots", STEP_LIMIT, |cluster| {
            cluster.jobs[&job].status == JobStatus::Parked
        });
        cluster.poll_until("the job to compute no more", STEP_LIMIT, |cluster| {
            let inside = cluster.cgroup(NODE, job).pids().expect("the cgroup exists");
            let strays = cluster.checkpointers(NODE);
            let is_placed = |criu: &u32| strays.contains(criu) || inside.contains(&criu.cast_signed());
            // CRIU's probes of the kernel may outlive it, but they trace no process.
            let is_held = |pid: &i32| strays.contains(&tracer(*pid));
            cluster.processes_of_run("criu").iter().all(is_placed)
                && !inside.iter().any(is_held)
                && !inside.into_iter().any(computes)
        });
        check_restorable(cluster, job);
        goes_on(cluster, job);
    });
}

/// Another daemon takes up the job, which goes on from a sealed snapshot.
fn goes_on(cluster: &mut TestCluster, job: JobId) {
    cluster.restart(NODE);
    let went_back = |cluster: &TestCluster| !cluster.jobs[&job].went_back.is_empty();
    cluster.wait_until("the job to go back", STEP_LIMIT, went_back);
    assert!(cluster.restore(job));
    let ranks = cluster.processes(job, NAME);
    assert_eq!(ranks.len(), RANKS);
    cluster.run_for(Duration::from_millis(200));
    park_sealed(cluster, job);
    assert_eq!(cluster.jobs[&job].mended, Vec::<String>::new());
}

/// Whether a process runs program code. A process that a restore has left stopped has never run. Neither has
/// one that is still CRIU, which may wait for dead tracees forever and is killed with the cgroup.
fn computes(pid: i32) -> bool {
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    comm.trim() != "criu" && processes::state(Pid::from_raw(pid)) == processes::ProcessState::Alive
}

/// Process id of the tracer, 0 if there is none.
fn tracer(pid: i32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.map_or(0, |tracer| tracer.trim().parse().expect("a process id"))
}

/// Restores the newest valid snapshot, as a new daemon would, and checks that the whole tree exists and is
/// stopped.
fn check_restorable(cluster: &TestCluster, job: JobId) {
    let cgroup = cluster.cgroup(NODE, job);
    clear(&cgroup);
    let path = cluster.segment(NODE, job);
    let (snapshot, passed_over) = cluster.store(NODE).latest_intact(&job.to_string()).unwrap();
    let snapshot = snapshot.unwrap_or_else(|| panic!("neither running nor restorable: {passed_over:?}"));
    snapshot.load_segment(&path).unwrap();
    let groups: Vec<PathBuf> = cgroup.procs().iter().map(|file| file.parent().unwrap().into()).collect();
    let request = snapshot.restore_request(groups, Some(SegmentFile::at(&path).unwrap()), STEP_LIMIT);
    let restored = snapshot.restore(&Criu::locate().unwrap(), &request).unwrap();
    let ranks = cluster.processes(job, NAME);
    clear(&cgroup);
    waitpid(restored.root, None).unwrap();
    assert_eq!((restored.pids.len(), ranks.len()), (1 + RANKS, RANKS));
}

fn clear(cgroup: &JobCgroup) {
    cgroup.kill().unwrap();
    cgroup.thaw().unwrap();
    cgroup.wait_empty(STEP_LIMIT).unwrap();
}

#[test]
fn killed_while_it_freezes() {
    crash(|cluster, job, seed| {
        cluster.order(job, Order::Park);
        cluster.run_for(span(seed, Duration::from_millis(10)));
    });
}

#[test]
fn killed_when_the_network_is_flushed() {
    crash(|cluster, job, _| assert_eq!(*cluster.order_and_wait(job, Order::Suspend), JobStatus::Suspended));
}

#[test]
fn killed_in_a_dump() {
    crash(|cluster, job, seed| {
        cluster.order(job, Order::Park);
        cluster.poll_until("the dump to begin", STEP_LIMIT, |cluster| epochs(cluster, job) == 2);
        cluster.run_for(span(seed, Duration::from_millis(80)));
    });
}

#[test]
fn killed_before_the_snapshot_is_sealed() {
    crash(|cluster, job, _| assert!(cluster.park(job)));
}

#[test]
fn killed_in_a_restore() {
    crash(|cluster, job, seed| {
        park_sealed(cluster, job);
        cluster.order(job, Order::Prefetch);
        cluster.poll_until("the restore to begin", STEP_LIMIT, |cluster| {
            !cluster.cgroup(NODE, job).pids().expect("the group stays").is_empty()
        });
        cluster.run_for(span(seed, Duration::from_millis(60)));
    });
}

#[test]
fn killed_when_the_job_is_restored_and_stopped() {
    crash(|cluster, job, _| {
        park_sealed(cluster, job);
        assert_eq!(*cluster.order_and_wait(job, Order::Prefetch), JobStatus::Suspended);
    });
}

/// Index of the directory in which the newest snapshot lies or is being written.
fn tier(cluster: &TestCluster, job: JobId) -> usize {
    let newest = cluster.images(NODE, job).remove(0).root;
    cluster
        .tiers(NODE)
        .iter()
        .position(|tier| *tier == newest)
        .expect("the snapshot is in one of the directories")
}

fn dump_to_the_second(cluster: &mut TestCluster, job: JobId, seed: &mut Seed) {
    cluster.order(job, Order::Park);
    cluster.poll_until("the dump to begin", STEP_LIMIT, |cluster| epochs(cluster, job) == 2);
    assert_eq!(tier(cluster, job), 1);
    cluster.run_for(span(seed, Duration::from_millis(80)));
}

#[test]
fn killed_in_a_dump_to_the_second_tier_with_and_without_arena() {
    crash_on_the_way_to_the_second_tier(Bytes::mib(256), dump_to_the_second);
    crash_on_the_way_to_the_second_tier(Bytes(0), dump_to_the_second);
}

#[test]
fn killed_before_the_snapshot_in_the_second_tier_is_sealed() {
    for arena in [Bytes::mib(256), Bytes(0)] {
        crash_on_the_way_to_the_second_tier(arena, |cluster, job, _| {
            assert!(cluster.park(job));
            assert_eq!(tier(cluster, job), 1);
        });
    }
}

#[test]
fn killed_in_a_restore_from_the_second_tier() {
    crash_on_the_way_to_the_second_tier(Bytes(0), |cluster, job, seed| {
        park_sealed(cluster, job);
        assert_eq!(tier(cluster, job), 1);
        cluster.order(job, Order::Prefetch);
        cluster.poll_until("the restore to begin", STEP_LIMIT, |cluster| {
            !cluster.cgroup(NODE, job).pids().expect("the group stays").is_empty()
        });
        cluster.run_for(span(seed, Duration::from_millis(60)));
    });
}
