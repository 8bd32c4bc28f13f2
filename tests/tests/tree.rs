//! Control by a tree: a request to many nodes goes down a tree of daemons, and the answers come up. Where a
//! daemon amid the tree dies, the nodes below it get their requests all the same, and their answers arrive.

use std::{fs, time::Duration};

use coswitch_daemon::protocol::Wait;
use coswitch_dispatcher::{protocol::Order, ways::RADIX};
use coswitch_examples::Program;
use coswitch_policies::{
    JobId, NodeId,
    control_tree::{ControlTree, Place},
};
use coswitch_tests::{
    cluster::{JobStatus, RUN_LIMIT, STEP_LIMIT, TestCluster, run_on},
    job::TestJob,
    seed::{seed, span},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

const NODES: u32 = 12;
/// It has others below it.
const INNER: NodeId = NodeId(0);

fn launch(cluster: &mut TestCluster) -> JobId {
    let job = TestJob::program(Program::Heat, &["--memory", "2MiB", "--seconds", "1.5"]);
    let job = cluster.launch(job.on(NODES, NODES).waiting(Wait::Block));
    assert_eq!(*cluster.wait_for_order(job), JobStatus::Running);
    job
}

fn park_sealed(cluster: &mut TestCluster, job: JobId) {
    assert!(cluster.park(job));
    let is_sealed = |cluster: &TestCluster| (0..NODES).all(|node| cluster.is_sealed(NodeId(node), job));
    cluster.poll_until("the seals", STEP_LIMIT, is_sealed);
}

/// To how many daemons that of a node passes messages on: it has a thread for each.
fn passes_on(cluster: &TestCluster, node: NodeId) -> usize {
    let threads = fs::read_dir(format!("/proc/{}/task", cluster.daemon(node))).expect("it runs");
    let names = threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    names.filter(|name| name.trim() == "pass-on").count()
}

#[test]
fn gangs_on_many_nodes_switch_and_go_on_where_a_daemon_amid_the_tree_dies() {
    let below = ControlTree::new(RADIX, NODES, Default::default()).children(Place::Node(INNER)).len();
    assert!(below > 1, "the test has an inner node");
    let mut seed = seed();
    run_on(NODES, |cluster| {
        let first = launch(cluster);
        park_sealed(cluster, first);
        let second = launch(cluster);
        park_sealed(cluster, second);
        assert!(cluster.restore(first));
        assert_eq!(passes_on(cluster, INNER), below, "requests go by the tree");
        assert_eq!(passes_on(cluster, NodeId(NODES - 1)), 1, "and answers to the daemon above");
        assert_eq!(passes_on(cluster, NodeId(1)), 0);

        cluster.order(first, Order::Park);
        cluster.run_for(span(&mut seed, Duration::from_millis(60)));
        kill(Pid::from_raw(cluster.daemon(INNER).cast_signed()), Signal::SIGKILL).expect("it runs");
        cluster.wait_until("the loss of the node", STEP_LIMIT, |cluster| cluster.lost.contains_key(&INNER));
        cluster.wait_until("both to rest at their snapshots", STEP_LIMIT, |cluster| {
            [first, second].iter().all(|job| cluster.jobs[job].status == JobStatus::Parked)
        });
        cluster.restart(INNER);
        cluster.wait_until("both to go back", STEP_LIMIT, |cluster| {
            [first, second].iter().all(|job| !cluster.jobs[job].went_back.is_empty())
        });
        assert!(cluster.restore(second));
        assert!(cluster.park(second));
        assert!(cluster.restore(first));
        assert_eq!(passes_on(cluster, INNER), below, "the next daemon is of the tree again");
        cluster.verify(first, RUN_LIMIT);
        assert!(cluster.restore(second));
        cluster.verify(second, RUN_LIMIT);
    });
}

#[test]
fn answers_arrive_where_the_daemon_that_gathers_them_dies() {
    let mut seed = seed();
    run_on(NODES, |cluster| {
        let program = TestJob::program(Program::Heat, &["--memory", "8MiB", "--seconds", "1.5"]);
        // The inner node has no part of it: the job goes on without that node.
        let placement = (0..NODES).map(NodeId).filter(|node| *node != INNER).collect();
        let job = cluster.launch(TestJob { placement, ..program.waiting(Wait::Block) });
        assert_eq!(*cluster.wait_for_order(job), JobStatus::Running);

        cluster.order(job, Order::Park);
        cluster.run_for(Duration::from_millis(40) + span(&mut seed, Duration::from_millis(60)));
        let inner = Pid::from_raw(cluster.daemon(INNER).cast_signed());
        kill(inner, Signal::SIGSTOP).expect("it runs");
        cluster.run_for(Duration::from_millis(400));
        kill(inner, Signal::SIGKILL).expect("it stands still");
        assert_eq!(*cluster.wait_for_order(job), JobStatus::Parked);
        cluster.wait_until("the loss of the node", STEP_LIMIT, |cluster| cluster.lost.contains_key(&INNER));
        assert!(cluster.jobs[&job].stayed.is_empty() && cluster.jobs[&job].mended.is_empty());

        cluster.restart(INNER);
        assert!(cluster.restore(job));
        cluster.verify(job, RUN_LIMIT);
    });
}
