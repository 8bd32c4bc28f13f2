//! Test of links between virtual nodes as they come and go with the applications that need them.

use std::{fs, process::Command};

use coswitch_dispatcher::protocol::Order;
use coswitch_examples::Program;
use coswitch_policies::NodeId;
use coswitch_tests::{
    cluster::{JobStatus, RUN_LIMIT, STEP_LIMIT, TestCluster, run_on},
    job::TestJob,
};

/// The port of data links between virtual nodes.
const DATA_PORT: u16 = 7078;

/// Established links of a daemon, by the kernel's table in its namespace.
fn links(cluster: &TestCluster, node: u32) -> usize {
    let table = fs::read_to_string(format!("/proc/{}/net/tcp", cluster.daemon(NodeId(node))));
    let port = format!(":{DATA_PORT:04X}");
    let is_link = |line: &&str| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [_, local, remote, "01", ..] => local.ends_with(&port) || remote.ends_with(&port),
        _ => false,
    };
    table.expect("the daemon is alive").lines().filter(is_link).count()
}

fn all_links(cluster: &TestCluster) -> [usize; 3] {
    [0, 1, 2].map(|node| links(cluster, node))
}

/// Ends every link of a node, as a network does that forgets connections.
fn break_links(cluster: &TestCluster, node: u32) {
    let daemon = cluster.daemon(NodeId(node)).to_string();
    let port = format!(":{DATA_PORT}");
    let ends = ["sport", "=", &port, "or", "dport", "=", &port];
    let ss = Command::new("nsenter").args(["-t", &daemon, "-n", "ss", "-K", "-tn"]).args(ends).output();
    assert!(ss.expect("nsenter and ss are installed").status.success());
}

/// `exchanges` by ring-check between one rank on each of two nodes.
fn ring(nodes: [u32; 2], rounds: &str) -> TestJob {
    let job = TestJob::program(Program::RingCheck, &["--rounds", rounds, "--max-bytes", "300KiB"]);
    TestJob { placement: nodes.map(NodeId).to_vec(), ..job }
}

#[test]
fn links_are_opened_by_applications_and_again_where_one_is_lost_without_any() {
    run_on(3, |cluster| {
        assert_eq!(all_links(cluster), [0, 0, 0], "no application, no link");
        let alone = cluster.launch(ring([1, 1], "50"));
        cluster.verify(alone, RUN_LIMIT);
        assert_eq!(all_links(cluster), [0, 0, 0], "an application on one node needs none");

        let job = cluster.launch(ring([0, 2], "100000000"));
        assert_eq!(*cluster.wait_for_order(job), JobStatus::Running);
        assert_eq!(all_links(cluster), [1, 0, 1]);
        let beside = cluster.launch(ring([0, 2], "50"));
        cluster.verify(beside, RUN_LIMIT);
        assert_eq!(all_links(cluster), [1, 0, 1], "two applications share a link");

        for order in [Order::Suspend, Order::Park] {
            let rests = cluster.order_and_wait(job, order).clone();
            assert!(matches!(rests, JobStatus::Suspended | JobStatus::Parked), "{order:?}: {rests:?}");
            break_links(cluster, 2);
            cluster.poll_until("the links to end", STEP_LIMIT, |cluster| all_links(cluster) == [0; 3]);
            let back = if order == Order::Park { Order::Restore } else { Order::Resume };
            assert_eq!(*cluster.order_and_wait(job, back), JobStatus::Running, "after {order:?}");
            assert_eq!(all_links(cluster), [1, 0, 1], "after {order:?}");
        }
        assert!(cluster.lost.is_empty(), "{:?}", cluster.lost);

        let last = cluster.launch(ring([1, 2], "200"));
        cluster.verify(last, RUN_LIMIT);
        assert_eq!(all_links(cluster), [1, 1, 2]);

        break_links(cluster, 0);
        cluster.poll_until("the loss to be told", STEP_LIMIT, |cluster| !cluster.lost.is_empty());
        let reason = cluster.lost.values().next().expect("one is lost");
        assert!(reason.contains("lost its link to it: "), "{reason}");
    });
}
