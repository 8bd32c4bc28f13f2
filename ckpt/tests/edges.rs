//! Known pitfalls of CRIU: each is handled, or refused with an error that says what to do.

mod common;

use common::{Bystander, Shape, Tree, criu, wait_for};
use coswitch_ckpt::kerndat::{self, KerndatState};
use coswitch_ckpt::preflight::PreflightError;
use coswitch_ckpt::processes::{self, ProcessState};
use coswitch_ckpt::{DumpError, OutputFile, RestoreError, Retry, TreeState, images};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::Write;
use std::process::Command;
use std::time::Duration;

#[test]
fn periodic_timers_that_expired_before_the_dump_and_were_not_read_fire_again() {
    let mut tree = Tree::start(4);
    let mut repaired = 0;
    // A rank reads its timer late, so most dumps find an expired one; the repair is proven by the first such
    // dump.
    for _ in 0..10 {
        repaired += tree.dump().unwrap().timers_repaired;
        assert_eq!(images::repair_timers(&tree.images()).unwrap(), 0, "a repaired image needs no repair");
        tree.come_back();
        tree.assert_working();
        if repaired > 0 {
            return;
        }
    }
    panic!("no dump has found an expired timer");
}

#[test]
fn a_segment_replaced_by_an_equal_copy_is_refused_before_a_process_starts() {
    let mut tree = Tree::start(1);
    tree.dump().unwrap();
    let (path, kept) = (tree.segment.path.clone(), tree.dir.path().join("kept"));
    fs::hard_link(&path, path.with_extension("kept")).unwrap();
    fs::copy(&path, &kept).unwrap();
    fs::remove_file(&path).unwrap();
    fs::copy(&kept, &path).unwrap();
    let error = tree.restore().unwrap_err();
    assert!(matches!(error, RestoreError::Preflight(PreflightError::SegmentReplaced { .. })), "{error}");
    assert_eq!(error.retry(), Retry::AfterRemedy);
    assert!(processes::in_cgroup(&tree.cgroup).unwrap().is_empty());

    fs::rename(path.with_extension("kept"), &path).unwrap();
    tree.come_back();
    tree.assert_working();
}

#[test]
fn a_segment_that_is_missing_or_of_another_size_is_refused() {
    let mut tree = Tree::start(1);
    tree.dump().unwrap();
    let path = tree.segment.path.clone();
    let aside = path.with_extension("aside");
    let request = tree.restore_request();
    fs::rename(&path, &aside).unwrap();
    let error = tree.restore_as(&request).unwrap_err();
    assert!(matches!(error, RestoreError::Preflight(PreflightError::SegmentMissing { .. })), "{error}");
    fs::rename(&aside, &path).unwrap();
    tree.segment.file.set_len(1 << 20).unwrap();
    let error = tree.restore_as(&request).unwrap_err();
    assert!(matches!(error, RestoreError::Preflight(PreflightError::SizeChanged { .. })), "{error}");
    tree.segment.file.set_len(tree.segment.bytes() as u64).unwrap();
    tree.come_back();
    tree.assert_working();
}

#[test]
fn a_tree_whose_segment_was_unlinked_is_not_dumped_and_goes_on() {
    let mut tree = Tree::start(1);
    let (path, aside) = (tree.segment.path.clone(), tree.segment.path.with_extension("aside"));
    fs::rename(&path, &aside).unwrap();
    fs::copy(&aside, &path).unwrap();
    let error = tree.dump().unwrap_err();
    assert!(matches!(error, DumpError::Segment(PreflightError::SegmentReplaced { .. })), "{error}");
    assert_eq!(error.tree(), TreeState::Frozen);
    fs::rename(&aside, &path).unwrap();
    tree.thaw();
    tree.assert_working();
}

#[test]
fn foreign_output_is_set_aside_and_nothing_is_lost() {
    let mut tree = Tree::start(2);
    tree.dump().unwrap();
    let path = tree.output(0);
    let own = fs::read(&path).unwrap();
    let mut request = tree.restore_request();
    File::options().append(true).open(&path).unwrap().write_all(b"not from the rank").unwrap();

    request.outputs = vec![OutputFile { path: path.clone(), bytes: own.len() as u64, inode: None }];
    let restored = tree.restore_as(&request).unwrap();
    let [foreign] = restored.foreign.as_slice() else { panic!("{:?}", restored.foreign) };
    assert_eq!(fs::read(&foreign.kept_in).unwrap(), b"not from the rank");
    assert_eq!(fs::read(&path).unwrap(), own);
    restored.resume().unwrap();
    tree.assert_working();
    wait_for("the rank to write on", || fs::read(&path).unwrap().len() > own.len());
    assert!(fs::read(&path).unwrap().starts_with(&own));
}

#[test]
fn dumps_of_trees_that_share_a_working_directory_take_turns() {
    let shared = tempfile::tempdir().unwrap();
    let shape = Shape { working_dir: Some(shared.path().to_owned()), ..Shape::default() };
    let mut trees: Vec<Tree> = (0..3).map(|_| Tree::with(1, &shape)).collect();
    // As a killed dump may leave it.
    fs::create_dir(shared.path().join("proc.crtools")).unwrap();
    for _ in 0..4 {
        std::thread::scope(|scope| {
            for tree in &mut trees {
                scope.spawn(|| tree.dump().unwrap());
            }
        });
        trees.iter_mut().for_each(Tree::come_back);
    }
    trees.iter().for_each(Tree::assert_working);
    assert_eq!(fs::read_dir(shared.path()).unwrap().count(), 0);
}

#[test]
fn a_tree_with_its_own_namespace_is_restored_while_the_old_id_of_its_root_is_taken() {
    let mut tree = Tree::start(2);
    let before: Vec<i32> = tree.pids().into_iter().map(Pid::as_raw).collect();
    tree.dump().unwrap();
    let _taken = take_pid(before[0]);
    tree.come_back();
    tree.assert_working();
    assert_ne!(tree.root.as_raw(), before[0]);
}

/// Starts a process with that id, which has just become free.
fn take_pid(wanted: i32) -> Bystander {
    for _ in 0..1000 {
        fs::write("/proc/sys/kernel/ns_last_pid", (wanted - 1).to_string()).unwrap();
        let bystander = Bystander(Command::new("sleep").arg("600").spawn().unwrap());
        if bystander.pid().as_raw() == wanted {
            return bystander;
        }
    }
    panic!("process id {wanted} could not be taken");
}

#[test]
fn a_tree_is_restored_while_its_dumped_root_is_still_a_zombie() {
    let mut tree = Tree::start(1);
    tree.freeze();
    let zombie = tree.root;
    tree.dump_and_seal(&tree.dump_request()).unwrap();
    assert_eq!(processes::state(zombie), ProcessState::Zombie);
    tree.come_back();
    tree.assert_working();
    waitpid(zombie, None).unwrap();
}

#[test]
fn zombies_in_the_tree_are_restored_as_zombies() {
    let mut tree = Tree::with(2, &Shape { children: true, ..Shape::default() });
    let zombies = |tree: &Tree| {
        tree.pids().into_iter().filter(|pid| processes::state(*pid) == ProcessState::Zombie).count()
    };
    wait_for("the children to end", || zombies(&tree) == 4);
    for _ in 0..3 {
        tree.dump().unwrap();
        tree.come_back();
        assert_eq!((zombies(&tree), tree.pids().len()), (4, 9));
        tree.assert_working();
    }
}

#[test]
fn a_dump_of_a_dead_root_is_refused() {
    let tree = Tree::start(1);
    let mut request = tree.dump_request();
    let mut dead = Bystander(Command::new("true").spawn().unwrap());
    request.root = dead.pid();
    wait_for("it to end", || processes::state(request.root) == ProcessState::Zombie);
    let error = criu().dump(&request).unwrap_err();
    assert!(matches!(error, DumpError::NoRoot { state: ProcessState::Zombie, .. }), "{error}");
    dead.0.wait().unwrap();
    let error = criu().dump(&request).unwrap_err();
    assert!(matches!(error, DumpError::NoRoot { state: ProcessState::Gone, .. }), "{error}");
    assert_eq!(error.tree(), TreeState::Lost);
}

#[test]
fn a_cgroup_with_processes_in_it_is_refused_until_they_are_gone() {
    let mut tree = Tree::start(1);
    tree.dump().unwrap();
    let bystander = Bystander(Command::new("sleep").arg("600").spawn().unwrap());
    fs::write(tree.cgroup.join("cgroup.procs"), bystander.pid().to_string()).unwrap();
    let error = tree.restore().unwrap_err();
    let RestoreError::CgroupBusy { pids, .. } = &error else { panic!("{error}") };
    assert_eq!(pids, &[bystander.pid().as_raw()]);
    assert_eq!(error.retry(), Retry::AfterRemedy);
    assert_eq!(processes::state(bystander.pid()), ProcessState::Alive, "the clean-up spares other processes");
    drop(bystander);
    tree.come_back();
    tree.assert_working();
}

#[test]
fn a_restore_into_a_frozen_cgroup_is_refused() {
    let mut tree = Tree::start(1);
    tree.dump().unwrap();
    tree.freeze_empty();
    let error = tree.restore().unwrap_err();
    assert!(matches!(error, RestoreError::CgroupFrozen { .. }), "{error}");
    tree.thaw();
    tree.come_back();
    tree.assert_working();
}

#[test]
fn the_kernel_cache_is_kept_while_it_is_fresh() {
    let criu = criu();
    kerndat::make(criu.program(), common::LIMIT).unwrap();
    let made = fs::metadata(kerndat::path()).unwrap();
    assert_eq!(criu.prepare().unwrap(), KerndatState::Fresh);
    assert_eq!(fs::metadata(kerndat::path()).unwrap().modified().unwrap(), made.modified().unwrap());
    // CRIU accepts the cache; otherwise it would delete it when it starts.
    criu.check().unwrap();
    assert_eq!(fs::metadata(kerndat::path()).unwrap().modified().unwrap(), made.modified().unwrap());
    // The tmpfs that was mounted to make the cache is not visible.
    assert!(!fs::read_to_string("/proc/self/mounts").unwrap().contains("criu-probe"));
}

#[test]
fn a_tree_outlives_the_threads_that_dumped_and_restored_it() {
    let mut tree = Tree::start(1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            tree.dump().unwrap();
            tree.come_back();
        });
    });
    // The launcher has asked to be killed when the thread that forked it ends.
    std::thread::sleep(Duration::from_millis(50));
    tree.assert_working();
    kill(tree.root, Signal::SIGKILL).unwrap();
}
