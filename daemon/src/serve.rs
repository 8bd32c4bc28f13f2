//! Life of a daemon: sets up the node, follows its masters, removes everything.

use std::{
    fs,
    io::{self, BufRead, Write},
    net::TcpListener as StdListener,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, SystemTime},
};

use anyhow::{Context, bail};
use coswitch_ckpt::{Arena, Criu};
use coswitch_policies::NodeId;
use serde::{Deserialize, Serialize};
use tokio::{
    net::TcpListener,
    sync::mpsc::{UnboundedSender, unbounded_channel},
};
use tracing::{error, warn};

use crate::{
    app::NodeServices,
    cgroup::{Hierarchies, NodeCgroup, daemons},
    control::{Control, Master, Remains},
    guard::Guard,
    home::{Home, HomeLine, Said},
    links::Links,
    node::{self, NodeConfig, VirtualLink},
    outbox::Outbox,
    plane::{Plane, connect},
    proc_text, processors,
    protocol::DaemonEvent,
    session::{self, SessionThread},
    virtual_net,
};

/// The exit code of a daemon that failed.
pub const FAILED: u8 = 2;
/// A line on the daemon's standard output: its network namespace exists.
pub const NAMESPACE: &str = "namespace";

/// The last line on the daemon's standard output, as JSON: it accepts connections at these ports.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// For the head node.
    pub control: u16,
    /// For the other daemons.
    pub data: u16,
}

/// For the end of the processes of a node's jobs.
pub const DESTROY_LIMIT: Duration = Duration::from_secs(10);

/// The process that has started this daemon and configures it.
enum Starter {
    /// It holds this daemon's standard input and output.
    Stdio,
    /// A batch system, for a master at the other end of a connection.
    Home(Box<HomeLine>),
}

/// Runs a daemon; the configuration is the first line of standard input.
///
/// # Errors
/// Where the node cannot be set up; the parts that were made are removed.
pub fn run() -> anyhow::Result<()> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).context("failed to read the configuration")?;
    let config: NodeConfig = serde_json::from_str(&line).context("failed to understand the configuration")?;
    follow(config, Starter::Stdio)
}

/// Runs a daemon that a batch system has started on `host`; its master configures it.
///
/// # Errors
/// As [`run`].
pub fn run_for(home: &Home, host: String) -> anyhow::Result<()> {
    let (line, config) = HomeLine::connect(home, host)?;
    follow(config, Starter::Home(Box::new(line)))
}

fn follow(config: NodeConfig, starter: Starter) -> anyhow::Result<()> {
    if !config.processors.is_empty() {
        processors::keep_to(&config.processors).context("failed to use the node's processors")?;
    }
    // Before this process leaves it.
    let head = (config.standing && config.link.is_some()).then(virtual_net::hold_namespace);
    let _head = head.transpose().context("failed to hold the head node's network open")?;
    if let Some(link) = config.link {
        join_virtual_net(config.node, link)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(serve(config, starter));
    // The thread that waits for the starter may still be blocked; all other work has ended.
    runtime.shutdown_background();
    result
}

/// Must run before any thread is started: namespaces belong to threads.
fn join_virtual_net(node: NodeId, link: VirtualLink) -> anyhow::Result<()> {
    virtual_net::enter_namespace()?;
    say(NAMESPACE)?;
    let mut plugged = String::new();
    io::stdin().lock().read_line(&mut plugged).context("failed to be plugged in")?;
    Ok(virtual_net::configure_link(node, link.rate)?)
}

/// Tells the parent process; fails where that has died.
fn say(word: &str) -> anyhow::Result<()> {
    writeln!(io::stdout(), "{word}").context("failed to write to the process that started this daemon")
}

async fn serve(config: NodeConfig, starter: Starter) -> anyhow::Result<()> {
    let hierarchies = Hierarchies::find()?;
    let (name, returns, resumes) = (config.name(), config.returns, config.resumes);
    let processors = processors::allowed().unwrap_or_default();
    // A batch system finds the daemon by its group, to end it.
    let is_free = !fs::read_to_string("/proc/self/cgroup").is_ok_and(|text| is_kept_in_group(&text));
    if is_free && let Err(error) = daemons::enter(&hierarchies, &processors) {
        warn!(%error, "ranks and data plane are in different scheduling groups: messages will be slow");
    }
    if returns {
        node::end_running(&hierarchies, &name, DESTROY_LIMIT)?;
    }
    let result = set_up_and_serve(config, hierarchies.clone(), starter).await;
    if is_free && let Err(error) = daemons::leave(&hierarchies) {
        warn!(%error, "the daemons' scheduling group stays behind");
    }
    let remains = match &result {
        Ok(remains) => *remains,
        Err(_) if resumes => Remains::Snapshots,
        Err(_) if returns => {
            // What an earlier daemon has sealed is for the next one.
            node::end_running(&hierarchies, &name, DESTROY_LIMIT).context("failed to end what is left")?;
            return result.map(drop);
        }
        Err(_) => Remains::Nothing,
    };
    // Also after a failed set-up or a failed release.
    let removed = match remains {
        Remains::Nothing => node::destroy(&hierarchies, &name, DESTROY_LIMIT),
        Remains::Snapshots => node::leave(&hierarchies, &name, DESTROY_LIMIT),
    };
    removed.context("failed to remove what is left")?;
    result.map(drop)
}

/// Whether `text`, of `/proc/self/cgroup`, names a group in which Slurm follows the processes of a step.
fn is_kept_in_group(text: &str) -> bool {
    text.lines().filter_map(|line| line.rsplit(':').next()).any(|group| {
        group
            .split('/')
            .any(|part| part == "slurm" || part.ends_with("slurmstepd.scope") || part.starts_with("slurm_"))
    })
}

async fn set_up_and_serve(
    config: NodeConfig,
    hierarchies: Hierarchies,
    starter: Starter,
) -> anyhow::Result<Remains> {
    let (plane_events, from_plane) = unbounded_channel();
    let plane = Plane::start(config.node, plane_events)?;
    let node = match set_up(config, hierarchies, plane) {
        Ok(node) => Arc::new(node),
        Err(error) => return Err(starter.tell_failure(error)),
    };
    let mut control = Control::new(Arc::clone(&node));
    if node.config.returns
        && let Err(error) = control.take_up()
    {
        control.end_all(Remains::Snapshots).await;
        return Err(starter.tell_failure(error));
    }
    let sessions = SessionThread::start().context("failed to start the thread of the control sessions")?;
    let listener = sessions.run(TcpListener::bind(node.config.control)).await;
    let listener = listener.context("failed to listen for the head node")?;
    let ready = Ready { control: listener.local_addr()?.port(), data: accept_links(Arc::clone(&node))? };
    let starter = starter.tell_ready(ready)?;
    let (masters, new_masters) = unbounded_channel();
    let accepted = accept_masters(listener, sessions.clone(), node.config.clone(), node.incarnation, masters);
    sessions.spawn(accepted);
    let starter = tokio::task::spawn_blocking(|| starter.wait_for_end());
    let followed = control.run(new_masters, from_plane, starter).await;
    control.end_all(*followed.as_ref().unwrap_or(&control.remains())).await;
    control.hang_up().await;
    followed
}

/// Accepts masters, each of a later generation than the one before, until the daemon ends.
async fn accept_masters(
    listener: TcpListener,
    sessions: SessionThread,
    config: NodeConfig,
    incarnation: u64,
    masters: UnboundedSender<Master>,
) {
    let mut generation = 0;
    loop {
        let (identity, node) = (&config.identity, config.node);
        let accepted = session::accept(&listener, identity, node, incarnation, &mut generation).await;
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => return error!(%error, "no further master can be accepted"),
        };
        let (events, to_head) = unbounded_channel();
        let (incoming, requests) = unbounded_channel();
        let carried = session::carry(stream, to_head, incoming, || DaemonEvent::Alive, config.stop_after);
        let carried = sessions.spawn(carried);
        if masters.send(Master { requests, events, carried }).is_err() {
            return;
        }
    }
}

fn set_up(config: NodeConfig, hierarchies: Hierarchies, plane: Plane) -> anyhow::Result<NodeServices> {
    if config.is_host() {
        check_host(&config)?;
    }
    let criu = Criu::locate()?;
    criu.prepare()?;
    let store = config.open_store().context("failed to make the store")?;
    let cgroup = NodeCgroup::create(hierarchies, &config.name(), config.memory)?;
    let criu = criu.with_workers_in(cgroup.checkpointers());
    let arena = Arena::new(config.arena.0).context("failed to map the arena")?;
    let guard = Guard::start().context("failed to start the guard of memory")?;
    let events = Outbox::default();
    // Since 1970, in nanoseconds: no two daemons of a node have the same.
    let incarnation = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let incarnation = u64::try_from(incarnation).unwrap_or(u64::MAX);
    let links = Links::default();
    let has_news = AtomicBool::new(false);
    Ok(NodeServices {
        config,
        incarnation,
        plane,
        links,
        criu,
        store,
        arena,
        cgroup,
        guard,
        events,
        has_news,
    })
}

/// Finds out before any job does that the machine lacks something.
fn check_host(config: &NodeConfig) -> anyhow::Result<()> {
    let offered = config.memory.unwrap_or_default().saturating_add(config.arena);
    let text = fs::read_to_string("/proc/meminfo").context("failed to ask for the machine's memory")?;
    if let Some(machine) = proc_text::size(&text, "MemTotal").filter(|machine| offered > *machine) {
        bail!("jobs and arena are to have {offered} together, and this machine has {machine}");
    }
    match config.needed.iter().find(|file| !file.exists()) {
        Some(file) => bail!(
            "there is no {} on this machine: it has to lie on a file system that all nodes share",
            file.display()
        ),
        None => Ok(()),
    }
}

impl Starter {
    /// Fails where the starter has died.
    fn tell_ready(mut self, ready: Ready) -> anyhow::Result<Self> {
        match &mut self {
            Self::Stdio => say(&serde_json::to_string(&ready).expect("two numbers"))?,
            Self::Home(line) => line.say(&Said::Ready(ready))?,
        }
        Ok(self)
    }

    /// A master elsewhere does not see this process' standard error.
    fn tell_failure(self, error: anyhow::Error) -> anyhow::Error {
        if let Self::Home(mut line) = self
            && let Err(lost) = line.say(&Said::Failed(format!("{error:#}")))
        {
            warn!(%lost, "the master was not told why this daemon ends");
        }
        error
    }

    /// The starter holds its end of the connection open until it ends.
    fn wait_for_end(self) {
        match self {
            // No further input is expected, and an error counts as the end.
            Self::Stdio => drop(io::copy(&mut io::stdin().lock(), &mut io::sink())),
            Self::Home(line) => line.wait_for_end(),
        }
    }
}

/// Returns the port. Each handshake has a thread of its own, so that a slow peer does not delay the others.
fn accept_links(node: Arc<NodeServices>) -> anyhow::Result<u16> {
    let listener = StdListener::bind(node.config.data).context("failed to listen for other daemons")?;
    let port = listener.local_addr()?.port();
    let (own, rules) = (node.link_end(), node.config.links);
    let server = node.config.identity.server()?;
    let node = Arc::downgrade(&node);
    let accept = move || {
        for stream in listener.incoming().flatten() {
            let (node, server) = (node.clone(), Arc::clone(&server));
            std::thread::spawn(move || {
                let accepted =
                    connect::accept(stream, own, rules, &server).map_err(|error| error.to_string());
                let added = accepted.and_then(|connection| match node.upgrade() {
                    Some(node) => node.add_link(connection),
                    None => Ok(()),
                });
                if let Err(error) = added {
                    warn!(error, "data link refused");
                }
            });
        }
    };
    std::thread::Builder::new().name("links".into()).spawn(accept)?;
    Ok(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_of_slurm_is_known_in_both_hierarchies() {
        for text in [
            "0::/system.slice/slurmstepd.scope/job_17/step_0/user/task_0\n",
            "0::/system.slice/n0_slurmstepd.scope/job_17/step_0\n",
            "4:memory:/slurm/uid_0/job_17/step_0\n0::/\n",
            "4:freezer:/slurm_n0/uid_0/job_17/step_0\n",
        ] {
            assert!(is_kept_in_group(text), "{text}");
        }
        for text in ["0::/\n", "0::/user.slice/session-1.scope\n", "0::/system.slice/slurmd.service\n", ""] {
            assert!(!is_kept_in_group(text), "{text}");
        }
    }
}
