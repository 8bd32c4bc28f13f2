//! Restore: brings a dumped tree back, stopped, in its cgroups.
//!
//! ```text
//! files as recorded? ──▶ worker placed in the cgroups ──▶ CRIU restores ──▶ stopped ── resume ──▶ running
//!        │                                                     └─ fails ──▶ cleaned up: nothing is left
//!        └─ refused: nothing was started
//! ```
//! The worker is moved into the cgroups before its request, so all restored processes start there. The
//! restored root becomes a child of the forking thread, that is, of this process, which has to reap it.

use crate::criu::Criu;
use crate::images::{self, ImagesError};
use crate::kerndat::KerndatError;
use crate::options;
use crate::pages::{Arena, FillError, PageSource, SealedPages};
use crate::preflight::{self, ForeignOutput, OutputFile, PreflightError, SegmentFile};
use crate::processes::{self, StillThere};
use crate::user::{JobUser, NotTheUsers};
use criu_sys::rpc::{CriuOpts, CriuReq, CriuReqType, CriuResp};
use criu_sys::{Notification, Swrk, SwrkError};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a worker may take to end, and the clean-up of a failed restore may take.
const GRACE: Duration = Duration::from_secs(10);
/// Short, because a worker that restores blocks SIGTERM most of the time, and the clean-up ends what killing
/// it leaves.
const TERMINATE_GRACE: Duration = Duration::from_millis(200);
const LOG: &str = "restore.log";

#[derive(Clone, Debug)]
pub struct RestoreRequest {
    pub images_dir: PathBuf,
    /// The directory for CRIU's log and statistics.
    pub work_dir: PathBuf,
    /// The cgroups of the tree, one per hierarchy: empty of processes, and not frozen. After a failed restore
    /// no child of ours is left in them, not even a zombie.
    pub cgroups: Vec<PathBuf>,
    /// The segment file as the daemon maps it, with its contents already in place.
    pub segment: Option<SegmentFile>,
    /// Output files, to be cut back to their lengths at the dump.
    pub outputs: Vec<OutputFile>,
    /// The pages that an arena took at the dump.
    pub pages: Option<SealedPages>,
    /// The arena of the dump, which may still have the pages.
    pub arena: Option<Arena>,
    /// Whose the tree is, by the record of its job, and confined; `None`: this process's own user's.
    pub user: Option<JobUser>,
    /// Leave the tree stopped, to be started together with the rest of its gang. Required if an arena took
    /// its pages.
    pub leave_stopped: bool,
    pub timeout: Duration,
}

/// A restored tree.
#[derive(Clone, Debug)]
pub struct Restored {
    /// Our child; PID 1 of its own namespace.
    pub root: Pid,
    /// All processes, root first.
    pub pids: Vec<Pid>,
    pub foreign: Vec<ForeignOutput>,
    /// How long the call took.
    pub took: Duration,
}

impl Restored {
    pub fn resume(&self) -> nix::Result<()> {
        processes::resume(&self.pids)
    }

    /// Ends the tree, which has not run yet; `cgroups` are those it was restored into.
    pub(crate) fn end(&self, cgroups: &[PathBuf]) {
        clean_up(Some(self.root), cgroups);
    }
}

/// Whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    Worthwhile,
    /// The image is good, but the cause that the error names must be removed first.
    AfterRemedy,
    /// Not with this image on this machine.
    Pointless,
}

/// Why the tree was not restored. No process of it is left, and the images are unchanged.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("restore: {0}")]
    Preflight(#[from] PreflightError),
    #[error("restore: {0}")]
    Images(#[from] ImagesError),
    /// A cgroup that must be empty holds processes, perhaps zombies.
    #[error("restore: the cgroup {} holds processes {pids:?}", .path.display())]
    CgroupBusy { path: PathBuf, pids: Vec<i32> },
    #[error("restore: the cgroup {} is frozen", .path.display())]
    CgroupFrozen { path: PathBuf },
    #[error("restore: {}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Kerndat(#[from] KerndatError),
    /// A process has an id that the tree needs. Impossible if the tree has its own PID namespace.
    #[error("restore: a process id of the tree is taken: {}", .log.join("; "))]
    PidTaken { log: Vec<String> },
    #[error("restore: criu: {}", .log.join("; "))]
    Refused { log: Vec<String> },
    #[error("restore: {0}")]
    Swrk(#[from] SwrkError),
    /// CRIU restored the tree, but its deferred pages could not be filled in.
    #[error("restore: {0}")]
    Pages(#[from] FillError),
    /// The tree would have, or has, what its user may not have.
    #[error("restore: {0}")]
    NotTheUsers(#[from] NotTheUsers),
    /// Processes have not stopped although CRIU reports success.
    #[error("restore: {0}")]
    NotStopped(#[from] StillThere),
    #[error("restore: not done after {} ms", .limit.as_millis())]
    TimedOut { limit: Duration },
}

impl RestoreError {
    pub fn retry(&self) -> Retry {
        match self {
            RestoreError::TimedOut { .. } | RestoreError::Swrk(_) | RestoreError::Kerndat(_) => {
                Retry::Worthwhile
            }
            RestoreError::Images(_)
            | RestoreError::Refused { .. }
            | RestoreError::Pages(_)
            | RestoreError::NotTheUsers(_) => Retry::Pointless,
            _ => Retry::AfterRemedy,
        }
    }
}

impl Criu {
    /// Restores a tree. Blocks; any number of threads may restore different trees at a time.
    pub fn restore(&self, request: &RestoreRequest) -> Result<Restored, RestoreError> {
        let begun = Instant::now();
        let deadline = begun + request.timeout;
        let _span = tracing::info_span!("restore", images = %request.images_dir.display()).entered();
        request.cgroups.iter().try_for_each(|cgroup| check_cgroup(cgroup))?;
        let foreign = check_files(request)?;
        self.prepare()?;
        let kept = request.arena.as_ref().zip(request.pages.as_ref());
        let in_memory = kept.and_then(|(arena, pages)| arena.find(&pages.dir));
        let pages = match (&in_memory, &request.pages) {
            (Some(memory), _) => Some(PageSource::Memory(memory)),
            (None, pages) => pages.as_ref().map(SealedPages::open).transpose()?,
        };
        assert!(request.leave_stopped || pages.is_none(), "a tree runs only when it has all of its pages");
        let mut seen_root = None;
        let root = self.run_restore(request, deadline, &mut seen_root).inspect_err(|error| {
            tracing::warn!(%error, "restore failed");
            clean_up(seen_root, &request.cgroups);
        })?;
        let pids = processes::tree(root);
        if request.leave_stopped {
            // CRIU detaches from the processes before its stop signal arrives: a SIGCONT sent earlier would
            // be lost.
            processes::wait_stopped(&pids, GRACE).inspect_err(|_| clean_up(Some(root), &request.cgroups))?;
        }
        if let Some(pages) = pages {
            let filled = pages.fill(&pids, deadline).map_err(|error| match error {
                FillError::TimedOut => RestoreError::TimedOut { limit: request.timeout },
                error => error.into(),
            });
            filled.inspect_err(|_| clean_up(Some(root), &request.cgroups))?;
        }
        if let Some(user) = &request.user {
            let segment = request.segment.as_ref().map(|segment| (segment.device, segment.inode));
            let checked = user.check_tree(&pids, segment);
            checked.inspect_err(|_| clean_up(Some(root), &request.cgroups))?;
        }
        Ok(Restored { root, pids, foreign, took: begun.elapsed() })
    }

    fn run_restore(
        &self,
        request: &RestoreRequest,
        deadline: Instant,
        seen_root: &mut Option<Pid>,
    ) -> Result<Pid, RestoreError> {
        let io = |source| RestoreError::Io { path: request.work_dir.clone(), source };
        let work = options::open_dir(&request.work_dir).map_err(io)?;
        let message = CriuReq {
            r#type: CriuReqType::Restore as i32,
            opts: Some(CriuOpts {
                rst_sibling: Some(true),
                leave_stopped: Some(request.leave_stopped),
                notify_scripts: Some(true),
                ..options::common(&request.images_dir, &work, LOG, request.user.is_some())
            }),
            ..CriuReq::default()
        };
        let mut worker = Swrk::start(self.program())?;
        request.cgroups.iter().try_for_each(|cgroup| enter(worker.pid(), cgroup))?;
        // If the restore fails after this, the clean-up needs the root, which is our child to reap.
        let mut note_root = |notification: &Notification| {
            *seen_root = notification.pid.map(Pid::from_raw).or(*seen_root);
            true
        };
        match worker.call(&message, deadline, &mut note_root) {
            Ok(response) => {
                worker.end(GRACE);
                outcome(request, response)
            }
            Err(SwrkError::TimedOut) => {
                worker.terminate(TERMINATE_GRACE);
                Err(RestoreError::TimedOut { limit: request.timeout })
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Checks, before anything is started, all files that could make CRIU fail half-way or succeed wrongly.
fn check_files(request: &RestoreRequest) -> Result<Vec<ForeignOutput>, RestoreError> {
    if let Some(segment) = &request.segment {
        preflight::check_segment(segment)?;
    }
    let mut files = images::regular_files(&request.images_dir)?;
    let is_output = |path: &str| request.outputs.iter().any(|output| output.path == Path::new(path));
    files.iter_mut().filter(|file| is_output(&file.path)).for_each(|file| file.bytes = None);
    preflight::check_regular_files(&files)?;
    if let Some(user) = &request.user {
        user.check_images(&request.images_dir)?;
    }
    Ok(preflight::set_aside_foreign_output(&request.outputs, request.user.as_ref())?)
}

fn check_cgroup(cgroup: &Path) -> Result<(), RestoreError> {
    let path = cgroup.to_owned();
    match processes::in_cgroup(cgroup) {
        Err(source) => return Err(RestoreError::Io { path, source }),
        Ok(pids) if !pids.is_empty() => {
            return Err(RestoreError::CgroupBusy { path, pids: pids.into_iter().map(Pid::as_raw).collect() });
        }
        Ok(_) => {}
    }
    let frozen = fs::read_to_string(cgroup.join("cgroup.freeze")).unwrap_or_default();
    if frozen.trim() == "1" { Err(RestoreError::CgroupFrozen { path }) } else { Ok(()) }
}

fn enter(pid: Pid, cgroup: &Path) -> Result<(), RestoreError> {
    let path = cgroup.join("cgroup.procs");
    fs::write(&path, pid.to_string()).map_err(|source| RestoreError::Io { path, source })
}

fn outcome(request: &RestoreRequest, response: CriuResp) -> Result<Pid, RestoreError> {
    if let (true, Some(restore)) = (response.success, &response.restore) {
        return Ok(Pid::from_raw(restore.pid));
    }
    let log = options::errors(&request.work_dir.join(LOG), response);
    // From clone3 with a chosen id, or from the check after the older way of choosing one.
    let is_taken = |line: &String| line.contains("Can't fork") && line.contains("File exists");
    Err(if log.iter().any(is_taken) { RestoreError::PidTaken { log } } else { RestoreError::Refused { log } })
}

/// Ends and reaps the processes of a failed restore. The cgroups were empty, so all processes in them are of
/// it.
fn clean_up(root: Option<Pid>, cgroups: &[PathBuf]) {
    let deadline = Instant::now() + GRACE;
    let mut found: BTreeSet<Pid> = root.into_iter().collect();
    loop {
        found.extend(cgroups.iter().flat_map(|cgroup| processes::in_cgroup(cgroup).unwrap_or_default()));
        // Finds a root that was killed before CRIU reported it.
        found.extend(cgroups.iter().flat_map(|cgroup| processes::children_in(cgroup)));
        let live: Vec<Pid> = found.iter().copied().filter(|pid| processes::state(*pid).is_live()).collect();
        for pid in &live {
            kill(*pid, Signal::SIGKILL).ok();
        }
        found.retain(|pid| !is_reaped(*pid));
        if found.is_empty() {
            return;
        }
        if Instant::now() >= deadline {
            tracing::error!(?found, "processes of a failed restore could not be ended");
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Reaps that process if it has ended. A process that is not our child counts as reaped when it is dead.
fn is_reaped(pid: Pid) -> bool {
    match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) => true,
        Ok(_) => false,
        Err(_) => !processes::state(pid).is_live(),
    }
}
