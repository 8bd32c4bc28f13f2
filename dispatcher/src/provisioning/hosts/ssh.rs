//! Commands on other machines, by the user's own `ssh` and its configuration.

use std::{
    env, io,
    net::{IpAddr, ToSocketAddrs},
    process::{Command, ExitStatus, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use super::{Host, ProvisioningError};
pub(super) use crate::provisioning::starting::wait;

/// Names another program than `ssh`, with arguments before those of coswitch: `ssh -F FILE`.
const PROGRAM: &str = "COSWITCH_SSH";
/// Nobody is there to type a password; a host that does not answer is found out early; a connection that an
/// idle router has dropped is noticed.
const OPTIONS: [&str; 7] =
    ["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15"];
/// sshd begins to refuse connections where ten are being made, also those through one jump host.
const AT_ONCE: usize = 8;
/// ssh has failed, not the command.
const FAILED: i32 = 255;
/// Of a command that is not a daemon.
const LIMIT: Duration = Duration::from_secs(120);

fn program() -> Command {
    let words = env::var(PROGRAM).unwrap_or_default();
    let mut words = words.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("ssh"));
    command.args(words);
    command
}

/// `script` in a POSIX shell on the host.
pub(super) fn command(host: &Host, script: &str) -> Command {
    let mut command = program();
    command.args(OPTIONS).args(["--", &host.name, &format!("exec sh -c {}", quote(script))]);
    command
}

/// Runs `script` to its end, with `input`.
///
/// # Errors
/// Where the host cannot be reached. How the script has ended is the caller's to judge.
pub(super) fn run(
    host: &Host,
    act: &'static str,
    script: &str,
    input: Stdio,
) -> Result<Answer, ProvisioningError> {
    let failed = |said| ProvisioningError::Host { act, host: host.name.clone(), said };
    let mut ssh = command(host, script);
    ssh.stdin(input).stdout(Stdio::null());
    let ended = to_end(ssh).map_err(failed)?;
    let (status, said) = (ended.status, ended.said());
    match status.code() {
        None | Some(FAILED) => Err(failed(said)),
        Some(_) => Ok(Answer { status, said }),
    }
}

/// What `script` writes, to its end.
///
/// # Errors
/// Where the host cannot be reached, or the script fails.
pub(super) fn read(host: &Host, act: &'static str, script: &str) -> Result<String, ProvisioningError> {
    let failed = |said| ProvisioningError::Host { act, host: host.name.clone(), said };
    let mut ssh = command(host, script);
    ssh.stdin(Stdio::null()).stdout(Stdio::piped());
    let ended = to_end(ssh).map_err(failed)?;
    if ended.status.success() { Ok(ended.output) } else { Err(failed(ended.said())) }
}

struct Ended {
    status: ExitStatus,
    output: String,
    errors: String,
}

impl Ended {
    /// The last line of its standard error.
    fn said(&self) -> String {
        let last = self.errors.lines().rfind(|line| !line.trim().is_empty());
        last.unwrap_or("no reason given").to_owned()
    }
}

/// Runs ssh to its end, and reads the little that it says.
fn to_end(mut ssh: Command) -> Result<Ended, String> {
    let mut ssh =
        ssh.stderr(Stdio::piped()).spawn().map_err(|error| format!("ssh cannot be run: {error}"))?;
    let Some(status) = wait(&mut ssh, Instant::now() + LIMIT) else {
        return Err(format!("it takes longer than {} s", LIMIT.as_secs()));
    };
    let output = ssh.wait_with_output().map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Ended { status, output: text(&output.stdout), errors: text(&output.stderr) })
}

pub(super) struct Answer {
    pub(super) status: ExitStatus,
    /// The last line of its standard error.
    pub(super) said: String,
}

/// Does `work` for each item, several at once; the results are in the order of the items.
pub(super) fn for_each<Item: Send, Made: Send>(
    items: Vec<Item>,
    work: impl Fn(Item) -> Made + Sync,
) -> Vec<Made> {
    let count = items.len();
    let waiting = Mutex::new(items.into_iter().enumerate());
    let next = || waiting.lock().expect("no panic while holding it").next();
    let worker = || {
        let mut made = Vec::new();
        while let Some((index, item)) = next() {
            made.push((index, work(item)));
        }
        made
    };
    let mut all: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..count.min(AT_ONCE)).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a worker does not panic")).collect()
    });
    all.sort_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, made)| made).collect()
}

/// The address at which the other nodes and the master reach the host.
pub(super) fn address(host: &Host) -> Result<IpAddr, ProvisioningError> {
    let failed = |said| ProvisioningError::Host { act: "find the address of", host: host.name.clone(), said };
    let name = match &host.address {
        Some(address) => address.clone(),
        None => {
            let mut ssh = program();
            ssh.args(["-G", "--", &host.name]).stdin(Stdio::null()).stdout(Stdio::piped());
            let text = to_end(ssh).map_err(failed)?.output;
            let line = text.lines().find_map(|line| line.strip_prefix("hostname "));
            line.ok_or_else(|| failed("ssh does not know it".into()))?.trim().to_owned()
        }
    };
    let found = (name.as_str(), 0).to_socket_addrs().and_then(|all| {
        let all: Vec<IpAddr> = all.map(|address| address.ip()).collect();
        let of_network = all.iter().find(|address| !address.is_loopback());
        of_network.or(all.first()).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    });
    found.map_err(|error| failed(format!("`{name}`: {error}; `address` in the run file says it")))
}

/// One word of a shell's command.
pub(super) fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_word_is_one_word_of_a_shell() {
        for word in ["plain", "two words", "it's", "$HOME `id` \"x\"", ""] {
            let script = format!("printf %s {}", quote(word));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
    }

    #[test]
    fn work_is_done_side_by_side_and_kept_in_order() {
        let double = |number: u32| {
            thread::sleep(std::time::Duration::from_millis(u64::from(20 - number)));
            number * 2
        };
        let made = for_each((0..20).collect(), double);
        assert_eq!(made, (0..20).map(|number| number * 2).collect::<Vec<_>>());
    }
}
