//! The other end of CRIU's page transfer, during a dump.
//!
//! CRIU ends with a handshake, and until it is answered the tree can still go on. So what could fail later is tried
//! before: the disk's room for what has come is taken. Where anything fails the socket is shut, CRIU notices, and
//! rolls back.

use super::arena::Arena;
use super::raw::Raw;
use super::wire::{self, Command, HEADER, Image, Run};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// All that CRIU has sent: images and runs in the order they came, and their pages one after the other.
pub(super) struct Received {
    pub(super) images: Vec<Image>,
    pub(super) runs: Vec<Run>,
    pub(super) raw: Raw,
}

impl Received {
    /// How many bytes are lazy, and how many are not.
    pub(super) fn bytes(&self) -> (u64, u64) {
        let lazy = self.runs.iter().filter(|run| run.lazy).map(|run| run.pages * wire::PAGE as u64).sum();
        (lazy, self.raw.length() - lazy)
    }
}

/// Serves one dump until CRIU closes; `complete` may mend what has come, or refuse it.
pub(super) fn receive(
    mut socket: &UnixStream,
    arena: &Arena,
    dir: &Path,
    complete: impl FnOnce(&mut Received) -> io::Result<()>,
) -> io::Result<Received> {
    let mut received = Received { images: Vec::new(), runs: Vec::new(), raw: Raw::default() };
    let done = serve(&mut socket, &mut received, arena, dir)
        .and_then(|()| complete(&mut received))
        .and_then(|()| socket.write_all(&0u32.to_le_bytes()));
    if done.is_err() {
        socket.shutdown(Shutdown::Both).ok();
    }
    done.map(|()| received)
}

fn serve(
    socket: &mut (impl Read + Write),
    received: &mut Received,
    arena: &Arena,
    dir: &Path,
) -> io::Result<()> {
    let mut header = [0; HEADER];
    loop {
        socket.read_exact(&mut header)?;
        match wire::decode(&header) {
            Some(Command::Open(image)) => {
                received.images.push(image);
                socket.write_all(&[0])?;
            }
            Some(Command::Add(run)) => {
                received.raw.append(socket, run.pages * wire::PAGE as u64, arena, dir)?;
                received.runs.push(run);
            }
            Some(Command::Close) => return Ok(()),
            None => {
                let said = format!("criu sends pages in a way that is not known: {header:02x?}");
                return Err(io::Error::new(io::ErrorKind::InvalidData, said));
            }
        }
    }
}
