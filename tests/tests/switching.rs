//! Gang switches at random instants, from the first instruction of the ranks on: no failure, no wrong result,
//! no leftovers. They mix the orders of switching; suspending, parking running and suspended jobs, fetching,
//! parking fetched jobs, and restoring; arenas that hold a job, half of one, or nothing; a first directory
//! that has space or is full; and, in the last suite, jobs that leave by images with jobs that leave by
//! page-out.
//!
//! `COSWITCH_SWITCHES` sets the number of switches in all (default 48; 500 for the full claim).

use std::{
    env, fs,
    time::{Duration, Instant},
};

use coswitch_daemon::protocol::{HEARTBEAT, Park};
use coswitch_dispatcher::protocol::{Order, SwitchStep};
use coswitch_examples::Program;
use coswitch_policies::{
    Bytes, NodeId,
    local::{Technique, explicit::Slices},
};
use coswitch_tests::{
    cluster::{ClusterSpec, JobStatus, RUN_LIMIT, STEP_LIMIT, TestCluster, run_in, run_on},
    job::TestJob,
    parts,
    seed::{seed, span},
    swap::SwapFile,
    turns::Turns,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Number of switches of each suite.
fn share() -> u32 {
    let total: u32 =
        env::var("COSWITCH_SWITCHES").map_or(48, |text| text.parse().expect("COSWITCH_SWITCHES is a number"));
    total.div_ceil(6)
}

fn ring_check(nodes: u32) -> impl FnMut(u32) -> TestJob {
    ring_check_of("2", nodes)
}

/// Of so many seconds of processor time.
fn ring_check_of(seconds: &'static str, nodes: u32) -> impl FnMut(u32) -> TestJob {
    move |played| {
        let traffic = (played + 1).to_string();
        let arguments = ["--seed", &traffic, "--seconds", seconds, "--max-bytes", "1MiB"];
        TestJob::program(Program::RingCheck, &arguments).on(4, nodes)
    }
}

/// Nodes with an arena of size `arena` and two store directories.
fn nodes(nodes: u32, arena: Bytes) -> ClusterSpec {
    ClusterSpec { nodes, arena: Some(arena), two_tiers: true, ..ClusterSpec::default() }
}

#[test]
fn random_traffic_of_four_ranks_on_two_nodes_is_correct_across_switches() {
    let mut seed = seed();
    run_in(nodes(2, Bytes::mib(256)), |cluster| {
        Turns::new(cluster, &mut seed, Duration::from_secs(1)).mixed().run_until(share(), ring_check(2))
    });
}

#[test]
fn random_traffic_of_four_ranks_on_one_node_is_correct_across_switches() {
    let mut seed = seed();
    run_in(nodes(1, Bytes(0)), |cluster| {
        Turns::new(cluster, &mut seed, Duration::from_secs(1)).mixed().run_until(share(), ring_check(1))
    });
}

#[test]
fn conjugate_gradients_of_two_and_four_ranks_are_correct_across_switches() {
    let mut seed = seed();
    let cg = |played: u32| {
        let ranks = if played.is_multiple_of(2) { 2 } else { 4 };
        TestJob::program(Program::Cg, &["--class", "A", "--seconds", "2"]).on(ranks, 2)
    };
    run_in(nodes(2, Bytes::mib(32)), |cluster| {
        Turns::new(cluster, &mut seed, Duration::from_secs(1)).mixed().run_until(share(), cg);
    });
}

#[test]
fn a_fortran_program_of_two_three_and_four_ranks_is_correct_across_switches() {
    let mut seed = seed();
    let bt = |played: u32| {
        TestJob::program(Program::Bt, &["--class", "W", "--seconds", "6"]).on(2 + played % 3, 2)
    };
    run_in(nodes(2, Bytes::mib(32)), |cluster| {
        Turns::new(cluster, &mut seed, Duration::from_secs(1)).mixed().run_until(share(), bt);
    });
}

#[test]
fn jobs_parked_by_images_and_by_page_out_are_correct_across_switches() {
    let mut seed = seed();
    let _swap = SwapFile::of(Bytes::mib(512));
    let mut traffic = ring_check(2);
    let spec = |played: u32| {
        traffic(played).parking(if played.is_multiple_of(2) { Park::Criu } else { Park::PageOut })
    };
    run_in(nodes(2, Bytes::mib(64)), |cluster| {
        Turns::new(cluster, &mut seed, Duration::from_secs(1)).mixed().run_until(share(), spec);
    });
}

/// A quarter of a suite's switches for each technique.
fn switch_under(techniques: &[Technique]) {
    let mut seed = seed();
    for local in techniques {
        run_in(ClusterSpec { local: Some(*local), ..nodes(2, Bytes::mib(256)) }, |cluster| {
            if let Some(slot) = local.slot() {
                cluster.strobe(slot, 2);
            }
            if local.console([]).is_some() {
                cluster.set_slices(Slices::for_load(2.0, Duration::from_millis(50)));
            }
            let turns = Turns::new(cluster, &mut seed, Duration::from_secs(1)).mixed();
            // Where messages go by slots, ranks compute little of the time.
            let seconds = if local.buffering().is_some() { "0.2" } else { "1" };
            turns.run_until(share().div_ceil(4), ring_check_of(seconds, 2));
        });
    }
}

#[test]
fn random_traffic_is_correct_across_switches_whatever_the_node_scheduler_favours() {
    switch_under(&[
        Technique::DCS,
        Technique::ICS,
        Technique::PREDICTIVE,
        Technique::DYNAMIC,
        Technique::HPDT,
        Technique::DTS,
    ]);
}

#[test]
fn random_traffic_is_correct_across_switches_whatever_turns_the_node_scheduler_gives() {
    switch_under(&[
        Technique::DTS_STATIC,
        Technique::DTS_BALANCED,
        Technique::DTS_STOP,
        Technique::FCS,
        Technique::BCS,
        Technique::ROUND_ROBIN,
    ]);
}

/// Jobs are cut, parked and restored in their own slices and in those of others.
#[test]
fn random_traffic_is_correct_across_switches_of_jobs_that_take_slices() {
    let mut seed = seed();
    run_in(nodes(2, Bytes::mib(256)), |cluster| {
        cluster.strobe(Duration::from_millis(5), 2);
        let turns = Turns::new(cluster, &mut seed, Duration::from_secs(1)).mixed();
        turns.run_until(share().div_ceil(2), ring_check(2));
    });
}

#[test]
fn job_is_parked_in_the_second_directory_if_the_first_is_full_and_stays_if_both_are() {
    const NODES: [NodeId; 2] = [NodeId(0), NodeId(1)];
    for arena in [Bytes::mib(256), Bytes(0)] {
        run_in(nodes(2, arena), |cluster| {
            let job = cluster.launch(ring_check(2)(0));
            assert_eq!(*cluster.wait_for_order(job), JobStatus::Running);
            let newest = |cluster: &TestCluster, node| cluster.images(node, job).remove(0).root;
            for full in [false, true] {
                NODES.iter().for_each(|node| cluster.fill(*node, full));
                cluster.run_for(Duration::from_millis(100));
                assert!(cluster.park(job), "{:?}", cluster.jobs[&job].stayed);
                for node in NODES {
                    assert_eq!(newest(cluster, node), cluster.tiers(node)[usize::from(full)]);
                }
                assert!(cluster.restore(job));
            }
            // A directory that is missing has no space either.
            let (second, aside) = (cluster.tiers(NODES[1])[1].clone(), cluster.dir().join("aside"));
            fs::rename(&second, &aside).unwrap();
            assert_eq!(*cluster.order_and_wait(job, Order::Park), JobStatus::Running);
            fs::rename(&aside, &second).unwrap();
            let stayed = std::mem::take(&mut cluster.jobs.get_mut(&job).unwrap().stayed);
            assert!(stayed[0].contains("node-1") && stayed[0].contains("the store is full"), "{stayed:?}");
            assert!(cluster.park(job) && cluster.restore(job));
            cluster.verify(job, RUN_LIMIT);
        });
    }
}

/// Programs use System V shared memory, and so does MPICH: its library UCX attaches a segment for a moment in
/// `MPI_Init`.
#[test]
fn ranks_keep_their_system_v_segments_across_switches() {
    // Of two segments one is removed while it is attached, as programs do that leave nothing behind.
    const KEEP: &str = "from mpi4py import MPI; import ctypes, time\n\
        c = ctypes.CDLL(None); c.shmat.restype = ctypes.c_void_p\n\
        ids = [c.shmget(0, 1 << 20, 0o1600) for _ in range(2)]\n\
        kept = [ctypes.cast(c.shmat(i, None, 0), ctypes.POINTER(ctypes.c_long)) for i in ids]\n\
        c.shmctl(ids[1], 0, None); rank = MPI.COMM_WORLD.rank\n\
        for at in range(200):\n\
        \x20for k in kept: k[at] = at + rank\n\
        \x20MPI.COMM_WORLD.Barrier(); time.sleep(0.02)\n\
        again = ctypes.cast(c.shmat(ids[0], None, 0), ctypes.POINTER(ctypes.c_long))\n\
        right = all(k[at] == at + rank for k in [*kept, again] for at in range(200))\n\
        if MPI.COMM_WORLD.allreduce(right, MPI.LAND) and rank == 0: print('kept')";
    let python = parts::python().display().to_string();
    run_on(2, |cluster| {
        let job = cluster.launch(TestJob::new("keep", &python, &["-c", KEEP], Some("kept")).on(4, 2));
        assert_eq!(*cluster.wait_for_order(job), JobStatus::Running);
        for _ in 0..3 {
            cluster.run_for(Duration::from_millis(700));
            assert!(cluster.park(job) && cluster.restore(job), "{:?}", cluster.jobs[&job].stayed);
        }
        cluster.verify(job, RUN_LIMIT);
    });
}

#[test]
fn jobs_that_are_parked_as_they_end_are_restored_and_end() {
    const JOBS: u32 = 40;
    const LAST_WORDS: Duration = Duration::from_micros(400);
    let mut seed = seed();
    run_on(1, |cluster| {
        let mut left = 0;
        for _ in 0..JOBS {
            let job = cluster.launch(TestJob::program(Program::Null, &[]));
            cluster.wait_for_order(job);
            let is_over = |cluster: &TestCluster| matches!(cluster.jobs[&job].status, JobStatus::Ended(_));
            cluster.poll_until("its rank", STEP_LIMIT, |cluster| {
                is_over(cluster) || !cluster.processes(job, "null").is_empty()
            });
            let [rank, launcher] = ["null", "coswitch-launch"].map(|name| cluster.processes(job, name).pop());
            if let (Some(rank), Some(launcher)) = (rank, launcher) {
                spin(|| !lives(rank));
                // The launcher reports this and ends. If it is stopped in between, it can still be dumped.
                let said = Instant::now() + span(&mut seed, LAST_WORDS);
                spin(|| Instant::now() >= said);
                let signal = |signal| kill(Pid::from_raw(launcher.cast_signed()), signal).ok();
                signal(Signal::SIGSTOP);
                if cluster.park(job) {
                    left += 1;
                    cluster.restore(job);
                } else {
                    signal(Signal::SIGCONT);
                }
            }
            cluster.verify(job, STEP_LIMIT);
        }
        eprintln!("{left} of {JOBS} left between the end of their rank and that of their launcher");
    });
}

/// Busy-waits, which reacts faster than a sleep.
fn spin(until: impl Fn() -> bool) {
    let began = Instant::now();
    while !until() {
        assert!(began.elapsed() < STEP_LIMIT, "waited {STEP_LIMIT:?}");
    }
}

/// Whether a process exists and is no zombie.
fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[test]
fn job_suspended_for_longer_than_the_heartbeat_limit_continues_and_verifies() {
    run_on(2, |cluster| {
        let job = cluster.launch(TestJob::program(Program::Cg, &["--class", "A", "--seconds", "2"]).on(2, 2));
        assert_eq!(*cluster.wait_for_order(job), JobStatus::Running);
        cluster.run_for(Duration::from_millis(300));
        assert_eq!(*cluster.order_and_wait(job, Order::Suspend), JobStatus::Suspended);
        cluster.run_for(6 * HEARTBEAT);
        assert_eq!(cluster.jobs[&job].status, JobStatus::Suspended);
        assert_eq!(*cluster.order_and_wait(job, Order::Resume), JobStatus::Running);
        let phases = cluster.jobs[&job].phases.iter();
        let thawed: Vec<NodeId> =
            phases.filter(|phase| phase.step == SwitchStep::Thaw).map(|phase| phase.node).collect();
        assert_eq!(thawed.len(), 2, "each node reports the time of its thaw: {thawed:?}");
        cluster.verify(job, RUN_LIMIT);
        assert!(cluster.lost.is_empty(), "{:?}", cluster.lost);
    });
}
