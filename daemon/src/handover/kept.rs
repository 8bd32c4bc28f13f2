//! The files that stay open from one program to the next.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use serde::{Deserialize, Serialize};

/// Their numbers, which stay the same.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Numbers {
    control: RawFd,
    data: RawFd,
    head: Option<RawFd>,
    before: RawFd,
}

/// Children of this process do not get them.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Listens for the head node.
    pub(crate) control: OwnedFd,
    /// Listens for other daemons.
    pub(crate) data: OwnedFd,
    /// Holds the network namespace of the head node open.
    pub(crate) head: Option<OwnedFd>,
    /// The program that hands over, also where its file has been replaced.
    pub(crate) before: OwnedFd,
}

impl Kept {
    /// Takes over what was left open for this program.
    ///
    /// # Errors
    /// Where one of them is not open.
    ///
    /// # Safety
    /// Nothing else in this process owns a descriptor of this number.
    pub(crate) unsafe fn take(numbers: Numbers) -> io::Result<Self> {
        // SAFETY: the caller's.
        let take = |number| unsafe { take(number) };
        Ok(Self {
            control: take(numbers.control)?,
            data: take(numbers.data)?,
            head: numbers.head.map(take).transpose()?,
            before: take(numbers.before)?,
        })
    }

    pub(crate) fn numbers(&self) -> Numbers {
        Numbers {
            control: self.control.as_raw_fd(),
            data: self.data.as_raw_fd(),
            head: self.head.as_ref().map(AsRawFd::as_raw_fd),
            before: self.before.as_raw_fd(),
        }
    }

    /// Leaves them open for the program that is executed next.
    pub(super) fn leave_open(&self) -> io::Result<()> {
        let head = self.head.as_ref().map(AsFd::as_fd);
        let all = [self.control.as_fd(), self.data.as_fd(), self.before.as_fd()];
        all.into_iter().chain(head).try_for_each(|fd| leave_open(fd, true))
    }
}

/// Whether a descriptor stays open when this process executes a program.
pub(super) fn leave_open(fd: BorrowedFd<'_>, stays: bool) -> io::Result<()> {
    let flags = if stays { FdFlag::empty() } else { FdFlag::FD_CLOEXEC };
    Ok(fcntl(fd, FcntlArg::F_SETFD(flags)).map(drop)?)
}

/// Takes over a descriptor that was left open for this program.
///
/// # Safety
/// Nothing else in this process owns it.
pub(super) unsafe fn take(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call reads flags and takes plain integers.
    nix::errno::Errno::result(unsafe { libc::fcntl(number, libc::F_GETFD) })?;
    // SAFETY: it is open, and by the caller's word has no other owner.
    let owned = unsafe { OwnedFd::from_raw_fd(number) };
    leave_open(owned.as_fd(), false)?;
    Ok(owned)
}
