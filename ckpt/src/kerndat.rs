//! CRIU's cache of kernel probes, `/run/criu.kdat`.
//!
//! CRIU writes the cache only if `/run` is a tmpfs. Without it, every call probes the kernel anew: that takes
//! 50 ms, and one of the probes was seen to block for up to 100 s on busy cores. So the cache is made in a
//! mount namespace whose `/run` is a tmpfs, and copied out; CRIU also reads a plain file. The namespace
//! belongs to one short-lived thread, so the rest of the process is not affected. CRIU deletes a cache of
//! another build when it reads it; it is remade here before the next call.

use crate::private;
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
pub enum KerndatState {
    /// Made since the machine started.
    Fresh,
    /// Made before the machine last started, perhaps by another kernel.
    Stale,
    Missing,
}

/// Why the cache could not be made.
#[derive(Debug, thiserror::Error)]
pub enum KerndatError {
    #[error("make CRIU's kernel cache: {action}: {source}")]
    Io { action: &'static str, source: io::Error },
    #[error("make CRIU's kernel cache: probing the kernel took more than {} s", .limit.as_secs())]
    TimedOut { limit: Duration },
    #[error("make CRIU's kernel cache: criu left none: {stderr}")]
    NotWritten { stderr: String },
}

fn failed(action: &'static str) -> impl Fn(io::Error) -> KerndatError {
    move |source| KerndatError::Io { action, source }
}

/// The path of the cache.
pub fn path() -> PathBuf {
    Path::new(RUN).join(CACHE)
}

pub fn state() -> KerndatState {
    let Ok(written) = fs::metadata(path()).and_then(|metadata| metadata.modified()) else {
        return KerndatState::Missing;
    };
    match booted() {
        Some(booted) if written < booted => KerndatState::Stale,
        _ => KerndatState::Fresh,
    }
}

/// Makes the cache unless it is fresh; returns its state before.
pub fn ensure(program: &Path, limit: Duration) -> Result<KerndatState, KerndatError> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let before = state();
    if before == KerndatState::Fresh {
        return Ok(before);
    }
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if state() != KerndatState::Fresh {
        make(program, limit)?;
    }
    Ok(before)
}

/// Makes the cache anew. Several processes may do so at a time, because the file appears by rename.
pub fn make(program: &Path, limit: Duration) -> Result<(), KerndatError> {
    // CRIU never writes the cache while the temporary file of an unfinished attempt is there.
    fs::remove_file(Path::new(RUN).join("criu.kdat.tmp")).ok();
    let contents = std::thread::scope(|scope| {
        let thread = scope.spawn(|| probe(program, limit));
        thread.join().expect("the probing thread does not panic")
    })?;
    let fresh = Path::new(RUN).join(format!(".{CACHE}.{}", std::process::id()));
    let written = private::overwrite(&fresh)
        .and_then(|mut file| file.write_all(&contents))
        .and_then(|()| fs::rename(&fresh, path()));
    if written.is_err() {
        fs::remove_file(&fresh).ok();
    }
    written.map_err(failed("put it in place"))
}

/// Probes the kernel and returns the cache. Must run in a thread of its own, which leaves the process's mount
/// namespace for good.
fn probe(program: &Path, limit: Duration) -> Result<Vec<u8>, KerndatError> {
    let none = None::<&str>;
    unshare(CloneFlags::CLONE_NEWNS)
        .map_err(io::Error::from)
        .map_err(failed("unshare the mount namespace"))?;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .map_err(io::Error::from)
        .map_err(failed("make mounts private"))?;
    mount(Some("criu-probe"), RUN, Some("tmpfs"), MsFlags::empty(), none)
        .map_err(io::Error::from)
        .map_err(failed("mount a tmpfs on /run"))?;
    let stderr = memfd_create(c"criu-check", MFdFlags::MFD_CLOEXEC).map(File::from);
    let stderr = stderr.map_err(io::Error::from).map_err(failed("make a file for messages"))?;
    let mut command = Command::new(program);
    command.arg("check").current_dir("/").stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(stderr.try_clone().map_err(failed("make a file for messages"))?);
    let mut child = command.spawn().map_err(failed("start criu check"))?;
    let deadline = Instant::now() + limit;
    // The exit status does not matter: `check` may miss a feature that we do not need and still write the
    // cache.
    while child.try_wait().map_err(failed("wait for criu check"))?.is_none() {
        if Instant::now() >= deadline {
            child.kill().ok();
            child.wait().ok();
            return Err(KerndatError::TimedOut { limit });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    fs::read(path()).map_err(|_| KerndatError::NotWritten { stderr: text_of(stderr) })
}

fn text_of(mut stderr: File) -> String {
    let mut text = Vec::new();
    stderr.rewind().and_then(|()| stderr.read_to_end(&mut text)).ok();
    String::from_utf8_lossy(&text).trim().to_owned()
}

fn booted() -> Option<SystemTime> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let seconds = stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}
