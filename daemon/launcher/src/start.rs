//! Starts a launcher, on the daemon's side.
//!
//! PID 1 asks the kernel to kill it when its parent dies, and for the kernel the parent is the *thread* that
//! forked. So [`start`] must be called on a thread that lives as long as the daemon.

use std::{
    io::{self, Read, Write},
    os::fd::AsFd,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{Signal, kill},
        wait::waitpid,
    },
    unistd::Pid,
};
use thiserror::Error;

use crate::{LauncherSpec, Reply};

/// Reason why a launcher was not started. No process of it is left.
#[derive(Debug, Error)]
pub enum StartError {
    #[error("run {program}: {source}")]
    Run { program: String, source: io::Error },
    /// The launcher reports this reason.
    #[error("start the launcher: {0}")]
    Refused(String),
    /// The launcher gave no answer, or an invalid one.
    #[error("start the launcher: {0}")]
    NoAnswer(&'static str),
}

/// Starts `program`, the launcher, and returns the process id of PID 1, a child of this process that the
/// caller must reap. [`crate::protocol::LauncherEvent::Ready`] reports later that the ranks were started.
///
/// # Errors
/// If it does not start within `timeout`. All of its processes are then ended and reaped.
pub fn start(program: &Path, spec: &LauncherSpec, timeout: Duration) -> Result<i32, StartError> {
    let failed = |source| StartError::Run { program: program.display().to_string(), source };
    let mut command = Command::new(program);
    let mut birth =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(failed)?;
    let mut born = None;
    let result = converse(&mut birth, spec, Instant::now() + timeout, &mut born);
    if result.is_err() {
        // An error means that it has already exited.
        drop(birth.kill());
    }
    birth.wait().map_err(failed)?;
    match (result, born) {
        (Ok(()), Some(pid)) => Ok(pid.as_raw()),
        (result, born) => {
            born.into_iter().for_each(end);
            Err(result.err().unwrap_or(StartError::NoAnswer("it started no process")))
        }
    }
}

fn end(pid: Pid) {
    // It is a child that has not been reaped, so the id still belongs to it.
    let _ = kill(pid, Signal::SIGKILL);
    while waitpid(pid, None) == Err(Errno::EINTR) {}
}

fn converse(
    birth: &mut Child,
    spec: &LauncherSpec,
    deadline: Instant,
    born: &mut Option<Pid>,
) -> Result<(), StartError> {
    let spec = serde_json::to_vec(spec).expect("a spec is plain data");
    let mut input = birth.stdin.take().expect("piped");
    // A launcher that stops reading has reported a reason or has died: its output shows which.
    drop(input.write_all(&spec));
    drop(input);
    let mut output = birth.stdout.take().expect("piped");
    let mut text = Vec::new();
    loop {
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            match serde_json::from_slice(&line) {
                Ok(Reply::Born { pid }) => *born = Some(Pid::from_raw(pid)),
                Ok(Reply::Started) => return Ok(()),
                Ok(Reply::Refused { reason }) => return Err(StartError::Refused(reason)),
                Err(_) => return Err(StartError::NoAnswer("its answer is invalid")),
            }
        }
        let mut part = [0; 512];
        match readable(&output, deadline).and_then(|()| output.read(&mut part)) {
            Ok(0) => return Err(StartError::NoAnswer("it exited without an answer")),
            Ok(length) => text.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(StartError::NoAnswer("it did not answer in time")),
        }
    }
}

fn readable(file: &impl AsFd, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
    match poll(&mut [PollFd::new(file.as_fd(), PollFlags::POLLIN)], left)? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}
