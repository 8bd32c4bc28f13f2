//! The nodes of an allocation of Slurm: one `srun` starts all daemons, and each reports to the master
//! ([`coswitch_daemon::home`]).
//!
//! ```text
//!   master ── srun ── slurmstepd, on each node ── coswitchd home       started, ended, log
//!      ╠═══════════════ TLS, from the daemon ════════╣                 configuration, ready
//!      ╚═══════════════ control: TLS ════════════════╝                 all else
//! ```
//! `srun` says when all daemons have ended; that one is lost is for the sessions to say.

mod allocation;
mod arrivals;
mod cause;
mod host_list;
mod step;

use std::{
    collections::BTreeMap,
    env, fs,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    process::Child,
    thread,
    time::{Duration, Instant},
};

use coswitch_daemon::{
    home,
    node::NodeConfig,
    pki::{Authority, Holder, Identity},
    private,
    serve::Ready,
};
use coswitch_policies::NodeId;
use serde::{Deserialize, Serialize};

use self::{
    arrivals::{Arrival, Arrivals},
    cause::Seen,
    step::Version,
};
use super::{
    Address, DaemonsRequest, END_LIMIT, Installed, NodeSpec, Provisioning, ProvisioningError, failed,
    starting::wait,
};

pub use allocation::{Allocation, AllocationError, OWN};

/// For all daemons to report.
const START_LIMIT: Duration = Duration::from_secs(60);
/// For a step that waits for resources.
const RESOURCES_LIMIT: Duration = Duration::from_secs(20);
/// For daemons whose connections have been closed.
const DROP_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);
/// What `srun` and all daemons write, in the directory of the logs.
const LOG: &str = "daemons.log";
/// Of this process' environment a daemon gets these.
const ENVIRONMENT: [&str; 4] = [home::VARIABLE, "COSWITCH_LOG", "COSWITCH_CRIU", "COSWITCH_PREFIX"];

/// A request for the nodes of an allocation.
#[derive(Clone, Debug)]
pub struct SlurmRequest {
    pub daemons: DaemonsRequest,
    /// Node `i` is host `i`.
    pub allocation: Allocation,
    /// See [`NodeConfig::needed`].
    pub needed: Vec<PathBuf>,
}

/// The running daemons of an allocation.
pub struct Slurm {
    identity: Identity,
    nodes: Vec<NodeSpec>,
    steps: Steps,
    daemons: Vec<Daemon>,
    /// The connection of each daemon; none where another process has started it.
    lines: Vec<home::Line>,
    /// The process of `srun`.
    step: Option<Child>,
    /// A daemon has been there.
    has_begun: bool,
    standing: bool,
    /// Snapshots of parked applications stay.
    keeps: bool,
}

/// What a new master needs to find the nodes again.
#[derive(Clone, Serialize, Deserialize)]
pub struct SlurmState {
    identity: Identity,
    nodes: Vec<NodeSpec>,
    steps: Steps,
    daemons: Vec<Daemon>,
}

/// How further steps are made.
#[derive(Clone, Serialize, Deserialize)]
struct Steps {
    job: u32,
    run: String,
    /// The program `coswitchd`, on a file system that all nodes share.
    program: PathBuf,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Daemon {
    node: NodeId,
    host: String,
    /// Of the node, on its host.
    name: String,
    address: IpAddr,
    ports: Ready,
}

impl Provisioning for Slurm {
    type Request = SlurmRequest;
    type State = SlurmState;

    fn start(request: &SlurmRequest) -> Result<Self, ProvisioningError> {
        let SlurmRequest { daemons, allocation, .. } = request;
        let authority = Authority::new()?;
        let mut configs = BTreeMap::new();
        for (spec, host) in daemons.nodes.iter().zip(&allocation.hosts) {
            configs
                .insert(host.clone(), configure(request, spec, authority.certify(Holder::Node(spec.node))?));
        }
        let steps = Steps {
            job: allocation.job,
            run: daemons.run.clone(),
            program: daemons.installed.daemon.clone(),
        };
        let mut starting = Self {
            identity: authority.certify(Holder::Head)?,
            nodes: daemons.nodes.clone(),
            steps,
            daemons: Vec::new(),
            lines: Vec::new(),
            step: None,
            has_begun: false,
            standing: false,
            keeps: daemons.resumes,
        };
        // Where one has not started, dropping `starting` ends the others.
        starting.begin(configs, &daemons.logs)?;
        starting.standing = daemons.standing;
        Ok(starting)
    }

    fn adopt(state: SlurmState) -> Result<(Self, Vec<NodeId>), ProvisioningError> {
        let SlurmState { identity, nodes, steps, daemons } = state;
        let (version, mut gone) = (Version::ask()?, Vec::new());
        for daemon in &daemons {
            let mut step = step::command(version, steps.job, 1, &[&daemon.host], &[]);
            step.arg(&steps.program).args(["is-alive", &daemon.name]);
            let (status, _) = step::run(step, "ask for a daemon")?;
            if !status.success() {
                gone.push(daemon.node);
            }
        }
        let (lines, step) = (Vec::new(), None);
        let slurm = Self {
            identity,
            nodes,
            steps,
            daemons,
            lines,
            step,
            has_begun: true,
            standing: true,
            keeps: false,
        };
        Ok((slurm, gone))
    }

    /// `srun` ends all daemons of a step where one has died: no node is left to go on with.
    fn restart(&self, _: NodeId) -> Result<Address, ProvisioningError> {
        let said = "srun has ended the others of its step: the run cannot go on".into();
        Err(ProvisioningError::Step { act: "start another daemon", said })
    }

    fn bring(&self, _: NodeId, _: &Installed) -> Result<super::Programs, ProvisioningError> {
        let said = "a run in an allocation ends with it; the next one uses the new programs".into();
        Err(ProvisioningError::Step { act: "replace a daemon", said })
    }

    fn remove(SlurmState { steps, nodes, .. }: SlurmState) -> Result<(), ProvisioningError> {
        steps.end_all(nodes.len())
    }

    fn state(&self) -> SlurmState {
        let (identity, nodes) = (self.identity.clone(), self.nodes.clone());
        SlurmState { identity, nodes, steps: self.steps.clone(), daemons: self.daemons.clone() }
    }

    /// The step goes on until the daemons end.
    fn leave(mut self) {
        self.standing = true;
    }

    fn nodes(&self) -> &[NodeSpec] {
        &self.nodes
    }

    fn addresses(&self) -> Vec<Address> {
        let address = |&Daemon { node, address, ports, .. }: &Daemon| Address {
            node,
            control: SocketAddr::new(address, ports.control),
            data: SocketAddr::new(address, ports.data),
        };
        self.daemons.iter().map(address).collect()
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn note_master(&self) -> Result<(), ProvisioningError> {
        // The daemons do so: this may be another machine.
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

impl Slurm {
    /// Starts the step and takes in the daemons.
    fn begin(&mut self, configs: BTreeMap<String, NodeConfig>, logs: &Path) -> Result<(), ProvisioningError> {
        let version = Version::ask()?;
        let mut missing: Vec<String> = configs.keys().cloned().collect();
        let hosts = missing.len();
        let arrivals = Arrivals::listen(configs)?;
        let home = serde_json::to_string(&arrivals.home).expect("plain data");
        let exported: Vec<&str> = ENVIRONMENT
            .into_iter()
            .filter(|name| *name == home::VARIABLE || env::var_os(name).is_some())
            .collect();
        let mut srun = step::command(version, self.steps.job, hosts, &[], &exported);
        srun.arg(format!("--job-name={}", step::DAEMONS)).env(home::VARIABLE, home);
        srun.arg(&self.steps.program).arg("home");
        let log = logs.join(LOG);
        let file = if self.keeps { private::append(&log) } else { private::create(&log) };
        let file = file.map_err(failed(format!("create {}", log.display())))?;
        let also = file.try_clone().map_err(failed("write a log"))?;
        let srun = srun.stdout(file).stderr(also).spawn().map_err(failed("start srun"))?;
        let step = self.step.insert(srun);
        let began = Instant::now();
        let (mut ended, mut is_made) = (None, None);
        while !missing.is_empty() {
            match arrivals.next(POLL) {
                Some(Arrival::Ready(arrived)) => {
                    let (daemon, line) = *arrived;
                    self.has_begun = true;
                    missing.retain(|host| *host != daemon.host);
                    self.daemons.push(daemon);
                    self.lines.push(line);
                    continue;
                }
                Some(Arrival::Failed { host, said }) => {
                    self.has_begun = true;
                    return Err(ProvisioningError::Host { act: "start a daemon", host, said });
                }
                // The last words of daemons that have ended may still be on their way.
                None if ended.is_some() => {}
                None => {
                    ended = step.try_wait().map_err(failed("wait for srun"))?;
                    if ended.is_some() {
                        continue;
                    }
                }
            }
            let waited = began.elapsed();
            if waited > RESOURCES_LIMIT && is_made.is_none() {
                is_made = Some(self.has_begun || step::is_made(self.steps.job));
            }
            if ended.is_none() && waited < START_LIMIT && is_made != Some(false) {
                continue;
            }
            let text = fs::read_to_string(&log).unwrap_or_default();
            let addresses: Vec<String> = arrivals.home.addresses.iter().map(ToString::to_string).collect();
            let addresses = addresses.join(", ");
            let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
            let ended = ended.map(|status| status.to_string());
            let seen = Seen {
                log: &text,
                is_made: is_made != Some(false),
                shares: version.shares(),
                job: self.steps.job,
                hosts,
                missing: &missing,
                ended: ended.as_deref(),
                waited,
                addresses: &addresses,
            };
            return Err(ProvisioningError::Step { act: "start the daemons", said: seen.cause() });
        }
        self.daemons.sort_by_key(|daemon| daemon.node);
        Ok(())
    }

    /// Waits for the step; a daemon that ends well removes everything itself.
    fn reap(&mut self, limit: Duration) -> Result<(), ProvisioningError> {
        self.lines.clear();
        let Some(mut step) = self.step.take() else {
            let is_over = self.keeps || !self.has_begun;
            return if is_over { Ok(()) } else { self.steps.end_all(self.nodes.len()) };
        };
        let deadline = Instant::now() + limit;
        let ended = loop {
            match step.try_wait().map_err(failed("wait for srun"))? {
                Some(status) => break Some(status),
                None if Instant::now() > deadline => break None,
                None => thread::sleep(POLL),
            }
        };
        if ended.is_none() {
            // `srun` ends its step when it is asked to: a step outlives one that is killed.
            let pid = nix::unistd::Pid::from_raw(step.id().cast_signed());
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
            wait(&mut step, Instant::now() + DROP_LIMIT);
        }
        match ended {
            Some(status) if status.success() => Ok(()),
            _ if !self.has_begun => Ok(()),
            _ if self.keeps => Err(ProvisioningError::Step {
                act: "end all daemons",
                said: format!("{LOG} says why; the snapshots are left"),
            }),
            _ => self.steps.end_all(self.nodes.len()),
        }
    }
}

impl Steps {
    /// Kills the daemons that are left, and removes everything of the nodes.
    fn end_all(&self, nodes: usize) -> Result<(), ProvisioningError> {
        let act = "remove what is left on the nodes";
        let mut step = step::command(Version::ask()?, self.job, nodes, &[], &[]);
        step.arg(&self.program).args(["end-all", &self.run]);
        match step::run(step, act)? {
            (status, _) if status.success() => Ok(()),
            (_, said) => Err(ProvisioningError::Step { act, said }),
        }
    }
}

impl Drop for Slurm {
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

fn configure(request: &SlurmRequest, spec: &NodeSpec, identity: Identity) -> NodeConfig {
    NodeConfig { needed: request.needed.clone(), ..request.daemons.configure(spec, identity) }
}
