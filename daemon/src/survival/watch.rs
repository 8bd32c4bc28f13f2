//! The watcher: a process beside the daemon of a cluster that stays. Where the daemon dies and no other one
//! comes for as long as a daemon waits for a master, it ends the node's processes, also frozen ones, which
//! cannot end themselves.

use std::{
    io::{self, Read, Write},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use coswitch_ckpt::forker;
use nix::{
    sys::{
        prctl,
        wait::{WaitPidFlag, waitpid},
    },
    unistd::{Pid, setsid},
};

use crate::{
    cgroup::{Hierarchies, NodeCgroup, daemons},
    node::{self, NodeConfig, WATCHER},
    process::Process,
    serve::DESTROY_LIMIT,
};

/// The argument that makes `coswitchd` a watcher.
const ARGUMENT: &str = "watch";
const NAME: &std::ffi::CStr = c"coswitch-watch";
const LOOK_EVERY: Duration = Duration::from_millis(200);
const END_LIMIT: Duration = Duration::from_secs(5);

/// Starts the watcher of this daemon, and notes it. There is one for each node.
pub(crate) fn start_watcher(config: &NodeConfig) -> anyhow::Result<()> {
    let own = std::process::id();
    let started = Process::of(own).context("this process has no entry in /proc")?.started;
    let numbers = [own.to_string(), started.to_string(), config.stop_after.as_secs().to_string()];
    let name = config.name();
    let mut command = Command::new("/proc/self/exe");
    command.arg(ARGUMENT).arg(&name).args(numbers).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = forker::run(move || command.spawn()).context("the watcher cannot be started")?;
    // It has its name by then.
    let mut word = [0];
    let said = child.stdout.take().expect("piped").read(&mut word);
    if !matches!(said, Ok(1)) {
        let _ = child.kill();
        let _ = child.wait();
        anyhow::bail!("the watcher has ended at once");
    }
    node::note_process(&name, WATCHER, Process::of(child.id())).context("the watcher cannot be noted")
}

/// Ends the watcher of a node, where there is one, and it is not this process.
pub(crate) fn end_watcher(name: &str) {
    let watcher = node::noted_process(name, WATCHER).filter(|watcher| watcher.pid != std::process::id());
    let Some(watcher) = watcher else { return };
    let _ = watcher.kill();
    let deadline = Instant::now() + END_LIMIT;
    while watcher.is_alive() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
    // A child of this process, or init's.
    let _ = waitpid(Pid::from_raw(watcher.pid.cast_signed()), Some(WaitPidFlag::WNOHANG));
}

/// Waits for the end of `daemon`; then, for so long, until the node has another one or no processes. Then it
/// ends these.
///
/// # Errors
/// Where they cannot be ended.
pub fn watch(name: &str, daemon: Process, patience: Duration) -> anyhow::Result<()> {
    prctl::set_name(NAME)?;
    setsid()?;
    let hierarchies = Hierarchies::find()?;
    let _ = daemons::leave(&hierarchies);
    io::stdout().write_all(b".").and_then(|()| io::stdout().flush())?;
    daemon.wait_for_end(None)?;
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        if node::standing_daemon(name).is_some() || !NodeCgroup::is_populated(&hierarchies, name) {
            return Ok(());
        }
        thread::sleep(LOOK_EVERY);
    }
    node::end_running(&hierarchies, name, DESTROY_LIMIT)
}
