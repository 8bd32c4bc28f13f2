//! Bringing a dumped tree back, stopped, in the cgroups it shall live in.
//!
//! ```text
//! files as recorded? ──▶ worker placed in the cgroups ──▶ CRIU restores ──▶ stopped ── resume ──▶ running
//!        │                                                     └─ fails ──▶ swept: nothing of it is left
//!        └─ refused: nothing was started
//! ```
//! The worker waits for its request, so it is moved into the cgroups first and all it restores is born there. The
//! restored root becomes a child of the forking thread, that is, of this process, which reaps it in the end.

use crate::images::{self, ImagesError};
use crate::kerndat::KerndatError;
use crate::pages::{FillError, Source};
use crate::preflight::{self, ForeignOutput, OutputFile, PreflightError, SegmentFile};
use crate::processes::{self, StillThere};
use crate::{Arena, Criu, options};
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

/// How long a worker may take to end, and a failed tree to be swept.
const GRACE: Duration = Duration::from_secs(10);
/// A worker that restores blocks SIGTERM for most of the time, and killing it harms nothing that is not swept anyway.
const TERMINATE_GRACE: Duration = Duration::from_millis(200);
const LOG: &str = "restore.log";

/// What to restore, and where to.
#[derive(Clone, Debug)]
pub struct RestoreRequest {
    /// The images.
    pub images_dir: PathBuf,
    /// Where CRIU's log and statistics go.
    pub work_dir: PathBuf,
    /// Groups the tree shall be in, one per hierarchy: empty of processes, and not frozen. After a restore that fails,
    /// no child of ours is left in them, not even a dead one.
    pub cgroups: Vec<PathBuf>,
    /// The segment file as the daemon maps it, with its contents already in place.
    pub segment: Option<SegmentFile>,
    /// Output files, to be cut back to where the tree left them.
    pub outputs: Vec<OutputFile>,
    /// May still have the pages; see [`crate::DumpRequest::arena`].
    pub arena: Option<Arena>,
    /// Leave the tree stopped, to be started together with the rest of its gang. Where its pages went to an arena,
    /// there is no other way.
    pub leave_stopped: bool,
    /// For all of it.
    pub timeout: Duration,
}

/// A tree that is back.
#[derive(Clone, Debug)]
pub struct Restored {
    /// Its root, our child; PID 1 of its own namespace.
    pub root: Pid,
    /// All of its processes, root first.
    pub pids: Vec<Pid>,
    /// What had been appended to its output files meanwhile.
    pub foreign: Vec<ForeignOutput>,
    /// How long the call took.
    pub took: Duration,
}

impl Restored {
    /// Lets the tree go on.
    pub fn resume(&self) -> nix::Result<()> {
        processes::resume(&self.pids)
    }
}

/// Whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Just so.
    Worthwhile,
    /// Once what the error names has been put right; the image is good.
    AfterRemedy,
    /// Not with this image here.
    Pointless,
}

/// Why the tree is not back. Nothing of it is left running in any of these cases, and the images are as they were.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// A file is not as it was.
    #[error("restore: {0}")]
    Preflight(#[from] PreflightError),
    /// The images cannot be read.
    #[error("restore: {0}")]
    Images(#[from] ImagesError),
    /// Processes, perhaps zombies that nobody has reaped, are in a cgroup that must be empty.
    #[error("restore: the cgroup {} holds processes {pids:?}", .path.display())]
    CgroupBusy {
        /// The group.
        path: PathBuf,
        /// What is in it.
        pids: Vec<i32>,
    },
    /// Nothing can be restored in a frozen cgroup.
    #[error("restore: the cgroup {} is frozen", .path.display())]
    CgroupFrozen {
        /// The group.
        path: PathBuf,
    },
    /// A file could not be used.
    #[error("restore: {}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// The cache of kernel probes could not be made.
    #[error(transparent)]
    Kerndat(#[from] KerndatError),
    /// A process has an id that the tree needs. Cannot be where the tree has its own PID namespace.
    #[error("restore: a process id of the tree is taken: {}", .log.join("; "))]
    PidTaken {
        /// What CRIU's log says.
        log: Vec<String>,
    },
    /// CRIU could not restore the tree.
    #[error("restore: criu: {}", .log.join("; "))]
    Refused {
        /// What its log says.
        log: Vec<String>,
    },
    /// CRIU could not be talked to.
    #[error("restore: {0}")]
    Swrk(#[from] SwrkError),
    /// The tree was there, without all of its pages.
    #[error("restore: {0}")]
    Pages(#[from] FillError),
    /// CRIU has reported success, and yet processes have not stopped.
    #[error("restore: {0}")]
    NotStopped(#[from] StillThere),
    /// It took too long, and was given up.
    #[error("restore: not done after {} ms", .limit.as_millis())]
    TimedOut {
        /// The limit.
        limit: Duration,
    },
}

impl RestoreError {
    /// Whether trying again can help.
    pub fn retry(&self) -> Retry {
        match self {
            RestoreError::TimedOut { .. } | RestoreError::Swrk(_) | RestoreError::Kerndat(_) => {
                Retry::Worthwhile
            }
            RestoreError::Images(_) | RestoreError::Refused { .. } | RestoreError::Pages(_) => {
                Retry::Pointless
            }
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
        let in_memory = request.arena.as_ref().and_then(|arena| arena.find(&request.images_dir));
        let pages = match &in_memory {
            Some(memory) => Some(Source::Memory(memory)),
            None => Source::among(&request.images_dir)?,
        };
        assert!(request.leave_stopped || pages.is_none(), "a tree runs only when it has all of its pages");
        let mut seen_root = None;
        let root = self.bring_back(request, deadline, &mut seen_root).inspect_err(|error| {
            tracing::warn!(%error, "restore failed");
            sweep(seen_root, &request.cgroups);
        })?;
        let pids = processes::tree(root);
        if request.leave_stopped {
            // CRIU lets go of them with a stop signal on its way: a SIGCONT that overtook it would be lost.
            processes::wait_stopped(&pids, GRACE).inspect_err(|_| sweep(Some(root), &request.cgroups))?;
        }
        if let Some(pages) = pages {
            let filled = pages.fill(&pids, deadline).map_err(|error| match error {
                FillError::TimedOut => RestoreError::TimedOut { limit: request.timeout },
                error => error.into(),
            });
            filled.inspect_err(|_| sweep(Some(root), &request.cgroups))?;
        }
        Ok(Restored { root, pids, foreign, took: begun.elapsed() })
    }

    fn bring_back(
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
                ..options::common(&request.images_dir, &work, LOG)
            }),
            ..CriuReq::default()
        };
        let mut worker = Swrk::start(self.program())?;
        request.cgroups.iter().try_for_each(|cgroup| enter(worker.pid(), cgroup))?;
        // A restore that fails after this is known by its root, which is our child to reap.
        let mut note_root = |notification: &Notification| {
            *seen_root = notification.pid.map(Pid::from_raw).or(*seen_root);
            true
        };
        match worker.call(&message, deadline, &mut note_root) {
            Ok(response) => {
                worker.end(GRACE);
                judge(request, response)
            }
            Err(SwrkError::TimedOut) => {
                worker.terminate(TERMINATE_GRACE);
                Err(RestoreError::TimedOut { limit: request.timeout })
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Restored {
    /// Ends the tree, which has not run yet; `cgroups` are those it was restored into.
    pub(crate) fn end(&self, cgroups: &[PathBuf]) {
        sweep(Some(self.root), cgroups);
    }
}

/// All that could make CRIU fail half-way, or succeed wrongly, while nothing has been started.
fn check_files(request: &RestoreRequest) -> Result<Vec<ForeignOutput>, RestoreError> {
    if let Some(segment) = &request.segment {
        preflight::check_segment(segment)?;
    }
    let mut files = images::regular_files(&request.images_dir)?;
    let is_output = |path: &str| request.outputs.iter().any(|output| output.path == Path::new(path));
    files.retain(|file| !is_output(&file.path));
    preflight::check_regular_files(&files)?;
    Ok(preflight::set_aside_foreign_output(&request.outputs)?)
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

fn judge(request: &RestoreRequest, response: CriuResp) -> Result<Pid, RestoreError> {
    if let (true, Some(restore)) = (response.success, response.restore) {
        return Ok(Pid::from_raw(restore.pid));
    }
    let mut log = options::errors_in_log(&request.work_dir.join(LOG));
    if log.is_empty() {
        log.push(response.cr_errmsg.unwrap_or_default().trim().to_owned());
    }
    // clone3 with a chosen id, or the check that follows the older way of choosing one.
    let is_taken = |line: &String| line.contains("Can't fork") && line.contains("File exists");
    Err(if log.iter().any(is_taken) { RestoreError::PidTaken { log } } else { RestoreError::Refused { log } })
}

/// Ends whatever a failed restore has left: the cgroups were empty, so all in them is of it.
fn sweep(root: Option<Pid>, cgroups: &[PathBuf]) {
    let deadline = Instant::now() + GRACE;
    let mut found: BTreeSet<Pid> = root.into_iter().collect();
    loop {
        found.extend(cgroups.iter().flat_map(|cgroup| processes::in_cgroup(cgroup).unwrap_or_default()));
        // A root that was killed before CRIU told of it.
        found.extend(cgroups.iter().flat_map(|cgroup| processes::children_in(cgroup)));
        let live: Vec<Pid> =
            found.iter().copied().filter(|pid| processes::standing(*pid).is_live()).collect();
        for pid in &live {
            kill(*pid, Signal::SIGKILL).ok();
        }
        found.retain(|pid| !is_reaped(*pid));
        if found.is_empty() {
            return;
        }
        if Instant::now() >= deadline {
            tracing::error!(?found, "a failed restore could not be swept");
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Reaps that one process; one that is no child of ours (any more) is reaped by others, once it is dead.
fn is_reaped(pid: Pid) -> bool {
    match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) => true,
        Ok(_) => false,
        Err(_) => !processes::standing(pid).is_live(),
    }
}
