//! PID 1 of the application's PID namespace on this node: starts the ranks, serves their PMI requests, and
//! reaps them.
//!
//! Invariants: after its setup it holds no descriptor that leads out of its process tree, except regular
//! files and `/dev/null`; it shares no lock with another process; every wait may end early (EINTR, restore).
//! When it ends, for any reason, the kernel ends all other processes of the namespace.

mod clients;
mod ranks;
mod serve;
mod uplink;
mod user;
mod wake;

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Write},
    os::{fd::AsFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use coswitch_launcher::{LauncherSpec, Reply};
use coswitch_ring::{Segment, SegmentError};
use nix::{
    sys::{prctl, signal::Signal},
    unistd::{chdir, dup2_stderr, dup2_stdin, dup2_stdout, setsid},
};
use thiserror::Error;

use crate::starter::{GO, SETUP_TIMEOUT};

#[derive(Debug, Error)]
enum SetUpError {
    #[error("say whether to die with the daemon: {0}")]
    DeathSignal(#[source] nix::Error),
    #[error("talk to the starter: {0}")]
    Talk(#[source] io::Error),
    #[error("become a session leader: {0}")]
    Session(#[source] nix::Error),
    #[error("open {path}: {source}")]
    Open { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Segment(#[from] SegmentError),
    #[error("the segment has no local rank {local} that is rank {rank}")]
    Stranger { rank: u32, local: u32 },
}

pub(crate) fn run() -> ExitCode {
    let (spec, segment) = match set_up() {
        Ok(Some(ready)) => ready,
        Ok(None) => return ExitCode::FAILURE,
        Err(error) => {
            eprintln!("failed to {error}");
            return ExitCode::FAILURE;
        }
    };
    match serve::run(spec, segment) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("failed to {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs all steps that may fail before the ranks are started. `None`: the starter has reported a failure, or
/// is gone.
fn set_up() -> Result<Option<(LauncherSpec, Arc<Segment>)>, SetUpError> {
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(SetUpError::DeathSignal)?;
    close_from(3);
    let stream = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from).map_err(SetUpError::Talk)?;
    stream.set_read_timeout(Some(SETUP_TIMEOUT)).map_err(SetUpError::Talk)?;
    let mut lines = BufReader::new(&stream);
    let mut line = String::new();
    lines.read_line(&mut line).map_err(SetUpError::Talk)?;
    let spec: LauncherSpec = serde_json::from_str(&line).map_err(|e| SetUpError::Talk(e.into()))?;

    let prepared = prepare(&spec);
    let reply = match &prepared {
        Ok(_) => Reply::Started,
        Err(error) => Reply::Refused { reason: error.to_string() },
    };
    let reply = serde_json::to_string(&reply).expect("a reply is plain data") + "\n";
    (&stream).write_all(reply.as_bytes()).map_err(SetUpError::Talk)?;
    let segment = prepared?;

    let mut go = String::new();
    lines.read_line(&mut go).map_err(SetUpError::Talk)?;
    if spec.outlives {
        // Another daemon adopts it, or ends it.
        prctl::set_pdeathsig(None).map_err(SetUpError::DeathSignal)?;
    }
    Ok((go == GO).then_some((spec, segment)))
}

fn prepare(spec: &LauncherSpec) -> Result<Arc<Segment>, SetUpError> {
    setsid().map_err(SetUpError::Session)?;
    let open = |result: io::Result<File>, path: &PathBuf| {
        result.map_err(|source| SetUpError::Open { path: path.clone(), source })
    };
    let null = open(File::open("/dev/null"), &"/dev/null".into())?;
    let log = open(ranks::append_to(spec, &spec.log), &spec.log)?;
    let segment = Segment::open(&spec.segment)?;
    // CRIU mounts a /proc in the working directory of the tree that it dumps, so each launcher needs its own
    // directory.
    chdir(spec.segment.parent().unwrap_or(Path::new("/"))).map_err(SetUpError::Session)?;
    for &coswitch_launcher::RankSpec { rank, local, .. } in &spec.ranks {
        if segment.local_of(rank) != Some(local) {
            return Err(SetUpError::Stranger { rank, local });
        }
    }
    let streams = dup2_stdin(&null).and_then(|()| dup2_stdout(&log)).and_then(|()| dup2_stderr(&log));
    streams.map_err(SetUpError::Session)?;
    Ok(Arc::new(segment))
}

/// Closes the descriptors that the starter had open when it forked.
pub(crate) fn close_from(first: u32) {
    // SAFETY: this process has just been executed, so no object in it owns a descriptor from `first` on.
    unsafe { libc::close_range(first, u32::MAX, 0) };
}
