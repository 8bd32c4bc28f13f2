//! Pages of a tree: from CRIU into memory, from memory to a file, and from either back into the tree.
//!
//! ```text
//! CRIU ──▶ receive ──▶ raw (arena, else a file) ── split ──▶ images: the few pages that CRIU needs
//! tree ──▶ copy ────────┘                             └─────▶ Memory: all others
//! Memory ── seal ──▶ pages.cws, pages.idx, encrypted           in the background, when the tree is gone
//! CRIU restores, the tree is stopped ── fill, from Memory or pages.cws ──▶ complete
//! ```
//! If CRIU writes pages to files and reads them from there, most of the time goes into fresh memory of the
//! file system. CRIU can also send pages over a socket (`wire.rs`); then one copy into memory that was
//! touched before is enough.

mod arena;
mod blocks;
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
pub use fill::{FillError, SealedPages};
pub use index::Unusable;
pub use memory::Memory;
pub use seal::SealReport;

pub(crate) use borrowed::Borrowed;
pub(crate) use fill::PageSource;
pub(crate) use index::{INDEX, PAGES};

use crate::images::ImagesError;
use crate::processes;
use nix::unistd::Pid;
use receive::Received;
use split::Split;
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Bytes that may be under way between CRIU and us, so that neither waits for the other. They are references
/// to the tree's own memory.
const SOCKET_BYTES: usize = 256 << 20;

/// Space for all that is written besides pages: page maps, the index, small images.
const IMAGES_BYTES: u64 = 2 << 20;

/// Whether these bytes are an index of pages; for [`crate::fuzzing`].
pub(crate) fn is_index(bytes: &[u8]) -> bool {
    index::decode(bytes).is_ok()
}

/// Receives the pages of one dump.
pub(crate) struct Receiver<'a> {
    socket: UnixStream,
    arena: &'a Arena,
    images_dir: &'a Path,
    /// For what does not fit the arena, and for the pages when they are sealed.
    dir: &'a Path,
}

impl<'a> Receiver<'a> {
    /// Pages that do not fit the arena go to `dir`. Also returns CRIU's end of the socket. Receiving fails
    /// after a silence of `limit`.
    pub(crate) fn new(
        arena: &'a Arena,
        [images_dir, dir]: [&'a Path; 2],
        limit: Duration,
    ) -> io::Result<(Receiver<'a>, OwnedFd)> {
        let (socket, theirs) = UnixStream::pair()?;
        nix::sys::socket::setsockopt(&theirs, nix::sys::socket::sockopt::SndBufForce, &SOCKET_BYTES)?;
        socket.set_read_timeout(Some(limit))?;
        Ok((Receiver { socket, arena, images_dir, dir }, theirs.into()))
    }

    /// Receives all pages of these processes, writes those that CRIU needs into its images, and allocates
    /// disk space for all others, which it returns. `borrowed` was read before CRIU began.
    pub(crate) fn receive(&self, pids: &[Pid], borrowed: &Borrowed) -> io::Result<Memory> {
        let complete = |mut received: Received| -> io::Result<Memory> {
            borrowed.put_back(&mut received)?;
            let split = Split::of(&received, self.images_dir).map_err(as_io)?;
            let [deferred, kept] = split.bytes();
            seal::preallocate(self.dir, self.images_dir, deferred, kept + IMAGES_BYTES)?;
            let deferred = split.write(self.images_dir).map_err(as_io)?;
            Ok(Memory::new(received.raw, deferred))
        };
        let tree = processes::by_own_id(pids);
        receive::receive(&self.socket, &tree, self.arena, self.dir, complete)
    }

    /// Makes CRIU, and our own receiving, fail.
    pub(crate) fn hang_up(&self) {
        self.socket.shutdown(Shutdown::Both).ok();
    }
}

/// The same error as one of `std::io`. Its kind stays, because callers recognise a full file system by it.
fn as_io(error: ImagesError) -> io::Error {
    let kind = match &error {
        ImagesError::Io { source, .. } => source.kind(),
        ImagesError::Image { .. } => io::ErrorKind::InvalidData,
    };
    io::Error::new(kind, error)
}
