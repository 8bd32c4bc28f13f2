//! Failures: a failed dump leaves the tree as it was, and a failed restore leaves no process behind.

mod common;

use common::{Shape, SmallStore, Tree, cgroup_root, criu, wait_for};
use coswitch_ckpt::processes::{self, ProcessState};
use coswitch_ckpt::{DumpError, RestoreError, Retry, TreeState, is_full};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

#[test]
fn a_dump_that_times_out_is_rolled_back_and_the_tree_goes_on() {
    let tree = Tree::with(1, &Shape { mib: 512, ..Shape::default() });
    tree.freeze();
    let mut request = tree.dump_request();
    request.timeout = Duration::from_millis(100);
    let begun = Instant::now();
    let error = criu().dump(&request).unwrap_err();
    assert!(matches!(error, DumpError::TimedOut { .. }), "{error}");
    assert_eq!(error.tree(), TreeState::Frozen, "CRIU rolled back: {error}");
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert!(!request.images_dir.exists());
    tree.thaw();
    tree.assert_working();
    // It can be dumped after that.
    tree.freeze();
    request.timeout = common::LIMIT;
    criu().dump(&request).unwrap();
}

#[test]
fn a_dump_that_times_out_at_any_moment_never_loses_the_tree() {
    let mut tree = Tree::with(2, &Shape { mib: 16, ..Shape::default() });
    let mut given_up = 0;
    for limit_ms in [1, 20, 30, 40, 50, 60, 70, 80, 90, 100, 120, 140] {
        tree.freeze();
        let mut request = tree.dump_request();
        request.timeout = Duration::from_millis(limit_ms);
        match tree.dump_and_seal(&request) {
            Ok(_) => {
                nix::sys::wait::waitpid(tree.root, None).unwrap();
                tree.come_back();
                fs::remove_dir_all(&request.images_dir).unwrap();
            }
            Err(error) => {
                assert!(matches!(error, DumpError::TimedOut { .. }), "{error}");
                assert_eq!(error.tree(), TreeState::Frozen, "after {limit_ms} ms: {error}");
                assert!(!request.images_dir.exists());
                given_up += 1;
                tree.thaw();
            }
        }
        tree.assert_working();
    }
    assert!(given_up > 0, "a millisecond has been enough");
}

#[test]
fn a_dump_into_a_full_store_is_refused_and_the_tree_goes_on() {
    let tree = Tree::start(2);
    let store = SmallStore::mount(tree.dir.path().join("store"), "1m");
    tree.freeze();
    let mut request = tree.dump_request();
    request.images_dir = store.0.join("images");
    request.pages_dir = request.images_dir.clone();
    for arena in [Some(common::arena()), None] {
        request.arena = arena;
        let error = criu().dump(&request).unwrap_err();
        assert!(matches!(error, DumpError::Refused { .. } | DumpError::Pages { .. }), "{error}");
        assert_eq!(error.tree(), TreeState::Frozen);
    }
    assert_eq!(fs::read_dir(&store.0).unwrap().count(), 0);
    tree.thaw();
    tree.assert_working();
}

#[test]
fn a_dump_without_room_for_its_images_in_memory_is_refused_as_one_into_a_full_store() {
    let tree = Tree::start(2);
    // Enough for what CRIU writes itself, and not for the pages that it needs.
    let memory = SmallStore::mount(tree.dir.path().join("memory"), "2m");
    tree.freeze();
    let mut request = tree.dump_request();
    request.images_dir = memory.0.join("images");
    request.pages_dir = tree.dir.path().to_owned();
    let error = criu().dump(&request).unwrap_err();
    assert!(is_full(&error) && error.tree() == TreeState::Frozen, "{error}");
    assert!(!request.images_dir.exists());
    tree.thaw();
    tree.assert_working();
}

#[test]
fn the_error_of_a_refused_dump_has_the_reason_of_criu_and_the_tree_goes_on() {
    let tree = Tree::start(1);
    let mut request = tree.dump_request();
    // A rank alone cannot be dumped: the leader of its session is outside.
    request.root = tree.pids()[1];
    tree.freeze();
    let error = criu().dump(&request).unwrap_err();
    let DumpError::Refused { log, tree: state, .. } = &error else { panic!("{error}") };
    assert!(!log.is_empty() && *state == TreeState::Frozen, "{error}");
    tree.thaw();
    tree.assert_working();
}

#[test]
fn images_are_not_written_into_a_directory_that_is_not_empty() {
    let tree = Tree::start(1);
    let request = tree.dump_request();
    fs::create_dir(&request.images_dir).unwrap();
    fs::write(request.images_dir.join("mine"), "").unwrap();
    tree.freeze();
    let error = criu().dump(&request).unwrap_err();
    assert!(matches!(error, DumpError::NotEmpty { .. }), "{error}");
    assert!(request.images_dir.join("mine").exists());
    tree.thaw();
    tree.assert_working();
}

#[test]
fn a_restore_from_damaged_images_leaves_nothing_behind() {
    let mut tree = Tree::start(2);
    tree.dump().unwrap();
    for name in ["pages-2.img", "core-3.img", "pagemap-1.img", "pstree.img", "files.img"] {
        let path = tree.images().join(name);
        let whole = fs::read(&path).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(whole.len() as u64 / 2).unwrap();
        let error = tree.restore().unwrap_err();
        assert_eq!(error.retry(), Retry::Pointless, "{name}: {error}");
        assert_cleaned_up(&tree.cgroup);
        fs::write(&path, whole).unwrap();
    }
    tree.come_back();
    tree.assert_working();
}

#[test]
fn a_restore_that_times_out_at_any_moment_leaves_nothing_behind_and_can_be_tried_again() {
    let mut tree = Tree::with(2, &Shape { mib: 32, ..Shape::default() });
    tree.dump().unwrap();
    let mut request = tree.restore_request();
    let mut given_up = 0;
    for limit_ms in [1, 10, 20, 30, 40, 60, 80] {
        request.timeout = Duration::from_millis(limit_ms);
        match tree.restore_as(&request) {
            Err(error) => {
                assert!(matches!(error, RestoreError::TimedOut { .. }), "{error}");
                assert_eq!(error.retry(), Retry::Worthwhile);
                assert_cleaned_up(&tree.cgroup);
                given_up += 1;
            }
            Ok(restored) => {
                restored.resume().unwrap();
                tree.assert_working();
                tree.dump().unwrap();
                request = tree.restore_request();
            }
        }
    }
    assert!(given_up > 0, "a millisecond has been enough");
    tree.come_back();
    tree.assert_working();
}

#[test]
fn a_restore_whose_processes_are_killed_leaves_no_zombie() {
    let mut tree = Tree::with(2, &Shape { mib: 32, ..Shape::default() });
    tree.dump().unwrap();
    let request = tree.restore_request();
    // Kills CRIU alone, then CRIU and the new root, then ranks as well.
    for processes in 1..=4 {
        let error = std::thread::scope(|scope| {
            let restore = scope.spawn(|| criu().restore(&request));
            while processes::in_cgroup(&tree.cgroup).unwrap().len() < processes {
                assert!(!restore.is_finished(), "it was over before there were {processes} processes");
            }
            fs::write(tree.cgroup.join("cgroup.kill"), "1").unwrap();
            restore.join().unwrap().unwrap_err()
        });
        assert!(matches!(error, RestoreError::Swrk(_)), "{error}");
        assert_cleaned_up(&tree.cgroup);
    }
    tree.come_back();
    tree.assert_working();
}

/// Asserts that no process is left in the cgroup, not even as our zombie.
fn assert_cleaned_up(cgroup: &Path) {
    assert_eq!(processes::in_cgroup(cgroup).unwrap(), []);
    let below = cgroup.strip_prefix(cgroup_root()).unwrap().display().to_string();
    let is_of_it =
        |pid: &Pid| fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|line| line.contains(&below));
    // Other tests may have zombies for a moment, but not in this cgroup.
    wait_for("the last of it to be reaped", || {
        let children = processes::tree(Pid::this());
        !children.iter().any(|pid| processes::state(*pid) != ProcessState::Gone && is_of_it(pid))
    });
}
