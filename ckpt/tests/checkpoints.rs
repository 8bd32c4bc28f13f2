//! Dumps of a tree that stays in memory.

mod common;

use common::{IN_FLIGHT, Tree, arena, criu, open, restore};
use coswitch_ckpt::{Origin, Snapshot, Store};
use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, SystemTime};

/// Takes a sealed snapshot of the tree, which is frozen meanwhile and goes on.
fn checkpoint(tree: &Tree, store: &Store, epoch: u64) -> Snapshot {
    let mut writer = store.begin("job", epoch, SystemTime::now()).unwrap();
    tree.freeze();
    let (images_dir, pages_dir, work_dir) = (writer.images_dir(), writer.pages_dir(), writer.work_dir());
    let request =
        coswitch_ckpt::DumpRequest { images_dir, pages_dir, work_dir, stays: true, ..tree.dump_request() };
    writer.save_segment(&tree.segment.path).unwrap();
    writer.save_channels(IN_FLIGHT).unwrap();
    let before = tree.pids();
    let mut report = criu().dump(&request).unwrap();
    assert_eq!((&report.pids, tree.pids()), (&before, before.clone()), "no process has ended");
    let state = fs::read_to_string(tree.cgroup.join("cgroup.events")).unwrap();
    assert!(state.contains("frozen 1"), "the tree does not run by itself: {state}");
    writer.take_memory(report.memory.take(), &arena());
    writer.record_outputs(&[tree.output(0), tree.output(1)]).unwrap();
    // The tree runs on while its snapshot is sealed.
    tree.thaw();
    writer.seal(Origin::of(&criu(), tree.root, &report)).unwrap();
    store.snapshot("job", epoch).unwrap()
}

#[test]
fn a_tree_goes_on_after_checkpoints_at_different_instants_and_can_go_back_to_the_last() {
    let mut tree = Tree::start(2);
    let store = open(&tree.dir.path().join("store"));
    let mut last = None;
    for epoch in 1..=8 {
        std::thread::sleep(Duration::from_millis(7 * epoch % 31));
        last = Some(checkpoint(&tree, &store, epoch));
        tree.assert_working();
        store.prune("job", &BTreeSet::new()).unwrap();
    }
    assert_eq!(store.sealed_epochs("job").unwrap(), [8, 7]);
    tree.kill();
    restore(&mut tree, &last.unwrap(), Some(&arena()));
    // And once more, from there.
    let again = checkpoint(&tree, &store, 9);
    tree.assert_working();
    tree.kill();
    restore(&mut tree, &again, None);
}
