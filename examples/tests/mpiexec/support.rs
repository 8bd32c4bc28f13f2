//! Runs a program under the MPI library's own launcher, with a time-out.

use std::{
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use coswitch_examples::{Programs, build, mpi_prefix};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

/// Time-out, long because four ranks that poll on two busy cores are slow.
const TIMEOUT: Duration = Duration::from_secs(240);

pub(crate) fn programs() -> Programs {
    build(&mpi_prefix().join("bin/mpicc")).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs a program on `ranks` ranks, in a process group of its own that is killed at the time-out.
pub(crate) fn run(program: &Path, ranks: u32, arguments: &[&str]) -> Output {
    run_with(&[], program, ranks, arguments)
}

/// As [`run`], with environment variables for the ranks only.
pub(crate) fn run_with(variables: &[(&str, &str)], program: &Path, ranks: u32, arguments: &[&str]) -> Output {
    let child = Command::new(mpi_prefix().join("bin/mpiexec"))
        .args(["-n", &ranks.to_string()])
        .args(variables.iter().flat_map(|(name, value)| ["-env", name, value]))
        .arg(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .expect("mpiexec starts");
    finish(child)
}

/// Waits for the end. No program prints enough to fill its pipe.
fn finish(mut child: Child) -> Output {
    let began = Instant::now();
    while child.try_wait().expect("the process is a child of the test").is_none() {
        if began.elapsed() > TIMEOUT {
            stop(&mut child);
            panic!("the run did not end within {TIMEOUT:?}");
        }
        sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("the process is a child of the test")
}

/// Ends the group. On SIGTERM `mpiexec` ends its ranks, for which it has five seconds.
fn stop(child: &mut Child) {
    let group = Pid::from_raw(child.id().cast_signed());
    for (signal, patience) in [(Signal::SIGTERM, 1000), (Signal::SIGKILL, 1)] {
        let _ = killpg(group, signal);
        for _ in 0..patience {
            if matches!(child.try_wait(), Ok(Some(_))) {
                return;
            }
            sleep(Duration::from_millis(5));
        }
    }
    let _ = child.wait();
}
