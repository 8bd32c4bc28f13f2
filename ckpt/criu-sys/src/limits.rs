//! Limits on a worker, which make it give up without being killed.
//!
//! CRIU has no request to abort a dump, and killing it leaves its code inside the dumped processes. But CRIU
//! rolls a dump back properly when a *write* fails. So a worker starts with SIGXFSZ and SIGPIPE ignored, and
//! to stop it its file size limit is set to zero from outside: its next write fails with EFBIG. If its pages
//! go to a socket, closing the socket has the same effect.
//!
//! A worker that dumps dies with its caller: the processes that it traces die with the caller too, and CRIU
//! would wait for them for ever. A worker that restores goes on: half-restored processes stay stopped only if
//! it does.

use nix::sys::prctl;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::Pid;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes `command` start with the signals of failed writes ignored and with `inherited` open; if
/// `dies_with_parent`, it dies with the thread that forks it.
pub(crate) fn prepare(command: &mut Command, inherited: Option<RawFd>, dies_with_parent: bool) {
    let before_exec = move || {
        for failed_write in [Signal::SIGXFSZ, Signal::SIGPIPE] {
            // SAFETY: ignoring a signal installs no handler; the call is async-signal-safe, as a forked child
            // needs.
            unsafe { signal(failed_write, SigHandler::SigIgn) }?;
        }
        if dies_with_parent {
            prctl::set_pdeathsig(Signal::SIGKILL)?;
        }
        if let Some(fd) = inherited {
            // SAFETY: changes one flag of a descriptor of the forked child, which the caller keeps open until
            // then.
            if unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the closure makes plain system calls, allocates nothing and takes no lock.
    unsafe { command.pre_exec(before_exec) };
}

/// Makes every further write of that process to a file fail.
pub(crate) fn forbid_writes(pid: Pid) -> io::Result<()> {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `none` is valid for reading during the call; a null pointer is allowed for the old limit.
    let result = unsafe { libc::prlimit(pid.as_raw(), libc::RLIMIT_FSIZE, &none, std::ptr::null_mut()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
