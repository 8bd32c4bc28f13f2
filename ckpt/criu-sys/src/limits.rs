//! How a worker is made to give up without being killed.
//!
//! CRIU has no request to abort a dump, and killing it leaves the dumped processes with its code inside them.
//! But a dump whose *write* fails rolls back in good order. So a worker starts with SIGXFSZ ignored, and when it
//! has to stop, its file size limit is set to zero from outside: its next write fails with EFBIG.

use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::Pid;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes `command` start with SIGXFSZ ignored.
pub(crate) fn ignore_size_signal(command: &mut Command) {
    let before_exec = || {
        // SAFETY: ignoring a signal installs no handler; the call is async-signal-safe, as a forked child needs.
        unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) }?;
        Ok(())
    };
    // SAFETY: the closure makes one system call, allocates nothing and takes no lock.
    unsafe { command.pre_exec(before_exec) };
}

/// From now on each write of that process to a file fails.
pub(crate) fn forbid_writes(pid: Pid) -> io::Result<()> {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `none` is valid for reading during the call; a null pointer is allowed for the old limit.
    let result = unsafe { libc::prlimit(pid.as_raw(), libc::RLIMIT_FSIZE, &none, std::ptr::null_mut()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
