//! Harness of the cross-crate suites in `tests/`: real daemons on virtual nodes, real MPI programs, real
//! CRIU.
//!
//! A test launches jobs, gives orders (park, restore, end) or kills processes, and checks the results of the
//! programs. [`cluster`] is a cluster without a master, which the test controls itself; [`master`] runs
//! `coswitch` as a user does. However a test ends, [`leftovers`] searches the machine for what remains of it,
//! and nothing may remain.
//!
//! `cargo xtask test` builds the programs that the suites start, and runs the suites.

use std::io::{Read, Seek, SeekFrom};

pub mod browser;
pub mod cluster;
pub mod faulty;
pub mod hosts;
pub mod job;
pub mod leftovers;
mod machines;
pub mod master;
pub mod parts;
pub mod seed;
pub mod serving;
pub mod slurm;
pub mod swap;
pub mod turns;

/// Lets one test run at a time: each has as many ranks as the machine has processors, and searches for
/// zombies of this process.
fn turn() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    // A failure of the previous test does not concern the next one.
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Directory of a test's logs and outputs. A failing test prints their ends.
#[derive(Debug)]
struct TestDir(tempfile::TempDir);

impl TestDir {
    fn new(name: &str) -> Self {
        Self(tempfile::Builder::new().prefix(&format!("{name}-")).tempdir().expect("a temporary directory"))
    }

    fn path(&self) -> &std::path::Path {
        self.0.path()
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        if std::thread::panicking() {
            print_files(self.path());
        }
    }
}

/// Prefix of snapshot directories. CRIU's logs in them have thousands of lines each and are not printed.
const STORE: &str = "store";

fn print_files(dir: &std::path::Path) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with(STORE) {
            print_files(&path);
        } else if [".out", ".err", ".log"].iter().any(|end| name.ends_with(end)) {
            let tail = tail(&path).unwrap_or_default();
            if !tail.is_empty() {
                eprintln!("--- {}\n{}", path.display(), String::from_utf8_lossy(&tail).trim_end());
            }
        }
    }
}

/// The end of a file. What a hostile rank has put in the place of one is not read.
fn tail(path: &std::path::Path) -> std::io::Result<Vec<u8>> {
    const TAIL_BYTES: u64 = 8000;
    let mut bytes = Vec::new();
    let found = std::fs::symlink_metadata(path)?;
    if found.is_file() {
        let mut file = std::fs::File::open(path)?;
        file.seek(SeekFrom::Start(found.len().saturating_sub(TAIL_BYTES)))?;
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}
