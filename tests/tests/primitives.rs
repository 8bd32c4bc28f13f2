//! XFER-AND-SIGNAL, TEST-EVENT and COMPARE-AND-WRITE on real daemons, by the tree of daemons: all nodes or
//! none, also where a daemon stands still or dies, and for the next master.

use std::{collections::BTreeSet, fs, time::Duration};

use coswitch_policies::{
    NodeId,
    primitives::{Address, Comparison::AtLeast, Comparison::Equal, Outcome, Value},
};
use coswitch_tests::cluster::{ClusterSpec, STEP_LIMIT, TestCluster, run_in, run_on};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

const NODES: u32 = 12;
/// It has others below it in the tree.
const INNER: NodeId = NodeId(0);
const BLOCK: Address = Address(1);
const SIGNALS: Address = Address(2);
const WORD: Address = Address(3);
const WRITTEN: Address = Address(4);

fn all() -> Vec<NodeId> {
    (0..NODES).map(NodeId).collect()
}

fn carried_out() -> Outcome {
    Outcome::CarriedOut { lost: BTreeSet::new() }
}

fn refused_by(nodes: &[NodeId]) -> Outcome {
    let refused = nodes.iter().copied().collect();
    Outcome::Dropped { refused, lost: BTreeSet::new(), late: BTreeSet::new() }
}

fn lost(node: NodeId) -> Outcome {
    Outcome::Dropped { refused: BTreeSet::new(), lost: BTreeSet::from([node]), late: BTreeSet::new() }
}

fn block() -> Value {
    Value::Block((0..100_000u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>().into())
}

fn put(cluster: &TestCluster, nodes: &[NodeId], value: Value) -> Outcome {
    let to = if matches!(value, Value::Word(_)) { WORD } else { BLOCK };
    let event = cluster.start_transfer(nodes, to, value, SIGNALS);
    cluster.wait_for_event(event)
}

fn signal(cluster: &TestCluster, node: NodeId, signal: Signal) {
    kill(Pid::from_raw(cluster.daemon(node).cast_signed()), signal).expect("it runs");
}

/// Stops a daemon, and waits until each of its threads has: one that has not might answer.
fn stop(cluster: &TestCluster, node: NodeId) {
    signal(cluster, node, Signal::SIGSTOP);
    let tasks = format!("/proc/{}/task", cluster.daemon(node));
    let has_stopped = |task: fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, fields)| fields.starts_with('T'))
    };
    while !fs::read_dir(&tasks).expect("it lives").flatten().all(has_stopped) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn all_nodes_or_none_also_where_a_daemon_amid_the_tree_dies() {
    run_on(NODES, |cluster| {
        let all = all();
        assert_eq!(put(cluster, &all, block()), carried_out());
        assert_eq!(put(cluster, &all, Value::Word(7)), carried_out());
        assert_eq!(cluster.compare_and_write(&all, SIGNALS, (Equal, 2), None), carried_out());
        assert_eq!(put(cluster, &[NodeId(5)], Value::Word(6)), carried_out());
        let write = Some((WRITTEN, 1));
        assert_eq!(cluster.compare_and_write(&all, WORD, (AtLeast, 7), write), refused_by(&[NodeId(5)]));
        assert_eq!(cluster.compare_and_write(&all, WRITTEN, (AtLeast, 0), None), refused_by(&all));
        assert_eq!(cluster.compare_and_write(&all, WORD, (AtLeast, 6), write), carried_out());
        assert_eq!(cluster.compare_and_write(&all, WRITTEN, (Equal, 1), None), carried_out());

        // Eleven nodes hold it when the inner one dies.
        stop(cluster, INNER);
        let event = cluster.start_transfer(&all, WORD, Value::Word(8), SIGNALS);
        cluster.run_for(Duration::from_millis(1500));
        assert_eq!(cluster.test_event(event), None, "one node has not answered");
        signal(cluster, INNER, Signal::SIGKILL);
        assert_eq!(cluster.wait_for_event(event), lost(INNER));
        let others = &all[1..];
        assert_eq!(cluster.compare_and_write(others, SIGNALS, (AtLeast, 4), None), refused_by(others));
        assert_eq!(cluster.compare_and_write(others, WORD, (AtLeast, 8), None), refused_by(others));
        assert_eq!(put(cluster, others, Value::Word(8)), carried_out());
        assert_eq!(put(cluster, &all, Value::Word(9)), lost(INNER));

        cluster.wait_until("the loss of the node", STEP_LIMIT, |cluster| cluster.lost.contains_key(&INNER));
        cluster.restart(INNER);
        let nothing_there = cluster.compare_and_write(&all, WORD, (Equal, 8), None);
        assert_eq!(nothing_there, refused_by(&[INNER]), "the next daemon begins with nothing");
        assert_eq!(put(cluster, &[INNER], Value::Word(8)), carried_out());
        assert_eq!(cluster.compare_and_write(&all, WORD, (Equal, 8), Some((WORD, 9))), carried_out());
        assert_eq!(cluster.compare_and_write(&all, WORD, (Equal, 9), None), carried_out());
    });
}

#[test]
fn the_next_master_ends_what_its_predecessor_has_begun() {
    run_in(ClusterSpec { nodes: NODES, standing: true, ..ClusterSpec::default() }, |cluster| {
        let all = all();
        assert_eq!(put(cluster, &all, Value::Word(7)), carried_out());
        // One node has not got it, the others hold it.
        stop(cluster, INNER);
        let _begun = cluster.start_transfer(&all, WORD, Value::Word(8), SIGNALS);
        cluster.run_for(Duration::from_millis(1500));
        let inner = Pid::from_raw(cluster.daemon(INNER).cast_signed());
        let wakes = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            kill(inner, Signal::SIGCONT).expect("it stands still");
        });
        cluster.follow_next_master();
        wakes.join().expect("it wakes");
        // Whatever has become of it, it is the same everywhere, and the memory is that of before.
        let is_at = |value| cluster.compare_and_write(&all, WORD, (Equal, value), None);
        let (before, after) = (is_at(7), is_at(8));
        assert!(before.is_carried_out() != after.is_carried_out(), "{before:?}, {after:?}");
        assert_eq!(put(cluster, &all, Value::Word(9)), carried_out());
        assert_eq!(cluster.compare_and_write(&all, WORD, (Equal, 9), None), carried_out());
    });
}
