//! Finds out, before anything is stopped for it, whether a program can take over from this one.

use std::{
    io::Read,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::VERSION;
use crate::protocol;

/// The argument that makes `coswitchd` print its [`Compatible`].
pub(crate) const ARGUMENT: &str = "versions";
const LIMIT: Duration = Duration::from_secs(10);

/// What a program says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compatible {
    /// Of coswitch.
    pub version: String,
    /// Of the control protocol.
    pub protocol: u32,
    /// Of a [`super::Handover`].
    pub handover: u32,
}

/// What this program says of itself.
#[must_use]
pub fn compatible() -> Compatible {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Compatible { version, protocol: protocol::VERSION, handover: VERSION }
}

/// Runs the program and asks it. Blocks.
///
/// # Errors
/// Says why it cannot take over.
pub(crate) fn examine(program: &Path) -> Result<Compatible, String> {
    let name = program.display();
    let answer = ask(program).map_err(|error| format!("{name} cannot be used: {error}"))?;
    let said: Compatible = serde_json::from_str(&answer)
        .map_err(|_| format!("{name} cannot be used: it does not say which versions it speaks"))?;
    judge(&said, &compatible())
        .map_err(|why| format!("{name}, version {}, cannot be used: {why}", said.version))?;
    Ok(said)
}

fn judge(new: &Compatible, own: &Compatible) -> Result<(), String> {
    if new.protocol != own.protocol {
        return Err(format!(
            "it speaks version {} of the control protocol, and the master speaks version {}; end the cluster \
             and serve it anew",
            new.protocol, own.protocol
        ));
    }
    if new.handover != own.handover {
        return Err(format!(
            "it reads version {} of what a daemon hands over, and this daemon writes version {}; end the \
             cluster and serve it anew",
            new.handover, own.handover
        ));
    }
    Ok(())
}

/// The standard output of the program, which must end well and in time.
fn ask(program: &Path) -> Result<String, String> {
    let mut command = Command::new(program);
    command.arg(ARGUMENT).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(2)),
            other => {
                let _ = child.kill().and_then(|()| child.wait());
                return Err(match other {
                    Err(error) => error.to_string(),
                    Ok(_) => format!("it has not answered within {} s", LIMIT.as_secs()),
                });
            }
        }
    };
    let mut answer = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut answer).map_err(|error| error.to_string())?;
    if status.success() { Ok(answer) } else { Err(format!("it has ended with {status}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_protocol_or_handover_is_refused_with_both_versions() {
        let own = compatible();
        assert_eq!(judge(&Compatible { version: "9.9.9".into(), ..own.clone() }, &own), Ok(()));
        let protocol = Compatible { protocol: own.protocol + 1, ..own.clone() };
        let why = judge(&protocol, &own).unwrap_err();
        assert!(why.contains(&protocol.protocol.to_string()) && why.contains("control protocol"), "{why}");
        assert!(judge(&Compatible { handover: 0, ..own.clone() }, &own).unwrap_err().contains("version 0"));
    }

    #[test]
    fn a_program_that_cannot_run_or_is_no_daemon_is_named_with_the_reason() {
        for (program, why) in [
            ("/nonexistent", "No such file"),
            ("/bin/false", "exit status: 1"),
            ("/bin/echo", "versions it speaks"),
        ] {
            let refused = examine(Path::new(program)).unwrap_err();
            assert!(refused.starts_with(program) && refused.contains(why), "{refused}");
        }
    }
}
