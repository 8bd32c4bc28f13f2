//! Child processes of the daemon.
//!
//! No code in the daemon waits for "any child": each owner waits for its own child by pidfd, so that no owner
//! takes another's exit status. [`coswitch_ckpt::forker`] forks them, on a thread that lives as long as the
//! process.

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

pub struct Child {
    /// Valid until the child has been reaped.
    pub pid: i32,
    handle: AsyncFd<OwnedFd>,
}

impl Child {
    /// Takes ownership of `pid`, a child of this process with no other owner.
    ///
    /// # Errors
    /// Where the child has been reaped already.
    pub fn adopt(pid: i32) -> io::Result<Self> {
        let fd = open_pidfd(pid)?;
        // SAFETY: the registered value owns the descriptor and neither closes nor replaces it.
        let handle =
            unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(io::Error::from)?;
        Ok(Self { pid, handle })
    }

    /// Waits until the child has ended, and reaps it. The future may be dropped and the method called again.
    ///
    /// # Errors
    /// Where the child has been reaped already.
    pub async fn ended(&self) -> io::Result<WaitStatus> {
        loop {
            let mut ready = self.handle.readable().await?;
            match waitid(Id::Pid(Pid::from_raw(self.pid)), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG)? {
                WaitStatus::StillAlive => ready.clear_ready(),
                status => return Ok(status),
            }
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
}
