//! Copies pages out of a stopped tree.
//!
//! CRIU sends references to pages, which costs it little, but one thread that reads them from the socket is
//! no faster than one core copies. So only the headers are read: the pages in the socket are discarded
//! unread, and all cores copy them out of the tree.

use super::blocks::BLOCK;
use super::raw::Extent;
use super::wire::PAGE;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::{Pid, pipe2};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

const PIPE_BYTES: i32 = 1 << 20;

/// Discards data of a socket unread.
pub(super) struct Sink {
    pipe: (OwnedFd, OwnedFd),
    null: File,
}

impl Sink {
    pub(super) fn new() -> io::Result<Sink> {
        let pipe = pipe2(OFlag::O_CLOEXEC)?;
        fcntl(&pipe.0, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES))?;
        Ok(Sink { pipe, null: File::options().write(true).open("/dev/null")? })
    }

    /// Discards `count` bytes of a socket without copying them.
    pub(super) fn discard(&self, socket: &impl AsFd, count: u64) -> io::Result<()> {
        let mut left = count;
        while left > 0 {
            let took = pass(socket, &self.pipe.1, left.min(PIPE_BYTES as u64))?;
            let mut in_pipe = took;
            while in_pipe > 0 {
                in_pipe -= pass(&self.pipe.0, &self.null, in_pipe)?;
            }
            left -= took;
        }
        Ok(())
    }
}

fn pass(from: &impl AsFd, to: &impl AsFd, most: u64) -> io::Result<u64> {
    loop {
        match splice(from, None, to, None, most as usize, SpliceFFlags::SPLICE_F_MOVE) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(Errno::EINTR) => {}
            passed => return Ok(passed? as u64),
        }
    }
}

/// Copies the pages of these extents, in the order of their offsets, into the block that begins at the offset
/// `begin`.
pub(super) fn copy(
    mut block: &mut [u8],
    begin: u64,
    extents: &[Extent],
    tree: &BTreeMap<u32, Pid>,
) -> io::Result<()> {
    let (mut parts, mut at): (Vec<(u32, u64, &mut [u8])>, _) = (Vec::new(), begin);
    for extent in extents {
        let (_, rest) = block.split_at_mut((extent.offset - at) as usize);
        let (part, rest) = rest.split_at_mut(extent.pages as usize * PAGE);
        parts.push((extent.process, extent.address, part));
        (block, at) = (rest, extent.end());
    }
    for parts in parts.chunk_by_mut(|one, next| one.0 == next.0) {
        let pid = *tree.get(&parts[0].0).ok_or(io::ErrorKind::NotFound)?;
        read(pid, parts)?;
    }
    Ok(())
}

/// Reads parts of a process: at most as many as a block has pages, because one call can take 1024.
fn read(pid: Pid, parts: &mut [(u32, u64, &mut [u8])]) -> io::Result<()> {
    const { assert!(BLOCK / PAGE <= 1024) };
    let remote =
        |(_, address, part): &(_, u64, &mut [u8])| RemoteIoVec { base: *address as usize, len: part.len() };
    let remote: Vec<_> = parts.iter().map(remote).collect();
    let wanted = remote.iter().map(|part| part.len).sum();
    let mut local: Vec<_> = parts.iter_mut().map(|(_, _, part)| IoSliceMut::new(part)).collect();
    if process_vm_readv(pid, &mut local, &remote) == Ok(wanted) {
        return Ok(());
    }
    // The process itself may not read some page; this file ignores permissions.
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    parts.iter_mut().try_for_each(|(_, address, part)| memory.read_exact_at(part, *address))
}
