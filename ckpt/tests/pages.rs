//! Pages of all kinds go through the arena, the store and damage, and none is lost, invented or trusted unchecked.

mod common;

use common::{LIMIT, Shape, SmallStore, Tree, arena, criu};
use coswitch_ckpt::manifest::Checksum;
use coswitch_ckpt::{
    Arena, BringBackError, Damage, DumpReport, Origin, RestoreRequest, Snapshot, SnapshotError,
    SnapshotWriter, Store, processes,
};
use nix::sys::wait::waitpid;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::SystemTime;

const PAGES: &str = "images/pages.cws";

fn cut(tree: &Tree, store: &Store, epoch: u64, arena: &Arena) -> (SnapshotWriter, DumpReport) {
    let mut writer = store.begin("job", epoch, SystemTime::now()).unwrap();
    tree.freeze();
    let mut request = tree.dump_request();
    (request.images_dir, request.work_dir) = (writer.images_dir(), writer.work_dir());
    request.arena = Some(arena.clone());
    writer.save_segment(&tree.segment.path).unwrap();
    let mut report = criu().dump(&request).unwrap();
    writer.take_memory(report.memory.take(), arena);
    waitpid(tree.root, None).unwrap();
    (writer, report)
}

fn take(tree: &Tree, store: &Store, epoch: u64, arena: &Arena) -> Snapshot {
    let (writer, report) = cut(tree, store, epoch, arena);
    writer.seal(Origin::of(&criu(), tree.root, &report)).unwrap();
    store.snapshot("job", epoch).unwrap()
}

fn request(tree: &Tree, snapshot: &Snapshot, arena: Option<&Arena>) -> RestoreRequest {
    let segment = Some(tree.segment.identity());
    let mut request = snapshot.restore_request(vec![tree.cgroup.clone()], segment, LIMIT);
    request.arena = arena.cloned();
    request
}

fn bring_back(tree: &mut Tree, snapshot: &Snapshot, arena: Option<&Arena>) {
    snapshot.load_segment(&tree.segment.path).unwrap();
    let restored = snapshot.restore(&criu(), &request(tree, snapshot, arena)).unwrap();
    tree.root = restored.root;
    restored.resume().unwrap();
    tree.assert_working();
}

#[test]
fn memory_of_all_kinds_comes_back_from_the_arena_and_from_files_again_and_again() {
    let mut tree = Tree::with(2, &Shape { shapes: true, ..Shape::default() });
    let store = Store::open(&tree.dir.path().join("store")).unwrap();
    let large = Arena::new(64 << 20).unwrap();
    let none = Arena::new(0).unwrap();
    for epoch in 0..6 {
        let to = if epoch % 3 == 2 { &none } else { &large };
        let snapshot = take(&tree, &store, epoch, to);
        snapshot.verify().unwrap();
        bring_back(&mut tree, &snapshot, (epoch % 2 == 0).then_some(to));
    }
    assert_eq!(none.bytes(), 0);
}

#[test]
fn memory_that_fills_huge_pages_comes_back_right_whatever_the_kernel_made_of_it() {
    let mut tree = Tree::with(2, &Shape { mib: 40, ..Shape::default() });
    let store = Store::open(&tree.dir.path().join("store")).unwrap();
    let arena = Arena::new(96 << 20).unwrap();
    for epoch in 0..4 {
        let snapshot = take(&tree, &store, epoch, &arena);
        bring_back(&mut tree, &snapshot, (epoch % 2 == 0).then_some(&arena));
    }
}

#[test]
fn a_snapshot_is_restored_again_and_again_as_it_was() {
    let mut tree = Tree::with(1, &Shape { shapes: true, ..Shape::default() });
    let store = Store::open(&tree.dir.path().join("store")).unwrap();
    let arena = Arena::new(64 << 20).unwrap();
    let snapshot = take(&tree, &store, 1, &arena);
    for from in [Some(&arena), None, Some(&arena)] {
        bring_back(&mut tree, &snapshot, from);
        tree.kill();
    }
    bring_back(&mut tree, &snapshot, None);
}

#[test]
fn images_that_nobody_needs_make_room_for_the_next_dump() {
    let mut trees = [Tree::start(1), Tree::start(1)];
    let dir = tempfile::tempdir().unwrap();
    // Room for one of them at a time.
    let arena = Arena::new(10 << 20).unwrap();
    for epoch in 1..4 {
        for (name, tree) in ["one", "other"].into_iter().zip(&mut trees) {
            let store = Store::open(&dir.path().join(name)).unwrap();
            let snapshot = take(tree, &store, epoch, &arena);
            assert_eq!(arena.room(), arena.bytes(), "what is sealed is no obstacle");
            bring_back(tree, &snapshot, Some(&arena));
        }
    }
}

#[test]
fn every_bit_of_a_small_snapshots_files_and_every_cut_is_noticed() {
    let mut tree = Tree::with(1, &Shape { mib: 1, ..Shape::default() });
    let store = Store::open(&tree.dir.path().join("store")).unwrap();
    let snapshot = take(&tree, &store, 1, &arena());
    bring_back(&mut tree, &snapshot, None);
    for record in &snapshot.manifest().files {
        let path = snapshot.dir().join(&record.name);
        let mut bytes = fs::read(&path).unwrap();
        record.check(Checksum::of(&bytes)).unwrap();
        // All bits of what is small; of what is large, one in each stretch of 61 bytes.
        let step = if bytes.len() < 4096 { 1 } else { 61 * 8 + 1 };
        for bit in (0..bytes.len() * 8).step_by(step) {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let found = record.check(Checksum::of(&bytes));
            assert!(matches!(found, Err(Damage::Contents { .. })), "bit {bit} of {}", record.name);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for length in [0, bytes.len() / 2, bytes.len().saturating_sub(1)] {
            File::options().write(true).open(&path).unwrap().set_len(length as u64).unwrap();
            let is_refused = Snapshot::open(snapshot.dir()).is_err();
            assert!(is_refused || length == bytes.len(), "{} cut to {length}", record.name);
            fs::write(&path, &bytes).unwrap();
        }
    }
    snapshot.verify().unwrap();
}

fn flip(path: &Path, bit: usize) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, bit as u64 / 8).unwrap();
    file.write_all_at(&[byte[0] ^ (1 << (bit % 8))], bit as u64 / 8).unwrap();
}

#[test]
fn pages_damaged_anywhere_are_noticed_by_a_restore_nothing_runs_and_the_snapshot_before_is_used() {
    let mut tree = Tree::with(1, &Shape { mib: 16, ..Shape::default() });
    let store = Store::open(&tree.dir.path().join("store")).unwrap();
    let first = take(&tree, &store, 1, &arena());
    bring_back(&mut tree, &first, None);
    let second = take(&tree, &store, 2, &arena());
    let path = second.dir().join(PAGES);
    let bits = fs::metadata(&path).unwrap().len() as usize * 8;
    for bit in [0, bits / 3, bits / 2 + 5, bits - 1] {
        flip(&path, bit);
        second.load_segment(&tree.segment.path).unwrap();
        let error = second.restore(&criu(), &request(&tree, &second, None)).unwrap_err();
        let expected = Damage::Contents { name: PAGES.to_owned() };
        let BringBackError::Snapshot(SnapshotError::Damaged { damage, .. }) = &error else {
            panic!("{error}")
        };
        assert_eq!(*damage, expected, "bit {bit}");
        assert_eq!(processes::in_cgroup(&tree.cgroup).unwrap(), []);
        // Known to be damaged, it counts no more, also where nobody looks at its contents.
        assert_eq!(store.sealed_epochs("job").unwrap(), [1]);
        flip(&path, bit);
        second.trust_again().unwrap();
    }
    flip(&path, bits / 2);
    second.restore(&criu(), &request(&tree, &second, None)).unwrap_err();
    let (found, passed_over) = store.latest_intact("job").unwrap();
    assert!(matches!(passed_over[0].reason, SnapshotError::Distrusted { .. }), "{passed_over:?}");
    let found = found.unwrap();
    assert_eq!(found.manifest().identity.epoch, 1);
    bring_back(&mut tree, &found, None);
}

#[test]
fn a_store_that_fills_up_while_it_is_sealed_leaves_the_snapshot_before() {
    let mut tree = Tree::with(1, &Shape { mib: 8, ..Shape::default() });
    let small = SmallStore::mount(tree.dir.path().join("store"), "32m");
    let store = Store::open(&small.0).unwrap();
    let first = take(&tree, &store, 1, &arena());
    bring_back(&mut tree, &first, None);
    let (writer, report) = cut(&tree, &store, 2, &arena());
    // Somebody else's file takes what there is.
    let mut length = 32 << 20;
    let hog = File::create(small.0.join("hog")).unwrap();
    while nix::fcntl::fallocate(&hog, nix::fcntl::FallocateFlags::empty(), 0, length).is_err() {
        length -= 4096;
    }
    writer.seal(Origin::of(&criu(), tree.root, &report)).unwrap_err();
    fs::remove_file(small.0.join("hog")).unwrap();
    assert_eq!(store.sealed_epochs("job").unwrap(), [1]);
    bring_back(&mut tree, &store.latest_intact("job").unwrap().0.unwrap(), None);
}
