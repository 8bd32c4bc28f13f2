//! Runs other programs with a time-out, and keeps their output for the error message.

use anyhow::{Context, Result, bail};
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a program that ignores SIGTERM may linger before it is killed.
const GRACE: Duration = Duration::from_secs(20);

/// Runs to a successful end within `limit` and returns the output, both streams together.
pub(crate) fn run(command: &mut Command, limit: Duration) -> Result<String> {
    match output(command, limit)? {
        (text, Ok(())) => Ok(text),
        (text, Err(why)) => bail!("{why}:\n{}", tail(&text)),
    }
}

/// Runs to an end within `limit` and returns the output, both streams together, and why it was no success.
pub(crate) fn output(command: &mut Command, limit: Duration) -> Result<(String, Result<(), String>)> {
    let name = format!("{command:?}");
    let mut output = scratch_file()?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?)
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    let status = wait(&mut child, limit)?;
    let mut text = Vec::new();
    output.rewind()?;
    output.read_to_end(&mut text)?;
    let ended = match status {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(format!("{name} ended with {status}")),
        None => Err(format!("{name} did not end within {} s", limit.as_secs())),
    };
    Ok((String::from_utf8_lossy(&text).into_owned(), ended))
}

/// Runs to a successful end within `limit` and returns its standard output; its errors go to our own.
pub(crate) fn stdout(command: &mut Command, limit: Duration) -> Result<String> {
    let mut output = scratch_file()?;
    show(command.stdout(output.try_clone()?), limit)?;
    let mut text = String::new();
    output.rewind()?;
    output.read_to_string(&mut text)?;
    Ok(text)
}

/// Runs to a successful end within `limit`; its output goes to our own.
pub(crate) fn show(command: &mut Command, limit: Duration) -> Result<()> {
    let name = format!("{command:?}");
    let mut child = command.stdin(Stdio::null()).spawn().with_context(|| format!("cannot start {name}"))?;
    match wait(&mut child, limit)? {
        Some(status) if status.success() => Ok(()),
        Some(status) => bail!("{name} ended with {status}"),
        None => bail!("{name} did not end within {} s", limit.as_secs()),
    }
}

/// Waits until `limit`, then ends the child: by SIGTERM, and after a grace by SIGKILL. `None`: it had to be
/// ended.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    if let Some(status) = poll(child, limit)? {
        return Ok(Some(status));
    }
    // A CRIU killed in the middle of a dump ruins its target: SIGTERM lets it roll back.
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).ok();
    if poll(child, GRACE)?.is_none() {
        child.kill().ok();
        child.wait()?;
    }
    Ok(None)
}

fn poll(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A file without a name, which cannot be left behind.
fn scratch_file() -> Result<File> {
    let dir = std::env::temp_dir();
    let file = File::options().read(true).write(true).custom_flags(OFlag::O_TMPFILE.bits()).open(&dir);
    file.with_context(|| format!("cannot create a file in {}", dir.display()))
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
