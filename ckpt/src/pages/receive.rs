//! The other end of CRIU's page transfer, during a dump.
//!
//! CRIU ends with a handshake, and until it is answered the tree can still go on. So what could fail later is tried
//! before: pages are copied, and the disk's room for what has come is taken. Where anything fails the socket is shut,
//! CRIU notices, and rolls back.

use super::arena::Arena;
use super::copy::Drain;
use super::intake::{self, Intake};
use super::raw::Raw;
use super::wire::{self, Command, HEADER, Image, PAGE, Run};
use nix::unistd::Pid;
use std::collections::BTreeMap;
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
        let lazy = self.runs.iter().filter(|run| run.lazy).map(|run| run.pages * PAGE as u64).sum();
        (lazy, self.raw.length() - lazy)
    }
}

/// Serves one dump of these processes, which are stopped, until CRIU closes; `complete` may mend what has come, or refuse
/// it.
pub(super) fn receive(
    mut socket: &UnixStream,
    tree: &BTreeMap<u32, Pid>,
    arena: &Arena,
    dir: &Path,
    complete: impl FnOnce(&mut Received) -> io::Result<()>,
) -> io::Result<Received> {
    let done = intake::take_in(tree, arena, dir, |intake| serve(&mut socket, intake, tree))
        .map(|((images, runs), raw)| Received { images, runs, raw })
        .and_then(|mut received| complete(&mut received).map(|()| received))
        .and_then(|received| socket.write_all(&0u32.to_le_bytes()).map(|()| received));
    if done.is_err() {
        socket.shutdown(Shutdown::Both).ok();
    }
    done
}

fn serve(
    socket: &mut &UnixStream,
    intake: &mut Intake,
    tree: &BTreeMap<u32, Pid>,
) -> io::Result<(Vec<Image>, Vec<Run>)> {
    let (mut header, drain) = ([0; HEADER], Drain::new()?);
    let (mut images, mut runs) = (Vec::new(), Vec::new());
    loop {
        socket.read_exact(&mut header)?;
        match wire::decode(&header) {
            Some(Command::Open(image)) => {
                images.push(image);
                socket.write_all(&[0])?;
            }
            Some(Command::Add(run)) => {
                let copied = match run.image {
                    Image::Process(process) if run.lazy && tree.contains_key(&process) => {
                        intake.expect(process, run.address, run.pages)?
                    }
                    _ => 0,
                };
                drain.discard(socket, copied * PAGE as u64)?;
                intake.append(socket, (run.pages - copied) * PAGE as u64)?;
                runs.push(run);
            }
            Some(Command::Close) => return Ok((images, runs)),
            None => {
                let said = format!("criu sends pages in a way that is not known: {header:02x?}");
                return Err(io::Error::new(io::ErrorKind::InvalidData, said));
            }
        }
    }
}
