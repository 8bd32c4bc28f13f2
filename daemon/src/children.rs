//! Starting and reaping processes.
//!
//! A launcher asks the kernel to be killed when its parent dies; "parent" means the *thread* that forked it. All forks
//! therefore happen on one thread that lives as long as the daemon. Nobody here waits for "any child": each owner
//! waits for its own, by pidfd, so that no two of them take each other's exit status.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::mpsc,
};

use nix::{
    errno::Errno,
    sys::wait::{Id, WaitPidFlag, WaitStatus, waitid},
    unistd::Pid,
};
use tokio::io::{Interest, unix::AsyncFd};

type Job = Box<dyn FnOnce() + Send>;

/// The thread that forks.
#[derive(Clone)]
pub struct Forker {
    jobs: mpsc::Sender<Job>,
}

impl Forker {
    /// Starts the thread; it ends with the process.
    ///
    /// # Errors
    /// Where the operating system gives no thread.
    pub fn start() -> io::Result<Self> {
        let (jobs, inbox) = mpsc::channel::<Job>();
        std::thread::Builder::new().name("forker".into()).spawn(move || {
            for job in inbox {
                job();
            }
            // The last handle has gone, but children may live: this thread must not end before the process does.
            loop {
                std::thread::park();
            }
        })?;
        Ok(Self { jobs })
    }

    /// Runs `work`, which forks, on the thread.
    ///
    /// # Panics
    /// Where `work` has panicked: the thread is then gone.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (reply, answer) = tokio::sync::oneshot::channel();
        let job = move || drop(reply.send(work()));
        self.jobs.send(Box::new(job)).expect("the forker lives as long as the process");
        answer.await.expect("work on the forker does not panic")
    }
}

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
        Ok(Self { pid, handle: AsyncFd::register_with_interest(fd, Interest::READABLE)? })
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
    async fn a_child_forked_on_the_thread_is_reaped_by_its_owner() {
        let forker = Forker::start().unwrap();
        let spawn = || std::process::Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap().id();
        let pid = forker.run(spawn).await;
        let child = Child::adopt(i32::try_from(pid).unwrap()).unwrap();
        assert_eq!(child.ended().await.unwrap(), WaitStatus::Exited(Pid::from_raw(child.pid), 3));
        assert!(Child::adopt(child.pid).is_err(), "a reaped child is no child any more");
    }
}
