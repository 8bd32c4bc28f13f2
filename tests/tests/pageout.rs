//! Parking by page-out: a job's pages go to swap and back, and if swap is full the job stays in its state.

use std::time::Duration;

use coswitch_daemon::protocol::Park;
use coswitch_dispatcher::protocol::Order;
use coswitch_examples::Program;
use coswitch_policies::{Bytes, JobId, NodeId};
use coswitch_tests::{
    cluster::{JobStatus, RUN_LIMIT, STEP_LIMIT, TestCluster, run_on},
    job::TestJob,
    seed::seed,
    swap::SwapFile,
    turns::Turns,
};

const NODES: [NodeId; 2] = [NodeId(0), NodeId(1)];
/// Of the memory of each of the two ranks, which have a little more.
const MEMORY: Bytes = Bytes::mib(96);

/// A job with one rank on each node.
fn heat() -> TestJob {
    TestJob::program(Program::Heat, &["--memory", "104MiB", "--seconds", "3"]).on(2, 2).parking(Park::PageOut)
}

fn launch(cluster: &mut TestCluster) -> JobId {
    let job = cluster.launch(heat());
    assert_eq!(*cluster.wait_for_order(job), JobStatus::Running);
    let touched = |cluster: &TestCluster| NODES.iter().all(|node| cluster.memory(*node, job) >= MEMORY);
    cluster.poll_until("its memory to be touched", STEP_LIMIT, touched);
    job
}

#[test]
fn paged_out_job_frees_its_memory_and_verifies_later() {
    let _swap = SwapFile::of(Bytes::mib(512));
    run_on(2, |cluster| {
        let job = launch(cluster);
        for order in [Order::Prefetch, Order::Restore] {
            assert!(cluster.park(job), "{:?}", cluster.jobs[&job].stayed);
            for node in NODES {
                let left = cluster.memory(node, job);
                assert!(left.0 < MEMORY.0 / 8, "{left} are left on {node}");
                assert!(!cluster.processes(job, "heat").is_empty(), "the processes stay");
                assert!(!cluster.is_sealed(node, job), "there is no snapshot");
            }
            cluster.order_and_wait(job, order);
            assert!(NODES.iter().all(|node| cluster.memory(*node, job).0 > MEMORY.0 / 8 * 7));
            if order == Order::Prefetch {
                assert_eq!(cluster.jobs[&job].status, JobStatus::Suspended);
            }
        }
        assert_eq!(cluster.jobs[&job].status, JobStatus::Running);
        cluster.verify(job, RUN_LIMIT);
    });
}

#[test]
fn switches_by_page_out_at_random_instants_lose_nothing() {
    let mut seed = seed();
    let _swap = SwapFile::of(Bytes::mib(512));
    let spec = |played: u32| {
        let traffic = (played + 1).to_string();
        TestJob::program(Program::RingCheck, &["--seed", &traffic, "--seconds", "2", "--max-bytes", "1MiB"])
            .on(4, 2)
            .parking(Park::PageOut)
    };
    run_on(2, |cluster| {
        Turns::new(cluster, &mut seed, Duration::from_millis(500)).mixed().run_until(8, spec)
    });
}

#[test]
fn job_stays_in_its_state_if_swap_is_full_and_verifies() {
    let _swap = SwapFile::of(Bytes::mib(32));
    run_on(2, |cluster| {
        let job = launch(cluster);
        assert_eq!(*cluster.order_and_wait(job, Order::Park), JobStatus::Running);
        assert_eq!(*cluster.order_and_wait(job, Order::Suspend), JobStatus::Suspended);
        assert_eq!(*cluster.order_and_wait(job, Order::Park), JobStatus::Suspended);
        let stayed = std::mem::take(&mut cluster.jobs.get_mut(&job).unwrap().stayed);
        assert!(
            stayed.len() == 2 && stayed.iter().all(|reason| reason.contains("swap is full")),
            "{stayed:?}"
        );
        assert_eq!(*cluster.order_and_wait(job, Order::Resume), JobStatus::Running);
        cluster.verify(job, RUN_LIMIT);
    });
}
