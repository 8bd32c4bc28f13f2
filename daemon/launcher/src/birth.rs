//! Giving birth to PID 1: joins the cgroups, clones into a new PID namespace, executes itself there, reports, exits.
//!
//! `CLONE_PARENT` makes PID 1 a child of the daemon, who can reap it and whose death the kernel tells it. Whether the
//! daemon was still alive when PID 1 asked for that cannot be seen from inside the namespace (its parent is
//! process 0 there in any case), so this process looks, after PID 1 has asked and before it may go on:
//!
//! ```text
//!   daemon            birth                                PID 1
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

use coswitch_launcher::{LaunchSpec, Reply};
use thiserror::Error;

/// The argument that says to be PID 1.
pub(crate) const PID1: &str = "pid1";
/// What the go-ahead looks like.
pub(crate) const GO: &str = "go\n";
/// Either side of the conversation at birth gives up after this.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Error)]
enum BirthError {
    #[error("read the launch specification: {0}")]
    Input(#[source] io::Error),
    #[error("understand the launch specification: {0}")]
    Spec(#[source] serde_json::Error),
    #[error("join the cgroup {path}: {source}")]
    Cgroup { path: PathBuf, source: io::Error },
    #[error("make a PID namespace: {0}")]
    Clone(#[source] io::Error),
    #[error("talk to PID 1: {0}")]
    Talk(#[source] io::Error),
    #[error("{0}")]
    Refused(String),
    #[error("go on: the daemon is gone")]
    Orphan,
}

/// The whole life of this process.
pub(crate) fn run() -> ExitCode {
    let (reply, code) = match bear() {
        Ok(()) => (Reply::Started, ExitCode::SUCCESS),
        Err(error) => (Reply::Refused { reason: error.to_string() }, ExitCode::FAILURE),
    };
    say(&reply);
    code
}

fn say(reply: &Reply) {
    let line = serde_json::to_string(reply).expect("a reply is plain data") + "\n";
    // A daemon that does not listen any more will not miss it.
    drop(io::stdout().write_all(line.as_bytes()));
}

fn bear() -> Result<(), BirthError> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).map_err(BirthError::Input)?;
    let spec: LaunchSpec = serde_json::from_str(&text).map_err(BirthError::Spec)?;
    for path in &spec.cgroup_procs {
        fs::write(path, "0").map_err(|source| BirthError::Cgroup { path: path.clone(), source })?;
    }
    let program = std::env::current_exe().map_err(BirthError::Clone)?;
    let (mut ours, theirs) = UnixStream::pair().map_err(BirthError::Talk)?;
    let pid = clone_and_exec(program, theirs.as_raw_fd()).map_err(BirthError::Clone)?;
    drop(theirs);
    say(&Reply::Born { pid });

    ours.set_read_timeout(Some(PATIENCE)).map_err(BirthError::Talk)?;
    let line = serde_json::to_string(&spec).expect("a spec is plain data") + "\n";
    ours.write_all(line.as_bytes()).map_err(BirthError::Talk)?;
    let mut answer = String::new();
    BufReader::new(&ours).read_line(&mut answer).map_err(BirthError::Talk)?;
    match serde_json::from_str(&answer) {
        Ok(Reply::Started) => {}
        Ok(Reply::Refused { reason }) => return Err(BirthError::Refused(reason)),
        _ => return Err(BirthError::Refused("PID 1 died at birth".into())),
    }
    if parent_id() != spec.daemon_pid {
        return Err(BirthError::Orphan);
    }
    ours.write_all(GO.as_bytes()).map_err(BirthError::Talk)
}

/// The child, PID 1 of a new PID namespace and child of our parent, executes `program` with `stdin` as standard input.
fn clone_and_exec(program: PathBuf, stdin: RawFd) -> io::Result<i32> {
    let program = CString::new(program.into_os_string().into_vec())?;
    let argument = CString::new(PID1).expect("no zero byte in it");
    let arguments = [program.as_ptr(), argument.as_ptr(), std::ptr::null()];
    let flags = libc::CLONE_NEWPID | libc::CLONE_PARENT | libc::SIGCHLD;
    // SAFETY: without a stack and without CLONE_VM the call behaves as fork. This process has one thread, so the child's
    // copy of memory is consistent; the child makes system calls only, on values made before, and never returns.
    unsafe {
        match libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                libc::dup2(stdin, 0);
                libc::execv(program.as_ptr(), arguments.as_ptr());
                libc::_exit(127)
            }
            pid => Ok(i32::try_from(pid).expect("a process id")),
        }
    }
}
