//! Runs one test over libfabric's tcp provider, by MPICH's own launcher.

use std::{
    fs::File,
    io::{Read, Seek},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use crate::{
    list::Test,
    verdict::{Ending, Verdict, judge},
};

/// For the ranks to end once their launcher has been told to.
const GRACE: Duration = Duration::from_secs(10);

/// Runs a test in `directory`; returns the verdict on it and how long it took.
pub(crate) fn run(
    test: &Test,
    suite: &Path,
    directory: &Path,
    limit: Duration,
) -> Result<(Verdict, Duration)> {
    let mut output = tempfile::tempfile()?;
    let began = Instant::now();
    let mut child = spawn(test, suite, directory, &output)?;
    let ending = match end_of(&mut child, limit)? {
        Some(status) => ending(status),
        None => Ending::Otherwise(format!("did not end within {} s", limit.as_secs())),
    };
    let took = began.elapsed();
    output.rewind()?;
    let mut text = Vec::new();
    output.read_to_end(&mut text)?;
    Ok((judge(test.expected, &String::from_utf8_lossy(&text), &ending), took))
}

fn spawn(test: &Test, suite: &Path, directory: &Path, output: &File) -> Result<Child> {
    let mpiexec = crate::prefix().join("mpi/bin/mpiexec");
    let mut command = Command::new(&mpiexec);
    command
        .args(["-n", &test.ranks.to_string()])
        .arg(test.path(suite))
        .args(&test.arguments)
        .envs(&test.env)
        // Between nodes of their own, as under coswitch: no shared memory of MPI's.
        .envs([("FI_PROVIDER", "tcp"), ("MPIR_CVAR_NOLOCAL", "1"), ("MPIR_CVAR_CH4_NETMOD", "ofi")])
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?)
        .process_group(0);
    command.spawn().with_context(|| format!("cannot start {}", mpiexec.display()))
}

/// Waits for the end; at the limit ends the launcher with its ranks.
fn end_of(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    if let Some(status) = wait(child, limit)? {
        return Ok(Some(status));
    }
    let group = Pid::from_raw(i32::try_from(child.id())?);
    for (signal, grace) in [(Signal::SIGTERM, GRACE), (Signal::SIGKILL, GRACE)] {
        killpg(group, signal).ok();
        if wait(child, grace)?.is_some() {
            break;
        }
    }
    Ok(None)
}

fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if began.elapsed() >= limit {
            return Ok(None);
        }
        sleep(Duration::from_millis(3));
    }
}

fn ending(status: ExitStatus) -> Ending {
    match status.signal() {
        Some(signal) => Ending::Otherwise(format!("mpiexec ended by signal {signal}")),
        None => Ending::Exit(status.code().unwrap_or_default()),
    }
}
