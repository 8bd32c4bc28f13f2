//! Pages copied out of a stopped tree.
//!
//! What CRIU sends is references to the pages, which cost it little, and one thread that reads them from the socket is as
//! fast as one core copies. So only what CRIU says of them is heeded: they themselves are thrown away unread, and all
//! cores copy them out of the tree.

use super::arena::BLOCK;
use super::split::Stretch;
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

/// Where what is not read goes.
pub(super) struct Drain {
    pipe: (OwnedFd, OwnedFd),
    null: File,
}

impl Drain {
    pub(super) fn new() -> io::Result<Drain> {
        let pipe = pipe2(OFlag::O_CLOEXEC)?;
        fcntl(&pipe.0, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES))?;
        Ok(Drain { pipe, null: File::options().write(true).open("/dev/null")? })
    }

    /// Takes `count` bytes from a socket, without copying them.
    pub(super) fn discard(&self, socket: &impl AsFd, count: u64) -> io::Result<()> {
        let mut left = count;
        while left > 0 {
            let took = pass(socket, &self.pipe.1, left.min(PIPE_BYTES as u64))?;
            let mut inside = took;
            while inside > 0 {
                inside -= pass(&self.pipe.0, &self.null, inside)?;
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

/// Copies what these stretches, in the order of their offsets, have into the block that begins at an offset.
pub(super) fn copy(
    mut block: &mut [u8],
    begin: u64,
    stretches: &[Stretch],
    tree: &BTreeMap<u32, Pid>,
) -> io::Result<()> {
    let (mut parts, mut at): (Vec<(u32, u64, &mut [u8])>, _) = (Vec::new(), begin);
    for stretch in stretches {
        let (_, rest) = block.split_at_mut((stretch.offset - at) as usize);
        let (part, rest) = rest.split_at_mut(stretch.pages as usize * PAGE);
        parts.push((stretch.process, stretch.address, part));
        (block, at) = (rest, stretch.end());
    }
    for parts in parts.chunk_by_mut(|one, next| one.0 == next.0) {
        let pid = *tree.get(&parts[0].0).ok_or(io::ErrorKind::NotFound)?;
        read(pid, parts)?;
    }
    Ok(())
}

/// Reads parts of a process: at most as many as a block has pages, which one call may be asked for.
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
    // A page that the process itself may not read; this file does not ask.
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    parts.iter_mut().try_for_each(|(_, address, part)| memory.read_exact_at(part, *address))
}
