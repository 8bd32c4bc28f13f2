//! A stage for the cross-crate suites in `tests/`: real daemons on virtual nodes, real MPI programs, real CRIU.
//!
//! A test is a list of acts (launch, run, park, restore, kill) and a check of what the programs found. [`stage`] is the
//! cluster without a master, under the test's own orders; [`master`] is `coswitch run` as a user starts it. However a test
//! ends, [`traces`] looks for what it has left on the machine, and nothing may be left.
//!
//! `cargo xtask test` builds the programs that the suites start, and runs them.

pub mod act;
pub mod browser;
pub mod master;

pub mod parts;
pub mod seed;
pub mod stage;
pub mod swap;
pub mod traces;
pub mod turns;

/// One test at a time: each has as many ranks as the machine has processors, and looks for zombies of this process.
fn turn() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    // The test that had its turn before may have failed; that is no business of the next one.
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The directory of a test's logs and outputs. A failing test shows what they say last.
#[derive(Debug)]
struct Papers(tempfile::TempDir);

impl Papers {
    fn new(name: &str) -> Self {
        Self(tempfile::Builder::new().prefix(&format!("{name}-")).tempdir().expect("a temporary directory"))
    }

    fn path(&self) -> &std::path::Path {
        self.0.path()
    }
}

impl Drop for Papers {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tell_files(self.path());
        }
    }
}

/// Directories of snapshots among them begin so: CRIU's logs in it have thousands of lines each, and are not told.
const STORE: &str = "store";

fn tell_files(dir: &std::path::Path) {
    const TAIL_BYTES: usize = 2000;
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with(STORE) {
            tell_files(&path);
        } else if [".out", ".err", ".log"].iter().any(|end| name.ends_with(end)) {
            let bytes = std::fs::read(&path).unwrap_or_default();
            if !bytes.is_empty() {
                let tail = &bytes[bytes.len().saturating_sub(TAIL_BYTES)..];
                eprintln!("--- {}\n{}", path.display(), String::from_utf8_lossy(tail).trim_end());
            }
        }
    }
}
