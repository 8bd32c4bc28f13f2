//! The virtual nodes: one daemon each, started here, plugged into the bridge, and removed without trace at the end.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, bail};
use coswitch_daemon::{
    cgroup::Hierarchies,
    fabric,
    node::{self, NodeConfig, VirtualLink},
    pki::{Authority, Identity},
    serve::{NAMESPACE, READY},
};
use coswitch_dispatcher::cluster::Address;
use coswitch_policies::NodeId;

use super::EngineOptions;
use crate::{config::JobSet, install::Installation};

const CONTROL_PORT: u16 = 7077;
const DATA_PORT: u16 = 7078;
const START_LIMIT: Duration = Duration::from_secs(30);
/// A daemon that has been told to end releases its applications first.
const END_LIMIT: Duration = Duration::from_secs(40);
const DESTROY_LIMIT: Duration = Duration::from_secs(10);
/// Parked jobs are on disk unless the run file says otherwise: memory is what there is too little of.
const STORE: &str = "/var/tmp";

/// The running daemons. Dropped without [`Nodes::end`], they are killed and cleaned up after all the same.
pub(super) struct Nodes {
    identity: Identity,
    daemons: Vec<Daemon>,
}

struct Daemon {
    node: NodeId,
    name: String,
    store: PathBuf,
    process: Child,
}

/// The conversation with a daemon while it starts.
struct Starting {
    daemon: Daemon,
    input: ChildStdin,
    output: mpsc::Receiver<String>,
}

impl Nodes {
    pub(super) fn start(jobs: &JobSet, options: &EngineOptions) -> anyhow::Result<Self> {
        let installation = Installation::find()?;
        let authority = Authority::new()?;
        let store = jobs
            .cluster
            .store
            .clone()
            .unwrap_or_else(|| STORE.into())
            .join(format!("coswitch-{}", options.run));
        let mut nodes = Self { identity: authority.member()?, daemons: Vec::new() };
        let link = VirtualLink { rate: jobs.cluster.rate };
        let mut starting = Vec::new();
        for node in (0..jobs.cluster.nodes).map(NodeId) {
            let config = NodeConfig {
                run: options.run.clone(),
                node,
                identity: authority.member()?,
                control: listen(node, CONTROL_PORT),
                data: listen(node, DATA_PORT),
                memory: Some(jobs.cluster.memory),
                store: store.join(node.to_string()),
                provider: installation.driver.parent().expect("a file has a directory").to_path_buf(),
                launcher: installation.launcher.clone(),
                link: Some(link),
            };
            starting.push(spawn(config, &installation, options)?);
        }
        // Each step for all of them before the next: they start side by side.
        let mut ready = Ok(());
        for daemon in &mut starting {
            ready = ready.and_then(|()| daemon.plug(link));
        }
        for daemon in &mut starting {
            ready = ready.and_then(|()| daemon.expect(READY));
        }
        nodes.daemons = starting.into_iter().map(|starting| starting.daemon).collect();
        ready.map(|()| nodes)
    }

    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(super) fn addresses(&self) -> Vec<Address> {
        let address =
            |node| Address { node, control: listen(node, CONTROL_PORT), data: listen(node, DATA_PORT) };
        self.daemons.iter().map(|daemon| address(daemon.node)).collect()
    }

    /// Waits for the daemons, which have been told to end, and removes what those that did not have left.
    pub(super) fn end(mut self) -> anyhow::Result<()> {
        self.reap(END_LIMIT)
    }

    fn reap(&mut self, limit: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + limit;
        let hierarchies = Hierarchies::find()?;
        for mut daemon in self.daemons.drain(..) {
            while daemon.process.try_wait()?.is_none() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            daemon.process.kill()?;
            daemon.process.wait()?;
            node::destroy(&hierarchies, &daemon.name, Some(&daemon.store), DESTROY_LIMIT)?;
            // The directory of the run's stores; the last daemon finds it empty.
            daemon.store.parent().map(fs::remove_dir);
        }
        Ok(())
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        if let Err(error) = self.reap(Duration::ZERO) {
            tracing::error!(%error, "failed to remove what the run has left; see `coswitch clean`");
        }
    }
}

fn listen(node: NodeId, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(fabric::address(node)), port)
}

fn spawn(
    config: NodeConfig,
    installation: &Installation,
    options: &EngineOptions,
) -> anyhow::Result<Starting> {
    let log = options.out.join(format!("{}.log", config.node));
    let log = File::create(&log).with_context(|| format!("failed to create {}", log.display()))?;
    let mut process = Command::new(&installation.daemon)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .with_context(|| format!("failed to start {}", installation.daemon.display()))?;
    let mut input = process.stdin.take().expect("piped");
    let output = lines(process.stdout.take().expect("piped"));
    writeln!(input, "{}", serde_json::to_string(&config)?).context("failed to configure a daemon")?;
    let daemon = Daemon { node: config.node, name: config.name(), store: config.store, process };
    Ok(Starting { daemon, input, output })
}

/// What a daemon says, line by line, so that it can be waited for with a time-out.
fn lines(output: ChildStdout) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(output).lines();
        lines.map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    receiver
}

impl Starting {
    fn plug(&mut self, link: VirtualLink) -> anyhow::Result<()> {
        self.expect(NAMESPACE)?;
        fabric::plug(self.daemon.node, self.daemon.process.id(), link.rate)?;
        writeln!(self.input).context("failed to tell a daemon that its link is there")
    }

    fn expect(&mut self, word: &str) -> anyhow::Result<()> {
        let node = self.daemon.node;
        match self.output.recv_timeout(START_LIMIT) {
            Ok(said) if said == word => Ok(()),
            Ok(said) => bail!("the daemon of {node} said `{said}` where `{word}` was expected"),
            Err(_) => {
                Err(anyhow!("the daemon of {node} did not start; see {node}.log in the run's directory"))
            }
        }
    }
}
