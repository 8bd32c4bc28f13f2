//! Nodes that are heard by one question to all of them in each period, by the tree of real daemons: which are
//! lost or silent, and when, is as where each session has all of its heartbeats.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use coswitch_dispatcher::watch::Heartbeats;
use coswitch_policies::NodeId;
use coswitch_tests::cluster::{ClusterSpec, STEP_LIMIT, TestCluster, run_in};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

const NODES: u32 = 12;
/// The last four nodes are below it in the tree.
const PARENT: NodeId = NodeId(0);
const LEAF: NodeId = NodeId(8);
/// In which a daemon is lost whose connection closes.
const AT_ONCE: Duration = Duration::from_secs(2);
/// In which a node counts as silent: five heartbeats after its last one, and what a busy machine takes.
const SILENT_LIMIT: Duration = Duration::from_secs(8);
/// Longer than after a fault nodes could be heard that are not.
const A_WHILE: Duration = Duration::from_secs(7);

fn nodes(numbers: impl IntoIterator<Item = u32>) -> BTreeSet<NodeId> {
    numbers.into_iter().map(NodeId).collect()
}

/// On a cluster whose sessions rest.
fn at_rest(test: impl FnOnce(&mut TestCluster) + Send) {
    let spec = ClusterSpec { nodes: NODES, heartbeats: Heartbeats::Tree, ..ClusterSpec::default() };
    run_in(spec, |cluster| {
        until_rest(cluster);
        test(cluster);
    });
}

fn until_rest(cluster: &mut TestCluster) {
    cluster.poll_until("all sessions to rest", STEP_LIMIT, |cluster| cluster.resting() == nodes(0..NODES));
}

fn signal(cluster: &TestCluster, node: NodeId, signal: Signal) {
    kill(Pid::from_raw(cluster.daemon(node).cast_signed()), signal).expect("it runs");
}

fn until_lost(cluster: &mut TestCluster, node: NodeId) {
    let began = Instant::now();
    signal(cluster, node, Signal::SIGKILL);
    cluster.wait_until("the loss of a killed daemon", AT_ONCE, |cluster| cluster.lost.contains_key(&node));
    eprintln!("{node} is lost after {:?}", began.elapsed());
}

/// Waits until exactly this node is silent, and looks that it stays so.
fn until_silent(cluster: &mut TestCluster, node: NodeId) {
    let began = Instant::now();
    cluster.wait_until("the silence of a node", SILENT_LIMIT, |cluster| cluster.silent.contains(&node));
    eprintln!("{node} is silent after {:?}", began.elapsed());
    cluster.run_for(A_WHILE);
    assert_eq!(cluster.silent, nodes([node.0]), "the others are heard");
    assert!(cluster.lost.is_empty(), "{:?}", cluster.lost);
    assert_eq!(cluster.resting(), &nodes(0..NODES) - &nodes([node.0]));
}

fn until_heard(cluster: &mut TestCluster) {
    cluster.wait_until("the end of a silence", STEP_LIMIT, |cluster| cluster.silent.is_empty());
    until_rest(cluster);
    assert!(cluster.lost.is_empty(), "{:?}", cluster.lost);
}

#[test]
fn a_daemon_that_is_killed_is_lost_at_once_and_those_below_it_are_heard() {
    at_rest(|cluster| {
        until_lost(cluster, LEAF);
        cluster.restart(LEAF);
        until_rest(cluster);
        until_lost(cluster, PARENT);
        cluster.run_for(A_WHILE);
        assert_eq!(cluster.lost.keys().copied().collect::<BTreeSet<_>>(), nodes([PARENT.0]));
        assert_eq!(cluster.silent, nodes([]));
        assert_eq!(cluster.resting(), nodes(1..NODES), "the tree goes around it");
        cluster.restart(PARENT);
        until_rest(cluster);
    });
}

#[test]
fn a_daemon_that_stands_still_is_silent_and_those_below_it_are_heard() {
    at_rest(|cluster| {
        signal(cluster, PARENT, Signal::SIGSTOP);
        until_silent(cluster, PARENT);
        signal(cluster, PARENT, Signal::SIGCONT);
        until_heard(cluster);
    });
}

#[test]
fn a_node_whose_session_is_cut_off_is_silent_although_its_parent_reaches_it() {
    at_rest(|cluster| {
        cluster.cut_session(LEAF, true);
        until_silent(cluster, LEAF);
        cluster.cut_session(LEAF, false);
        until_heard(cluster);
    });
}

#[test]
fn the_next_master_hears_its_nodes_in_the_same_way() {
    let spec =
        ClusterSpec { nodes: NODES, standing: true, heartbeats: Heartbeats::Tree, ..ClusterSpec::default() };
    run_in(spec, |cluster| {
        until_rest(cluster);
        cluster.follow_next_master();
        until_rest(cluster);
        cluster.run_for(A_WHILE);
        assert!(cluster.silent.is_empty() && cluster.lost.is_empty(), "{:?}", cluster.lost);
    });
}
