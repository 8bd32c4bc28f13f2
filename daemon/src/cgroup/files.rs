//! Files and directories of control groups: reading, writing, waiting for an event, removing.

use std::{
    fs,
    io::{self, Read, Seek, Write},
    os::fd::AsFd,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum CgroupError {
    #[error(
        "no cgroup version 2 hierarchy is mounted; freezing needs one (mount -t cgroup2 none /sys/fs/cgroup)"
    )]
    NoVersion2,
    #[error("no cgroup memory controller is mounted, neither version 2 nor version 1")]
    NoMemory,
    #[error("cgroup file {} could not be used", .0.display())]
    File(PathBuf, #[source] io::Error),
    /// The ranks did not freeze, or did not end, in time.
    #[error("{what} took longer than {limit:?}")]
    TimeOut { what: &'static str, limit: Duration },
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> CgroupError {
    |error| CgroupError::File(path.to_path_buf(), error)
}

pub(super) fn read(path: &Path) -> Result<String, CgroupError> {
    fs::read_to_string(path).map_err(at(path))
}

pub(super) fn open(path: &Path, options: &fs::OpenOptions) -> Result<fs::File, CgroupError> {
    options.open(path).map_err(at(path))
}

/// Writes to a file that the kernel has made.
pub(super) fn write(path: &Path, text: &str) -> Result<(), CgroupError> {
    let file = fs::OpenOptions::new().write(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(at(path))
}

pub(super) fn make_dir(dir: &Path) -> Result<(), CgroupError> {
    let make = || fs::create_dir_all(dir);
    // Another node may remove the parent, empty until then, at the same time.
    let again = |error: io::Error| if error.kind() == io::ErrorKind::NotFound { make() } else { Err(error) };
    make().or_else(again).map_err(at(dir))
}

/// Also succeeds where there is no such directory.
pub(super) fn remove_dir(dir: &Path) -> Result<(), CgroupError> {
    match fs::remove_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(dir)(error)),
        _ => Ok(()),
    }
}

pub(super) fn kill_and_remove(dir: &Path, limit: Duration) -> Result<(), CgroupError> {
    let began = Instant::now();
    loop {
        for pid in pids(dir).unwrap_or_default() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        match remove_dir(dir) {
            Ok(()) => return Ok(()),
            Err(error) if began.elapsed() > limit => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

pub(super) fn sub_groups(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

pub(super) fn pids(dir: &Path) -> Result<Vec<i32>, CgroupError> {
    let text = read(&dir.join("cgroup.procs"))?;
    Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
}

/// Blocks until `cgroup.events` of the group `dir` has this line; `what` names the wait in the error.
pub(super) fn wait_event(
    dir: &Path,
    line: &str,
    what: &'static str,
    limit: Duration,
) -> Result<(), CgroupError> {
    let path = dir.join("cgroup.events");
    let began = Instant::now();
    let mut file = fs::File::open(&path).map_err(at(&path))?;
    loop {
        let mut text = String::new();
        file.rewind().and_then(|()| file.read_to_string(&mut text)).map_err(at(&path))?;
        if text.lines().any(|found| found == line) {
            return Ok(());
        }
        let left = limit.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Err(CgroupError::TimeOut { what, limit });
        }
        // The kernel notifies each change by POLLPRI; the short time-out only guards against a missed one.
        let nap = PollTimeout::try_from(left.min(Duration::from_millis(100))).unwrap_or(PollTimeout::ZERO);
        let _ = poll(&mut [PollFd::new(file.as_fd(), PollFlags::POLLPRI)], nap);
    }
}
