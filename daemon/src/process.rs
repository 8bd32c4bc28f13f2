//! A process that may be nobody's child, by its id and start time: another process with the same id has
//! another start time.

use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use serde::{Deserialize, Serialize};

use crate::children::open_pidfd;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    /// In ticks since boot.
    pub started: u64,
}

impl Process {
    /// `None` where there is no such process.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, started: started(pid)? })
    }

    #[must_use]
    pub fn is_alive(&self) -> bool {
        started(self.pid) == Some(self.started)
    }

    /// Another process has its id now. One that has ended and was not reaped still has its own.
    #[must_use]
    pub(crate) fn is_another(&self) -> bool {
        fields(self.pid).and_then(|fields| fields.get(STARTED)?.parse().ok()) != Some(self.started)
    }

    /// The parent of a process, also of one that has ended and was not reaped.
    #[must_use]
    pub(crate) fn parent_of(pid: u32) -> Option<u32> {
        fields(pid)?.get(PARENT)?.parse().ok()
    }

    /// Waits until all of its threads have ended, for so long at most.
    ///
    /// # Errors
    /// Where the kernel refuses, or the time is over.
    pub fn wait_for_end(&self, limit: Option<Duration>) -> io::Result<()> {
        let Ok(handle) = open_pidfd(self.pid.cast_signed()) else { return Ok(()) };
        let deadline = limit.map(|limit| Instant::now() + limit);
        while !self.is_another() {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let left = left
                .map_or(PollTimeout::NONE, |left| PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
            match poll(&mut [PollFd::new(handle.as_fd(), PollFlags::POLLIN)], left) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Kills it, where it is alive.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn kill(&self) -> io::Result<()> {
        let Ok(handle) = open_pidfd(self.pid.cast_signed()) else { return Ok(()) };
        // From here on the handle names one process, and not another with its id.
        if !self.is_alive() {
            return Ok(());
        }
        let (handle, signal) = (handle.as_raw_fd(), libc::SIGKILL);
        // SAFETY: a system call on a descriptor that is open, with plain integers.
        let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, handle, signal, 0, 0) };
        match Errno::result(sent) {
            Ok(_) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Among the [`fields`].
const STATE: usize = 0;
const PARENT: usize = 1;
const STARTED: usize = 19;

/// `None` for a zombie.
fn started(pid: u32) -> Option<u64> {
    let fields = fields(pid).filter(|fields| fields.get(STATE).is_some_and(|state| state != "Z"))?;
    fields.get(STARTED)?.parse().ok()
}

/// The fields of the process' stat file from the third one on, its state.
fn fields(pid: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Field 2 is the program's name, which may contain any character; the last parenthesis ends it.
    let after_name = stat.rsplit_once(')')?.1;
    Some(after_name.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn only_the_process_itself_is_killed_and_not_a_later_one_with_its_id() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        Process { started: process.started + 1, ..process }.kill().unwrap();
        assert!(process.is_alive() && !process.is_another());
        assert_eq!(Process::parent_of(child.id()), Some(std::process::id()));
        process.kill().unwrap();
        child.wait().unwrap();
        assert!(!process.is_alive() && process.is_another());
        process.kill().unwrap();
    }
}
