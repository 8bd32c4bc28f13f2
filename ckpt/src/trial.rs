//! Whether a process can run in the place of this CRIU (CVE-2026-18107). It is tried, because distributions
//! mend the fault without another version.
//!
//! ```text
//!   bait lies in wait ──dump, which lets it run on──▶ bait ends, and says whether it was executed instead
//! ```

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use criu_sys::{
    forker,
    rpc::{CriuOpts, CriuReq, CriuReqType},
};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use thiserror::Error;

use crate::{criu::Criu, options};

const LOG: &str = "dump.log";
const LIMIT: Duration = Duration::from_secs(60);
const END_LIMIT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(1);

/// What a trial has shown, or why there was none.
#[derive(Debug, Error)]
pub enum TrialError {
    #[error("a process can run in its place and forge its own credentials (CVE-2026-18107)")]
    Open,
    #[error("it was not tried whether a process can run in its place: {0}")]
    NotTried(String),
}

impl Criu {
    /// Tries this CRIU on a program that wants to run in its place. It lies in wait when it closes its
    /// standard output, and ends at SIGTERM: with `taken_over` where it succeeds, else with 0. Needs root.
    ///
    /// # Errors
    /// Where it succeeds, and where that cannot be found out.
    pub fn try_bait(&self, bait: Command, taken_over: i32) -> Result<(), TrialError> {
        let not_tried = |error: io::Error| TrialError::NotTried(error.to_string());
        let dir = Scratch::new().map_err(not_tried)?;
        let mut bait = Bait::lay(bait).map_err(not_tried)?;
        let dumped = self.dump_bait(&bait, &dir.path());
        match (bait.end().map_err(not_tried)?.code(), dumped) {
            (Some(code), _) if code == taken_over => Err(TrialError::Open),
            (Some(0), Ok(())) => Ok(()),
            (Some(0), Err(why)) => Err(TrialError::NotTried(why)),
            (code, _) => Err(TrialError::NotTried(format!("the process for it has ended with {code:?}"))),
        }
    }

    fn dump_bait(&self, bait: &Bait, dir: &Path) -> Result<(), String> {
        let work = File::open(dir).map_err(|error| error.to_string())?;
        let request = CriuReq {
            r#type: CriuReqType::Dump as i32,
            opts: Some(CriuOpts {
                pid: i32::try_from(bait.0.id()).ok(),
                leave_running: Some(true),
                ..options::common(dir, &work, LOG, false)
            }),
            ..CriuReq::default()
        };
        let mut worker = self.start_to_dump(None).map_err(|error| error.to_string())?;
        let answered = worker.call(&request, Instant::now() + LIMIT, &mut |_| true);
        worker.end(END_LIMIT);
        match answered {
            Ok(response) if response.success => Ok(()),
            Ok(response) => Err(options::errors(&dir.join(LOG), response).join("; ")),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Ends with its owner.
struct Bait(Child);

impl Bait {
    /// Returns when it lies in wait.
    fn lay(mut command: Command) -> io::Result<Self> {
        command.current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut bait = Self(forker::spawn(command)?);
        let said = bait.0.stdout.take().expect("piped");
        let limit = PollTimeout::try_from(END_LIMIT).expect("a few seconds");
        // The bait writes nothing: what comes is the end.
        match poll(&mut [PollFd::new(said.as_fd(), PollFlags::POLLIN)], limit)? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(bait),
        }
    }

    fn end(&mut self) -> io::Result<ExitStatus> {
        kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGTERM)?;
        let deadline = Instant::now() + END_LIMIT;
        loop {
            match self.0.try_wait()? {
                Some(status) => return Ok(status),
                None if Instant::now() >= deadline => return Err(io::ErrorKind::TimedOut.into()),
                None => thread::sleep(LOOK),
            }
        }
    }
}

impl Drop for Bait {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory in memory that is mounted nowhere, and goes with this process at the latest.
struct Scratch(OwnedFd);

impl Scratch {
    fn new() -> io::Result<Self> {
        let none = std::ptr::null::<libc::c_void>();
        // SAFETY: each call reads a string or nothing, and returns a descriptor or an error.
        unsafe {
            let context = owned(libc::syscall(libc::SYS_fsopen, c"tmpfs".as_ptr(), libc::FSOPEN_CLOEXEC))?;
            let create = libc::FSCONFIG_CMD_CREATE;
            match libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), create, none, none, 0) {
                0 => {}
                _ => return Err(io::Error::last_os_error()),
            }
            let flags = libc::FSMOUNT_CLOEXEC;
            owned(libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), flags, 0)).map(Self)
        }
    }

    /// As every process of root may name it.
    fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()).into()
    }
}

/// # Safety
/// The result of a call that has returned a new descriptor, or -1.
unsafe fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(result) {
        // SAFETY: as promised.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
