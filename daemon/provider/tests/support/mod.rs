//! A small launcher for tests: segments, ranks with a PMI server, and a relay in place of the daemons.
//!
//! It launches unmodified MPI programs on one or more "nodes" of this machine. Every process that it starts
//! has a time-out and is reaped, and the segments lie in a directory that is deleted with the job.

pub(crate) mod freeze;
pub(crate) mod pmi;
pub(crate) mod relay;

use coswitch_ring::{CountersSnapshot, Segment, SegmentSpec};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) struct Job<'a> {
    pub(crate) ranks: u32,
    pub(crate) nodes: u32,
    pub(crate) program: &'a Path,
    pub(crate) args: &'a [&'a str],
    pub(crate) env: &'a [(&'a str, &'a str)],
    pub(crate) timeout: Duration,
    /// Changes the segment before it is created.
    pub(crate) shape: fn(&mut SegmentSpec),
    /// Freezes the ranks and refills the segments repeatedly, with this pause between.
    pub(crate) freeze_every: Option<Duration>,
}

impl<'a> Job<'a> {
    pub(crate) fn new(ranks: u32, nodes: u32, program: &'a Path, args: &'a [&'a str]) -> Job<'a> {
        Job {
            ranks,
            nodes,
            program,
            args,
            env: &[],
            timeout: Duration::from_secs(120),
            shape: |_| {},
            freeze_every: None,
        }
    }
}

pub(crate) struct Outcome {
    pub(crate) statuses: Vec<ExitStatus>,
    /// Standard output and standard error of each rank.
    pub(crate) outputs: Vec<String>,
    pub(crate) counters: Vec<CountersSnapshot>,
    pub(crate) timed_out: bool,
    /// Number of freezes.
    pub(crate) freezes: u32,
}

impl Outcome {
    /// Whether all ranks succeeded in time.
    pub(crate) fn is_success(&self) -> bool {
        !self.timed_out && self.statuses.iter().all(ExitStatus::success)
    }
}

/// The directory of libcoswitch_fi.so, near the test binary.
fn provider_dir() -> PathBuf {
    let mut dir = std::env::current_exe().expect("the path of a test is known");
    while dir.pop() {
        if dir.join("libcoswitch_fi.so").exists() {
            return dir;
        }
    }
    panic!("libcoswitch_fi.so was not built with the tests")
}

/// Ranks of one node, in blocks.
fn ranks_of(node: u32, job: &Job) -> Vec<u32> {
    (0..job.ranks).filter(|rank| rank * job.nodes / job.ranks == node).collect()
}

pub(crate) fn run(job: &Job) -> Outcome {
    let dir = tempfile::Builder::new()
        .prefix("coswitch-test-")
        .tempdir_in("/dev/shm")
        .expect("/dev/shm is writable");
    let segments: Vec<Arc<Segment>> = (0..job.nodes)
        .map(|node| {
            let mut spec = SegmentSpec::new(job.ranks, ranks_of(node, job));
            (job.shape)(&mut spec);
            let path = dir.path().join(format!("segment-{node}"));
            Arc::new(Segment::create(path, &spec).expect("the segment can be created"))
        })
        .collect();
    let relay = relay::Relay::start(&segments);
    let pmi = pmi::Server::new(job.ranks);
    let mut children = Vec::new();
    for rank in 0..job.ranks {
        let segment =
            segments.iter().find(|segment| segment.local_of(rank).is_some()).expect("every rank has a node");
        children.push(start_rank(job, rank, segment, dir.path(), &pmi));
    }
    let mut freezes = 0;
    let mut freeze = |pids: &[u32]| {
        freeze::cycle(pids, &segments, &relay);
        freezes += 1;
    };
    let (statuses, timed_out) = wait_all(&mut children, job, &mut freeze);
    pmi.join();
    relay.stop();
    let outputs = (0..job.ranks).map(|rank| read_output(dir.path(), rank)).collect();
    let counters = (0..job.ranks)
        .map(|rank| {
            let find = |segment: &Arc<Segment>| segment.local_of(rank).map(|local| segment.counters(local));
            segments.iter().find_map(find).expect("every rank has a node")
        })
        .collect();
    Outcome { statuses, outputs, counters, timed_out, freezes }
}

fn output_path(dir: &Path, rank: u32) -> PathBuf {
    dir.join(format!("output-{rank}"))
}

fn read_output(dir: &Path, rank: u32) -> String {
    let bytes = std::fs::read(output_path(dir, rank)).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn start_rank(job: &Job, rank: u32, segment: &Segment, dir: &Path, pmi: &pmi::Server) -> Child {
    let (ours, theirs) = UnixStream::pair().expect("socketpair");
    let output = std::fs::File::create(output_path(dir, rank)).expect("output file");
    let shared = std::fs::File::options().read(true).write(true).open(segment.path()).expect("segment");
    let inherited = [theirs.as_raw_fd(), shared.as_raw_fd()];
    let local = segment.local_of(rank).expect("the rank is local");
    let mut command = Command::new(job.program);
    command
        .args(job.args)
        .env("PMI_FD", theirs.as_raw_fd().to_string())
        .env("PMI_RANK", rank.to_string())
        .env("PMI_SIZE", job.ranks.to_string())
        .env("FI_PROVIDER", "coswitch")
        .env("FI_PROVIDER_PATH", provider_dir())
        .env("UCX_HANDLE_ERRORS", "none")
        .env("COSWITCH_SEGMENT", shared.as_raw_fd().to_string())
        .env("COSWITCH_LOCAL", local.to_string())
        .envs(job.env.iter().copied())
        .stdin(Stdio::null())
        .stdout(output.try_clone().expect("dup"))
        .stderr(output)
        .process_group(0);
    // SAFETY: between fork and exec the closure makes only async-signal-safe calls.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            inherited.into_iter().try_for_each(|fd| match libc::fcntl(fd, libc::F_SETFD, 0) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            })
        });
    }
    let child = command.spawn().expect("the program can be started");
    pmi.serve(rank, ours);
    child
}

/// Waits for all children and reaps them. Kills the others once one has failed or the time is over.
fn wait_all(children: &mut [Child], job: &Job, freeze: &mut dyn FnMut(&[u32])) -> (Vec<ExitStatus>, bool) {
    let deadline = Instant::now() + job.timeout;
    let mut thawed = Instant::now();
    let mut statuses: Vec<Option<ExitStatus>> = vec![None; children.len()];
    while statuses.iter().any(Option::is_none) {
        for (child, status) in children.iter_mut().zip(&mut statuses) {
            *status = status.or_else(|| child.try_wait().expect("the process is a child of the test"));
        }
        let late = Instant::now() >= deadline;
        let failed = statuses.iter().flatten().any(|status| !status.success());
        if late || failed {
            if failed {
                std::thread::sleep(Duration::from_millis(300));
            }
            return (kill_all(children), late && !failed);
        }
        if job.freeze_every.is_some_and(|pause| thawed.elapsed() >= pause) {
            let pids: Vec<u32> =
                children.iter().zip(&statuses).filter(|(_, s)| s.is_none()).map(|(c, _)| c.id()).collect();
            freeze(&pids);
            thawed = Instant::now();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    (statuses.into_iter().flatten().collect(), false)
}

fn kill_all(children: &mut [Child]) -> Vec<ExitStatus> {
    children
        .iter_mut()
        .map(|child| {
            // An error means that the child has been reaped, which `wait` reports.
            let _ = child.kill();
            child.wait().unwrap_or(ExitStatus::from_raw(-1))
        })
        .collect()
}
