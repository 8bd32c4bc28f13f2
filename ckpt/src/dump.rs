//! Dump: takes a frozen tree out of memory.
//!
//! ```text
//! frozen ──▶ checked ──▶ CRIU dumps ──▶ timers repaired ──▶ gone: images valid, root is the caller's zombie
//!               │             │
//!               │             └─ fails or times out ──▶ rolled back: images removed, tree frozen as before
//!               │                                 └───▶ CRIU had to be killed: the tree is lost
//!               └─ refused: nothing was done
//! ```
//! With [`DumpRequest::stays`] the tree is frozen as before in the end as well: a checkpoint.

use crate::criu::Criu;
use crate::images::{self, ImagesError};
use crate::kerndat::KerndatError;
use crate::options;
use crate::pages::{Arena, Borrowed, Memory, Receiver};
use crate::preflight::{self, PreflightError, SegmentFile};
use crate::private;
use crate::proc_mount::{self, DirLock};
use crate::processes::{self, ProcessState, StillThere};
use criu_sys::rpc::{CriuOpts, CriuPageServerInfo, CriuReq, CriuReqType, CriuResp};
use criu_sys::{Ended, SwrkError};
use nix::unistd::Pid;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long CRIU may take to roll back, and then to end at SIGTERM, before it is killed, which loses the
/// tree.
const GRACE: Duration = Duration::from_secs(20);
/// How long dumped processes may take to be gone after CRIU has waited for them.
const GONE_LIMIT: Duration = Duration::from_secs(10);
const LOG: &str = "dump.log";

#[derive(Clone, Debug)]
pub struct DumpRequest {
    /// PID 1 of the tree's namespace, as we see it, and our child. Its working directory must be writable.
    pub root: Pid,
    /// The cgroup that holds the tree and nothing else, frozen.
    pub freeze_cgroup: PathBuf,
    /// The segment file that the tree shares with us, as we have it mapped.
    pub segment: Option<SegmentFile>,
    /// Must be missing or empty.
    pub images_dir: PathBuf,
    /// The directory where the pages will be sealed; it exists, or is `images_dir`.
    pub pages_dir: PathBuf,
    /// The directory for CRIU's log and statistics.
    pub work_dir: PathBuf,
    /// Takes the pages; without it CRIU writes them to its images itself, which takes longer.
    pub arena: Option<Arena>,
    /// The tree stays in memory, frozen as before, and goes on when it is thawed.
    pub stays: bool,
    /// The tree has a network namespace of its own, with nothing in it.
    pub confined: bool,
    pub timeout: Duration,
}

#[derive(Debug)]
pub struct DumpReport {
    /// The processes dumped, root first; the root is a zombie for the caller to reap, unless they stay.
    pub pids: Vec<Pid>,
    /// The sum of the images and `memory`.
    pub image_bytes: u64,
    /// The pages, if an arena took them: the images are useless without them, so they must be sealed.
    pub memory: Option<Memory>,
    /// Number of periodic timers that a restore would have left disarmed.
    pub timers_repaired: usize,
    /// How long CRIU kept the tree from running.
    pub frozen: Option<Duration>,
    /// How long the call took.
    pub took: Duration,
}

/// The state of a tree after a dump that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeState {
    /// In memory and frozen, as before: it goes on when it is thawed.
    Frozen,
    /// In memory and not frozen.
    Running,
    /// Dead or damaged: only an earlier snapshot helps.
    Lost,
}

/// Why there is no image. No error leaves an image behind.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    #[error("dump process {root}: it is {state:?}")]
    NoRoot { root: i32, state: ProcessState },
    /// The segment's path no longer leads to the file that we have mapped: a restored tree would be cut off
    /// from us.
    #[error("dump: {0}")]
    Segment(#[from] PreflightError),
    /// A process has another file mapped under the segment's path.
    #[error("dump process {pid}: the segment {} that it has mapped is not ours", .path.display())]
    SegmentForeign { pid: i32, path: PathBuf },
    #[error("dump into {}: it is not empty", .path.display())]
    NotEmpty { path: PathBuf },
    #[error("dump: {}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Kerndat(#[from] KerndatError),
    /// CRIU could not dump the tree and has rolled back.
    #[error("dump process {root}: criu: {}", .log.join("; "))]
    Refused { root: i32, log: Vec<String>, tree: TreeState },
    /// Pages could not be received, or a file system has no room for them ([`crate::is_full`]), and CRIU has
    /// rolled back.
    #[error("dump process {root}: take its pages: {source}")]
    Pages { root: i32, source: io::Error, tree: TreeState },
    #[error("dump process {root}: {source}")]
    Swrk { root: i32, source: SwrkError, tree: TreeState },
    #[error("dump process {root}: not done after {} ms; the tree is {tree:?}", .limit.as_millis())]
    TimedOut { root: i32, limit: Duration, tree: TreeState },
    /// Processes are still there although CRIU reports success.
    #[error("dump: {0}")]
    NotGone(#[from] StillThere),
    /// The images cannot be read although CRIU reports success.
    #[error("dump: {0}")]
    Images(#[from] ImagesError),
}

impl DumpError {
    pub fn tree(&self) -> TreeState {
        match self {
            DumpError::NoRoot { .. } | DumpError::NotGone(_) | DumpError::Images(_) => TreeState::Lost,
            DumpError::Refused { tree, .. }
            | DumpError::Pages { tree, .. }
            | DumpError::Swrk { tree, .. }
            | DumpError::TimedOut { tree, .. } => *tree,
            // Refused before anything was done; the request requires a frozen tree.
            _ => TreeState::Frozen,
        }
    }
}

impl Criu {
    /// Dumps the tree. On success the tree's memory has been freed, unless it [stays](DumpRequest::stays).
    /// Blocks; any number of threads may dump different trees at a time.
    pub fn dump(&self, request: &DumpRequest) -> Result<DumpReport, DumpError> {
        let begun = Instant::now();
        let _span = tracing::info_span!("dump", root = request.root.as_raw()).entered();
        let pids = check_request(request)?;
        self.prepare()?;
        let deadline = begun + request.timeout;
        let working_dir = lock_working_dir(request, deadline)?;
        let dump = || self.dump_to_images(request, &pids, deadline);
        let done = working_dir.hold_during(&request.images_dir, dump);
        let done = done.and_then(|memory| Ok((complete(request, &pids)?, memory)));
        let (timers_repaired, memory) = done.inspect_err(|error| {
            tracing::warn!(%error, "dump failed");
            fs::remove_dir_all(&request.images_dir).ok();
        })?;
        let frozen = images::dump_statistics(&request.work_dir);
        Ok(DumpReport {
            pids,
            image_bytes: images::bytes(&request.images_dir)? + memory.as_ref().map_or(0, Memory::bytes),
            memory,
            timers_repaired,
            frozen: frozen.map(|statistics| Duration::from_micros(statistics.frozen_time.into())),
            took: begun.elapsed(),
        })
    }

    fn dump_to_images(
        &self,
        request: &DumpRequest,
        pids: &[Pid],
        deadline: Instant,
    ) -> Result<Option<Memory>, DumpError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| DumpError::Io { path, source }
        };
        private::create_dir_all(&request.images_dir).map_err(at(&request.images_dir))?;
        let Some(arena) = &request.arena else {
            let (response, ended) = self.run_dump(request, deadline, None, || {})?;
            return outcome(request, response, ended).map(|()| None);
        };
        let borrowed = Borrowed::of(pids).map_err(at(Path::new("/proc")))?;
        let dirs = [&*request.images_dir, &*request.pages_dir];
        let receiver = Receiver::new(arena, dirs, request.timeout + GRACE);
        let (receiver, theirs) = receiver.map_err(at(&request.images_dir))?;
        let (asked, received) = std::thread::scope(|scope| {
            let pages = scope.spawn(|| receiver.receive(pids, &borrowed));
            let asked = self.run_dump(request, deadline, Some(theirs), || receiver.hang_up());
            // The worker has ended, or was never started, so no more pages come.
            receiver.hang_up();
            (asked, pages.join().expect("receiving does not panic"))
        });
        let (response, ended) = asked?;
        let refused = matches!(&response, Ok(response) if !response.success);
        let root = request.root.as_raw();
        match (outcome(request, response, ended), received) {
            (Ok(()), Ok(memory)) => Ok(Some(memory)),
            // Our error is the cause: CRIU only knows that its pages were not taken.
            (Err(error), Err(source)) if refused && source.kind() != io::ErrorKind::UnexpectedEof => {
                Err(DumpError::Pages { root, source, tree: error.tree() })
            }
            (Err(error), _) => Err(error),
            (Ok(()), Err(source)) => {
                let tree = if request.stays { state_after(request, Ended::Itself) } else { TreeState::Lost };
                Err(DumpError::Pages { root, source, tree })
            }
        }
    }

    /// Runs a worker from its start to its end; `give_up` makes its transfer of pages fail.
    fn run_dump(
        &self,
        request: &DumpRequest,
        deadline: Instant,
        pages_to: Option<OwnedFd>,
        give_up: impl FnOnce(),
    ) -> Result<(Result<CriuResp, SwrkError>, Ended), DumpError> {
        let root = request.root.as_raw();
        let work = options::open_dir(&request.work_dir);
        let work = work.map_err(|source| DumpError::Io { path: request.work_dir.clone(), source })?;
        let message = CriuReq {
            r#type: CriuReqType::Dump as i32,
            opts: Some(CriuOpts {
                pid: Some(root),
                freeze_cgroup: Some(request.freeze_cgroup.display().to_string()),
                leave_running: Some(request.stays),
                timeout: Some(u32::try_from(request.timeout.as_secs()).unwrap_or(u32::MAX).max(1)),
                ps: pages_to.as_ref().map(|fd| CriuPageServerInfo { fd: Some(fd.as_raw_fd()) }),
                ..options::common(&request.images_dir, &work, LOG, request.confined)
            }),
            ..CriuReq::default()
        };
        let untouched = |source| DumpError::Swrk { root, source, tree: TreeState::Frozen };
        let mut worker = self.start_to_dump(pages_to.as_ref().map(AsFd::as_fd)).map_err(untouched)?;
        drop(pages_to);
        Ok(match worker.call(&message, deadline, &mut |_| true) {
            Err(SwrkError::TimedOut) => {
                give_up();
                match worker.abort(GRACE) {
                    // The dump succeeded after all: the tree is in the images and no longer in memory.
                    (ended, Some(late)) if late.success => (Ok(late), ended),
                    (ended, _) => (Err(SwrkError::TimedOut), ended),
                }
            }
            response => (response, worker.end(GRACE)),
        })
    }
}

fn lock_working_dir(request: &DumpRequest, deadline: Instant) -> Result<DirLock, DumpError> {
    proc_mount::lock_working_dir(request.root, deadline).map_err(|source| match source.kind() {
        io::ErrorKind::TimedOut => {
            let root = request.root.as_raw();
            DumpError::TimedOut { root, limit: request.timeout, tree: TreeState::Frozen }
        }
        _ => DumpError::Io { path: format!("/proc/{}/cwd", request.root).into(), source },
    })
}

/// Refuses a dump that would fail, or succeed and be useless; returns the tree's processes.
fn check_request(request: &DumpRequest) -> Result<Vec<Pid>, DumpError> {
    let root = request.root;
    let state = processes::state(root);
    if !state.is_live() {
        return Err(DumpError::NoRoot { root: root.as_raw(), state });
    }
    let is_empty = |dir: &Path| fs::read_dir(dir).map_or(true, |mut entries| entries.next().is_none());
    if !is_empty(&request.images_dir) {
        return Err(DumpError::NotEmpty { path: request.images_dir.clone() });
    }
    let pids = processes::tree(root);
    if let Some(segment) = &request.segment {
        preflight::check_segment(segment)?;
        pids.iter().try_for_each(|pid| check_mapping(*pid, segment))?;
    }
    Ok(pids)
}

fn check_mapping(pid: Pid, segment: &SegmentFile) -> Result<(), DumpError> {
    // A process that has ended since it was listed maps nothing.
    let mapped = processes::mapped_inodes(pid, &segment.path).unwrap_or_default();
    if mapped.iter().all(|inode| *inode == segment.inode) {
        return Ok(());
    }
    Err(DumpError::SegmentForeign { pid: pid.as_raw(), path: segment.path.clone() })
}

/// Derives the result, and the state of the tree, from the response and from how the worker ended.
fn outcome(
    request: &DumpRequest,
    response: Result<CriuResp, SwrkError>,
    ended: Ended,
) -> Result<(), DumpError> {
    let root = request.root.as_raw();
    match response {
        // A worker that has responded has released the tree, so how it ends does not matter.
        Ok(response) if response.success => Ok(()),
        Ok(response) => {
            let log = options::errors(&request.work_dir.join(LOG), response);
            Err(DumpError::Refused { root, log, tree: state_after(request, Ended::Itself) })
        }
        Err(SwrkError::TimedOut) => {
            Err(DumpError::TimedOut { root, limit: request.timeout, tree: state_after(request, ended) })
        }
        // The worker died while it controlled the tree.
        Err(source) => Err(DumpError::Swrk { root, source, tree: state_after(request, Ended::Killed) }),
    }
}

/// The state of the tree after a failed dump. A rollback of CRIU freezes the tree again if it was frozen.
fn state_after(request: &DumpRequest, ended: Ended) -> TreeState {
    if ended != Ended::Itself || !processes::state(request.root).is_live() {
        return TreeState::Lost;
    }
    let frozen = fs::read_to_string(request.freeze_cgroup.join("cgroup.freeze")).unwrap_or_default();
    if frozen.trim() == "1" { TreeState::Frozen } else { TreeState::Running }
}

/// Repairs CRIU's images, which takes no space, and waits until the processes are gone, unless they stay.
fn complete(request: &DumpRequest, pids: &[Pid]) -> Result<usize, DumpError> {
    let repaired = images::repair_timers(&request.images_dir)?;
    let own: Vec<i32> = pids.iter().map(|pid| pid.as_raw()).collect();
    images::repair_proc_files(&request.images_dir, &own)?;
    if !request.stays {
        processes::wait_gone(pids, GONE_LIMIT)?;
    }
    Ok(repaired)
}
