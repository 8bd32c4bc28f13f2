//! One `criu swrk` process: one request, one response, notifications in between, and an end in bounded time.
//!
//! ```text
//! start ── call ──┬─ response ───────────── end          Ended::Itself
//!                 └─ time-out ── abort ──┬─ rolls back   Ended::Itself
//!                            terminate ──┼─ SIGTERM      Ended::Terminated
//!                                        └─ SIGKILL      Ended::Killed
//! ```
//! The worker's end of the SEQPACKET pair is its standard input, so it needs no descriptor passed by number.

use crate::forker;
use crate::limits;
use crate::rpc::{CriuReq, CriuReqType, CriuResp};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use nix::unistd::Pid;
use prost::Message;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Larger than any response: the longest part is one line of log.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;
const POLL_INTERVAL: Duration = Duration::from_micros(500);

/// Why a conversation with a worker failed. Whether the *request* succeeded is in the response.
#[derive(Debug, thiserror::Error)]
pub enum SwrkError {
    /// The program could not be started.
    #[error("start {program}: {source}")]
    Start {
        /// What was to be started.
        program: String,
        /// Why it was not.
        source: io::Error,
    },
    /// The socket failed.
    #[error("talk to criu: {0}")]
    Socket(#[from] nix::Error),
    /// The worker ended, or closed its socket, without a response.
    #[error("criu ended without a response{}", said(.stderr))]
    Closed {
        /// What it wrote to its standard error.
        stderr: String,
    },
    /// No response came in time.
    #[error("criu gave no response in time")]
    TimedOut,
    /// The bytes received are no response.
    #[error("criu's response cannot be read: {0}")]
    Malformed(#[from] prost::DecodeError),
    /// A response to something else.
    #[error("criu answered {got} to a request of type {wanted}")]
    Mismatch {
        /// Type of the request.
        wanted: i32,
        /// Type of the response.
        got: i32,
    },
}

fn said(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!(": {stderr}") }
}

/// A phase that CRIU has reached; asked for by `notify_scripts`.
#[derive(Debug)]
pub struct Notification {
    /// Its name, such as `post-dump`.
    pub script: String,
    /// The restored root, where CRIU tells it.
    pub pid: Option<i32>,
}

/// How a worker came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself: whatever it had in hand is done or rolled back.
    Itself,
    /// By SIGTERM: a dump it had in hand may have ruined the processes.
    Terminated,
    /// By SIGKILL: likewise.
    Killed,
}

/// A running worker. Dropped without [`Swrk::end`] or [`Swrk::abort`] it is killed and reaped.
pub struct Swrk {
    child: Child,
    socket: OwnedFd,
    stderr: File,
    reaped: bool,
}

impl Swrk {
    /// Starts a worker; it waits for a request, so there is time to move it into control groups.
    pub fn start(program: &Path) -> Result<Swrk, SwrkError> {
        Swrk::start_as(program, None, false)
    }

    /// Starts one that will dump and dies with this process; `inherited` is open in it under the same number.
    pub fn start_to_dump(program: &Path, inherited: Option<BorrowedFd<'_>>) -> Result<Swrk, SwrkError> {
        Swrk::start_as(program, inherited, true)
    }

    fn start_as(program: &Path, inherited: Option<BorrowedFd<'_>>, mortal: bool) -> Result<Swrk, SwrkError> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        let failed = |source| SwrkError::Start { program: program.display().to_string(), source };
        let stderr = nameless_file().map_err(failed)?;
        let mut command = Command::new(program);
        command.args(["swrk", "0"]).current_dir("/");
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null());
        command.stderr(stderr.try_clone().map_err(failed)?);
        limits::prepare(&mut command, inherited.map(|fd| fd.as_raw_fd()), mortal);
        let child = forker::spawn(command).map_err(failed)?;
        Ok(Swrk { child, socket: ours, stderr, reaped: false })
    }

    /// The worker's process id.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// Sends the request and waits for its response, answering notifications by `on_notify` (true: go on).
    pub fn call(
        &mut self,
        request: &CriuReq,
        deadline: Instant,
        on_notify: &mut dyn FnMut(&Notification) -> bool,
    ) -> Result<CriuResp, SwrkError> {
        self.send(request)?;
        loop {
            let response = self.receive(deadline)?;
            if response.r#type != CriuReqType::Notify as i32 {
                return check_type(request, response);
            }
            let notify = response.notify.unwrap_or_default();
            let notification = Notification { script: notify.script.unwrap_or_default(), pid: notify.pid };
            let go_on = on_notify(&notification);
            self.send(&CriuReq {
                r#type: CriuReqType::Notify as i32,
                notify_success: Some(go_on),
                ..CriuReq::default()
            })?;
        }
    }

    /// Waits for a worker that has responded to end; past `limit` it is made to.
    pub fn end(mut self, limit: Duration) -> Ended {
        self.wait_or_insist(limit)
    }

    /// Makes a worker that did not respond give up, gently first; each stage has `grace`. For a dump: its next
    /// write fails, and it rolls back. One that had nothing left to write has done its work: its late response says so.
    pub fn abort(mut self, grace: Duration) -> (Ended, Option<CriuResp>) {
        limits::forbid_writes(self.pid()).ok();
        let ended = self.wait_or_insist(grace);
        (ended, self.receive(Instant::now()).ok())
    }

    /// Ends a worker that has nothing to roll back, such as one that restores.
    pub fn terminate(mut self, grace: Duration) -> Ended {
        self.insist(grace)
    }

    fn wait_or_insist(&mut self, grace: Duration) -> Ended {
        if self.ended_within(grace) { Ended::Itself } else { self.insist(grace) }
    }

    fn insist(&mut self, grace: Duration) -> Ended {
        kill(self.pid(), Signal::SIGTERM).ok();
        if self.ended_within(grace) {
            return Ended::Terminated;
        }
        self.kill();
        Ended::Killed
    }

    fn send(&self, request: &CriuReq) -> Result<(), SwrkError> {
        let socket = &self.socket;
        match send(socket.as_raw_fd(), &request.encode_to_vec(), MsgFlags::MSG_NOSIGNAL) {
            Ok(_) => Ok(()),
            Err(nix::Error::EPIPE | nix::Error::ECONNRESET) => Err(self.closed()),
            Err(error) => Err(error.into()),
        }
    }

    fn receive(&self, deadline: Instant) -> Result<CriuResp, SwrkError> {
        let socket = &self.socket;
        if !readable_by(socket, deadline)? {
            return Err(SwrkError::TimedOut);
        }
        let mut buffer = vec![0; RESPONSE_BYTES_MAX];
        match recv(socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(0) | Err(nix::Error::ECONNRESET) => Err(self.closed()),
            Ok(length) => Ok(CriuResp::decode(&buffer[..length])?),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for the process, not for the end of file: what it was restoring may hold the socket after it.
    fn ended_within(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            // One reaped by somebody else is as good as reaped.
            if !matches!(self.child.try_wait(), Ok(None)) {
                self.reaped = true;
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn closed(&self) -> SwrkError {
        let mut text = Vec::new();
        if let Ok(mut stderr) = self.stderr.try_clone() {
            stderr.rewind().and_then(|()| stderr.read_to_end(&mut text)).ok();
        }
        SwrkError::Closed { stderr: String::from_utf8_lossy(&text).trim().to_owned() }
    }

    fn kill(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        self.reaped = true;
    }
}

impl Drop for Swrk {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
        }
    }
}

fn check_type(request: &CriuReq, response: CriuResp) -> Result<CriuResp, SwrkError> {
    // A request that CRIU refuses outright is answered by an EMPTY that failed.
    let refused = response.r#type == CriuReqType::Empty as i32 && !response.success;
    if response.r#type == request.r#type || refused {
        return Ok(response);
    }
    Err(SwrkError::Mismatch { wanted: request.r#type, got: response.r#type })
}

fn readable_by(socket: &OwnedFd, deadline: Instant) -> Result<bool, nix::Error> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // Rounded up, so that a wait never becomes a spin in its last millisecond.
        let timeout = PollTimeout::try_from(left + Duration::from_micros(999)).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, timeout) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) | Err(nix::Error::EINTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error),
        }
    }
}

fn nameless_file() -> io::Result<File> {
    let name = c"criu-stderr";
    Ok(File::from(nix::sys::memfd::memfd_create(name, nix::sys::memfd::MFdFlags::MFD_CLOEXEC)?))
}
