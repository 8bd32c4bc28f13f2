//! A real tree for the tests: compiled, started in its own cgroup, watched through its segment, ended when
//! dropped.
#![allow(dead_code, unreachable_pub, reason = "each suite uses its own part of it")]

pub mod segment;

use coswitch_ckpt::{
    Arena, ClusterKey, Criu, DumpError, DumpReport, DumpRequest, Origin, RestoreError, RestoreRequest,
    Restored, SealedPages, Sealing, Snapshot, SnapshotError, SnapshotWriter, Store,
};
use coswitch_ckpt::{forker, processes};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use segment::Segment;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

pub const LIMIT: Duration = Duration::from_secs(60);

pub fn criu() -> Criu {
    static CRIU: OnceLock<Criu> = OnceLock::new();
    CRIU.get_or_init(|| {
        assert!(nix::unistd::geteuid().is_root(), "these tests dump and restore processes: run them as root");
        let criu = Criu::locate().expect("a CRIU; `cargo xtask setup` installs one");
        criu.prepare().expect("the kernel cache can be made");
        criu
    })
    .clone()
}

/// Smaller than some trees of the tests, so that some of their pages go to files.
pub fn arena() -> Arena {
    static ARENA: OnceLock<Arena> = OnceLock::new();
    ARENA.get_or_init(|| Arena::new(24 << 20).unwrap()).clone()
}

/// The key of the cluster of all tests.
pub const KEY: [u8; 32] = *b"the key of the cluster of tests.";

/// Images lie in plain in this directory meanwhile, below names that are no application's.
pub fn sealing(plain: &Path) -> Sealing {
    Sealing::new(ClusterKey::from(KEY), "r1-2-n0".to_owned(), plain.to_owned())
}

pub fn open(root: &Path) -> Store {
    Store::open(root, sealing(root)).unwrap()
}

pub fn reopen(dir: &Path) -> Result<Snapshot, SnapshotError> {
    Snapshot::open(dir, &sealing(dir))
}

pub struct Shape {
    /// Private memory of each rank.
    pub mib: usize,
    /// Each rank has a child, and two zombies that it does not reap.
    pub children: bool,
    /// Each rank has memory of many kinds, and a child that shares some of it.
    pub shapes: bool,
    /// Working directory of the launcher, instead of one of its own.
    pub working_dir: Option<PathBuf>,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { mib: 4, children: false, shapes: false, working_dir: None }
    }
}

/// A launcher and its ranks. Dropping it leaves nothing behind.
pub struct Tree {
    pub root: Pid,
    pub cgroup: PathBuf,
    pub segment: Segment,
    pub dir: tempfile::TempDir,
    /// Of the last dump.
    pages: Option<SealedPages>,
    dumps: u32,
}

impl Tree {
    /// Starts the tree and waits until every rank is at work.
    pub fn start(ranks: usize) -> Tree {
        Tree::with(ranks, &Shape::default())
    }

    pub fn with(ranks: usize, shape: &Shape) -> Tree {
        let name = unique_name();
        let dir = tempfile::Builder::new().prefix(&name).tempdir().unwrap();
        let segment = Segment::create(Path::new("/dev/shm").join(&name), ranks);
        let cgroup = cgroup_root().join(&name);
        fs::create_dir(&cgroup).unwrap();
        let root = launch(dir.path(), &segment, &cgroup, shape);
        let tree = Tree { root, cgroup, segment, dir, pages: None, dumps: 0 };
        tree.assert_working();
        tree
    }

    pub fn images(&self) -> PathBuf {
        self.dir.path().join(format!("images-{}", self.dumps))
    }

    pub fn work_dir(&self) -> PathBuf {
        self.dir.path().join(format!("log-{}", self.dumps))
    }

    pub fn output(&self, rank: usize) -> PathBuf {
        self.dir.path().join(format!("rank-{rank}.out"))
    }

    pub fn freeze(&self) {
        fs::write(self.cgroup.join("cgroup.freeze"), "1").unwrap();
        let events = self.cgroup.join("cgroup.events");
        wait_for("the tree to freeze", || fs::read_to_string(&events).unwrap().contains("frozen 1"));
    }

    /// Freezes the cgroup while nothing is in it.
    pub fn freeze_empty(&self) {
        fs::write(self.cgroup.join("cgroup.freeze"), "1").unwrap();
    }

    pub fn thaw(&self) {
        fs::write(self.cgroup.join("cgroup.freeze"), "0").unwrap();
    }

    pub fn dump_request(&self) -> DumpRequest {
        DumpRequest {
            root: self.root,
            freeze_cgroup: self.cgroup.clone(),
            segment: Some(self.segment.identity()),
            images_dir: self.images(),
            pages_dir: self.images(),
            work_dir: self.work_dir(),
            arena: Some(arena()),
            stays: false,
            confined: false,
            timeout: LIMIT,
        }
    }

    /// Freezes and dumps into a new directory; reaps the root on success.
    pub fn dump(&mut self) -> Result<DumpReport, DumpError> {
        self.dumps += 1;
        self.freeze();
        let report = self.dump_and_seal(&self.dump_request())?;
        waitpid(self.root, None).expect("the dumped root is our zombie");
        Ok(report)
    }

    /// Dumps a frozen tree and seals the pages that the dump has left in memory.
    pub fn dump_and_seal(&mut self, request: &DumpRequest) -> Result<DumpReport, DumpError> {
        let report = criu().dump(request)?;
        let memory = report.memory.as_ref().expect("an arena takes all pages");
        let sealed = memory.seal(&request.pages_dir, &sealing(Path::new("/")).keys("tree", 0));
        self.pages = Some(sealed.unwrap().0);
        Ok(report)
    }

    pub fn restore_request(&self) -> RestoreRequest {
        RestoreRequest {
            images_dir: self.images(),
            work_dir: self.work_dir(),
            cgroups: vec![self.cgroup.clone()],
            segment: Some(self.segment.identity()),
            outputs: Vec::new(),
            pages: self.pages.clone(),
            arena: None,
            leave_stopped: true,
            user: None,
            timeout: LIMIT,
        }
    }

    pub fn restore(&mut self) -> Result<Restored, RestoreError> {
        let request = self.restore_request();
        self.restore_as(&request)
    }

    pub fn restore_as(&mut self, request: &RestoreRequest) -> Result<Restored, RestoreError> {
        let restored = criu().restore(request)?;
        self.root = restored.root;
        Ok(restored)
    }

    /// Restores and resumes.
    pub fn come_back(&mut self) {
        let restored = self.restore().unwrap();
        restored.resume().unwrap();
    }

    /// Asserts that every part of every rank makes progress and has found no error.
    #[track_caller]
    pub fn assert_working(&self) {
        for rank in self.segment.ranks() {
            let before = rank.counters();
            let asked = rank.ring();
            wait_for("every part of a rank to go on", || {
                let now = rank.counters();
                now.iter().zip(&before).all(|(now, before)| now > before) && rank.answer() == asked
            });
            assert_eq!(rank.errors(), 0, "a rank has found its memory or its messages wrong");
        }
    }

    pub fn kill(&self) {
        fs::write(self.cgroup.join("cgroup.kill"), "1").unwrap();
        waitpid(self.root, None).unwrap();
        processes::wait_cgroup_empty(&self.cgroup, LIMIT).unwrap();
    }

    pub fn pids(&self) -> Vec<Pid> {
        processes::tree(self.root)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.thaw();
        fs::write(self.cgroup.join("cgroup.kill"), "1").unwrap();
        processes::wait_cgroup_empty(&self.cgroup, LIMIT).unwrap();
        waitpid(self.root, None).ok();
        fs::remove_dir(&self.cgroup).unwrap();
        fs::remove_file(&self.segment.path).ok();
    }
}

/// Channel states that [`cut`] saves.
pub const IN_FLIGHT: &[u8] = b"a message that was under way at the cut";

/// Dumps the tree into a new snapshot with the steps of a daemon, in the same order; the snapshot is not
/// sealed yet.
pub fn cut(tree: &Tree, store: &Store, epoch: u64, arena: &Arena) -> (SnapshotWriter, DumpReport) {
    let mut writer = store.begin("job", epoch, SystemTime::now()).unwrap();
    tree.freeze();
    let mut request = tree.dump_request();
    (request.images_dir, request.work_dir) = (writer.images_dir(), writer.work_dir());
    request.pages_dir = writer.pages_dir();
    request.arena = Some(arena.clone());
    writer.save_segment(&tree.segment.path).unwrap();
    writer.save_channels(IN_FLIGHT).unwrap();
    let mut report = criu().dump(&request).unwrap();
    writer.take_memory(report.memory.take(), arena);
    waitpid(tree.root, None).unwrap();
    let outputs: Vec<PathBuf> = (0..tree.segment.ranks().len()).map(|rank| tree.output(rank)).collect();
    writer.record_outputs(&outputs).unwrap();
    (writer, report)
}

/// Takes a sealed snapshot of the tree.
pub fn take(tree: &Tree, store: &Store, epoch: u64, arena: &Arena) -> Snapshot {
    let (writer, report) = cut(tree, store, epoch, arena);
    writer.seal(Origin::of(&criu(), tree.root, &report)).unwrap();
    store.snapshot("job", epoch).unwrap()
}

pub fn restore_request(tree: &Tree, snapshot: &Snapshot, arena: Option<&Arena>) -> RestoreRequest {
    let segment = Some(tree.segment.identity());
    let mut request = snapshot.restore_request(vec![tree.cgroup.clone()], segment, LIMIT);
    request.arena = arena.cloned();
    request
}

/// Restores the tree from a snapshot and asserts that it works.
pub fn restore(tree: &mut Tree, snapshot: &Snapshot, arena: Option<&Arena>) {
    snapshot.load_segment(&tree.segment.path).unwrap();
    let restored = snapshot.restore(&criu(), &restore_request(tree, snapshot, arena)).unwrap();
    tree.root = restored.root;
    restored.resume().unwrap();
    tree.assert_working();
}

/// Flips one bit of a file.
pub fn flip(path: &Path, bit: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, bit / 8).unwrap();
    file.write_all_at(&[byte[0] ^ (1 << (bit % 8))], bit / 8).unwrap();
}

/// Starts the program like a launcher: the root is our child and in the cgroup before it does anything.
fn launch(dir: &Path, segment: &Segment, cgroup: &Path, shape: &Shape) -> Pid {
    let mut command = Command::new(program());
    command.arg("start").arg(dir).arg(&segment.path);
    command.args([segment.ranks().len().to_string(), shape.mib.to_string()]);
    command.args(shape.children.then_some("children"));
    command.args(shape.shapes.then_some("shapes"));
    command.current_dir(shape.working_dir.as_deref().unwrap_or(dir));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut stub = forker::spawn(command).unwrap();
    let mut line = String::new();
    BufReader::new(stub.stdout.take().unwrap()).read_line(&mut line).unwrap();
    fs::write(cgroup.join("cgroup.procs"), line.trim()).unwrap();
    stub.stdin.take().unwrap().write_all(b"x").unwrap();
    assert!(stub.wait().unwrap().success());
    Pid::from_raw(line.trim().parse().unwrap())
}

/// Compiles the program, once for each suite.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/target/target.c");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("target-{}", std::process::id()));
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&program).arg(source);
        assert!(gcc.status().expect("gcc; `cargo xtask setup` installs it").success());
        program
    })
}

/// Where cgroups of version 2 are mounted.
pub fn cgroup_root() -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mut rows = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    rows.find(|row| row[2] == "cgroup2").map(|row| row[1].into()).expect("a mounted cgroup2")
}

fn unique_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("coswitch-ckpt-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

#[track_caller]
pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A small file system for a store.
pub struct SmallStore(pub PathBuf);

impl SmallStore {
    pub fn mount(at: PathBuf, size: &str) -> SmallStore {
        fs::create_dir(&at).unwrap();
        let size = format!("size={size}");
        mount(Some("ckpt-test"), &at, Some("tmpfs"), MsFlags::empty(), Some(size.as_str())).unwrap();
        SmallStore(at)
    }
}

impl Drop for SmallStore {
    fn drop(&mut self) {
        umount2(&self.0, MntFlags::MNT_DETACH).unwrap();
    }
}

/// A process that sleeps; ended and reaped when dropped.
pub struct Bystander(pub std::process::Child);

impl Bystander {
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id() as i32)
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        kill(self.pid(), Signal::SIGKILL).ok();
        self.0.wait().ok();
    }
}
