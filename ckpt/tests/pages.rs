//! Pages: memory of all kinds goes through the arena and the store, and damage is found before a tree runs.

mod common;

use common::{Shape, SmallStore, Tree, arena, criu, cut, flip, open, reopen, restore, restore_request, take};
use coswitch_ckpt::{Arena, Damage, Origin, SnapshotError, SnapshotRestoreError, processes};
use std::fs::{self, File};

const PAGES: &str = "images/pages.cws";

#[test]
fn memory_of_all_kinds_is_restored_from_the_arena_and_from_files() {
    let mut tree = Tree::with(2, &Shape { shapes: true, ..Shape::default() });
    let store = open(&tree.dir.path().join("store"));
    let large = Arena::new(64 << 20).unwrap();
    let none = Arena::new(0).unwrap();
    for epoch in 0..6 {
        let to = if epoch % 3 == 2 { &none } else { &large };
        let snapshot = take(&tree, &store, epoch, to);
        snapshot.verify().unwrap();
        restore(&mut tree, &snapshot, (epoch % 2 == 0).then_some(to));
    }
    assert_eq!(none.bytes(), 0);
}

#[test]
fn memory_that_fills_huge_pages_is_restored() {
    let mut tree = Tree::with(2, &Shape { mib: 40, ..Shape::default() });
    let store = open(&tree.dir.path().join("store"));
    let arena = Arena::new(96 << 20).unwrap();
    for epoch in 0..4 {
        let snapshot = take(&tree, &store, epoch, &arena);
        restore(&mut tree, &snapshot, (epoch % 2 == 0).then_some(&arena));
    }
}

#[test]
fn a_snapshot_can_be_restored_several_times() {
    let mut tree = Tree::with(1, &Shape { shapes: true, ..Shape::default() });
    let store = open(&tree.dir.path().join("store"));
    let arena = Arena::new(64 << 20).unwrap();
    let snapshot = take(&tree, &store, 1, &arena);
    for from in [Some(&arena), None, Some(&arena)] {
        restore(&mut tree, &snapshot, from);
        tree.kill();
    }
    restore(&mut tree, &snapshot, None);
}

#[test]
fn sealed_pages_are_dropped_for_the_next_dump() {
    let mut trees = [Tree::start(1), Tree::start(1)];
    let dir = tempfile::tempdir().unwrap();
    // Large enough for one tree at a time.
    let arena = Arena::new(10 << 20).unwrap();
    for epoch in 1..4 {
        for (name, tree) in ["one", "other"].into_iter().zip(&mut trees) {
            let store = open(&dir.path().join(name));
            let snapshot = take(tree, &store, epoch, &arena);
            assert_eq!(arena.available_bytes(), arena.bytes(), "sealed pages can be dropped");
            restore(tree, &snapshot, Some(&arena));
        }
    }
}

#[test]
fn every_changed_bit_and_every_cut_in_the_files_of_a_small_snapshot_is_detected() {
    let mut tree = Tree::with(1, &Shape { mib: 1, ..Shape::default() });
    let store = open(&tree.dir.path().join("store"));
    let snapshot = take(&tree, &store, 1, &arena());
    restore(&mut tree, &snapshot, None);
    for record in &snapshot.manifest().files {
        let path = snapshot.dir().join(&record.name);
        let bytes = fs::read(&path).unwrap();
        snapshot.verify_file(&record.name).unwrap();
        // All bits of a small file, a bit of each byte of a larger one, and of each 61 bytes of a large one.
        let step = match bytes.len() {
            ..4096 => 1,
            4096..=16_384 => 8,
            _ => 61 * 8 + 1,
        };
        for bit in (0..bytes.len() * 8).step_by(step) {
            flip(&path, bit as u64);
            let found = snapshot.verify_file(&record.name).unwrap_err();
            let SnapshotError::Damaged { damage, .. } = &found else { panic!("{found}") };
            assert_eq!(*damage, Damage::Contents { name: record.name.clone() }, "bit {bit}");
            flip(&path, bit as u64);
        }
        for length in [0, bytes.len() / 2, bytes.len().saturating_sub(1)] {
            File::options().write(true).open(&path).unwrap().set_len(length as u64).unwrap();
            assert!(reopen(snapshot.dir()).is_err(), "{} cut to {length}", record.name);
            assert!(snapshot.verify_file(&record.name).is_err(), "{} cut to {length}", record.name);
            fs::write(&path, &bytes).unwrap();
        }
    }
    snapshot.verify().unwrap();
}

#[test]
fn a_restore_detects_damaged_pages_before_the_tree_runs_and_the_snapshot_before_is_used() {
    let mut tree = Tree::with(1, &Shape { mib: 16, ..Shape::default() });
    let store = open(&tree.dir.path().join("store"));
    let first = take(&tree, &store, 1, &arena());
    restore(&mut tree, &first, None);
    let second = take(&tree, &store, 2, &arena());
    let path = second.dir().join(PAGES);
    let bits = fs::metadata(&path).unwrap().len() * 8;
    for bit in [0, bits / 3, bits / 2 + 5, bits - 1] {
        flip(&path, bit);
        second.load_segment(&tree.segment.path).unwrap();
        let error = second.restore(&criu(), &restore_request(&tree, &second, None)).unwrap_err();
        let expected = Damage::Contents { name: PAGES.to_owned() };
        let SnapshotRestoreError::Snapshot(SnapshotError::Damaged { damage, .. }) = &error else {
            panic!("{error}")
        };
        assert_eq!(*damage, expected, "bit {bit}");
        assert_eq!(processes::in_cgroup(&tree.cgroup).unwrap(), []);
        // A snapshot marked as damaged does not count as sealed.
        assert_eq!(store.sealed_epochs("job").unwrap(), [1]);
        flip(&path, bit);
        let mark = second.dir().join("manifest.damaged");
        fs::rename(mark, second.dir().join("manifest.json")).unwrap();
    }
    flip(&path, bits / 2);
    second.restore(&criu(), &restore_request(&tree, &second, None)).unwrap_err();
    let (found, passed_over) = store.latest_intact("job").unwrap();
    assert!(matches!(passed_over[0].reason, SnapshotError::MarkedDamaged { .. }), "{passed_over:?}");
    let found = found.unwrap();
    assert_eq!(found.manifest().identity.epoch, 1);
    restore(&mut tree, &found, None);
}

#[test]
fn a_disk_that_fills_up_during_sealing_leaves_the_snapshot_before() {
    let mut tree = Tree::with(1, &Shape { mib: 8, ..Shape::default() });
    let small = SmallStore::mount(tree.dir.path().join("store"), "32m");
    let store = open(&small.0);
    let first = take(&tree, &store, 1, &arena());
    restore(&mut tree, &first, None);
    let (writer, report) = cut(&tree, &store, 2, &arena());
    // Another file takes all free space.
    let mut length = 32 << 20;
    let hog = File::create(small.0.join("hog")).unwrap();
    while nix::fcntl::fallocate(&hog, nix::fcntl::FallocateFlags::empty(), 0, length).is_err() {
        length -= 4096;
    }
    writer.seal(Origin::of(&criu(), tree.root, &report)).unwrap_err();
    fs::remove_file(small.0.join("hog")).unwrap();
    assert_eq!(store.sealed_epochs("job").unwrap(), [1]);
    restore(&mut tree, &store.latest_intact("job").unwrap().0.unwrap(), None);
}
