//! The starter of PID 1: joins the cgroups, clones itself into a new PID namespace, reports to the daemon and
//! exits.
//!
//! `CLONE_PARENT` makes PID 1 a child of the daemon, which can therefore reap it, and whose death makes the
//! kernel kill it. PID 1 cannot find out whether the daemon was still alive when it requested the latter:
//! inside the namespace its parent is always process 0. So this process checks it, after the request and
//! before PID 1 may continue:
//!
//! ```text
//!   daemon            starter                              PID 1
//!     │ ── spec ──────> │ ──────── clone, exec ────────────> │ PR_SET_PDEATHSIG
//!     │ <─ Born ─────── │ ── spec ─────────────────────────> │ opens segment and log
//!     │                 │ <───────────────────── Started ─── │     (or Refused: both exit)
//!     │                 │ daemon still my parent?            │
//!     │                 │ ── go ───────────────────────────> │     (end of stream: PID 1 exits)
//!     │ <─ Started ──── │ exits                              │ starts the ranks
//! ```

use std::{
    ffi::CString,
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    os::{
        fd::{AsRawFd, RawFd},
        unix::{ffi::OsStringExt, net::UnixStream, process::parent_id},
    },
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use coswitch_launcher::{LauncherSpec, Reply};
use thiserror::Error;

/// The argument of the program that makes it PID 1.
pub(crate) const PID1: &str = "pid1";
/// The message that allows PID 1 to continue.
pub(crate) const GO: &str = "go\n";
/// Time-out of either side of the conversation with PID 1 during the start.
pub(crate) const SETUP_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, Error)]
enum StarterError {
    #[error("read the launch specification: {0}")]
    Input(#[source] io::Error),
    #[error("parse the launch specification: {0}")]
    Spec(#[source] serde_json::Error),
    #[error("join the cgroup {path}: {source}")]
    Cgroup { path: PathBuf, source: io::Error },
    #[error("create a PID namespace: {0}")]
    Clone(#[source] io::Error),
    #[error("talk to PID 1: {0}")]
    Talk(#[source] io::Error),
    #[error("{0}")]
    Refused(String),
    #[error("continue: the daemon is gone")]
    Orphan,
}

pub(crate) fn run() -> ExitCode {
    let (reply, code) = match start_pid1() {
        Ok(()) => (Reply::Started, ExitCode::SUCCESS),
        Err(error) => (Reply::Refused { reason: error.to_string() }, ExitCode::FAILURE),
    };
    report(&reply);
    code
}

fn report(reply: &Reply) {
    let line = serde_json::to_string(reply).expect("a reply is plain data") + "\n";
    // An error means that the daemon no longer reads, so the reply is not needed.
    drop(io::stdout().write_all(line.as_bytes()));
}

fn start_pid1() -> Result<(), StarterError> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).map_err(StarterError::Input)?;
    let spec: LauncherSpec = serde_json::from_str(&text).map_err(StarterError::Spec)?;
    for path in &spec.cgroup_procs {
        fs::write(path, "0").map_err(|source| StarterError::Cgroup { path: path.clone(), source })?;
    }
    let program = std::env::current_exe().map_err(StarterError::Clone)?;
    let (mut ours, theirs) = UnixStream::pair().map_err(StarterError::Talk)?;
    // CRIU dumps no System V segment of its own namespace. UCX, a library that MPICH loads, attaches one
    // for a moment in `MPI_Init`.
    let network = if spec.user.is_some() { libc::CLONE_NEWNET } else { 0 };
    let pid = clone_and_exec(program, theirs.as_raw_fd(), libc::CLONE_NEWIPC | network)
        .map_err(StarterError::Clone)?;
    drop(theirs);
    report(&Reply::Born { pid });

    ours.set_read_timeout(Some(SETUP_TIMEOUT)).map_err(StarterError::Talk)?;
    let line = serde_json::to_string(&spec).expect("a spec is plain data") + "\n";
    ours.write_all(line.as_bytes()).map_err(StarterError::Talk)?;
    let mut answer = String::new();
    BufReader::new(&ours).read_line(&mut answer).map_err(StarterError::Talk)?;
    match serde_json::from_str(&answer) {
        Ok(Reply::Started) => {}
        Ok(Reply::Refused { reason }) => return Err(StarterError::Refused(reason)),
        _ => return Err(StarterError::Refused("PID 1 exited during its setup".into())),
    }
    if parent_id() != spec.daemon_pid {
        return Err(StarterError::Orphan);
    }
    ours.write_all(GO.as_bytes()).map_err(StarterError::Talk)
}

/// Clones a child that executes `program` with `stdin` as its standard input. The child is PID 1 of a new PID
/// namespace, and of others by their flags, and a child of this process's parent.
fn clone_and_exec(program: PathBuf, stdin: RawFd, others: libc::c_int) -> io::Result<i32> {
    let program = CString::new(program.into_os_string().into_vec())?;
    let argument = CString::new(PID1).expect("the argument contains no zero byte");
    let arguments = [program.as_ptr(), argument.as_ptr(), std::ptr::null()];
    let flags = libc::CLONE_NEWPID | others | libc::CLONE_PARENT | libc::SIGCHLD;
    // SAFETY: without a stack and without CLONE_VM the call behaves like fork. This process has one thread,
    // so the child's copy of memory is consistent. The child makes only system calls, on values made before,
    // and never returns.
    unsafe {
        match libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                libc::dup2(stdin, 0);
                libc::execv(program.as_ptr(), arguments.as_ptr());
                libc::_exit(127)
            }
            pid => Ok(i32::try_from(pid).expect("a process id fits an i32")),
        }
    }
}
