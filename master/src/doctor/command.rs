//! Runs a small tool with a time limit.

use std::{
    io,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Longer than any of the tools takes, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// Returns the tool's output, which must be small enough for a pipe's buffer.
///
/// # Errors
/// Where the tool cannot be started or does not end in time; then it is killed and reaped.
fn run(command: &mut Command) -> io::Result<Output> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let began = Instant::now();
    while child.try_wait()?.is_none() {
        if began.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("it did not end in {LIMIT:?}")));
        }
        thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output()
}

/// Returns the tool's standard output.
///
/// # Errors
/// With the last line of its standard error, where the tool failed.
pub(crate) fn text(command: &mut Command) -> Result<String, String> {
    let output = run(command).map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.lines().rev().find(|line| !line.trim().is_empty()).map(str::trim);
    Err(last.map_or_else(|| output.status.to_string(), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_tool_is_its_last_line() {
        let mut command = Command::new("sh");
        assert_eq!(text(command.args(["-c", "echo first >&2; echo last >&2; exit 3"])), Err("last".into()));
        assert!(text(&mut Command::new("/no/such/tool")).is_err());
    }
}
