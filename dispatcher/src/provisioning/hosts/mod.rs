//! Hosts: machines of their own, reached by `ssh`. The session of ssh starts a daemon and stays: it carries
//! the daemon's configuration there, and its log back.
//!
//! ```text
//!   master ── ssh HOST coswitchd ── sshd ── coswitchd       configuration, ready, log
//!      ╚════════════ control: TLS ═════════════╝            all else
//! ```
//! A daemon that outlives its master outlives the session as well.

mod parts;
mod ssh;

use std::{
    env,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant},
};

use coswitch_daemon::{
    node::{NodeConfig, Tier},
    pki::{Authority, Holder, Identity},
    proc_text,
    serve::Ready,
};
use coswitch_policies::{Bytes, NodeId};
use serde::{Deserialize, Serialize};

use self::parts::Parts;
use super::{
    Address, DaemonsRequest, END_LIMIT, Installed, NodeSpec, Provisioning, ProvisioningError, failed,
    starting::{Log, Started, Starting},
};

/// For a daemon whose session of ssh has been closed.
const DROP_LIMIT: Duration = Duration::from_secs(10);
/// The exit code where a host has not got the programs of coswitch.
const NOT_FOUND: i32 = 127;
const DAEMON: &str = "coswitchd";
/// Of this process' environment a daemon gets these.
const ENVIRONMENT: [&str; 3] = ["COSWITCH_LOG", "COSWITCH_CRIU", "COSWITCH_PREFIX"];

/// A machine that is a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// As `ssh` takes it.
    pub name: String,
    /// The name or IP address at which the other nodes and the master reach the host; `None`: the one that
    /// `ssh` uses.
    #[serde(default)]
    pub address: Option<String>,
    /// For the daemon and its ranks; empty: all.
    #[serde(default)]
    pub processors: Vec<usize>,
    /// Where the host keeps images, in the order of use; empty: where the others do.
    #[serde(default)]
    pub store: Vec<Tier>,
}

/// A request for hosts.
#[derive(Clone, Debug)]
pub struct HostRequest {
    pub daemons: DaemonsRequest,
    /// Node `i` is host `i`.
    pub hosts: Vec<Host>,
    /// See [`NodeConfig::needed`].
    pub needed: Vec<PathBuf>,
}

/// The memory that each of these hosts has free now.
///
/// # Errors
/// For the first host that cannot be asked.
pub fn free_memory(hosts: &[&Host]) -> Result<Vec<Bytes>, ProvisioningError> {
    const ACT: &str = "ask for the memory of";
    let ask = |host: &Host| {
        let text = ssh::read(host, ACT, "cat /proc/meminfo")?;
        proc_text::size(&text, "MemAvailable").ok_or_else(|| ProvisioningError::Host {
            act: ACT,
            host: host.name.clone(),
            said: "its kernel does not say how much is free".into(),
        })
    };
    ssh::for_each(hosts.to_vec(), ask).into_iter().collect()
}

/// The running daemons of hosts.
pub struct Hosts {
    identity: Identity,
    nodes: Vec<NodeSpec>,
    /// Each with its session; `None` where another process has started it.
    daemons: Mutex<Vec<(Daemon, Option<Session>)>>,
    programs: Mutex<Programs>,
    standing: bool,
    /// Snapshots of parked applications stay.
    keeps: bool,
}

/// How daemons are started again.
#[derive(Clone, Serialize, Deserialize)]
struct Programs {
    parts: Parts,
    logs: PathBuf,
    configs: Vec<NodeConfig>,
}

/// What a new master needs to find the nodes again.
#[derive(Clone, Serialize, Deserialize)]
pub struct HostsState {
    identity: Identity,
    nodes: Vec<NodeSpec>,
    daemons: Vec<Daemon>,
    programs: Programs,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Daemon {
    node: NodeId,
    host: Host,
    /// Of the node, on its host.
    name: String,
    /// The program `coswitchd` there.
    program: PathBuf,
    address: IpAddr,
    ports: Ready,
}

/// The process of ssh behind which a daemon runs.
type Session = Started;

impl Provisioning for Hosts {
    type Request = HostRequest;
    type State = HostsState;

    fn start(request: &HostRequest) -> Result<Self, ProvisioningError> {
        let authority = Authority::new()?;
        let parts = Parts::of(&request.daemons.installed).map_err(failed("read the programs of coswitch"))?;
        let nodes = request.daemons.nodes.clone();
        let config = |spec: &NodeSpec| {
            let identity = authority.certify(Holder::Node(spec.node))?;
            Ok::<_, ProvisioningError>(configure(request, &parts, spec, identity))
        };
        let configs = nodes.iter().map(config).collect::<Result<Vec<_>, _>>()?;
        let identity = authority.certify(Holder::Head)?;
        let programs = Programs { parts, logs: request.daemons.logs.clone(), configs };
        let (parts, logs, configs) = (&programs.parts, &programs.logs, programs.configs.iter().cloned());
        let outcomes = ssh::for_each(request.hosts.iter().zip(configs).collect(), |(host, mut config)| {
            start(host, &mut config, parts, logs)
        });
        // Where one has not started, this ends the others.
        let (daemons, keeps) = (Mutex::default(), request.daemons.resumes);
        let programs = Mutex::new(programs);
        let mut started = Self { identity, nodes, daemons, programs, standing: false, keeps };
        let mut failed = None;
        for outcome in outcomes {
            match outcome {
                Ok((daemon, session)) => started.daemons().push((daemon, Some(session))),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        started.standing = request.daemons.standing && failed.is_none();
        failed.map_or(Ok(started), Err)
    }

    fn adopt(state: HostsState) -> Result<(Self, Vec<NodeId>), ProvisioningError> {
        let HostsState { identity, nodes, daemons, programs } = state;
        let gone = ssh::for_each(daemons.iter().collect(), |daemon| {
            let script = daemon.script("is-alive");
            let answer = ssh::run(&daemon.host, "ask for the daemon", &script, Stdio::null());
            let is_alive = answer.as_ref().is_ok_and(|answer| answer.status.success());
            if let Err(error) = answer {
                tracing::warn!(error = &error as &dyn std::error::Error, "a host cannot be asked");
            }
            (!is_alive).then_some(daemon.node)
        });
        let daemons = Mutex::new(daemons.into_iter().map(|daemon| (daemon, None)).collect());
        let programs = Mutex::new(programs);
        let hosts = Self { identity, nodes, daemons, programs, standing: true, keeps: false };
        Ok((hosts, gone.into_iter().flatten().collect()))
    }

    /// The new daemon ends the one before.
    fn restart(&self, node: NodeId) -> Result<Address, ProvisioningError> {
        let programs = self.programs().clone();
        let config = programs.configs.iter().find(|config| config.node == node);
        let config = config.ok_or(ProvisioningError::Unknown(node))?;
        let (host, session) = {
            let mut daemons = self.daemons();
            let known = daemons.iter_mut().find(|(daemon, _)| daemon.node == node);
            let (daemon, session) = known.ok_or(ProvisioningError::Unknown(node))?;
            (daemon.host.clone(), session.take())
        };
        if let Some(Started { mut process, input }) = session {
            drop(input);
            let _ = process.kill();
            ssh::wait(&mut process, Instant::now());
        }
        let mut config = NodeConfig { returns: true, ..config.clone() };
        let (daemon, session) = start(&host, &mut config, &programs.parts, &programs.logs)?;
        let address = daemon.address();
        let mut daemons = self.daemons();
        daemons.retain(|(daemon, _)| daemon.node != node);
        daemons.push((daemon, Some(session)));
        Ok(address)
    }

    fn bring(&self, node: NodeId, installed: &Installed) -> Result<super::Programs, ProvisioningError> {
        let known =
            self.daemons().iter().find(|(daemon, _)| daemon.node == node).map(|(d, _)| d.host.clone());
        let host = known.ok_or(ProvisioningError::Unknown(node))?;
        let parts = Parts::of(installed).map_err(failed("read the programs of coswitch"))?;
        parts.install_where_missing(&host)?;
        let daemon = parts.on_host(Path::new(DAEMON));
        let launcher = parts.on_host(&installed.launcher);
        Ok(super::Programs { daemon, launcher, provider: parts.directory })
    }

    fn use_from_now_on(&self, installed: &Installed) {
        match Parts::of(installed) {
            Ok(parts) => self.programs().use_parts(parts, installed),
            Err(error) => tracing::warn!(%error, "daemons are started from the programs before"),
        }
    }

    fn remove(HostsState { daemons, .. }: HostsState) -> Result<(), ProvisioningError> {
        ssh::for_each(daemons, |daemon| daemon.end(Duration::ZERO)).into_iter().collect()
    }

    fn state(&self) -> HostsState {
        let daemons = self.daemons().iter().map(|(daemon, _)| daemon.clone()).collect();
        let (identity, nodes, programs) =
            (self.identity.clone(), self.nodes.clone(), self.programs().clone());
        HostsState { identity, nodes, daemons, programs }
    }

    /// The sessions of ssh go on, and carry the logs, until the daemons end.
    fn leave(self) {
        self.daemons().clear();
    }

    fn nodes(&self) -> &[NodeSpec] {
        &self.nodes
    }

    fn addresses(&self) -> Vec<Address> {
        let mut addresses: Vec<Address> = self.daemons().iter().map(|(daemon, _)| daemon.address()).collect();
        addresses.sort_by_key(|address| address.node);
        addresses
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn note_master(&self) -> Result<(), ProvisioningError> {
        // The daemons do so: this is another machine.
        Ok(())
    }

    fn end(mut self) -> Result<(), ProvisioningError> {
        self.keeps = false;
        self.reap(END_LIMIT)
    }

    fn end_parked(mut self) -> Result<(), ProvisioningError> {
        self.keeps = true;
        self.reap(END_LIMIT)
    }
}

impl Hosts {
    fn programs(&self) -> MutexGuard<'_, Programs> {
        self.programs.lock().expect("no panic while holding it")
    }

    fn daemons(&self) -> MutexGuard<'_, Vec<(Daemon, Option<Session>)>> {
        self.daemons.lock().expect("no panic while holding it")
    }

    /// A daemon that ends well removes everything itself.
    fn reap(&mut self, limit: Duration) -> Result<(), ProvisioningError> {
        let deadline = Instant::now() + limit;
        let (keeps, daemons) = (self.keeps, std::mem::take(&mut *self.daemons()));
        ssh::for_each(daemons, |(daemon, session)| match session {
            None => daemon.end(deadline.saturating_duration_since(Instant::now())),
            Some(Started { mut process, input }) => {
                drop(input);
                let ended = ssh::wait(&mut process, deadline);
                match ended.is_some_and(|status| status.success()) {
                    true => Ok(()),
                    false if keeps => Err(daemon.failed("end the daemon", "its snapshots are left".into())),
                    false => daemon.end(Duration::ZERO),
                }
            }
        })
        .into_iter()
        .collect()
    }
}

impl Programs {
    fn use_parts(&mut self, parts: Parts, installed: &Installed) {
        for config in &mut self.configs {
            config.provider.clone_from(&parts.directory);
            config.launcher = parts.on_host(&installed.launcher);
        }
        self.parts = parts;
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        if self.standing {
            return;
        }
        if let Err(error) = self.reap(DROP_LIMIT) {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "failed to remove what the run has left"
            );
        }
    }
}

impl Daemon {
    fn address(&self) -> Address {
        let Self { node, address, ports, .. } = *self;
        let at = |port| SocketAddr::new(address, port);
        Address { node, control: at(ports.control), data: at(ports.data) }
    }

    /// Kills the daemon, if it does not end in time, and removes everything of the node.
    fn end(&self, limit: Duration) -> Result<(), ProvisioningError> {
        let act = "remove what is left of the node";
        let script = format!("{} {}", self.script("end"), limit.as_secs());
        let answer = ssh::run(&self.host, act, &script, Stdio::null())?;
        if answer.status.success() { Ok(()) } else { Err(self.failed(act, answer.said)) }
    }

    fn script(&self, verb: &str) -> String {
        format!("{} {verb} {}", ssh::quote(&self.program.display().to_string()), self.name)
    }

    fn failed(&self, act: &'static str, said: String) -> ProvisioningError {
        ProvisioningError::Host { act, host: self.host.name.clone(), said }
    }
}

fn configure(request: &HostRequest, parts: &Parts, spec: &NodeSpec, identity: Identity) -> NodeConfig {
    NodeConfig {
        provider: parts.directory.clone(),
        launcher: parts.on_host(&request.daemons.installed.launcher),
        needed: request.needed.clone(),
        ..request.daemons.configure(spec, identity)
    }
}

/// Starts the daemon of a node. Where its host has not got the programs of coswitch, it gets them.
fn start(
    host: &Host,
    config: &mut NodeConfig,
    parts: &Parts,
    logs: &Path,
) -> Result<(Daemon, Session), ProvisioningError> {
    let address = ssh::address(host)?;
    if address.is_ipv6() {
        let any = SocketAddr::from(([0; 16], 0));
        (config.control, config.data) = (any, any);
    }
    let program = parts.on_host(Path::new(DAEMON));
    let set = ENVIRONMENT.iter().filter_map(|name| Some((name, env::var(name).ok()?)));
    let set: String = set.map(|(name, value)| format!("{name}={} ", ssh::quote(&value))).collect();
    let quoted = ssh::quote(&program.display().to_string());
    let script = format!("[ -x {quoted} ] || exit {NOT_FOUND}; exec env {set}{quoted}");
    let failed = |said| ProvisioningError::Host { act: "start a daemon", host: host.name.clone(), said };
    let mut is_installed = false;
    loop {
        let log = Log::of(config, logs, is_installed || config.returns);
        let mut starting = Starting::begin(ssh::command(host, &script), config, log)?;
        let ready = starting.ready();
        let mut session = starting.started();
        let error = match ready {
            Ok(ports) => {
                let (node, host, name) = (config.node, host.clone(), config.name());
                return Ok((Daemon { node, host, name, program, address, ports }, session));
            }
            Err(error) => error,
        };
        // A daemon that did not start in time ends by the end of its input.
        drop(session.input);
        match (ssh::wait(&mut session.process, Instant::now() + DROP_LIMIT), error) {
            (Some(status), _) if status.code() == Some(NOT_FOUND) && !is_installed => {
                parts.install(host)?;
                is_installed = true;
            }
            (_, ProvisioningError::Start { said, .. }) => return Err(failed(said)),
            (_, error) => return Err(error),
        }
    }
}
