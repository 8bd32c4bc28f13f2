//! Benchmark of the store: pages that a job has not changed between two cuts, the cost of finding them, and
//! writing with and without the page cache.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader, Read, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use coswitch_ckpt::manifest::Checksum;
use coswitch_daemon::protocol::Wait;
use coswitch_dispatcher::protocol::Order;
use coswitch_examples::{Program, mpi_prefix, python_script};
use coswitch_policies::Bytes;
use nix::{
    libc::O_DIRECT,
    sys::resource::{UsageWho, getrusage},
};

use crate::{
    figure::Figure,
    pairs::{Pairs, median, take_turns},
    programs,
    stage::{Job, Stage, apart},
};

const PAGE: usize = 4096;
/// The unit in which the store seals, checks and writes.
const CHUNK: u64 = 256 << 10;
const BATCH: usize = 4 << 20;
const WRITTEN: usize = 1 << 30;
/// Time in which programs start.
const SETTLES: Duration = Duration::from_secs(3);
const SLICE: Duration = Duration::from_secs(5);

/// The pages of a job that are not zero, by process and address.
type Pages = BTreeMap<(u32, u64), Checksum>;

pub(crate) fn measure(rounds: u32) -> Result<Vec<Figure>> {
    let python = mpi_prefix().join("bin/python").display().to_string();
    let script = python_script().display().to_string();
    let (cg, heat) = (programs::example(Program::Cg)?, programs::example(Program::Heat)?);
    let jobs: [(&str, &[&str]); 3] = [
        ("cg", &[&cg, "--class", "B", "--repeat", "1000"]),
        ("heat", &[&heat, "--memory", "256MiB", "--steps", "1000000"]),
        ("pi.py", &[&python, &script, "--seconds", "10000"]),
    ];
    let mut figures = vec![hashing(rounds)];
    figures.extend(writing(rounds)?);
    for (name, command) in jobs {
        figures.extend(unchanged(name, command, rounds.min(3))?);
    }
    Ok(figures)
}

/// Share of pages and chunks that did not change between two cuts, a slice apart.
fn unchanged(name: &str, command: &[&str], rounds: u32) -> Result<[Figure; 2]> {
    let (mut pages, mut chunks, mut held) = (Vec::new(), Vec::new(), 0);
    apart(|| {
        let stage = Stage::set(1, Bytes::mib(2048), None)?;
        let mut job = stage.launch(command, &[0, 0], Wait::default());
        stage.running(&mut job)?;
        std::thread::sleep(SETTLES);
        let mut before = look(&stage, &mut job, command)?;
        for _ in 0..rounds {
            std::thread::sleep(SLICE);
            let after = look(&stage, &mut job, command)?;
            held = after.len();
            pages.push(share(&before, &after, PAGE as u64));
            chunks.push(share(&before, &after, CHUNK));
            before = after;
        }
        stage.obey(&mut job, Order::End)?;
        stage.strike()
    })?;
    let detail =
        format!("{} MiB of two ranks, not zero; {rounds} times, {SLICE:?} apart", (held * PAGE) >> 20);
    let figure = |what: &str, shares: Vec<f64>| {
        Figure::plain(format!("{what} of {name} that a slice has not changed"), median(shares) * 100.0, "%")
            .of(detail.clone())
    };
    Ok([figure("pages", pages), figure("chunks of 256 KiB", chunks)])
}

/// Share of the later pages that lie in aligned pieces of `piece` bytes without any change.
fn share(before: &Pages, after: &Pages, piece: u64) -> f64 {
    let mut pieces: BTreeMap<(u32, u64), (bool, u32)> = BTreeMap::new();
    for (place @ (process, address), page) in after {
        let (same, pages) = pieces.entry((*process, address / piece)).or_insert((true, 0));
        *same &= before.get(place) == Some(page);
        *pages += 1;
    }
    let same = pieces.values().filter(|(same, _)| *same).map(|(_, pages)| f64::from(*pages));
    same.sum::<f64>() / after.len() as f64
}

/// Stops the job at a cut, reads its private memory, and lets it go on.
fn look(stage: &Stage, job: &mut Job, command: &[&str]) -> Result<Pages> {
    stage.obey(job, Order::Suspend)?;
    let mut pages = Pages::new();
    for (rank, process) in (0..).zip(processes(command)?) {
        read(&process, rank, &mut pages).with_context(|| format!("failed to read {}", process.display()))?;
    }
    stage.obey(job, Order::Resume)?;
    ensure!(!pages.is_empty(), "no process of {command:?} was found");
    Ok(pages)
}

/// The processes of the ranks, in the order of their numbers.
fn processes(command: &[&str]) -> Result<Vec<PathBuf>> {
    let wanted = command.iter().flat_map(|part| part.bytes().chain([0])).collect::<Vec<_>>();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let is_it = fs::read(entry.path().join("cmdline")).is_ok_and(|said| said == wanted);
        if let Some(pid) =
            entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()).filter(|_| is_it)
        {
            found.push((pid, entry.path()));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

fn read(process: &Path, rank: u32, pages: &mut Pages) -> Result<()> {
    let memory = File::open(process.join("mem"))?;
    let pagemap = File::open(process.join("pagemap"))?;
    let mut page = [0; PAGE];
    for line in BufReader::new(File::open(process.join("maps"))?).lines() {
        let line = line?;
        let mut words = line.split_whitespace();
        let (range, flags) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (from, to) = range.split_once('-').context("maps are ranges")?;
        if flags != "rw-p" {
            continue;
        }
        for address in (u64::from_str_radix(from, 16)?..u64::from_str_radix(to, 16)?).step_by(PAGE) {
            let mut entry = [0; 8];
            pagemap.read_exact_at(&mut entry, address / PAGE as u64 * 8)?;
            // Only pages in memory or in swap: others were never touched.
            if u64::from_le_bytes(entry) >> 62 == 0 || memory.read_exact_at(&mut page, address).is_err() {
                continue;
            }
            if page.iter().any(|byte| *byte != 0) {
                pages.insert((rank, address), Checksum::of(&page));
            }
        }
    }
    Ok(())
}

fn hashing(rounds: u32) -> Figure {
    let bytes = &noise()[..WRITTEN];
    let took = (0..rounds).map(|_| {
        let began = Instant::now();
        let sums = bytes.chunks(PAGE).map(|page| Checksum::of(page).0).fold(0, |sum, next| sum ^ next);
        std::hint::black_box(sums);
        began.elapsed().as_secs_f64()
    });
    Figure::plain("hashing 1 GiB page by page (xxh3, one core)", median(took), "s")
        .of(format!("{rounds} times"))
}

struct Pass {
    write: f64,
    processor: f64,
    read: f64,
}

/// In the same file system as the usual store.
fn writing(rounds: u32) -> Result<[Figure; 3]> {
    let dir = tempfile::tempdir_in("/var/tmp")?;
    let bytes = noise();
    // O_DIRECT needs memory aligned to a block.
    let bytes = &bytes[bytes.as_ptr().align_offset(PAGE)..][..WRITTEN];
    let path = dir.path().join("pages");
    let passes = take_turns(rounds, || pass(&path, bytes, O_DIRECT), || pass(&path, bytes, 0))?;
    let pairs = |of: fn(&Pass) -> f64| {
        Pairs::new(passes.iter().map(|(a, _)| of(a)).collect(), passes.iter().map(|(_, b)| of(b)).collect())
    };
    let figure = |name: &str, pairs: Pairs| {
        Figure::plain(format!("{name}, O_DIRECT by page cache"), pairs.ratio(), "x").of(pairs.detail(
            "O_DIRECT",
            "page cache",
            1.0,
            "s",
        ))
    };
    Ok([
        figure("writing 1 GiB in batches of 4 MiB, durably", pairs(|pass| pass.write)),
        figure("processor time of that", pairs(|pass| pass.processor)),
        figure("reading it back at once", pairs(|pass| pass.read)),
    ])
}

fn pass(path: &Path, bytes: &[u8], flags: i32) -> Result<Pass> {
    let mut file = OpenOptions::new().write(true).create_new(true).custom_flags(flags).open(path)?;
    let (began, used) = (Instant::now(), processor_time()?);
    bytes.chunks(BATCH).try_for_each(|batch| file.write_all(batch))?;
    file.sync_all()?;
    let (write, processor) = (began.elapsed().as_secs_f64(), processor_time()? - used);
    let (began, mut buffer) = (Instant::now(), vec![0; BATCH]);
    let mut file = File::open(path)?;
    while file.read(&mut buffer)? > 0 {}
    let read = began.elapsed().as_secs_f64();
    fs::remove_file(path)?;
    Ok(Pass { write, processor, read })
}

/// Processor time of this process, in seconds.
fn processor_time() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

/// 1 GiB that does not compress, and a page more.
fn noise() -> Vec<u8> {
    let mut state = 7u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state
    };
    std::iter::repeat_with(next).take((WRITTEN + PAGE) / 8).flat_map(u64::to_le_bytes).collect()
}
