//! Gang switches at random instants, from the first instruction of the ranks on: no failure, no wrong result, nothing left.
//! They mix suspending, parking from running and from suspended, fetching, parking what was fetched, and restoring.
//!
//! `COSWITCH_SWITCHES` says how many in all (48 where it is not set; 300 for the full claim).

use std::{env, time::Duration};

use coswitch_daemon::protocol::HEARTBEAT;
use coswitch_dispatcher::protocol::{Order, PhaseKind};
use coswitch_examples::Program;
use coswitch_policies::NodeId;
use coswitch_tests::{
    act::Act,
    seed::seed,
    stage::{Life, RUN_LIMIT, play},
    turns::Turns,
};

/// Each suite's share of the switches.
fn share() -> u32 {
    let total: u32 =
        env::var("COSWITCH_SWITCHES").map_or(48, |text| text.parse().expect("COSWITCH_SWITCHES is a number"));
    total.div_ceil(3)
}

fn ring_check(nodes: u32) -> impl FnMut(u32) -> Act {
    move |played| {
        let traffic = (played + 1).to_string();
        Act::program(Program::RingCheck, &["--seed", &traffic, "--rounds", "400", "--max-bytes", "1MiB"])
            .on(4, nodes)
    }
}

#[test]
fn random_traffic_of_four_ranks_on_two_nodes_survives_switches() {
    let mut seed = seed();
    play(2, |stage| {
        Turns::new(stage, &mut seed, Duration::from_secs(1)).mixed().play_until(share(), ring_check(2))
    });
}

#[test]
fn random_traffic_of_four_ranks_on_one_node_survives_switches() {
    let mut seed = seed();
    play(1, |stage| {
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
    play(2, |stage| Turns::new(stage, &mut seed, Duration::from_secs(1)).mixed().play_until(share(), cg));
}

#[test]
fn a_job_that_is_suspended_for_longer_than_silence_means_death_goes_on_and_verifies() {
    play(2, |stage| {
        let job = stage.launch(Act::program(Program::Cg, &["--class", "A", "--repeat", "3"]).on(2, 2));
        assert_eq!(*stage.settle(job), Life::Running);
        stage.run_for(Duration::from_millis(300));
        assert_eq!(*stage.obey(job, Order::Suspend), Life::Suspended);
        stage.run_for(4 * HEARTBEAT);
        assert_eq!(stage.actors[&job].life, Life::Suspended);
        assert_eq!(*stage.obey(job, Order::Resume), Life::Running);
        let phases = stage.actors[&job].phases.iter();
        let thawed: Vec<NodeId> =
            phases.filter(|phase| phase.kind == PhaseKind::Thaw).map(|phase| phase.node).collect();
        assert_eq!(thawed.len(), 2, "each node tells how long it took: {thawed:?}");
        stage.verify(job, RUN_LIMIT);
        assert!(stage.lost.is_empty(), "{:?}", stage.lost);
    });
}
