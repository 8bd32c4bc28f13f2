//! Worker: a `criu swrk` process for one request, its notifications and its response, ended in bounded time.
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

/// Larger than any response, whose longest part is one line of log.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;
const POLL_INTERVAL: Duration = Duration::from_micros(500);

/// Why communication with a worker failed. Whether the *request* succeeded is in the response.
#[derive(Debug, thiserror::Error)]
pub enum SwrkError {
    #[error("start {program}: {source}")]
    Start { program: String, source: io::Error },
    #[error("talk to criu: {0}")]
    Socket(#[from] nix::Error),
    /// The worker ended, or closed its socket, without a response.
    #[error("criu ended without a response{}", after_colon(.stderr))]
    Closed { stderr: String },
    #[error("criu gave no response in time")]
    TimedOut,
    #[error("criu's response cannot be read: {0}")]
    Malformed(#[from] prost::DecodeError),
    /// The response has another type than the request.
    #[error("criu answered {got} to a request of type {wanted}")]
    Mismatch { wanted: i32, got: i32 },
}

fn after_colon(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!(": {stderr}") }
}

/// A phase that CRIU has reached; sent if the request sets `notify_scripts`.
#[derive(Debug)]
pub struct Notification {
    /// The phase, such as `post-dump`.
    pub script: String,
    /// The restored root, if CRIU reports it.
    pub pid: Option<i32>,
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself: its request is done or rolled back.
    Itself,
    /// By SIGTERM: the processes of an unfinished dump may be damaged.
    Terminated,
    /// By SIGKILL: the processes of an unfinished dump may be damaged.
    Killed,
}

/// A running worker. If it is dropped without [`Swrk::end`] or [`Swrk::abort`], it is killed and reaped.
pub struct Swrk {
    child: Child,
    socket: OwnedFd,
    stderr: File,
    reaped: bool,
}

impl Swrk {
    /// Starts a worker, which waits for a request and can be moved into control groups before.
    pub fn start(program: &Path) -> Result<Swrk, SwrkError> {
        Swrk::start_as(program, None, None, false)
    }

    /// Starts a worker that will dump and dies with this process; `inherited` is open in it under the same
    /// number, and `preload` is a library that is loaded before those of the program.
    pub fn start_to_dump(
        program: &Path,
        preload: Option<&Path>,
        inherited: Option<BorrowedFd<'_>>,
    ) -> Result<Swrk, SwrkError> {
        Swrk::start_as(program, preload, inherited, true)
    }

    fn start_as(
        program: &Path,
        preload: Option<&Path>,
        inherited: Option<BorrowedFd<'_>>,
        dies_with_parent: bool,
    ) -> Result<Swrk, SwrkError> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        let failed = |source| SwrkError::Start { program: program.display().to_string(), source };
        let stderr = nameless_file().map_err(failed)?;
        let mut command = Command::new(program);
        command.args(["swrk", "0"]).current_dir("/");
        preload.map(|library| command.env("LD_PRELOAD", library));
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null());
        command.stderr(stderr.try_clone().map_err(failed)?);
        limits::prepare(&mut command, inherited.map(|fd| fd.as_raw_fd()), dies_with_parent);
        let child = forker::spawn(command).map_err(failed)?;
        Ok(Swrk { child, socket: ours, stderr, reaped: false })
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// Sends the request and waits for its response. `on_notify` answers notifications; `true` means go on.
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

    /// Waits for a worker that has responded to end; past `limit` it is terminated.
    pub fn end(mut self, limit: Duration) -> Ended {
        self.wait_or_force(limit)
    }

    /// Makes a worker that did not respond give up: its writes fail, so that it rolls a dump back, then
    /// SIGTERM, then SIGKILL, with `grace` after each. A dump that had nothing left to write succeeds, as its
    /// late response says.
    pub fn abort(mut self, grace: Duration) -> (Ended, Option<CriuResp>) {
        limits::forbid_writes(self.pid()).ok();
        let ended = self.wait_or_force(grace);
        (ended, self.receive(Instant::now()).ok())
    }

    /// Ends a worker that has nothing to roll back, such as one that restores.
    pub fn terminate(mut self, grace: Duration) -> Ended {
        self.force(grace)
    }

    fn wait_or_force(&mut self, grace: Duration) -> Ended {
        if self.ended_within(grace) { Ended::Itself } else { self.force(grace) }
    }

    fn force(&mut self, grace: Duration) -> Ended {
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

    /// Waits for the process, not for the end of file: restored processes may hold the socket longer.
    fn ended_within(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            // An error means that it was reaped elsewhere.
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
    // CRIU answers a request that it refuses outright with a failed EMPTY.
    let refused = response.r#type == CriuReqType::Empty as i32 && !response.success;
    if response.r#type == request.r#type || refused {
        return Ok(response);
    }
    Err(SwrkError::Mismatch { wanted: request.r#type, got: response.r#type })
}

fn readable_by(socket: &OwnedFd, deadline: Instant) -> Result<bool, nix::Error> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // Rounded up, so that the last millisecond is waited and not spun.
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
