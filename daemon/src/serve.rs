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
    control::{Control, Master},
    guard::Guard,
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

/// Runs a daemon; the configuration is the first line of standard input.
///
/// # Errors
/// Where the node cannot be set up; the parts that were made are removed.
pub fn run() -> anyhow::Result<()> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).context("failed to read the configuration")?;
    let config: NodeConfig = serde_json::from_str(&line).context("failed to understand the configuration")?;
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
    let result = runtime.block_on(serve(config));
    // The thread that reads standard input may still be blocked; all other work has ended.
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

async fn serve(config: NodeConfig) -> anyhow::Result<()> {
    let hierarchies = Hierarchies::find()?;
    let name = config.name();
    let processors = processors::allowed().unwrap_or_default();
    if let Err(error) = daemons::enter(&hierarchies, &processors) {
        warn!(%error, "ranks and data plane are in different scheduling groups: messages will be slow");
    }
    let returns = config.returns;
    if returns {
        node::end_running(&hierarchies, &name, DESTROY_LIMIT)?;
    }
    let result = set_up_and_serve(config, hierarchies.clone()).await;
    if let Err(error) = daemons::leave(&hierarchies) {
        warn!(%error, "the daemons' scheduling group stays behind");
    }
    if returns && result.is_err() {
        // What an earlier daemon has sealed is for the next one.
        node::end_running(&hierarchies, &name, DESTROY_LIMIT).context("failed to end what is left")?;
        return result;
    }
    // Also after a failed set-up or a failed release.
    node::destroy(&hierarchies, &name, DESTROY_LIMIT).context("failed to remove what is left")?;
    result
}

async fn set_up_and_serve(config: NodeConfig, hierarchies: Hierarchies) -> anyhow::Result<()> {
    let (plane_events, from_plane) = unbounded_channel();
    let plane = Plane::start(config.node, plane_events)?;
    let node = Arc::new(set_up(config, hierarchies, plane)?);
    let sessions = SessionThread::start().context("failed to start the thread of the control sessions")?;
    let listener = sessions.run(TcpListener::bind(node.config.control)).await;
    let listener = listener.context("failed to listen for the head node")?;
    let ready = Ready { control: listener.local_addr()?.port(), data: accept_links(Arc::clone(&node))? };
    say(&serde_json::to_string(&ready).expect("two numbers"))?;
    let (masters, new_masters) = unbounded_channel();
    let accepted = accept_masters(listener, sessions.clone(), node.config.clone(), node.incarnation, masters);
    sessions.spawn(accepted);
    let starter = tokio::task::spawn_blocking(wait_for_end_of_input);
    let mut control = Control::new(Arc::clone(&node));
    if node.config.returns {
        control.take_up().context("failed to take up what an earlier daemon has sealed")?;
    }
    let followed = control.run(new_masters, from_plane, starter).await;
    control.release_all().await;
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

/// The process that started this daemon holds its standard input open until it ends.
fn wait_for_end_of_input() {
    // No further input is expected, and an error counts as the end.
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
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
