//! Dump and restore in cycles: a tree loses nothing.

mod common;

use common::{Tree, criu};
use coswitch_ckpt::processes::{self, ProcessState};
use std::time::Duration;

#[test]
fn twenty_cycles_at_different_instants_lose_nothing() {
    let mut tree = Tree::start(2);
    for cycle in 0..20 {
        std::thread::sleep(Duration::from_millis(7 * cycle % 31));
        tree.dump().unwrap();
        tree.come_back();
        tree.assert_working();
    }
}

#[test]
fn a_dumped_tree_is_gone_from_memory_and_a_restored_one_is_stopped_until_resumed() {
    let mut tree = Tree::start(2);
    let before = tree.pids();
    let inner: Vec<u32> = tree.segment.ranks().iter().map(|rank| rank.pid()).collect();
    assert_eq!(inner, [2, 3]);
    let report = tree.dump().unwrap();
    assert_eq!(report.pids, before);
    assert!(report.image_bytes > 2 * (4 << 20), "two ranks of 4 MiB: {}", report.image_bytes);
    assert!(report.frozen.is_some_and(|frozen| frozen < report.took), "{report:?}");
    assert!(before.iter().all(|pid| processes::state(*pid) == ProcessState::Gone));

    let restored = tree.restore().unwrap();
    assert_eq!(restored.pids.len(), before.len());
    assert!(restored.pids.iter().all(|pid| processes::state(*pid) == ProcessState::Stopped));
    assert_eq!(processes::in_cgroup(&tree.cgroup).unwrap().len(), before.len());
    let inside = |pid| *processes::ids_in_namespaces(pid).last().unwrap() as u32;
    assert_eq!(inside(restored.root), 1);
    let mut now: Vec<u32> = restored.pids[1..].iter().map(|pid| inside(*pid)).collect();
    now.sort();
    assert_eq!(now, inner);

    restored.resume().unwrap();
    tree.assert_working();
}

#[test]
fn trees_are_dumped_and_restored_in_parallel() {
    let mut trees: Vec<Tree> = (0..4).map(|_| Tree::start(2)).collect();
    for _ in 0..3 {
        in_parallel(&mut trees, |tree| drop(tree.dump().unwrap()));
        in_parallel(&mut trees, |tree| tree.come_back());
        in_parallel(&mut trees, |tree| tree.assert_working());
    }
}

/// Runs `act` in threads that end, which must not end a root that asked to die with its parent thread.
fn in_parallel(trees: &mut [Tree], act: impl Fn(&mut Tree) + Sync) {
    std::thread::scope(|scope| {
        for tree in trees {
            scope.spawn(|| act(tree));
        }
    });
}

#[test]
fn criu_is_found_healthy() {
    let health = criu().check().unwrap();
    assert!(health.pidfd_store);
}
