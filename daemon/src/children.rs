//! Child processes of the daemon, and launchers that were children of the daemon before.
//!
//! No code in the daemon waits for "any child": each owner waits for its own child by pidfd, so that no owner
//! takes another's exit status. [`coswitch_ckpt::forker`] forks them, on a thread that lives as long as the
//! process.

use std::{
    io, mem,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::wait::{Id, WaitPidFlag, WaitStatus, waitid},
    unistd::Pid,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::sleep,
};

use crate::process::Process;

/// For init to reap a process that has lost its parent.
const REAP_LIMIT: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(2);

pub struct Child {
    /// Valid until the child has been reaped.
    pub pid: i32,
    handle: AsyncFd<OwnedFd>,
    /// Init reaps the others.
    is_own: bool,
}

impl Child {
    /// Takes ownership of `pid`, a child of this process with no other owner.
    ///
    /// # Errors
    /// Where the child has been reaped already.
    pub fn adopt(pid: i32) -> io::Result<Self> {
        Self::with_handle(pid, open_pidfd(pid)?, true)
    }

    /// A process that another daemon has started, which is dead. `None` where it has ended.
    ///
    /// # Errors
    /// Where it cannot be waited for.
    pub fn left_by_another(process: Process) -> io::Result<Option<Self>> {
        let pid = process.pid.cast_signed();
        let handle = match open_pidfd(pid) {
            Ok(handle) => handle,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
            Err(error) => return Err(error),
        };
        // From here on the handle names one process, and not another with its id.
        if process.is_alive() { Self::with_handle(pid, handle, false).map(Some) } else { Ok(None) }
    }

    fn with_handle(pid: i32, fd: OwnedFd, is_own: bool) -> io::Result<Self> {
        // SAFETY: the registered value owns the descriptor and neither closes nor replaces it.
        let handle =
            unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(io::Error::from)?;
        Ok(Self { pid, handle, is_own })
    }

    /// Waits until the child has ended, and reaps it. The future may be dropped and the method called again.
    ///
    /// # Errors
    /// Where the child has been reaped already.
    pub async fn ended(&self) -> io::Result<WaitStatus> {
        if !self.is_own {
            return self.reaped_by_init().await;
        }
        loop {
            let mut ready = self.handle.readable().await?;
            match waitid(Id::Pid(Pid::from_raw(self.pid)), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG)? {
                WaitStatus::StillAlive => ready.clear_ready(),
                status => return Ok(status),
            }
        }
    }

    async fn reaped_by_init(&self) -> io::Result<WaitStatus> {
        self.handle.readable().await?.retain_ready();
        let deadline = Instant::now() + REAP_LIMIT;
        loop {
            if let Some(status) = exit_status(self.handle.get_ref())? {
                return Ok(WaitStatus::from_raw(Pid::from_raw(self.pid), status)?);
            }
            if Instant::now() > deadline {
                return Err(io::Error::other("init has not reaped it"));
            }
            sleep(LOOK_EVERY).await;
        }
    }

    pub fn kill(&self) {
        // SAFETY: a system call on a descriptor that this value owns; a process that has ended gives ESRCH.
        unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.handle.get_ref().as_raw_fd(),
                libc::SIGKILL,
                0,
                0,
            );
        }
    }
}

/// The status of a process that has ended and was reaped, as `wait` gives it. Linux has it since 6.15.
fn exit_status(pidfd: &OwnedFd) -> io::Result<Option<i32>> {
    // SAFETY: a structure of plain integers.
    let mut info: libc::pidfd_info = unsafe { mem::zeroed() };
    info.mask = libc::PIDFD_INFO_EXIT.into();
    // SAFETY: the kernel writes to the structure, whose size is part of the request.
    Errno::result(unsafe { libc::ioctl(pidfd.as_raw_fd(), libc::PIDFD_GET_INFO, &raw mut info) })?;
    let is_known = info.mask & u64::from(libc::PIDFD_INFO_EXIT) != 0;
    Ok(is_known.then_some(info.exit_code))
}

/// A descriptor of process `pid`.
pub(crate) fn open_pidfd(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes two plain integers.
    let fd = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: the call has just returned this descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).expect("a descriptor")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_child_is_reaped_once_by_its_owner() {
        let pid = std::process::Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap().id();
        let child = Child::adopt(i32::try_from(pid).unwrap()).unwrap();
        assert_eq!(child.ended().await.unwrap(), WaitStatus::Exited(Pid::from_raw(child.pid), 3));
        assert!(Child::adopt(child.pid).is_err(), "a reaped child is no child any more");
    }

    #[tokio::test]
    async fn the_end_of_a_process_that_is_no_child_is_known() {
        for (word, status) in [("exit 7", 7), ("kill -9 $$", 0)] {
            let script = format!("sh -c 'read go; {word}' & echo $!");
            let mut parent = std::process::Command::new("sh");
            let (mut go, stdin) = io::pipe().map(|(read, write)| (write, read)).unwrap();
            parent.args(["-c", &format!("exec 3<&0; {}", script.replace(" &", " <&3 >/dev/null &"))]);
            let output = parent.stdin(stdin).stderr(std::process::Stdio::null());
            let output = output.stdout(std::process::Stdio::piped()).output().unwrap();
            let pid: u32 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
            let orphan = Process::of(pid).unwrap();
            let orphan = Child::left_by_another(orphan).unwrap().expect("it waits for a line");
            io::Write::write_all(&mut go, b"go\n").unwrap();
            let ended = orphan.ended().await.unwrap();
            let pid = Pid::from_raw(orphan.pid);
            let wanted = match status {
                0 => WaitStatus::Signaled(pid, nix::sys::signal::Signal::SIGKILL, false),
                status => WaitStatus::Exited(pid, status),
            };
            assert_eq!(ended, wanted);
        }
    }
}
