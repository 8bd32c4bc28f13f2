//! Benchmark of pages: a tree of 1 GiB out of memory and back, by `coswitch-ckpt`, by criu called by hand,
//! and by copying alone; and the size of different contents in the store.
//!
//! A round of ours is a dump and a restore, for which a switch waits. Sealing runs beside the next job and is
//! shown by itself. The copy limit is the time in which all cores copy the memory out of a process into
//! memory that is there, and into fresh pages of another process, as a restore does.

use std::{
    fs,
    io::{IoSlice, IoSliceMut, Write},
    path::PathBuf,
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, Result, ensure};
use coswitch_ckpt::{
    Arena, ClusterKey, Criu, DumpRequest, Memory, Origin, Sealing, SegmentFile, Snapshot, Store,
};
use nix::{
    sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev},
    unistd::Pid,
};
use tempfile::TempDir;

use crate::{
    bare::{self, Part, Plan},
    figure::{Bound, Figure},
    hand::{self, STORE},
    pairs::{Pairs, median, take_turns},
    stage::{self, PATIENCE, apart},
};

const MIB: usize = 1024;
const BYTES: usize = MIB << 20;
/// Program that holds a number of MiB of a kind of contents.
const HOLD: &str = "
import array, math, mmap, os, sys, time
kind, size = sys.argv[1], int(sys.argv[2]) << 20
memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
block = {
    'random': lambda: os.urandom(4 << 20),
    'floats': lambda: array.array('d', (round(math.sin(i * 0.37), 3) for i in range(1 << 19))).tobytes(),
    'zero': lambda: bytes(4 << 20),
    'nothing': lambda: b'',
}[kind]()
for at in range(0, size if block else 0, 4 << 20):
    memory[at:at + len(block)] = block
print('held', flush=True)
time.sleep(36000)
";
const HELD: &str = "held";
const COLD_AFTER: Duration = Duration::from_secs(30);
const SETTLING: Duration = Duration::from_millis(1500);

/// One round of ours; times in seconds.
struct Round {
    dump: f64,
    seal: f64,
    restore: f64,
    stored: u64,
}

/// A round of a tree never restored before; of a restored one, from memory and from a file; seconds of
/// copying alone.
type OfOurs = (Round, Round, Round, f64);

impl Round {
    fn took(&self) -> f64 {
        self.dump + self.restore
    }
}

pub(crate) fn measure(rounds: u32) -> Result<Vec<Figure>> {
    apart(|| {
        let arena = Arena::new((BYTES + (256 << 20)) as u64)?;
        arena.warm();
        let mut figures = speed(rounds, &arena)?;
        for kind in ["random", "floats", "zero"] {
            figures.push(store(kind, rounds.min(3), &arena)?);
        }
        Ok(figures)
    })
}

fn speed(rounds: u32, arena: &Arena) -> Result<Vec<Figure>> {
    let size = MIB.to_string();
    let command = ["python3", "-c", HOLD, "random", &size];
    let mut ours = Tree::start(&command, arena)?;
    let mut theirs = hand::Tree::start(&command, HELD)?;
    // A tree starts with small pages and comes back with huge ones.
    ours.round(false)?;
    let first_round = || {
        let mut tree = Tree::start(&command, arena)?;
        warm_memory()?;
        tree.round(false)
    };
    let by_hand = |tree: &mut hand::Tree| {
        let began = Instant::now();
        tree.dump()?;
        tree.restore()?;
        let took = began.elapsed().as_secs_f64();
        tree.forget_images();
        anyhow::Ok(took)
    };
    let both = take_turns(
        rounds,
        || {
            let mut of_ours = |from_file| {
                warm_memory()?;
                ours.round(from_file)
            };
            Ok((first_round()?, of_ours(false)?, of_ours(true)?, copy_limit(ours.rank())?))
        },
        || {
            let mut locking = |lock| {
                warm_memory()?;
                theirs.lock = lock;
                by_hand(&mut theirs)
            };
            Ok((locking(hand::LOCK)?, locking(hand::NO_LOCK)?))
        },
    )?;
    theirs.lock = hand::LOCK;
    thread::sleep(COLD_AFTER);
    let cold = ours.round(false)?.took();
    thread::sleep(COLD_AFTER);
    let cold_by_hand = by_hand(&mut theirs)?;
    let part = |part: fn(&OfOurs) -> f64| median(both.iter().map(|(ours, _)| part(ours)));
    let pairs = |ours: fn(&OfOurs) -> f64| {
        Pairs::new(
            both.iter().map(|(of_ours, _)| ours(of_ours)).collect(),
            both.iter().map(|(_, (by_hand, _))| *by_hand).collect(),
        )
    };
    let first = pairs(|(first, ..)| first.took());
    let memory = pairs(|(_, memory, ..)| memory.took());
    let file = pairs(|(_, _, file, _)| file.took());
    let unlocked = Pairs::new(
        both.iter().map(|((_, memory, ..), _)| memory.took()).collect(),
        both.iter().map(|(_, (_, unlocked))| *unlocked).collect(),
    );
    let limits = Pairs::new(
        both.iter().map(|((.., limit), _)| *limit).collect(),
        both.iter().map(|((_, memory, ..), _)| memory.took()).collect(),
    );
    let parts = format!(
        "dump {:.2} s, restore {:.2} s; sealed in {:.2} s",
        part(|(_, memory, ..)| memory.dump),
        part(|(_, memory, ..)| memory.restore),
        part(|(_, memory, ..)| memory.seal),
    );
    let first_parts = format!(
        "dump {:.2} s, restore {:.2} s",
        part(|(first, ..)| first.dump),
        part(|(first, ..)| first.restore)
    );
    let file_parts = format!("restore {:.2} s", part(|(_, _, file, _)| file.restore));
    Ok(vec![
        Figure::bounded("dump + restore of 1 GiB, by criu by hand", memory.ratio(), "x", Bound::AtMost(0.5))
            .of(format!("{}; {parts}", memory.detail("coswitch", "by hand", 1.0, "s"))),
        Figure::plain("the same, by criu by hand without a network lock", unlocked.ratio(), "x")
            .of(unlocked.detail("coswitch", "by hand", 1.0, "s")),
        Figure::plain("the same, of a tree that was never restored before", first.ratio(), "x")
            .of(format!("{}; {first_parts}", first.detail("coswitch", "by hand", 1.0, "s"))),
        Figure::plain("the same, restored from a file in the page cache", file.ratio(), "x")
            .of(format!("{}; {file_parts}", file.detail("coswitch", "by hand", 1.0, "s"))),
        Figure::bounded("copy limit, by dump + restore of 1 GiB", limits.ratio(), "x", Bound::AtLeast(0.5))
            .of(limits.detail("limit", "coswitch", 1.0, "s")),
        Figure::plain("dump + restore of 1 GiB on cold memory, by criu by hand", cold / cold_by_hand, "x")
            .of(format!("coswitch {cold:.2} s, by hand {cold_by_hand:.2} s; one pair")),
    ])
}

/// Size and speed of a gibibyte of these contents in the store.
fn store(kind: &str, rounds: u32, arena: &Arena) -> Result<Figure> {
    let size = MIB.to_string();
    let mut tree = Tree::start(&["python3", "-c", HOLD, kind, &size], arena)?;
    let samples = (0..rounds).map(|_| tree.round(true)).collect::<Result<Vec<_>>>()?;
    let gigabytes = |seconds: fn(&Round) -> f64| BYTES as f64 / 1e9 / median(samples.iter().map(seconds));
    let ratio = BYTES as f64 / median(samples.iter().map(|round| round.stored as f64));
    let detail = format!(
        "sealed at {:.2} GB/s, restored from the file at {:.2} GB/s",
        gigabytes(|round| round.seal),
        gigabytes(|round| round.restore)
    );
    Ok(Figure::plain(format!("1 GiB of {kind} pages by what is stored"), ratio, "x").of(detail))
}

/// A tree like [`hand::Tree`], in a cgroup of its own, dumped and restored by `coswitch-ckpt`.
struct Tree<'a> {
    criu: Criu,
    arena: &'a Arena,
    dir: TempDir,
    cgroup: PathBuf,
    part: Part,
}

impl<'a> Tree<'a> {
    fn start(command: &[&str], arena: &'a Arena) -> Result<Self> {
        let criu = Criu::locate()?;
        criu.prepare()?;
        let dir = tempfile::tempdir()?;
        let name = dir.path().file_name().expect("a directory has a name");
        let cgroup = unified()?.join(format!("bench-{}", name.display()));
        fs::create_dir(&cgroup).context("failed to make a cgroup")?;
        let plan = Plan {
            dir: dir.path(),
            rank: 0,
            world: 1,
            command,
            driver: true,
            env: &[],
            cgroup_procs: vec![cgroup.join("cgroup.procs")],
        };
        let (segment, spec) = plan.prepare()?;
        let tree = Self { criu, arena, part: Part::new(bare::start(&spec)?, segment), dir, cgroup };
        stage::until_said(tree.dir.path(), HELD)?;
        Ok(tree)
    }

    fn rank(&self) -> Pid {
        *coswitch_ckpt::processes::tree(self.part.root).last().expect("a tree has a root")
    }

    fn round(&mut self, from_file: bool) -> Result<Round> {
        let dir = tempfile::tempdir_in(STORE)?;
        let plain = tempfile::tempdir_in("/dev/shm")?;
        let sealing = Sealing::new(ClusterKey::random()?, "bench".into(), plain.path().to_owned());
        let store = Store::open(dir.path(), sealing)?;
        let mut writer = store.begin("bench", 1, SystemTime::now())?;
        self.freeze()?;
        let segment = SegmentFile::at(&self.dir.path().join("segment-0"))?;
        let request = DumpRequest {
            root: self.part.root,
            freeze_cgroup: self.cgroup.clone(),
            segment: Some(segment.clone()),
            images_dir: writer.images_dir(),
            pages_dir: writer.pages_dir(),
            work_dir: writer.work_dir(),
            arena: Some(self.arena.clone()),
            stays: false,
            confined: false,
            timeout: PATIENCE,
        };
        let began = Instant::now();
        let mut report = self.criu.dump(&request)?;
        let dump = began.elapsed().as_secs_f64();
        let root = self.part.root;
        bare::reap(root, PATIENCE)?;
        let memory: Option<Memory> = report.memory.take();
        writer.take_memory(memory, self.arena);
        let began = Instant::now();
        writer.seal(Origin::of(&self.criu, root, &report))?;
        let seal = began.elapsed().as_secs_f64();
        let snapshot: Snapshot = store.snapshot("bench", 1)?;
        // By hand a restore follows the dump at once and finds its memory warm; here the host has taken it
        // back.
        warm_memory()?;
        let mut request = snapshot.restore_request(vec![self.cgroup.clone()], Some(segment), PATIENCE);
        request.arena = (!from_file).then(|| self.arena.clone());
        let began = Instant::now();
        let restored = snapshot.restore(&self.criu, &request)?;
        restored.resume()?;
        let restore = began.elapsed().as_secs_f64();
        self.part.root = restored.root;
        let pages = snapshot.manifest().files.iter().filter(|file| file.name.contains("pages"));
        Ok(Round { dump, seal, restore, stored: pages.map(|file| file.bytes).sum() })
    }

    fn freeze(&self) -> Result<()> {
        fs::write(self.cgroup.join("cgroup.freeze"), "1")?;
        let deadline = Instant::now() + PATIENCE;
        while !fs::read_to_string(self.cgroup.join("cgroup.events"))?.contains("frozen 1") {
            ensure!(Instant::now() < deadline, "a cgroup does not freeze");
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Drop for Tree<'_> {
    fn drop(&mut self) {
        fs::write(self.cgroup.join("cgroup.freeze"), "0").ok();
        bare::end(self.part.root);
        fs::remove_dir(&self.cgroup).ok();
    }
}

fn unified() -> Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let mut rows = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    Ok(rows.find(|row| row[2] == "cgroup2").context("no cgroup2 is mounted")?[1].into())
}

/// Seconds to copy the memory of `source` out, and into a process that has not touched its own.
fn copy_limit(source: Pid) -> Result<f64> {
    let size = MIB.to_string();
    let target = hand::Tree::start(&["python3", "-c", HOLD, "nothing", &size], HELD)?;
    let (from, to) = (largest_mapping(source)?, largest_mapping(target.rank())?);
    let mut memory = vec![1u8; BYTES];
    warm_memory()?;
    let threads = thread::available_parallelism()?.get();
    let share = BYTES.div_ceil(threads).next_multiple_of(1 << 20);
    let out = |part: usize, bytes: &mut [u8]| {
        for (at, bytes) in (part * share..).step_by(1 << 20).zip(bytes.chunks_mut(1 << 20)) {
            let remote = [RemoteIoVec { base: from + at, len: bytes.len() }];
            process_vm_readv(source, &mut [IoSliceMut::new(bytes)], &remote)?;
        }
        anyhow::Ok(())
    };
    let rank = target.rank();
    let back = |part: usize, bytes: &mut [u8]| {
        for (at, bytes) in (part * share..).step_by(1 << 20).zip(bytes.chunks(1 << 20)) {
            let remote = [RemoteIoVec { base: to + at, len: bytes.len() }];
            process_vm_writev(rank, &[IoSlice::new(bytes)], &remote)?;
        }
        anyhow::Ok(())
    };
    let began = Instant::now();
    on_all_cores(&mut memory, share, out)?;
    on_all_cores(&mut memory, share, back)?;
    Ok(began.elapsed().as_secs_f64())
}

fn on_all_cores(
    memory: &mut [u8],
    share: usize,
    work: impl Fn(usize, &mut [u8]) -> Result<()> + Sync,
) -> Result<()> {
    thread::scope(|scope| {
        let parts = memory.chunks_mut(share).enumerate();
        let work = &work;
        let workers: Vec<_> = parts.map(|(part, bytes)| scope.spawn(move || work(part, bytes))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("copying does not panic"))
    })
}

fn largest_mapping(pid: Pid) -> Result<usize> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let ranges = maps.lines().filter_map(|line| {
        let (start, rest) = line.split_once('-')?;
        let (end, rest) = rest.split_once(' ')?;
        let range = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
        rest.starts_with("rw-p").then_some(range)
    });
    let (start, end) = ranges.max_by_key(|(start, end)| end - start).context("it maps nothing")?;
    ensure!(end - start >= BYTES, "its memory cannot be found");
    Ok(start)
}

/// Touches the free pages that are handed out next.
fn warm_memory() -> Result<()> {
    thread::sleep(SETTLING);
    let mut file = tempfile::tempfile_in(STORE).context("failed to make a file")?;
    let piece = vec![1; 1 << 20];
    (0..5 * MIB / 2).try_for_each(|_| file.write_all(&piece)).context("failed to fill a file")
}
