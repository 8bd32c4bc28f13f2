//! Starting a launcher, from the daemon's side.
//!
//! PID 1 asks the kernel to be killed when its parent dies, and to the kernel the parent is the *thread* that forked.
//! So [`start`] must be called on a thread that lives as long as the daemon does.

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

use crate::{LaunchSpec, Reply};

/// Why an application's part could not be started here. Nothing of it is left.
#[derive(Debug, Error)]
pub enum StartError {
    /// The launcher itself could not be run.
    #[error("run {program}: {source}")]
    Run {
        /// The program.
        program: String,
        /// The reason.
        source: io::Error,
    },
    /// The launcher says why not.
    #[error("start the launcher: {0}")]
    Refused(String),
    /// It said nothing, or nothing that makes sense.
    #[error("start the launcher: {0}")]
    Silent(&'static str),
}

/// Starts `program`, the launcher, and returns the process id of PID 1: a child of this process that the caller has
/// to reap. The ranks are reported by [`crate::protocol::LauncherEvent::Ready`] later.
///
/// # Errors
/// Where it does not start within `timeout`. Whatever had been started is then gone and reaped.
pub fn start(program: &Path, spec: &LaunchSpec, timeout: Duration) -> Result<i32, StartError> {
    let failed = |source| StartError::Run { program: program.display().to_string(), source };
    let mut command = Command::new(program);
    let mut birth =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(failed)?;
    let mut born = None;
    let result = converse(&mut birth, spec, Instant::now() + timeout, &mut born);
    if result.is_err() {
        // An error means that it has exited already.
        drop(birth.kill());
    }
    birth.wait().map_err(failed)?;
    match (result, born) {
        (Ok(()), Some(pid)) => Ok(pid.as_raw()),
        (result, born) => {
            born.into_iter().for_each(end);
            Err(result.err().unwrap_or(StartError::Silent("it started nothing")))
        }
    }
}

fn end(pid: Pid) {
    // It is our child and not yet reaped, so the id is still its own.
    let _ = kill(pid, Signal::SIGKILL);
    while waitpid(pid, None) == Err(Errno::EINTR) {}
}

fn converse(
    birth: &mut Child,
    spec: &LaunchSpec,
    deadline: Instant,
    born: &mut Option<Pid>,
) -> Result<(), StartError> {
    let spec = serde_json::to_vec(spec).expect("a spec is plain data");
    let mut input = birth.stdin.take().expect("piped");
    // A launcher that stops reading has said why, or has died: its output tells.
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
                Err(_) => return Err(StartError::Silent("its answer is not understood")),
            }
        }
        let mut part = [0; 512];
        match readable(&output, deadline).and_then(|()| output.read(&mut part)) {
            Ok(0) => return Err(StartError::Silent("it died without a word")),
            Ok(length) => text.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(StartError::Silent("it did not answer in time")),
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
