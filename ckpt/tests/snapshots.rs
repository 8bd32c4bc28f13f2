//! Snapshots: written completely or not at all, checked before they are used, and restored as they were.

mod common;

use common::{
    IN_FLIGHT, Shape, SmallStore, Tree, arena, criu, flip, open, reopen, restore, restore_request, sealing,
    take, wait_for,
};
use coswitch_ckpt::store::Tier;
use coswitch_ckpt::{
    Damage, Manifest, Origin, OutputFile, Snapshot, SnapshotError, SnapshotRestoreError, Store, StoreError,
    processes,
};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The origin of a snapshot that was not made by a dump.
fn made_up() -> Origin {
    Origin { criu: "4.2".into(), kernel: "6.18".into(), root: 1, ..Origin::default() }
}

#[test]
fn a_tree_is_restored_with_its_segment_channels_and_output_as_they_were() {
    let mut tree = Tree::start(2);
    let store = open(&tree.dir.path().join("store"));
    let snapshot = take(&tree, &store, 1, &arena());
    let counters: Vec<_> = tree.segment.ranks().iter().map(|rank| rank.counters()).collect();
    let output = fs::read(tree.output(0)).unwrap();

    // While the tree is parked, its segment is overwritten and another program appends to its output.
    tree.segment.file.write_all_at(&vec![0xa5; tree.segment.bytes()], 0).unwrap();
    fs::write(tree.output(0), [output.as_slice(), b"foreign"].concat()).unwrap();
    assert_eq!(snapshot.channels().unwrap().unwrap(), IN_FLIGHT);
    assert_eq!(
        snapshot.manifest().outputs[0],
        OutputFile { path: tree.output(0), bytes: output.len() as u64, inode: None }
    );
    snapshot.verify().unwrap();
    snapshot.load_segment(&tree.segment.path).unwrap();
    assert_eq!(tree.segment.ranks().iter().map(|rank| rank.counters()).collect::<Vec<_>>(), counters);
    restore(&mut tree, &snapshot, None);
    assert_eq!(fs::read(tree.output(0).with_extension("out.foreign-1")).unwrap(), b"foreign");
    // A restore does not change the snapshot.
    reopen(snapshot.dir()).unwrap().verify().unwrap();
}

#[test]
fn a_tree_goes_back_to_an_older_snapshot_and_its_later_output_is_set_aside() {
    let mut tree = Tree::start(2);
    let store = open(&tree.dir.path().join("store"));
    let first = take(&tree, &store, 1, &arena());
    let rounds = tree.segment.ranks()[0].counters()[0];
    restore(&mut tree, &first, None);
    wait_for("the ranks to go far beyond it", || tree.segment.ranks()[0].counters()[0] > rounds + 500);
    let second = take(&tree, &store, 2, &arena());

    // The newest snapshot turns out damaged, so the one before it is used.
    flip(&second.dir().join("images/pages.cws"), 800);
    let damaged = Damage::Contents { name: "images/pages.cws".to_owned() };
    let error = second.restore(&criu(), &restore_request(&tree, &second, None)).unwrap_err();
    assert!(matches!(&error, SnapshotRestoreError::Snapshot(error) if is_damage(error, &damaged)), "{error}");
    assert_eq!(processes::in_cgroup(&tree.cgroup).unwrap(), [], "a tree with a wrong page is ended");
    let (found, passed_over) = store.latest_intact("job").unwrap();
    assert_eq!(found.as_ref().map(|snapshot| snapshot.manifest().identity.epoch), Some(1));
    assert!(
        matches!(&passed_over[..], [over] if matches!(over.reason, SnapshotError::MarkedDamaged { .. })),
        "{passed_over:?}"
    );
    restore(&mut tree, &found.unwrap(), None);
    assert!(tree.dir.path().join("rank-0.out.foreign-1").exists());
}

#[test]
fn a_byte_changed_anywhere_is_found_and_the_error_names_the_file() {
    let mut tree = Tree::with(1, &Shape { mib: 1, ..Shape::default() });
    let store = open(&tree.dir.path().join("store"));
    let snapshot = take_and_go_on(&mut tree, &store);
    let mut changed = 0;
    for record in &snapshot.manifest().files {
        let path = snapshot.dir().join(&record.name);
        let expected = Damage::Contents { name: record.name.clone() };
        for offset in samples(record.bytes) {
            changed += 1;
            flip(&path, 8 * offset);
            let error = snapshot.verify_file(&record.name).unwrap_err();
            assert!(is_damage(&error, &expected), "{} at {offset}: {error}", record.name);
            flip(&path, 8 * offset);
        }
        flip(&path, 0);
        let error = reopen(snapshot.dir()).unwrap().verify().unwrap_err();
        assert!(is_damage(&error, &expected), "{}: {error}", record.name);
        flip(&path, 0);
    }
    let manifest = snapshot.dir().join("manifest.json");
    for offset in samples(fs::metadata(&manifest).unwrap().len()) {
        changed += 1;
        flip(&manifest, 8 * offset);
        assert!(reopen(snapshot.dir()).is_err(), "byte {offset} of the manifest");
        flip(&manifest, 8 * offset);
    }
    reopen(snapshot.dir()).unwrap().verify().unwrap();
    eprintln!("{changed} bytes changed");
}

#[test]
fn a_file_missing_added_or_cut_is_found_at_opening() {
    let mut tree = Tree::start(1);
    let store = open(&tree.dir.path().join("store"));
    let snapshot = take_and_go_on(&mut tree, &store);
    let path = snapshot.dir().join("images/core-1.img");
    let aside = tree.dir.path().join("aside");
    let reason = || reopen(snapshot.dir()).unwrap_err();

    fs::rename(&path, &aside).unwrap();
    assert!(is_damage(&reason(), &Damage::Missing { name: "images/core-1.img".to_owned() }), "{}", reason());
    fs::copy(&aside, &path).unwrap();
    let recorded = fs::metadata(&path).unwrap().len();
    File::options().write(true).open(&path).unwrap().set_len(recorded - 1).unwrap();
    let cut = Damage::Size { name: "images/core-1.img".to_owned(), recorded, found: recorded - 1 };
    assert!(is_damage(&reason(), &cut), "{}", reason());
    fs::rename(&aside, &path).unwrap();
    fs::write(snapshot.dir().join("images/core-99.img"), "").unwrap();
    assert!(is_damage(&reason(), &Damage::Unknown { name: "images/core-99.img".to_owned() }), "{}", reason());
}

#[test]
fn without_its_manifest_there_is_no_snapshot() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let dir = root.path().join("job/epoch-1");
    let writer = store.begin("job", 1, SystemTime::now()).unwrap();
    fs::write(writer.images_dir().join("core-1.img"), "half").unwrap();
    assert!(matches!(reopen(&dir), Err(SnapshotError::Incomplete { .. })));
    assert!(store.latest_intact("job").unwrap().0.is_none());
    // The next attempt replaces what a killed daemon has left; a writer that is dropped cleans up itself.
    std::mem::forget(writer);
    let again = store.begin("job", 1, SystemTime::now()).unwrap();
    assert_eq!(fs::read_dir(again.images_dir()).unwrap().count(), 0);
    drop(again);
    assert!(!dir.exists());
}

#[test]
fn a_snapshot_is_private_and_its_name_may_not_be_taken() {
    let root = tempfile::tempdir().unwrap();
    let (tier, victim) = (root.path().join("store"), root.path().join("victim"));
    let store = open(&tier);
    write(&store, 1);
    let dir = tier.join("job/epoch-1");
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    for path in [&tier, &tier.join("job"), &dir, &dir.join("images"), &dir.join("log")] {
        assert_eq!(mode(path), 0o700, "{}", path.display());
    }
    assert_eq!(mode(&dir.join("manifest.json")), 0o600);

    fs::create_dir(&victim).unwrap();
    let planted = [tier.join("job/epoch-2"), tier.join("other")];
    planted.iter().for_each(|at| symlink(&victim, at).unwrap());
    // The link of an epoch is replaced, that of an application refused; neither is followed.
    drop(store.begin("job", 2, SystemTime::now()).unwrap());
    assert!(store.begin("other", 1, SystemTime::now()).is_err());
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
    symlink(&dir, tier.join("job/epoch-3")).unwrap();
    assert_eq!(store.sealed_epochs("job").unwrap(), [1]);

    symlink(&victim, root.path().join("link")).unwrap();
    assert!(Store::open(&root.path().join("link"), sealing(root.path())).is_err());
    chown(&tier, Some(65534), None).unwrap();
    let refused = Store::open(&tier, sealing(root.path())).unwrap_err().to_string();
    assert!(refused.contains("belongs to nobody"), "{refused}");
}

#[test]
fn pruning_keeps_the_last_two_valid_snapshots_and_those_being_written() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    for epoch in 1..=3 {
        write(&store, epoch);
    }
    fs::create_dir(root.path().join("job/epoch-2-copy")).unwrap();
    flip(&root.path().join("job/epoch-2/images/core-1.img"), 0);
    let half_written = store.begin("job", 4, SystemTime::now()).unwrap();
    store.prune("job", &BTreeSet::new()).unwrap();
    assert_eq!(store.sealed_epochs("job").unwrap(), [3, 2]);
    assert!(half_written.images_dir().exists());

    // A snapshot without one of its files does not count as valid.
    fs::remove_file(root.path().join("job/epoch-2/images/core-1.img")).unwrap();
    drop(half_written);
    write(&store, 5);
    store.prune("job", &BTreeSet::new()).unwrap();
    assert_eq!(store.sealed_epochs("job").unwrap(), [5, 3]);
    write(&store, 6);
    store.prune("job", &BTreeSet::from([1, 3])).unwrap();
    assert_eq!(store.sealed_epochs("job").unwrap(), [6, 5, 3], "what is needed stays");
    assert!(matches!(
        store.begin("job", 5, SystemTime::now()),
        Err(StoreError::Snapshot(SnapshotError::Exists { .. }))
    ));

    store.remove("job").unwrap();
    assert!(store.sealed_epochs("job").unwrap().is_empty());
    store.remove("job").unwrap();
}

#[test]
fn a_name_that_is_a_path_and_more_bytes_than_are_free_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    for name in ["", ".", "..", "../other", "a/b", ".hidden"] {
        assert!(matches!(store.sealed_epochs(name), Err(StoreError::Name { .. })), "{name}");
    }
    store.begin_with("job", 1, SystemTime::now(), 1).unwrap();
    let error = store.begin_with("large", 1, SystemTime::now(), u64::MAX).unwrap_err();
    assert!(matches!(error, StoreError::Full { needed: u64::MAX, .. }), "{error}");
    assert!(!root.path().join("large").exists(), "nothing is written");
}

#[test]
fn a_snapshot_that_does_not_fit_the_first_tier_goes_to_the_next_and_is_found_there() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let tier = |dir: &tempfile::TempDir, bytes_max| Tier { root: dir.path().to_owned(), bytes_max };
    let store = Store::with_tiers(
        vec![tier(&first, Some(10_000)), tier(&second, Some(50_000))],
        sealing(first.path()),
    )
    .unwrap();
    for (epoch, needed) in [(1, 9_000), (2, 20_000)] {
        let writer = store.begin_with("job", epoch, SystemTime::now(), needed).unwrap();
        fs::write(writer.images_dir().join("core-1.img"), vec![1; needed as usize]).unwrap();
        writer.seal(made_up()).unwrap();
    }
    assert!(first.path().join("job/epoch-1").exists() && second.path().join("job/epoch-2").exists());
    assert_eq!(store.sealed_epochs("job").unwrap(), [2, 1]);
    store.verify("job", 2).unwrap();
    let full = store.begin_with("job", 3, SystemTime::now(), 40_000);
    assert!(matches!(full, Err(StoreError::Full { free, .. }) if free < 50_000), "{full:?}");
    let again = store.begin_with("job", 2, SystemTime::now(), 0);
    assert!(matches!(again, Err(StoreError::Snapshot(SnapshotError::Exists { .. }))), "{again:?}");
    assert_eq!(store.list().unwrap().iter().map(|entry| entry.epoch).collect::<Vec<_>>(), [2, 1]);

    // A damaged snapshot in one tier is passed over for the one before it in another tier.
    let image = second.path().join("job/epoch-2/images/core-1.img");
    flip(&image, 700);
    let (found, passed_over) = store.latest_intact("job").unwrap();
    assert_eq!((found.unwrap().manifest().identity.epoch, passed_over.len()), (1, 1));
    flip(&image, 700);
    store.verify("job", 2).unwrap();

    // A half-written snapshot in one tier is removed by the next attempt in another tier.
    std::mem::forget(store.begin_with("job", 3, SystemTime::now(), 20_000).unwrap());
    drop(store.begin_with("job", 3, SystemTime::now(), 0).unwrap());
    assert!(!second.path().join("job/epoch-3").exists());
    store.remove_one("job", 2).unwrap();
    assert_eq!(store.sealed_epochs("job").unwrap(), [1]);
    store.remove("job").unwrap();
    assert!(!first.path().join("job").exists() && !second.path().join("job").exists());
}

#[test]
fn two_snapshots_being_written_do_not_reserve_the_same_space() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let tier = |dir: &tempfile::TempDir| Tier { root: dir.path().to_owned(), bytes_max: Some(10_000) };
    let store = Store::with_tiers(vec![tier(&first), tier(&second)], sealing(first.path())).unwrap();
    let begin = |application: &str| store.clone().begin_with(application, 1, SystemTime::now(), 6_000);
    let writers = [begin("a").unwrap(), begin("b").unwrap()];
    assert!(writers[0].pages_dir().starts_with(first.path()));
    assert!(writers[1].pages_dir().starts_with(second.path()));
    assert!(matches!(begin("c"), Err(StoreError::Full { needed: 6_000, free: 4_000, .. })));
    // A sealed snapshot counts with its size, and one that was given up does not count.
    let [a, b] = writers;
    fs::write(a.images_dir().join("core-1.img"), [1; 3_000]).unwrap();
    a.seal(made_up()).unwrap();
    drop(b);
    assert!(begin("c").unwrap().pages_dir().starts_with(first.path()));
    store.begin_with("d", 1, SystemTime::now(), 10_000).unwrap();
}

#[test]
fn a_full_disk_takes_no_snapshot_even_below_the_limit_of_its_tier() {
    let dir = tempfile::tempdir().unwrap();
    let small = SmallStore::mount(dir.path().join("small"), "1m");
    let tier = |root: PathBuf| Tier { root, bytes_max: Some(1 << 30) };
    let tiers = vec![tier(small.0.clone()), tier(dir.path().join("large"))];
    let store = Store::with_tiers(tiers, sealing(dir.path())).unwrap();
    for (needed, root) in [(500_000, "small"), (2_000_000, "large")] {
        let writer = store.begin_with("job", 1, SystemTime::now(), needed).unwrap();
        assert!(writer.pages_dir().starts_with(dir.path().join(root)));
    }
}

#[test]
fn what_is_reserved_and_not_written_yet_is_not_free_on_the_file_system_either() {
    let dir = tempfile::tempdir().unwrap();
    let small = SmallStore::mount(dir.path().join("small"), "1m");
    for bytes_max in [None, Some(700_000)] {
        let tiers = vec![Tier { root: small.0.clone(), bytes_max }];
        let store = Store::with_tiers(tiers, sealing(dir.path())).unwrap();
        let begin = |application: &str, needed, overflow| {
            store.begin_with_overflow(application, 1, SystemTime::now(), needed, overflow)
        };
        let is_full = |begun| matches!(begun, Err(StoreError::Full { .. }));
        let first = begin("a", 500_000, 0).unwrap();
        assert!(is_full(begin("b", 600_000, 0)));
        drop(begin("b", 200_000, 0).unwrap());
        // Written bytes count once.
        fs::write(first.pages_dir().join("pages.cws"), vec![1; 450_000]).unwrap();
        drop(begin("b", 200_000, 300_000).unwrap());
        assert!(is_full(begin("b", 200_000, 400_000)));
        drop(first);
        // So does the overflow of a dump, which does not count for the limit of the tier.
        let mut second = begin("c", 100_000, 700_000).unwrap();
        assert!(is_full(begin("d", 400_000, 0)));
        second.take_memory(None, &arena());
        drop(begin("d", 400_000, 0).unwrap());
    }
}

#[test]
fn a_seal_passes_over_directories_that_have_gone_and_loses_nothing() {
    for with_a_third in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let names = ["first", "second", "third"].iter().take(if with_a_third { 3 } else { 2 });
        let roots: Vec<PathBuf> = names.map(|name| dir.path().join(name)).collect();
        let tiers = roots.iter().cloned().map(Tier::unbounded).collect();
        let store = Store::with_tiers(tiers, sealing(dir.path())).unwrap();
        let mut writer = store.begin("job", 1, SystemTime::now()).unwrap();
        writer.save_channels(IN_FLIGHT).unwrap();
        fs::write(writer.images_dir().join("core-1.img"), "contents").unwrap();
        // The first directory does not take this image, and the second takes nothing.
        fs::create_dir(writer.pages_dir().join("core-1.img")).unwrap();
        fs::remove_dir(&roots[1]).unwrap();
        let sealed = writer.seal_in(made_up()).map(|(_, tier)| tier);
        if with_a_third {
            assert_eq!(sealed.unwrap(), roots[2]);
            store.verify("job", 1).unwrap();
            assert_eq!(store.snapshot("job", 1).unwrap().channels().unwrap().unwrap(), IN_FLIGHT);
        } else {
            // The error is that of the seal.
            let error = sealed.unwrap_err();
            let SnapshotError::Io { path, .. } = &error else { panic!("{error}") };
            assert!(path.starts_with(&roots[0]), "{error}");
        }
        assert!(!roots[0].join("job/epoch-1").exists());
    }
}

/// Takes a snapshot and restores the tree from it, which then does not need it any more.
fn take_and_go_on(tree: &mut Tree, store: &Store) -> Snapshot {
    let snapshot = take(tree, store, 1, &arena());
    restore(tree, &snapshot, None);
    snapshot
}

fn write(store: &Store, epoch: u64) -> Manifest {
    let mut writer = store.begin("job", epoch, SystemTime::now()).unwrap();
    fs::write(writer.images_dir().join("core-1.img"), "contents").unwrap();
    writer.save_channels(IN_FLIGHT).unwrap();
    writer.seal(made_up()).unwrap()
}

fn is_damage(error: &SnapshotError, expected: &Damage) -> bool {
    matches!(error, SnapshotError::Damaged { damage, .. } if damage == expected)
}

/// Every byte of a small file; of a large one, those of its beginning and some of the rest.
fn samples(bytes: u64) -> impl Iterator<Item = u64> {
    const SMALL: u64 = 16 << 10;
    const APART: usize = 997;
    (0..bytes.min(SMALL)).chain((SMALL..bytes).step_by(APART)).chain(bytes.checked_sub(1))
}

#[test]
fn damaged_segment_contents_are_refused_before_the_segment_is_written_to() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let segment: PathBuf = root.path().join("segment");
    fs::write(&segment, vec![3; 200_000]).unwrap();
    let mut writer = store.begin("job", 1, SystemTime::now()).unwrap();
    writer.save_segment(&segment).unwrap();
    writer.save_channels(IN_FLIGHT).unwrap();
    writer.seal(made_up()).unwrap();
    let snapshot = store.snapshot("job", 1).unwrap();
    fs::write(&segment, vec![4; 200_000]).unwrap();
    flip(&snapshot.dir().join("segment.zst"), 8 * 25);
    flip(&snapshot.dir().join("channels.bin"), 8 * 3);
    let error = snapshot.load_segment(&segment).unwrap_err();
    assert!(is_damage(&error, &Damage::Contents { name: "segment.zst".to_owned() }), "{error}");
    assert_eq!(fs::read(&segment).unwrap(), vec![4; 200_000]);
    let error = snapshot.channels().unwrap_err();
    assert!(is_damage(&error, &Damage::Contents { name: "channels.bin".to_owned() }), "{error}");
}
