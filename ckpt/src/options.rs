//! CRIU options that dumps and restores share, and errors from CRIU's log.

use crate::private;
use criu_sys::rpc::{CriuCgMode, CriuNetworkLockMethod, CriuOpts, CriuResp};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Logs each step but not each page (level 4), which takes a tenth of a dump.
const LOG_LEVEL: i32 = 3;
/// Files that were unlinked while open are stored inside the image up to this size.
const GHOST_BYTES_MAX: u32 = 64 << 20;
const ERROR_LINES_MAX: usize = 12;

/// Options for images in one directory, and log and statistics in another that must stay open until the
/// response. A tree that is `confined` has a network namespace, with nothing in it.
pub(crate) fn common(images: &Path, work: &File, log: &str, confined: bool) -> CriuOpts {
    CriuOpts {
        images_dir_fd: -1,
        images_dir: Some(images.display().to_string()),
        work_dir_fd: Some(work.as_raw_fd()),
        log_level: Some(LOG_LEVEL),
        log_file: Some(log.to_owned()),
        // The daemon places the processes; CRIU must not look for their old cgroups.
        manage_cgroups_mode: Some(CriuCgMode::Ignore as i32),
        // A tree with an open connection is refused, so there is no traffic to block. Creating and removing a
        // table of nftables would wait for grace periods of the kernel: a fifth of a dump and of a restore of
        // 1 GiB.
        network_lock: Some(CriuNetworkLockMethod::Skip as i32),
        // All users of a lock are in the tree: an application is dumped whole or not at all.
        file_locks: Some(true),
        ghost_limit: Some(GHOST_BYTES_MAX),
        empty_ns: confined.then_some(libc::CLONE_NEWNET as u32),
        ..CriuOpts::default()
    }
}

/// Why a request failed: the errors in the log, or the response's own message if there are none. The log
/// comes first because the message is not always the cause.
pub(crate) fn errors(log: &Path, response: CriuResp) -> Vec<String> {
    let mut errors = errors_in_log(log);
    if errors.is_empty() {
        errors.push(response.cr_errmsg.unwrap_or_default().trim().to_owned());
    }
    errors
}

fn errors_in_log(path: &Path) -> Vec<String> {
    let log =
        private::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    log.lines().filter(|line| is_relevant(line)).take(ERROR_LINES_MAX).map(without_time).collect()
}

/// Machines without CAP_SYS_RESOURCE log a harmless error about RLIMIT_NOFILE at each start.
fn is_relevant(line: &str) -> bool {
    line.contains("Error") && !line.contains("RLIMIT_NOFILE")
}

/// Removes the `(00.012345)` at the start of each line.
fn without_time(line: &str) -> String {
    line.split_once(") ").map_or(line, |(_, rest)| rest).to_owned()
}

/// Creates a directory, which may exist, and opens it.
pub(crate) fn open_dir(path: &Path) -> io::Result<File> {
    private::create_dir_all(path)?;
    private::open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_relevant_errors_of_a_log_are_kept_and_without_their_time() {
        let dir = tempfile::tempdir().unwrap();
        let log = "(00.000001) Error (criu/util.c:1): Can't setup RLIMIT_NOFILE for self\n\
                   (00.000002) Dumping\n\
                   (00.000003) Error (criu/files.c:2): File x has bad size\n";
        std::fs::write(dir.path().join("log"), log).unwrap();
        assert_eq!(errors_in_log(&dir.path().join("log")), ["Error (criu/files.c:2): File x has bad size"]);
    }
}
