//! Waiting for child processes.
//!
//! Nobody in the daemon waits for "any child": each owner waits for its own, by pidfd, so that no two of them take each
//! other's exit status. (They are forked by [`coswitch_ckpt::forker`], whose thread lives as long as the process.)

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use nix::{
    errno::Errno,
    sys::wait::{Id, WaitPidFlag, WaitStatus, waitid},
    unistd::Pid,
};
use tokio::io::{Interest, unix::AsyncFd};

/// A child of this process, to be waited for.
pub struct Child {
    /// Its process id, which is its own until it has been waited for.
    pub pid: i32,
    handle: AsyncFd<OwnedFd>,
}

impl Child {
    /// Takes charge of `pid`, which must be a child of this process that nobody else waits for.
    ///
    /// # Errors
    /// Where there is no such child any more.
    pub fn adopt(pid: i32) -> io::Result<Self> {
        // SAFETY: pidfd_open takes two plain integers.
        let fd = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
        // SAFETY: the call has just returned this descriptor, which nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).expect("a descriptor")) };
        // SAFETY: the descriptor belongs to the value that is registered, which neither closes nor replaces it.
        let handle =
            unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(io::Error::from)?;
        Ok(Self { pid, handle })
    }

    /// Waits for its end, and reaps it. May be dropped and called again.
    ///
    /// # Errors
    /// Where somebody else has reaped it.
    pub async fn ended(&self) -> io::Result<WaitStatus> {
        loop {
            let mut ready = self.handle.readable().await?;
            match waitid(Id::Pid(Pid::from_raw(self.pid)), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG)? {
                WaitStatus::StillAlive => ready.clear_ready(),
                status => return Ok(status),
            }
        }
    }

    /// Sends SIGKILL.
    pub fn kill(&self) {
        // SAFETY: a plain system call on a descriptor that this value owns; a process that has ended gives ESRCH.
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
}
