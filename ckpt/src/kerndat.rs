//! CRIU's cache of what the kernel can do, `/run/criu.kdat`.
//!
//! CRIU writes it only when `/run` is a tmpfs. Where it is not, every call probes the kernel anew: 50 ms more, and
//! one of the probes was seen to block for up to 100 s on busy cores. So the cache is made in a mount namespace
//! whose `/run` is a tmpfs, and copied out; CRIU reads a plain file as well. The namespace belongs to one
//! short-lived thread, so nothing else of the process notices. A cache of another build is deleted by CRIU when it
//! reads it, and remade here before the next call.

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

const RUN: &str = "/run";
const CACHE: &str = "criu.kdat";

/// The state of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kerndat {
    /// There, and made since the machine started.
    Fresh,
    /// There, but made before the machine last started: perhaps by another kernel.
    Stale,
    /// Not there.
    Missing,
}

/// Why the cache could not be made.
#[derive(Debug, thiserror::Error)]
pub enum KerndatError {
    /// A step with a file or a mount failed.
    #[error("make CRIU's kernel cache: {step}: {source}")]
    Step {
        /// What was being done.
        step: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// CRIU took too long.
    #[error("make CRIU's kernel cache: probing the kernel took more than {} s", .limit.as_secs())]
    TimedOut {
        /// The limit.
        limit: Duration,
    },
    /// CRIU ended and left no cache.
    #[error("make CRIU's kernel cache: criu left none: {said}")]
    NotWritten {
        /// What CRIU said.
        said: String,
    },
}

fn at(step: &'static str) -> impl Fn(io::Error) -> KerndatError {
    move |source| KerndatError::Step { step, source }
}

/// Where the cache is.
pub fn path() -> PathBuf {
    Path::new(RUN).join(CACHE)
}

/// How the cache stands now.
pub fn state() -> Kerndat {
    let Ok(written) = fs::metadata(path()).and_then(|metadata| metadata.modified()) else {
        return Kerndat::Missing;
    };
    match booted() {
        Some(booted) if written < booted => Kerndat::Stale,
        _ => Kerndat::Fresh,
    }
}

/// Makes the cache unless it is fresh; returns how it stood before.
pub fn ensure(program: &Path, limit: Duration) -> Result<Kerndat, KerndatError> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let before = state();
    if before == Kerndat::Fresh {
        return Ok(before);
    }
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if state() != Kerndat::Fresh {
        make(program, limit)?;
    }
    Ok(before)
}

/// Makes the cache, replacing any. Several processes may do so at a time: it appears by rename.
pub fn make(program: &Path, limit: Duration) -> Result<(), KerndatError> {
    // A save that CRIU began and did not finish blocks all later ones.
    fs::remove_file(Path::new(RUN).join("criu.kdat.tmp")).ok();
    let contents = std::thread::scope(|scope| {
        let thread = scope.spawn(|| probe(program, limit));
        thread.join().expect("the probing thread does not panic")
    })?;
    let fresh = Path::new(RUN).join(format!(".{CACHE}.{}", std::process::id()));
    let written = File::create(&fresh)
        .and_then(|mut file| file.write_all(&contents))
        .and_then(|()| fs::rename(&fresh, path()));
    if written.is_err() {
        fs::remove_file(&fresh).ok();
    }
    written.map_err(at("put it in place"))
}

/// Runs in a thread of its own, which leaves the process's mount namespace for good.
fn probe(program: &Path, limit: Duration) -> Result<Vec<u8>, KerndatError> {
    let none = None::<&str>;
    unshare(CloneFlags::CLONE_NEWNS).map_err(io::Error::from).map_err(at("unshare the mount namespace"))?;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .map_err(io::Error::from)
        .map_err(at("make mounts private"))?;
    mount(Some("criu-probe"), RUN, Some("tmpfs"), MsFlags::empty(), none)
        .map_err(io::Error::from)
        .map_err(at("mount a tmpfs on /run"))?;
    let stderr = memfd_create(c"criu-check", MFdFlags::MFD_CLOEXEC).map(File::from);
    let stderr = stderr.map_err(io::Error::from).map_err(at("make a file for messages"))?;
    let mut command = Command::new(program);
    command.arg("check").current_dir("/").stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(stderr.try_clone().map_err(at("make a file for messages"))?);
    let mut child = command.spawn().map_err(at("start criu check"))?;
    let deadline = Instant::now() + limit;
    // `check` may complain of something we do not need and still have written the cache: its status is not asked.
    while child.try_wait().map_err(at("wait for criu check"))?.is_none() {
        if Instant::now() >= deadline {
            child.kill().ok();
            child.wait().ok();
            return Err(KerndatError::TimedOut { limit });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    fs::read(path()).map_err(|_| KerndatError::NotWritten { said: last_words(stderr) })
}

fn last_words(mut stderr: File) -> String {
    let mut text = Vec::new();
    stderr.rewind().and_then(|()| stderr.read_to_end(&mut text)).ok();
    String::from_utf8_lossy(&text).trim().to_owned()
}

fn booted() -> Option<SystemTime> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let seconds = stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}
