//! Parking by page-out: a job's pages go to swap and come back, and where they cannot the job is as it was.

use std::time::Duration;

use coswitch_daemon::protocol::Park;
use coswitch_dispatcher::protocol::Order;
use coswitch_examples::Program;
use coswitch_policies::{Bytes, JobId, NodeId};
use coswitch_tests::{
    act::Act,
    seed::seed,
    stage::{Life, PATIENCE, RUN_LIMIT, Stage, play},
    swap::SwapFile,
    turns::Turns,
};

const NODES: [NodeId; 2] = [NodeId(0), NodeId(1)];
/// Of each of the two ranks.
const MEMORY: Bytes = Bytes::mib(96);

/// One rank on each node, and its memory.
fn heat() -> Act {
    Act::program(Program::Heat, &["--memory", "96MiB", "--steps", "120"]).on(2, 2).parking(Park::PageOut)
}

fn launch(stage: &mut Stage) -> JobId {
    let job = stage.launch(heat());
    assert_eq!(*stage.settle(job), Life::Running);
    let touched = |stage: &Stage| NODES.iter().all(|node| stage.memory(*node, job) >= MEMORY);
    stage.until_some_time("its memory to be touched", PATIENCE, touched);
    job
}

#[test]
fn a_job_that_is_paged_out_gives_its_memory_back_and_verifies_later() {
    let _swap = SwapFile::of(Bytes::mib(512));
    play(2, |stage| {
        let job = launch(stage);
        for order in [Order::Prefetch, Order::Restore] {
            assert!(stage.park(job), "{:?}", stage.actors[&job].stayed);
            for node in NODES {
                let left = stage.memory(node, job);
                assert!(left.0 < MEMORY.0 / 8, "{left} are left on {node}");
                assert!(!stage.processes(job, "heat").is_empty(), "its processes stay");
                assert!(!stage.is_sealed(node, job), "there is no snapshot");
            }
            stage.obey(job, order);
            assert!(NODES.iter().all(|node| stage.memory(*node, job).0 > MEMORY.0 / 8 * 7));
            if order == Order::Prefetch {
                assert_eq!(stage.actors[&job].life, Life::Suspended);
            }
        }
        assert_eq!(stage.actors[&job].life, Life::Running);
        stage.verify(job, RUN_LIMIT);
    });
}

#[test]
fn switches_by_page_out_at_random_instants_lose_nothing() {
    let mut seed = seed();
    let _swap = SwapFile::of(Bytes::mib(512));
    let act = |played: u32| {
        let traffic = (played + 1).to_string();
        Act::program(Program::RingCheck, &["--seed", &traffic, "--rounds", "400", "--max-bytes", "1MiB"])
            .on(4, 2)
            .parking(Park::PageOut)
    };
    play(2, |stage| Turns::new(stage, &mut seed, Duration::from_millis(500)).mixed().play_until(8, act));
}

#[test]
fn where_swap_is_full_the_job_stays_where_it_was_and_verifies() {
    let _swap = SwapFile::of(Bytes::mib(32));
    play(2, |stage| {
        let job = launch(stage);
        assert_eq!(*stage.obey(job, Order::Park), Life::Running);
        assert_eq!(*stage.obey(job, Order::Suspend), Life::Suspended);
        assert_eq!(*stage.obey(job, Order::Park), Life::Suspended);
        let stayed = std::mem::take(&mut stage.actors.get_mut(&job).unwrap().stayed);
        assert!(
            stayed.len() == 2 && stayed.iter().all(|reason| reason.contains("swap is full")),
            "{stayed:?}"
        );
        assert_eq!(*stage.obey(job, Order::Resume), Life::Running);
        stage.verify(job, RUN_LIMIT);
    });
}
