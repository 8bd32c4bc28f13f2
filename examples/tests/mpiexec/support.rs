//! Runs a program under the MPI library's own launcher, for so long and no longer.

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

/// Four ranks that poll on two busy cores are slow; a run that hangs is much slower.
const TIMEOUT: Duration = Duration::from_secs(240);

/// The programs, up to date.
pub(crate) fn programs() -> Programs {
    build(&mpi_prefix().join("bin/mpicc")).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs a program on so many ranks, in a process group of its own that does not outlive the time-out.
pub(crate) fn run(program: &Path, ranks: u32, arguments: &[&str]) -> Output {
    run_with(&[], program, ranks, arguments)
}

/// The same with environment variables for the ranks alone.
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

/// No program here says so much that its pipe fills before it ends.
fn finish(mut child: Child) -> Output {
    let began = Instant::now();
    while child.try_wait().expect("the child is ours").is_none() {
        if began.elapsed() > TIMEOUT {
            stop(&mut child);
            panic!("the run did not end within {TIMEOUT:?}");
        }
        sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("the child is ours")
}

/// `mpiexec` ends its ranks when asked to; it gets five seconds.
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
