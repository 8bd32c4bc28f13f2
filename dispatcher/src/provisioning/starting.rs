//! The conversation with a daemon while it starts: its configuration goes to its standard input, lines come
//! back from its standard output, and its log is its standard error.

use std::{
    io::{self, BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use coswitch_daemon::{node::NodeConfig, private, serve::Ready};
use coswitch_policies::NodeId;
use nix::unistd::setsid;

use super::{ProvisioningError, failed};

const START_LIMIT: Duration = Duration::from_secs(30);

/// A daemon, or the process that leads to it, as a child of this process.
pub(super) struct Started {
    pub(super) process: Child,
    /// Held open: its end tells the daemon that this process has died.
    pub(super) input: Option<ChildStdin>,
}

/// The log of a node's daemon.
pub(super) struct Log {
    path: PathBuf,
    /// A cluster that begins again, or goes on, goes on with its logs.
    goes_on: bool,
}

pub(super) struct Starting {
    node: NodeId,
    started: Started,
    output: mpsc::Receiver<String>,
    log: PathBuf,
}

impl Log {
    /// It exists where this is another attempt to start the daemon.
    pub(super) fn of(config: &NodeConfig, directory: &Path, is_another: bool) -> Self {
        let path = directory.join(format!("{}.log", config.node));
        Self { path, goes_on: config.standing || config.resumes || is_another }
    }
}

impl Starting {
    /// Runs `command` and configures the daemon behind it.
    pub(super) fn begin(
        mut command: Command,
        config: &NodeConfig,
        log: Log,
    ) -> Result<Self, ProvisioningError> {
        let file = if log.goes_on { private::append(&log.path) } else { private::create(&log.path) };
        let file = file.map_err(failed(format!("create {}", log.path.display())))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file);
        // Ctrl-C and the end of a terminal reach the processes of its session; only the master shall hear
        // them.
        // SAFETY: between fork and exec the closure makes one system call and touches no lock and no heap.
        unsafe { command.pre_exec(|| Ok(setsid().map(drop)?)) };
        let program = command.get_program().display().to_string();
        let mut process = command.spawn().map_err(failed(format!("start {program}")))?;
        let input = process.stdin.take().expect("piped");
        let output = lines(process.stdout.take().expect("piped"));
        let started = Started { process, input: Some(input) };
        let mut starting = Self { node: config.node, started, output, log: log.path };
        let line = serde_json::to_string(config).expect("a configuration is plain data");
        match starting.say(&line) {
            // It has ended already, and the wait for its answer finds that.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(failed("configure a daemon")(error))
            }
            _ => Ok(starting),
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.started.process.id()
    }

    pub(super) fn say(&mut self, line: &str) -> io::Result<()> {
        let input = self.started.input.as_mut().expect("closed only when the daemon is to end");
        writeln!(input, "{line}")
    }

    /// Waits for the next line, which has to be `word`.
    pub(super) fn expect(&mut self, word: &str) -> Result<(), ProvisioningError> {
        let said = self.hear();
        if said.as_deref() == Ok(word) { Ok(()) } else { Err(self.failed(said)) }
    }

    /// Waits until the daemon accepts connections.
    pub(super) fn ready(&mut self) -> Result<Ready, ProvisioningError> {
        let deadline = Instant::now() + START_LIMIT;
        // A login may say something first: what root's shell prints when it begins.
        let mut before = None;
        loop {
            let said = self.output.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            match said {
                Ok(line) => match serde_json::from_str(&line) {
                    Ok(ready) => return Ok(ready),
                    Err(_) => before = Some(line),
                },
                Err(mpsc::RecvTimeoutError::Disconnected) if before.is_some() => {
                    return Err(self.failed(before.ok_or(mpsc::RecvTimeoutError::Disconnected)));
                }
                silent => return Err(self.failed(silent)),
            }
        }
    }

    pub(super) fn started(self) -> Started {
        self.started
    }

    fn hear(&self) -> Result<String, mpsc::RecvTimeoutError> {
        self.output.recv_timeout(START_LIMIT)
    }

    fn failed(&self, said: Result<String, mpsc::RecvTimeoutError>) -> ProvisioningError {
        let said = said.unwrap_or_else(|error| match error {
            mpsc::RecvTimeoutError::Timeout => format!("it was silent for {} s", START_LIMIT.as_secs()),
            mpsc::RecvTimeoutError::Disconnected => last_line(&self.log),
        });
        ProvisioningError::Start { node: self.node, said, log: self.log.clone() }
    }
}

/// Waits for the end of a process, and reaps it; kills it where there is none in time.
pub(super) fn wait(process: &mut Child, deadline: Instant) -> Option<ExitStatus> {
    loop {
        match process.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
            _ => {
                let _ = process.kill().and_then(|()| process.wait());
                return None;
            }
        }
    }
}

/// The lines that a daemon writes, read by a thread so that a wait for one can have a time-out.
fn lines(output: ChildStdout) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let lines = BufReader::new(output).lines();
        lines.map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    receiver
}

/// Why a daemon ended without a word on its standard output.
fn last_line(log: &Path) -> String {
    let bytes = private::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing").to_owned()
}
