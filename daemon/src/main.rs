//! The program `coswitchd`, the node daemon: `coswitch` starts one for each node.
//!
//! ```text
//! coswitchd               the daemon of a node, configured by the first line of its standard input
//! coswitchd home          the same, started by a batch system, configured by the master that it connects to
//! coswitchd adopt FD      the same, executed by the daemon before, which has left its state in that file
//! coswitchd versions      prints what it speaks, for the daemon that is to be followed by this one
//! coswitchd is-alive NODE whether the daemon of that node is alive on this machine; exit code 1: it is not
//! coswitchd watch NODE PID START SECONDS
//!                         ends what that daemon has left where none follows it for so long
//! coswitchd end NODE SECONDS
//!                         kills it, if it has not ended by then, and removes everything of the node
//! coswitchd end-all RUN   the same for all nodes of a run on this machine, at once
//! ```

use std::{
    io::Write,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context;
use coswitch_daemon::{cgroup::Hierarchies, handover, home, node, process::Process, serve, survival};
use coswitch_launcher::{keyring, limits, panics};

fn main() -> ExitCode {
    panics::end_the_process();
    coswitch_ckpt::private::restrict_umask();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let Err(error) = keyring::leave() {
        eprintln!("coswitchd: it cannot leave the keyring of its session: {error}");
        return ExitCode::FAILURE;
    }
    // SAFETY: this process has not started a thread yet.
    if let Err(error) = unsafe { limits::raise() } {
        eprintln!("coswitchd: its limit of descriptors cannot be raised: {error}");
    }
    // SAFETY: as above.
    let at_home = (arguments == ["home"]).then(|| unsafe { home::take() });
    // A disk that is slow or full delays no heartbeat. The guard writes what is left at the end.
    let (log, guard) = tracing_appender::non_blocking(std::io::stderr());
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_env("COSWITCH_LOG"))
        .with_writer(log)
        .with_ansi(false)
        .init();
    let result = match arguments[..] {
        [] => serve::run(),
        ["home"] => at_home
            .expect("it was taken for this argument")
            .and_then(|(home, host)| serve::run_for(&home, host)),
        ["adopt", file] => serve::adopt(file, None),
        ["adopt", file, given_up] => serve::adopt(file, Some(given_up)),
        ["versions"] => versions().map(|()| None),
        ["is-alive", name] if node::standing_daemon(name).is_some() => Ok(None),
        ["is-alive", _] => return ExitCode::FAILURE,
        ["watch", name, pid, started, seconds] => watch(name, pid, started, seconds).map(|()| None),
        ["end", name, seconds] => end(name, seconds).map(|()| None),
        ["end-all", run] => end_all(run).map(|()| None),
        _ => Err(anyhow::anyhow!("it is started by `coswitch`, without arguments")),
    };
    let result = result.and_then(|successor| match successor {
        None => Ok(()),
        Some(successor) => {
            drop(guard);
            Err(anyhow::Error::from(successor.take_over()).context("failed to execute the next program"))
        }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("coswitchd: {error:#}");
            ExitCode::from(serve::FAILED)
        }
    }
}

fn versions() -> anyhow::Result<()> {
    let said = serde_json::to_string(&handover::compatible())?;
    writeln!(std::io::stdout(), "{said}").context("failed to answer")
}

fn watch(name: &str, pid: &str, started: &str, seconds: &str) -> anyhow::Result<()> {
    let (pid, started) = (pid.parse()?, started.parse()?);
    survival::watch(name, Process { pid, started }, Duration::from_secs(seconds.parse()?))
}

fn end(name: &str, seconds: &str) -> anyhow::Result<()> {
    let patience = Duration::from_secs(seconds.parse().context("the time is not a number of seconds")?);
    let deadline = Instant::now() + patience;
    while node::standing_daemon(name).is_some() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    node::end(&Hierarchies::find()?, name, serve::DESTROY_LIMIT)
}

fn end_all(run: &str) -> anyhow::Result<()> {
    let hierarchies = Hierarchies::find()?;
    let is_of_run = |name: &String| name.rsplit_once("-n").is_some_and(|(other, _)| other == run);
    let mut names = node::leftovers(&hierarchies).into_iter().filter(is_of_run);
    names.try_for_each(|name| node::end(&hierarchies, &name, serve::DESTROY_LIMIT))
}
