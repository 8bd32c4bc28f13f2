//! Gang switches at random instants, from the first instruction of the ranks on: no failure, no wrong result, nothing left.
//! They mix the orders of switching; suspending, parking from running and from suspended, fetching, parking what was
//! fetched, and restoring; an arena that holds a job, half of one, or nothing; a first directory that has room or has none;
//! and, in the last one, jobs that leave by images with jobs that leave by page-out.
//!
//! `COSWITCH_SWITCHES` says how many in all (48 where it is not set; 500 for the full claim).

use std::{
    env, fs,
    time::{Duration, Instant},
};

use coswitch_daemon::protocol::{HEARTBEAT, Park};
use coswitch_dispatcher::protocol::{Order, SwitchStep};
use coswitch_examples::Program;
use coswitch_policies::{Bytes, NodeId};
use coswitch_tests::{
    act::Act,
    seed::{seed, span},
    stage::{Life, PATIENCE, RUN_LIMIT, Scenery, Stage, play, play_in},
    swap::SwapFile,
    turns::Turns,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Each suite's share of the switches.
fn share() -> u32 {
    let total: u32 =
        env::var("COSWITCH_SWITCHES").map_or(48, |text| text.parse().expect("COSWITCH_SWITCHES is a number"));
    total.div_ceil(4)
}

fn ring_check(nodes: u32) -> impl FnMut(u32) -> Act {
    move |played| {
        let traffic = (played + 1).to_string();
        Act::program(Program::RingCheck, &["--seed", &traffic, "--rounds", "400", "--max-bytes", "1MiB"])
            .on(4, nodes)
    }
}

/// Nodes with an arena of that size and two directories.
fn nodes(nodes: u32, arena: Bytes) -> Scenery {
    Scenery { nodes, arena: Some(arena), two_tiers: true }
}

#[test]
fn random_traffic_of_four_ranks_on_two_nodes_survives_switches() {
    let mut seed = seed();
    play_in(nodes(2, Bytes::mib(256)), |stage| {
        Turns::new(stage, &mut seed, Duration::from_secs(1)).mixed().play_until(share(), ring_check(2))
    });
}

#[test]
fn random_traffic_of_four_ranks_on_one_node_survives_switches() {
    let mut seed = seed();
    play_in(nodes(1, Bytes(0)), |stage| {
        Turns::new(stage, &mut seed, Duration::from_secs(1)).mixed().play_until(share(), ring_check(1))
    });
}

#[test]
fn conjugate_gradients_of_two_and_four_ranks_survive_switches() {
    let mut seed = seed();
    let cg = |played: u32| {
        let ranks = if played.is_multiple_of(2) { 2 } else { 4 };
        Act::program(Program::Cg, &["--class", "A", "--repeat", "3"]).on(ranks, 2)
    };
    play_in(nodes(2, Bytes::mib(32)), |stage| {
        Turns::new(stage, &mut seed, Duration::from_secs(1)).mixed().play_until(share(), cg);
    });
}

#[test]
fn jobs_that_leave_by_images_and_by_page_out_survive_switches_with_each_other() {
    let mut seed = seed();
    let _swap = SwapFile::of(Bytes::mib(512));
    let mut traffic = ring_check(2);
    let act = |played: u32| {
        traffic(played).parking(if played.is_multiple_of(2) { Park::Criu } else { Park::PageOut })
    };
    play_in(nodes(2, Bytes::mib(64)), |stage| {
        Turns::new(stage, &mut seed, Duration::from_secs(1)).mixed().play_until(share(), act);
    });
}

#[test]
fn a_job_leaves_for_the_second_directory_where_the_first_is_full_and_stays_where_both_are() {
    const NODES: [NodeId; 2] = [NodeId(0), NodeId(1)];
    for arena in [Bytes::mib(256), Bytes(0)] {
        play_in(nodes(2, arena), |stage| {
            let job = stage.launch(ring_check(2)(0));
            assert_eq!(*stage.settle(job), Life::Running);
            let newest = |stage: &Stage, node| stage.images(node, job).remove(0).root;
            for full in [false, true] {
                NODES.iter().for_each(|node| stage.fill(*node, full));
                stage.run_for(Duration::from_millis(100));
                assert!(stage.park(job), "{:?}", stage.actors[&job].stayed);
                for node in NODES {
                    assert_eq!(newest(stage, node), stage.tiers(node)[usize::from(full)]);
                }
                assert!(stage.restore(job));
            }
            // A directory that has gone away has no room either.
            let (second, aside) = (stage.tiers(NODES[1])[1].clone(), stage.dir().join("aside"));
            fs::rename(&second, &aside).unwrap();
            assert_eq!(*stage.obey(job, Order::Park), Life::Running);
            fs::rename(&aside, &second).unwrap();
            let stayed = std::mem::take(&mut stage.actors.get_mut(&job).unwrap().stayed);
            assert!(stayed[0].contains("node-1") && stayed[0].contains("the store is full"), "{stayed:?}");
            assert!(stage.park(job) && stage.restore(job));
            stage.verify(job, RUN_LIMIT);
        });
    }
}

#[test]
fn jobs_that_leave_as_they_end_come_back_and_end() {
    const JOBS: u32 = 40;
    const LAST_WORDS: Duration = Duration::from_micros(400);
    let mut seed = seed();
    play(1, |stage| {
        let mut left = 0;
        for _ in 0..JOBS {
            let job = stage.launch(Act::program(Program::Null, &[]));
            stage.settle(job);
            let is_over = |stage: &Stage| matches!(stage.actors[&job].life, Life::Ended(_));
            stage.until_some_time("its rank", PATIENCE, |stage| {
                is_over(stage) || !stage.processes(job, "null").is_empty()
            });
            let [rank, launcher] = ["null", "coswitch-launch"].map(|name| stage.processes(job, name).pop());
            if let (Some(rank), Some(launcher)) = (rank, launcher) {
                spin(|| !lives(rank));
                // Its launcher says so and ends. Stopped in between, it is still there to be dumped.
                let said = Instant::now() + span(&mut seed, LAST_WORDS);
                spin(|| Instant::now() >= said);
                let signal = |signal| kill(Pid::from_raw(launcher.cast_signed()), signal).ok();
                signal(Signal::SIGSTOP);
                if stage.park(job) {
                    left += 1;
                    stage.restore(job);
                } else {
                    signal(Signal::SIGCONT);
                }
            }
            stage.verify(job, PATIENCE);
        }
        eprintln!("{left} of {JOBS} left between the end of their rank and that of their launcher");
    });
}

/// Faster than any sleep.
fn spin(until: impl Fn() -> bool) {
    let began = Instant::now();
    while !until() {
        assert!(began.elapsed() < PATIENCE, "waited {PATIENCE:?}");
    }
}

/// Whether a process is there, and no zombie.
fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[test]
fn a_job_that_is_suspended_for_longer_than_silence_means_death_goes_on_and_verifies() {
    play(2, |stage| {
        let job = stage.launch(Act::program(Program::Cg, &["--class", "A", "--repeat", "3"]).on(2, 2));
        assert_eq!(*stage.settle(job), Life::Running);
        stage.run_for(Duration::from_millis(300));
        assert_eq!(*stage.obey(job, Order::Suspend), Life::Suspended);
        stage.run_for(6 * HEARTBEAT);
        assert_eq!(stage.actors[&job].life, Life::Suspended);
        assert_eq!(*stage.obey(job, Order::Resume), Life::Running);
        let phases = stage.actors[&job].phases.iter();
        let thawed: Vec<NodeId> =
            phases.filter(|phase| phase.step == SwitchStep::Thaw).map(|phase| phase.node).collect();
        assert_eq!(thawed.len(), 2, "each node tells how long it took: {thawed:?}");
        stage.verify(job, RUN_LIMIT);
        assert!(stage.lost.is_empty(), "{:?}", stage.lost);
    });
}
