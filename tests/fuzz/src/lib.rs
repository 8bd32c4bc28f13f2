//! Fuzz targets: the parsers of bytes that come from other machines, users and files. A parser may refuse its
//! input; it must not panic, take memory without bounds, or run for ever.
//!
//! `corpus/NAME/` has inputs of each target: those that guided runs have found to reach new code, and the
//! cases that were bugs. The test of this package tries all of them and random changes of them; `cargo xtask
//! fuzz` searches for more, guided by the code that they reach (`guided/`).

mod segment;

use std::{fs, path::Path, time::Duration};

use coswitch_ckpt::fuzzing as ckpt;
use coswitch_daemon::fuzzing as daemon;
use coswitch_launcher::pmi;
use coswitch_sim::workload::{swf::Log, testbed};

/// Something that reads bytes.
pub struct Target {
    pub name: &'static str,
    pub read: fn(&[u8]),
}

pub const TARGETS: [Target; 13] = [
    Target { name: "channel-states", read: daemon::channel_states },
    Target { name: "control-frames", read: daemon::control_frames },
    Target { name: "copy-frames", read: daemon::copy_frames },
    Target { name: "criu-images", read: ckpt::images },
    Target { name: "data-frame", read: daemon::data_frame },
    Target { name: "launcher-messages", read: daemon::launcher_messages },
    Target { name: "manifest", read: ckpt::manifest },
    Target { name: "page-index", read: ckpt::page_index },
    Target { name: "pmi", read: pmi_lines },
    Target { name: "run-file", read: run_file },
    Target { name: "segment", read: segment::conversation },
    Target { name: "segment-contents", read: ckpt::segment_contents },
    Target { name: "swf", read: logs },
];

/// The target of that name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// The inputs of a target, in the order of their names.
///
/// # Panics
/// If they cannot be read.
#[must_use]
pub fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("it is listed").path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("it is readable")).collect()
}

/// What two ranks say to their launcher: the first byte of a line tells which of them.
fn pmi_lines(bytes: &[u8]) {
    let mut server = pmi::Server::new("job-1".into(), 3, [0, 1]);
    for line in bytes.split(|byte| *byte == b'\n') {
        if let Some((rank, line)) = line.split_first() {
            server.on_line(u32::from(rank % 2), &String::from_utf8_lossy(line));
        }
    }
}

/// A workload log, and a table of a testbed.
fn logs(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(log) = text.parse::<Log>() {
        let again: Log = log.to_string().parse().expect("what was read is written so that it is read");
        assert_eq!(again.records.len(), log.records.len());
    }
    let _ = testbed::parse(&text, Duration::from_secs(1));
}

fn run_file(bytes: &[u8]) {
    let file = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file");
    fs::write(file.path(), bytes).expect("it can be written");
    if let Err(refused) = coswitch::config::load_to_plan(file.path()) {
        assert!(!refused.to_string().is_empty());
    }
}
