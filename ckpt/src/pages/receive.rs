//! Receiver of CRIU's page transfer during a dump.
//!
//! CRIU ends the transfer with a handshake, and until we answer it, CRIU can still roll back. So everything
//! that could fail later is done before: pages are copied, disk space for them is allocated, and those that
//! CRIU needs are written to its images. On a failure the socket is shut down, and CRIU rolls back.

use super::arena::Arena;
use super::copy::Sink;
use super::intake::{self, Intake};
use super::raw::Raw;
use super::wire::{self, Command, HEADER, Owner, PAGE, PageRun};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// All that CRIU has sent: owners and runs in the order of their arrival, and their pages in the order of the
/// runs.
pub(super) struct Received {
    pub(super) owners: Vec<Owner>,
    pub(super) runs: Vec<PageRun>,
    pub(super) raw: Raw,
}

/// Receives the pages of one dump of these processes, which are stopped, until CRIU closes the transfer.
/// `complete` may refuse what was received, and makes the result of it.
pub(super) fn receive<T>(
    mut socket: &UnixStream,
    tree: &BTreeMap<u32, Pid>,
    arena: &Arena,
    dir: &Path,
    complete: impl FnOnce(Received) -> io::Result<T>,
) -> io::Result<T> {
    let done = intake::take_in(tree, arena, dir, |intake| serve(&mut socket, intake, tree))
        .map(|((owners, runs), raw)| Received { owners, runs, raw })
        .and_then(complete)
        .and_then(|completed| socket.write_all(&0u32.to_le_bytes()).map(|()| completed));
    if done.is_err() {
        socket.shutdown(Shutdown::Both).ok();
    }
    done
}

fn serve(
    socket: &mut &UnixStream,
    intake: &mut Intake,
    tree: &BTreeMap<u32, Pid>,
) -> io::Result<(Vec<Owner>, Vec<PageRun>)> {
    let (mut header, sink) = ([0; HEADER], Sink::new()?);
    let (mut owners, mut runs) = (Vec::new(), Vec::new());
    loop {
        socket.read_exact(&mut header)?;
        match wire::decode(&header) {
            Some(Command::Open(owner)) => {
                owners.push(owner);
                socket.write_all(&[0])?;
            }
            Some(Command::Add(run)) => {
                let copied = match run.owner {
                    Owner::Process(process) if run.lazy && tree.contains_key(&process) => {
                        intake.queue_copy(process, run.address, run.pages)?
                    }
                    _ => 0,
                };
                sink.discard(socket, copied * PAGE as u64)?;
                intake.append(socket, (run.pages - copied) * PAGE as u64)?;
                runs.push(run);
            }
            Some(Command::Close) => return Ok((owners, runs)),
            None => {
                let message = format!("criu sends pages in a way that is not known: {header:02x?}");
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
        }
    }
}
