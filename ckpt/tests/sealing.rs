//! Sealing: a snapshot opens only as the one that was sealed in its place, no byte of it can be changed, and
//! neither its contents nor the key lie in it.

mod common;

use common::{IN_FLIGHT, KEY, Shape, Tree, arena, criu, flip, open, reopen, restore, restore_request, take};
use coswitch_ckpt::{
    ClusterKey, Damage, Origin, Sealing, Snapshot, SnapshotError, SnapshotRestoreError, Store,
};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// As a chunk is sealed in a file.
const SEALED_CHUNK: usize = (128 << 10) + 16;

/// A sealed snapshot of a few files, without a tree.
fn write(store: &Store, application: &str, epoch: u64) -> Snapshot {
    let mut writer = store.begin(application, epoch, SystemTime::now()).unwrap();
    let image: Vec<u8> = (0..500_000u64).map(|at| ((at * epoch) >> 7) as u8).collect();
    fs::write(writer.images_dir().join("core-1.img"), image).unwrap();
    writer.save_channels(IN_FLIGHT).unwrap();
    let origin = Origin { criu: "4.2".into(), kernel: "6.18".into(), root: 1, ..Origin::default() };
    writer.seal(origin).unwrap();
    store.snapshot(application, epoch).unwrap()
}

fn damage(error: SnapshotError) -> Damage {
    match error {
        SnapshotError::Damaged { damage, .. } => damage,
        error => panic!("{error}"),
    }
}

fn contents_of(name: &str) -> Damage {
    Damage::Contents { name: name.to_owned() }
}

fn exchange(one: &Path, other: &Path) {
    let aside = one.with_extension("aside");
    fs::rename(one, &aside).unwrap();
    fs::rename(other, one).unwrap();
    fs::rename(aside, other).unwrap();
}

fn walk(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

fn holds(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|found| found == wanted)
}

#[test]
fn a_byte_of_the_manifest_that_is_changed_is_found_wherever_it_is() {
    let mut tree = Tree::with(1, &Shape { mib: 1, ..Shape::default() });
    let store = open(&tree.dir.path().join("store"));
    let snapshot = take(&tree, &store, 1, &arena());
    restore(&mut tree, &snapshot, None);
    let manifest = snapshot.dir().join("manifest.json");
    for byte in 0..fs::metadata(&manifest).unwrap().len() {
        flip(&manifest, 8 * byte + byte % 8);
        damage(reopen(snapshot.dir()).unwrap_err());
        flip(&manifest, 8 * byte + byte % 8);
    }
    store.verify("job", 1).unwrap();
}

#[test]
fn random_bytes_of_a_larger_snapshot_that_are_changed_end_its_restore_and_the_one_before_is_used() {
    let mut tree = Tree::with(1, &Shape { mib: 48, ..Shape::default() });
    let store = open(&tree.dir.path().join("store"));
    let first = take(&tree, &store, 1, &arena());
    restore(&mut tree, &first, None);
    let second = take(&tree, &store, 2, &arena());
    let total = second.manifest().bytes();
    let mut state = 11u64;
    for _ in 0..200 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut at = state % total;
        let file = second.manifest().files.iter().find(|file| {
            let is_here = at < file.bytes;
            at -= if is_here { 0 } else { file.bytes };
            is_here
        });
        let file = file.unwrap();
        flip(&second.dir().join(&file.name), 8 * at + state % 8);
        assert_eq!(damage(second.verify_file(&file.name).unwrap_err()), contents_of(&file.name), "byte {at}");
        flip(&second.dir().join(&file.name), 8 * at + state % 8);
    }
    second.verify().unwrap();

    for name in ["images/pages.idx", "images/pages.cws", "images/core-2.img", "segment.zst"] {
        flip(&second.dir().join(name), 8 * 13);
        let error = second.restore(&criu(), &restore_request(&tree, &second, None)).unwrap_err();
        let SnapshotRestoreError::Snapshot(error) = error else { panic!("{name}: {error}") };
        assert_eq!(damage(error), contents_of(name));
        assert_eq!(coswitch_ckpt::processes::in_cgroup(&tree.cgroup).unwrap(), [], "{name}");
        assert_eq!(store.sealed_epochs("job").unwrap(), [1], "{name}");
        flip(&second.dir().join(name), 8 * 13);
        fs::rename(second.dir().join("manifest.damaged"), second.dir().join("manifest.json")).unwrap();
    }
    flip(&second.dir().join("images/core-2.img"), 8 * 13);
    let (found, passed_over) = store.latest_intact("job").unwrap();
    assert_eq!((found.as_ref().unwrap().manifest().identity.epoch, passed_over.len()), (1, 1));
    restore(&mut tree, &found.unwrap(), None);
}

#[test]
fn chunks_that_change_their_places_in_a_file_are_found() {
    let root = tempfile::tempdir().unwrap();
    let snapshot = write(&open(root.path()), "job", 1);
    let path = snapshot.dir().join("images/core-1.img");
    let sealed = fs::read(&path).unwrap();
    let mut chunks: Vec<&[u8]> = sealed.chunks(SEALED_CHUNK).collect();
    assert_eq!(chunks.len(), 4);
    chunks.swap(0, 2);
    fs::write(&path, chunks.concat()).unwrap();
    assert_eq!(damage(snapshot.verify().unwrap_err()), contents_of("images/core-1.img"));
    fs::write(&path, sealed).unwrap();
    snapshot.verify().unwrap();
}

#[test]
fn files_of_other_epochs_jobs_and_names_are_found() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let own = write(&store, "job", 2);
    for other in [write(&store, "job", 1), write(&store, "other", 2)] {
        for name in ["images/core-1.img", "channels.bin"] {
            exchange(&own.dir().join(name), &other.dir().join(name));
            for snapshot in [&own, &other] {
                assert_eq!(damage(snapshot.verify().unwrap_err()), contents_of(name));
            }
            exchange(&own.dir().join(name), &other.dir().join(name));
        }
        // With the manifest as well it is another snapshot.
        exchange(own.dir(), other.dir());
        for snapshot in [&own, &other] {
            let found = damage(reopen(snapshot.dir()).unwrap_err());
            let Damage::Another { expected, found } = &found else { panic!("{found}") };
            assert_ne!(expected, found);
        }
        exchange(own.dir(), other.dir());
        store.verify("other", 2).unwrap_or_else(|_| store.verify("job", 1).unwrap());
    }
    own.verify().unwrap();
}

#[test]
fn an_older_snapshot_under_a_newer_name_is_refused_and_the_right_one_is_used() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let [old, _] = [1, 2].map(|epoch| write(&store, "job", epoch));
    let (replayed, kept) = (root.path().join("job/epoch-3"), root.path().join("kept"));
    fs::rename(old.dir(), &replayed).unwrap();
    let refused = store.snapshot("job", 3).unwrap_err().to_string();
    assert!(refused.contains("it is another snapshot: epoch 1 of job of r1-2-n0, not epoch 3"), "{refused}");
    let (found, passed_over) = store.latest_intact("job").unwrap();
    assert_eq!((found.unwrap().manifest().identity.epoch, passed_over.len()), (2, 1));
    // Nor with a manifest that names the new place.
    let manifest = replayed.join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap().replace("\"epoch\":1", "\"epoch\":3");
    fs::write(&manifest, text).unwrap();
    assert_eq!(damage(reopen(&replayed).unwrap_err()), Damage::Manifest);

    // What an earlier snapshot of the same epoch has left is of no use either.
    fs::create_dir(&kept).unwrap();
    fs::copy(root.path().join("job/epoch-2/channels.bin"), kept.join("channels.bin")).unwrap();
    store.remove_one("job", 2).unwrap();
    let again = write(&store, "job", 2);
    fs::copy(kept.join("channels.bin"), again.dir().join("channels.bin")).unwrap();
    assert_eq!(damage(again.verify().unwrap_err()), contents_of("channels.bin"));
}

#[test]
fn a_snapshot_of_another_node_or_cluster_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let snapshot = write(&open(root.path()), "job", 1);
    let with = |key, owner: &str| {
        Snapshot::open(snapshot.dir(), &Sealing::new(ClusterKey::from(key), owner.into(), root.path().into()))
    };
    assert!(matches!(damage(with(KEY, "r1-2-n1").unwrap_err()), Damage::Another { .. }));
    assert_eq!(damage(with([9; 32], "r1-2-n0").unwrap_err()), Damage::Manifest);
    with(KEY, "r1-2-n0").unwrap().verify().unwrap();
    // Without a key it can be listed and removed.
    let tier = coswitch_ckpt::store::Tier::unbounded(root.path().to_owned());
    let keyless = Store::existing(vec![tier]);
    assert!(keyless.list().unwrap()[0].problem.is_none());
    let refused = [keyless.verify("job", 1).unwrap_err(), keyless.snapshot("job", 1).map(drop).unwrap_err()];
    assert!(refused.iter().all(|error| error.to_string().contains("without the key")), "{refused:?}");
    keyless.remove_one("job", 1).unwrap();
    assert!(keyless.list().unwrap().is_empty());
}

#[test]
fn neither_the_key_nor_what_was_sealed_lies_in_the_files_of_a_snapshot() {
    let mut tree = Tree::start(2);
    let store = open(&tree.dir.path().join("store"));
    let snapshot = take(&tree, &store, 1, &arena());
    let hex: String = KEY.iter().map(|byte| format!("{byte:02x}")).collect();
    let segment = tree.segment.path.display().to_string();
    let output = tree.output(0).display().to_string();
    let secrets = [&KEY[..], hex.as_bytes(), IN_FLIGHT];
    // CRIU's own log tells of paths, and of no contents.
    for path in walk(snapshot.dir()) {
        let is_log = path.starts_with(snapshot.dir().join("log"));
        let paths = [segment.as_bytes(), output.as_bytes()];
        let bytes = fs::read(&path).unwrap();
        for secret in secrets.iter().chain(paths.iter().filter(|_| !is_log)) {
            assert!(!holds(&bytes, secret), "{} holds {}", path.display(), String::from_utf8_lossy(secret));
        }
        // The magic number with which CRIU's images begin.
        assert!(is_log || bytes[..4] != 0x5456_4319u32.to_le_bytes(), "{}", path.display());
    }
    restore(&mut tree, &snapshot, None);
    // Those of the dump and of the restore have gone.
    let left = fs::read_dir(tree.dir.path().join("store")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["job"]);
}

#[test]
fn images_that_a_killed_process_has_left_in_plain_are_replaced() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let writer = store.begin("left", 1, SystemTime::now()).unwrap();
    let images = writer.images_dir();
    fs::write(images.join("core-1.img"), "left behind").unwrap();
    std::mem::forget(writer);
    let again = store.begin("left", 1, SystemTime::now()).unwrap();
    assert_eq!((again.images_dir(), fs::read_dir(&images).unwrap().count()), (images.clone(), 0));
    drop(again);
    assert!(!images.exists());
}

#[test]
fn a_file_cut_at_the_end_of_a_chunk_is_found_by_its_contents_as_well() {
    let root = tempfile::tempdir().unwrap();
    let snapshot = write(&open(root.path()), "job", 1);
    let path = snapshot.dir().join("images/core-1.img");
    let file = fs::File::options().read(true).write(true).open(&path).unwrap();
    for chunks in 0..4 {
        let sealed = fs::read(&path).unwrap();
        file.set_len((chunks * SEALED_CHUNK) as u64).unwrap();
        assert!(matches!(damage(reopen(snapshot.dir()).unwrap_err()), Damage::Size { .. }));
        assert_eq!(damage(snapshot.verify().unwrap_err()), contents_of("images/core-1.img"));
        file.set_len(0).unwrap();
        file.write_all_at(&sealed, 0).unwrap();
    }
    snapshot.verify().unwrap();
}
