//! Taking a frozen tree out of memory.
//!
//! ```text
//! frozen ──▶ looked at ──▶ CRIU dumps ──▶ timers repaired ──▶ gone: images valid, root is the caller's zombie
//!                │              │
//!                │              └─ fails or times out ──▶ rolled back: images removed, tree frozen as before
//!                │                                  └───▶ CRIU had to be killed: the tree is lost
//!                └─ refused: nothing was done
//! ```

use crate::images::{self, ImagesError};
use crate::kerndat::KerndatError;
use crate::pages::{Borrowed, Memory, Pending, Receiver};
use crate::preflight::{self, PreflightError, SegmentFile};
use crate::proc_mount;
use crate::processes::{self, Standing, StillThere};
use crate::{Arena, Criu, options};
use criu_sys::rpc::{CriuOpts, CriuPageServerInfo, CriuReq, CriuReqType, CriuResp};
use criu_sys::{Ended, SwrkError};
use nix::unistd::Pid;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long CRIU may take to roll back, then to heed SIGTERM, before it is killed and the tree with it.
const GRACE: Duration = Duration::from_secs(20);
/// How long dumped processes may take to be gone; CRIU has waited for them already.
const GONE_LIMIT: Duration = Duration::from_secs(10);
const LOG: &str = "dump.log";

/// What to dump, and where to.
#[derive(Clone, Debug)]
pub struct DumpRequest {
    /// PID 1 of the tree's namespace, as we see it, and our child. Its working directory must be writable.
    pub root: Pid,
    /// The cgroup that holds the tree and nothing else, frozen.
    pub freeze_cgroup: PathBuf,
    /// The segment file that the tree shares with us, as we have it mapped.
    pub segment: Option<SegmentFile>,
    /// Where the images go; must be missing or empty.
    pub images_dir: PathBuf,
    /// Where CRIU's log and statistics go.
    pub work_dir: PathBuf,
    /// Takes the pages; without it CRIU writes them to its images itself, which takes longer.
    pub arena: Option<Arena>,
    /// For all of it.
    pub timeout: Duration,
}

/// What a dump did.
#[derive(Debug)]
pub struct DumpReport {
    /// The processes dumped, root first; the root is a zombie for the caller to reap.
    pub pids: Vec<Pid>,
    /// How much the images and `memory` hold.
    pub image_bytes: u64,
    /// Where an arena took the pages: the images are nothing without it, and it has to be sealed.
    pub memory: Option<Memory>,
    /// Periodic timers that would have stayed silent after a restore.
    pub timers_repaired: usize,
    /// How long CRIU held the tree.
    pub frozen: Option<Duration>,
    /// How long the call took.
    pub took: Duration,
}

/// How a tree stands after a dump that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// In memory and frozen, as it was: thaw it and it goes on.
    Frozen,
    /// In memory and not frozen.
    Running,
    /// Not to be trusted, or dead: only an earlier snapshot helps.
    Lost,
}

/// Why there is no image. No image is left in any of these cases.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The root is not there to be dumped.
    #[error("dump process {root}: it is {standing:?}")]
    NoRoot {
        /// The root.
        root: i32,
        /// How it stands.
        standing: Standing,
    },
    /// The segment's path no longer leads to what we have mapped: restored, the tree would talk to nobody.
    #[error("dump: {0}")]
    Segment(#[from] PreflightError),
    /// A process has something else mapped under the segment's path.
    #[error("dump process {pid}: the segment {} that it has mapped is not ours", .path.display())]
    SegmentForeign {
        /// The process.
        pid: i32,
        /// The path.
        path: PathBuf,
    },
    /// The directory for the images holds something.
    #[error("dump into {}: it is not empty", .path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// A file could not be used.
    #[error("dump: {}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// The cache of kernel probes could not be made.
    #[error(transparent)]
    Kerndat(#[from] KerndatError),
    /// CRIU could not dump the tree and has rolled back.
    #[error("dump process {root}: criu: {}", .log.join("; "))]
    Refused {
        /// The root.
        root: i32,
        /// What its log says.
        log: Vec<String>,
        /// How the tree stands.
        job: JobState,
    },
    /// Pages could not be taken, or there is no room for them, and CRIU has rolled back.
    #[error("dump process {root}: take its pages: {source}")]
    Pages {
        /// The root.
        root: i32,
        /// What happened.
        source: io::Error,
        /// How the tree stands.
        job: JobState,
    },
    /// CRIU could not be talked to.
    #[error("dump process {root}: {source}")]
    Swrk {
        /// The root.
        root: i32,
        /// What happened.
        source: SwrkError,
        /// How the tree stands.
        job: JobState,
    },
    /// It took too long, and was given up.
    #[error("dump process {root}: not done after {} ms; the tree is {job:?}", .limit.as_millis())]
    TimedOut {
        /// The root.
        root: i32,
        /// The limit.
        limit: Duration,
        /// How the tree stands.
        job: JobState,
    },
    /// CRIU reports success, and yet processes are there.
    #[error("dump: {0}")]
    NotGone(#[from] StillThere),
    /// CRIU reports success, and yet its images cannot be read.
    #[error("dump: {0}")]
    Images(#[from] ImagesError),
}

impl DumpError {
    /// How the tree stands.
    pub fn job(&self) -> JobState {
        match self {
            DumpError::NoRoot { .. } | DumpError::NotGone(_) | DumpError::Images(_) => JobState::Lost,
            DumpError::Refused { job, .. }
            | DumpError::Pages { job, .. }
            | DumpError::Swrk { job, .. }
            | DumpError::TimedOut { job, .. } => *job,
            // Refused before anything was done: the request says that it is frozen.
            _ => JobState::Frozen,
        }
    }
}

impl Criu {
    /// Dumps the tree. When it returns well, the tree's memory has been given back. Blocks; any number of threads
    /// may dump different trees at a time.
    pub fn dump(&self, request: &DumpRequest) -> Result<DumpReport, DumpError> {
        let begun = Instant::now();
        let _span = tracing::info_span!("dump", root = request.root.as_raw()).entered();
        let pids = look_at(request)?;
        self.prepare()?;
        let deadline = begun + request.timeout;
        let turn = wait_for_turn(request, deadline)?;
        let done = turn.during(&request.images_dir, || self.take_images(request, &pids, deadline));
        let done = done.and_then(|pending| finish(request, &pids, pending));
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

    fn take_images(
        &self,
        request: &DumpRequest,
        pids: &[Pid],
        deadline: Instant,
    ) -> Result<Option<Pending>, DumpError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| DumpError::Io { path, source }
        };
        fs::create_dir_all(&request.images_dir).map_err(at(&request.images_dir))?;
        let Some(arena) = &request.arena else {
            let (response, ended) = self.ask_for_images(request, deadline, None, || {})?;
            return judge(request, response, ended).map(|()| None);
        };
        let borrowed = Borrowed::of(pids).map_err(at(Path::new("/proc")))?;
        let receiver = Receiver::new(arena, &request.images_dir, request.timeout + GRACE);
        let (receiver, theirs) = receiver.map_err(at(&request.images_dir))?;
        let (asked, received) = std::thread::scope(|scope| {
            let pages = scope.spawn(|| receiver.receive(pids, &borrowed));
            let asked = self.ask_for_images(request, deadline, Some(theirs), || receiver.hang_up());
            // A worker that has ended says no more; nor does one that was never started.
            receiver.hang_up();
            (asked, pages.join().expect("receiving does not panic"))
        });
        let (response, ended) = asked?;
        let refused = matches!(&response, Ok(response) if !response.success);
        match (judge(request, response, ended), received) {
            (Ok(()), Ok(pending)) => Ok(Some(pending)),
            // CRIU's own complaint would be that nobody takes its pages.
            (Err(error), Err(source)) if refused && source.kind() != io::ErrorKind::UnexpectedEof => {
                Err(DumpError::Pages { root: request.root.as_raw(), source, job: error.job() })
            }
            (Err(error), _) => Err(error),
            (Ok(()), Err(source)) => {
                Err(DumpError::Pages { root: request.root.as_raw(), source, job: JobState::Lost })
            }
        }
    }

    /// One worker's whole life; `give_up` makes it fail where it sends pages.
    fn ask_for_images(
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
                timeout: Some(u32::try_from(request.timeout.as_secs()).unwrap_or(u32::MAX).max(1)),
                ps: pages_to.as_ref().map(|fd| CriuPageServerInfo { fd: Some(fd.as_raw_fd()) }),
                ..options::common(&request.images_dir, &work, LOG)
            }),
            ..CriuReq::default()
        };
        let untouched = |source| DumpError::Swrk { root, source, job: JobState::Frozen };
        let mut worker = self.start_to_dump(pages_to.as_ref().map(AsFd::as_fd)).map_err(untouched)?;
        drop(pages_to);
        Ok(match worker.call(&message, deadline, &mut |_| true) {
            Err(SwrkError::TimedOut) => {
                give_up();
                match worker.abort(GRACE) {
                    // It was about to succeed: the tree is in the images and no longer in memory.
                    (ended, Some(late)) if late.success => (Ok(late), ended),
                    (ended, _) => (Err(SwrkError::TimedOut), ended),
                }
            }
            response => (response, worker.end(GRACE)),
        })
    }
}

fn wait_for_turn(request: &DumpRequest, deadline: Instant) -> Result<proc_mount::Turn, DumpError> {
    proc_mount::wait_for_turn(request.root, deadline).map_err(|source| match source.kind() {
        io::ErrorKind::TimedOut => {
            let root = request.root.as_raw();
            DumpError::TimedOut { root, limit: request.timeout, job: JobState::Frozen }
        }
        _ => DumpError::Io { path: format!("/proc/{}/cwd", request.root).into(), source },
    })
}

/// Refuses what would fail or, worse, succeed and be useless; returns the tree's processes.
fn look_at(request: &DumpRequest) -> Result<Vec<Pid>, DumpError> {
    let root = request.root;
    let standing = processes::standing(root);
    if !standing.is_live() {
        return Err(DumpError::NoRoot { root: root.as_raw(), standing });
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
    // A process that ended between being listed and looked at maps nothing.
    let mapped = processes::mapped_inodes(pid, &segment.path).unwrap_or_default();
    if mapped.iter().all(|inode| *inode == segment.inode) {
        return Ok(());
    }
    Err(DumpError::SegmentForeign { pid: pid.as_raw(), path: segment.path.clone() })
}

/// What the response, and the way the worker ended, say of the tree.
fn judge(
    request: &DumpRequest,
    response: Result<CriuResp, SwrkError>,
    ended: Ended,
) -> Result<(), DumpError> {
    let root = request.root.as_raw();
    match response {
        // A worker that has responded has let go of the tree: how it ends no longer matters.
        Ok(response) if response.success => Ok(()),
        Ok(response) => {
            let mut log = options::errors_in_log(&request.work_dir.join(LOG));
            if log.is_empty() {
                log.push(response.cr_errmsg.unwrap_or_default().trim().to_owned());
            }
            Err(DumpError::Refused { root, log, job: state_after(request, Ended::Itself) })
        }
        Err(SwrkError::TimedOut) => {
            Err(DumpError::TimedOut { root, limit: request.timeout, job: state_after(request, ended) })
        }
        // It died with the tree in its hands.
        Err(source) => Err(DumpError::Swrk { root, source, job: state_after(request, Ended::Killed) }),
    }
}

/// CRIU freezes the tree again when it rolls back, if it found it frozen.
fn state_after(request: &DumpRequest, ended: Ended) -> JobState {
    if ended != Ended::Itself || !processes::standing(request.root).is_live() {
        return JobState::Lost;
    }
    let frozen = fs::read_to_string(request.freeze_cgroup.join("cgroup.freeze")).unwrap_or_default();
    if frozen.trim() == "1" { JobState::Frozen } else { JobState::Running }
}

/// Makes sure of what CRIU reports, repairs what it gets wrong, and completes its images.
fn finish(
    request: &DumpRequest,
    pids: &[Pid],
    pending: Option<Pending>,
) -> Result<(usize, Option<Memory>), DumpError> {
    let repaired = images::repair_timers(&request.images_dir)?;
    let own: Vec<i32> = pids.iter().map(|pid| pid.as_raw()).collect();
    images::repair_proc_files(&request.images_dir, &own)?;
    let memory = pending.map(|pending| pending.settle(&request.images_dir)).transpose()?;
    processes::wait_gone(pids, GONE_LIMIT)?;
    Ok((repaired, memory))
}
