//! The pages of a tree: from CRIU into memory, from memory to a file, and from either back into the tree.
//!
//! ```text
//! CRIU ──▶ receive ──▶ raw (arena, else a file) ── split ──▶ images: the few that CRIU needs
//! tree ──▶ copy ────────┘                             └─────▶ Memory: all others
//! Memory ── seal ──▶ pages.cws, pages.idx                      tree is gone; done in the background
//! CRIU restores, the tree is stopped ── fill, from Memory or pages.cws ──▶ whole
//! ```
//! CRIU writes pages into fresh memory of a file system and reads them from there, and what that costs is the fresh
//! memory. It can also send them away ([`wire`]), and then one copy into memory that is there already is enough.

mod arena;
mod borrowed;
mod copy;
mod fill;
mod huge;
mod index;
mod intake;
mod memory;
mod raw;
mod receive;
mod seal;
mod split;
mod wire;

pub use arena::Arena;
pub use fill::FillError;
pub use index::Unusable;
pub use memory::Memory;
pub use seal::Sealed;

pub(crate) use borrowed::Borrowed;
pub(crate) use fill::Source;
pub(crate) use index::PAGES;

use crate::images::ImagesError;
use crate::processes;
use nix::unistd::Pid;
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// So much may be under way between CRIU and us, so that neither waits for the other; it is memory of the tree, not ours.
const SOCKET_BYTES: usize = 256 << 20;

/// Stacks, the index, what else is written after the last page.
const IMAGES_BYTES: u64 = 2 << 20;

/// Takes the pages of one dump.
pub(crate) struct Receiver<'a> {
    socket: UnixStream,
    arena: &'a Arena,
    images_dir: &'a Path,
}

/// What has come, while CRIU's images are still incomplete.
pub(crate) struct Pending(receive::Received);

impl<'a> Receiver<'a> {
    /// Also returns CRIU's end. Silence of longer than `limit` is an error.
    pub(crate) fn new(
        arena: &'a Arena,
        images_dir: &'a Path,
        limit: Duration,
    ) -> io::Result<(Receiver<'a>, OwnedFd)> {
        let (socket, theirs) = UnixStream::pair()?;
        nix::sys::socket::setsockopt(&theirs, nix::sys::socket::sockopt::SndBufForce, &SOCKET_BYTES)?;
        socket.set_read_timeout(Some(limit))?;
        Ok((Receiver { socket, arena, images_dir }, theirs.into()))
    }

    /// Until CRIU has sent all of these processes; the room for it on the disk is taken then. `borrowed` was read
    /// before CRIU began.
    pub(crate) fn receive(&self, pids: &[Pid], borrowed: &Borrowed) -> io::Result<Pending> {
        let complete = |received: &mut receive::Received| {
            borrowed.put_back(received)?;
            let (lazy, others) = received.bytes();
            seal::reserve(self.images_dir, lazy, others + IMAGES_BYTES)
        };
        let tree = processes::by_own_id(pids);
        receive::receive(&self.socket, &tree, self.arena, self.images_dir, complete).map(Pending)
    }

    /// Has CRIU, and ourselves, give up.
    pub(crate) fn hang_up(&self) {
        self.socket.shutdown(Shutdown::Both).ok();
    }
}

impl Pending {
    /// CRIU is done: completes its images.
    pub(crate) fn settle(self, images_dir: &Path) -> Result<Memory, ImagesError> {
        let deferred = split::split(&self.0, images_dir)?;
        Ok(Memory::new(self.0.raw, deferred))
    }
}
