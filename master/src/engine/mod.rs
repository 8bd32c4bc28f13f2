//! The engine of `coswitch run`: a pure core decides, a shell acts on real nodes.
//!
//! ```text
//!            decisions            orders                  requests
//!   Scheduler ───────▶ [`run`] ───────────▶ Dispatcher ───────────▶ daemons on the nodes
//!             ◀─────── (pure)  ◀─────────── (per job)  ◀───────────
//!             events           reports                  events
//! ```
//! [`shell`] owns the clock, the sockets, the signals and the journal; [`run`] has none of them.

mod communication;
mod keeper;
mod machine_counters;
mod run;
mod shell;
#[cfg(test)]
mod simulation;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};

use anyhow::Context;
use coswitch_dispatcher::{
    protocol::Delivery,
    provisioning::{
        ClusterKey, DaemonsRequest, LinkRules, NodeSpec, Nodes, NodesRequest, NodesState, Provisioning,
        hosts::HostRequest,
        slurm::SlurmRequest,
        virtual_nodes::{self, VirtualRequest},
    },
    sessions::Sessions,
};
use coswitch_policies::{JobId, NodeId, SimTime};
use coswitch_report::journal::{RunEvent, RunOutcome};
use tokio::sync::{
    mpsc::{UnboundedReceiver, unbounded_channel},
    oneshot,
};

pub(crate) use self::run::Record;
use crate::{
    api::{Accepted, Reply, Request, User},
    config::{ClusterConfig, JobSet},
    install::Installation,
    interrupt::Interrupt,
    parked::Parked,
    past::Past,
    shutdown::Left,
    standing::{self, Standing},
};

/// Options of one run.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The run's name, which its directories and cgroups carry.
    pub run: String,
    /// The run's directory: journal, outputs of the ranks, logs. It exists.
    pub out: PathBuf,
    /// The run is ended after this time.
    pub limit: Option<Duration>,
    /// The umask of the ranks.
    pub umask: u32,
    /// The run is ended as soon as its nodes are up where this is set by then.
    pub interrupt: Interrupt,
    /// When the nodes are taken away, since 1970: all jobs are parked before.
    pub ends: Option<Duration>,
}

/// A run that goes on.
#[derive(Clone, Debug)]
pub struct Resumed {
    /// Opens the images of the run.
    pub sealing_key: ClusterKey,
    /// Of the master before.
    pub generation: u64,
    /// The time that the run has taken so far.
    pub age: Duration,
    pub past: Past,
    /// The nodes that must hold each job.
    pub expected: BTreeMap<JobId, BTreeSet<NodeId>>,
}

/// A user's question to a standing cluster.
#[derive(Debug)]
pub struct Ask {
    pub user: User,
    pub request: Request,
    /// Dropped where the cluster ends before there is an answer.
    pub answer: oneshot::Sender<Reply>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub run: RunOutcome,
    /// The time that the run has taken, in all.
    pub age: Duration,
}

/// Where the events of a run go. The engine must not be blocked by it, since it would hear no signal then.
pub trait EventSink {
    /// Takes an event, whether there is room or not.
    fn tell(&mut self, event: RunEvent);
    /// Writes jobs down before their user is answered, where a later master may need them.
    ///
    /// # Errors
    /// Where the disk is full or broken.
    fn keep(&mut self, jobs: &[&Accepted]) -> std::io::Result<()>;
    /// Whether more events may come.
    fn has_room(&self) -> bool;
    /// Waits until more events may come. May be given up and called again.
    fn room(&mut self) -> impl Future<Output = ()>;
}

/// Runs `jobs` to their end, or until they are parked, and passes everything that happens to `events`.
///
/// # Errors
/// Where coswitch itself fails; the outcome says whether a job did. Where a run cannot be resumed, its jobs
/// are left as they were.
pub fn run(
    jobs: JobSet,
    options: EngineOptions,
    resumed: Option<Resumed>,
    events: &mut impl EventSink,
) -> anyhow::Result<Outcome> {
    let (_, mut nobody) = unbounded_channel();
    let sealing_key = sealing_key(resumed.as_ref().map(|resumed| &resumed.sealing_key))?;
    let lifetime = Lifetime::Run { resumes: resumed.is_some() };
    let nodes = start_nodes(&nodes_request(&jobs, &options, lifetime, &sealing_key)?)?;
    let generation = resumed.as_ref().map_or(1, |resumed| resumed.generation + 1);
    let origin = resumed.map_or(Origin::Run, |resumed| Origin::Resumed(Box::new(resumed)));
    let set = jobs.clone();
    let outcome = drive(jobs, &options, &nodes, &|| (), origin, &mut nobody, events)?;
    if outcome.run == RunOutcome::Parked {
        let parked = Parked::new(options.run.clone(), sealing_key, generation, outcome.age, set);
        parked.write(&options.out)?;
        nodes.end_parked().context("failed to end the nodes")?;
    } else {
        nodes.end().context("failed to remove what the run has left")?;
        Parked::forget(&options.out)?;
    }
    Ok(outcome)
}

/// Holds the cluster of `jobs`, runs what users bring, and answers them, until it is interrupted. The cluster
/// outlives this process where that dies.
///
/// # Errors
/// As [`run`]. The nodes of a cluster that was taken over are left alone then.
pub fn serve(
    jobs: JobSet,
    options: EngineOptions,
    past: Option<(Standing, Past)>,
    asks: &mut UnboundedReceiver<Ask>,
    events: &mut impl EventSink,
) -> anyhow::Result<Outcome> {
    let sealing_key = sealing_key(past.as_ref().map(|(standing, _)| &standing.sealing_key))?;
    let request = nodes_request(&jobs, &options, Lifetime::Standing, &sealing_key)?;
    let (cluster, park) = (jobs.cluster.clone(), jobs.scheduler.park);
    let (nodes, standing, origin) = match past {
        None => {
            // From the moment on which another master can take over, it has to find them.
            let all: Vec<Accepted> = jobs.jobs.iter().map(Accepted::of_file).collect();
            let kept = events.keep(&all.iter().collect::<Vec<_>>());
            kept.context("failed to write the jobs of the run file down")?;
            let nodes = start_nodes(&request)?;
            let standing = Standing::new(options.run.clone(), sealing_key, cluster, park, nodes.state());
            (nodes, standing, Origin::Served)
        }
        Some((mut standing, past)) => {
            let age = standing.age().max(past.known.last.since(SimTime(0)));
            standing.generation += 1;
            let (nodes, absent) = take_up(standing.nodes.clone())?;
            standing.nodes = nodes.state();
            let generation = standing.generation;
            (nodes, standing, Origin::TakenOver { age, generation, past: Box::new(past), absent })
        }
    };
    let is_new = matches!(origin, Origin::Served);
    let standing = Mutex::new(standing);
    let write = || {
        let mut standing = standing.lock().expect("no panic while holding it");
        standing.nodes = nodes.state();
        standing.write(&options.out)
    };
    let on_change = || {
        if let Err(error) = write() {
            tracing::error!(error = format!("{error:#}"), "a later master would not find a new daemon");
        }
    };
    // A daemon follows a master only once: its number has to be on the disk before.
    let outcome = write()
        .and_then(|()| nodes.note_master().map_err(anyhow::Error::from))
        .and_then(|()| drive(jobs, &options, &nodes, &on_change, origin, asks, events));
    if let Err(error) = &outcome {
        match is_new && !error.is::<Left>() {
            true => Nodes::remove(nodes.state()).context("failed to remove the nodes")?,
            false => nodes.leave(),
        }
        return outcome;
    }
    nodes.end().context("failed to remove what the cluster has left")?;
    standing::forget(&options.out).context("failed to note the end of the cluster")?;
    outcome
}

/// Takes up the nodes of a cluster that some or all of their daemons have left, or where they do not answer.
/// Those of which the daemon cannot be started again are returned as absent, with the reason.
fn take_up(state: NodesState) -> anyhow::Result<(Nodes, Vec<(NodeId, String)>)> {
    let (nodes, mut gone) = Nodes::adopt(state).context("failed to take the nodes over")?;
    let mut living = nodes.addresses();
    living.retain(|address| !gone.contains(&address.node));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let silent = runtime.block_on(Sessions::find_silent(&living, nodes.identity()))?;
    // Its jobs would begin again where no other node holds them.
    for node in &silent {
        tracing::warn!(%node, "its daemon lives and does not answer: it is ended, and another one started");
    }
    gone.extend(silent);
    let absent = keeper::restart_all(&nodes, &gone);
    for node in gone.iter().filter(|node| absent.iter().all(|(absent, _)| absent != *node)) {
        tracing::warn!(%node, "its daemon has ended, and another one has taken up its snapshots");
    }
    Ok((nodes, absent))
}

/// The key of the images that there are, or a new one.
fn sealing_key(past: Option<&ClusterKey>) -> anyhow::Result<ClusterKey> {
    past.map_or_else(ClusterKey::random, |key| Ok(key.clone())).context("failed to make a key for images")
}

fn start_nodes(request: &NodesRequest) -> anyhow::Result<Nodes> {
    Nodes::start(request).context("failed to start the nodes")
}

/// How a run comes about.
enum Origin {
    /// With its own nodes, which end with it.
    Run,
    /// As a cluster that stays.
    Served,
    /// With nodes that have taken up what those before have left.
    Resumed(Box<Resumed>),
    /// From the master before.
    TakenOver {
        age: Duration,
        generation: u64,
        past: Box<Past>,
        /// Nodes without a daemon, and why.
        absent: Vec<(NodeId, String)>,
    },
}

fn drive(
    jobs: JobSet,
    options: &EngineOptions,
    nodes: &Nodes,
    on_change: &(dyn Fn() + Sync),
    origin: Origin,
    asks: &mut UnboundedReceiver<Ask>,
    events: &mut impl EventSink,
) -> anyhow::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    keeper::beside(nodes, on_change, |keeper| {
        let outcome = runtime.block_on(shell::drive(jobs, options, nodes, keeper, origin, asks, events));
        runtime.shutdown_timeout(Duration::from_secs(1));
        outcome
    })
}

/// How long the nodes live.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lifetime {
    /// As long as their master.
    Run {
        /// They take up what others have left.
        resumes: bool,
    },
    Standing,
}

fn nodes_request(
    jobs: &JobSet,
    options: &EngineOptions,
    lifetime: Lifetime,
    sealing_key: &ClusterKey,
) -> anyhow::Result<NodesRequest> {
    let (standing, resumes) = (lifetime == Lifetime::Standing, lifetime == Lifetime::Run { resumes: true });
    let installed = Installation::find()?.into();
    let cluster = &jobs.cluster;
    let ClusterConfig { arena, rate, stop_after, ref hosts, ref allocation, .. } = *cluster;
    let capacities = cluster.capacities();
    let spec = |(node, memory)| {
        let spec = NodeSpec::new(node, memory, cluster.store_of(node), arena);
        let processors = hosts.get(node.0 as usize).map(|host| host.processors.clone());
        NodeSpec { processors: processors.unwrap_or_default(), ..spec }
    };
    let nodes = match cluster.is_virtual() {
        true => virtual_nodes::equal_nodes(cluster.nodes, capacities.largest(), &cluster.store, arena)?,
        false => capacities.nodes().map(spec).collect(),
    };
    let (run, logs) = (options.run.clone(), options.out.clone());
    let links = LinkRules { encrypt: cluster.encrypts(), silence: cluster.lost_after };
    let local = jobs.scheduler.local;
    let daemons = DaemonsRequest {
        run,
        nodes,
        sealing_key: sealing_key.clone(),
        stop_after,
        standing,
        local,
        links,
        resumes,
        logs,
        installed,
    };
    if cluster.is_virtual() {
        return Ok(NodesRequest::Virtual(VirtualRequest { daemons, rate }));
    }
    let mut needed = needed_on_hosts(jobs, &options.out);
    Ok(match allocation.clone() {
        None => NodesRequest::Hosts(HostRequest { daemons, hosts: hosts.clone(), needed }),
        Some(allocation) => {
            // These are not copied: all nodes have to see them.
            needed.extend([&daemons.installed.launcher, &daemons.installed.driver].map(Clone::clone));
            NodesRequest::Slurm(SlurmRequest { daemons, allocation, needed })
        }
    })
}

/// The directory of the outputs; programs that are not sent there, and the directories in which they run.
fn needed_on_hosts(jobs: &JobSet, out: &Path) -> Vec<PathBuf> {
    let shared = jobs.jobs.iter().filter(|job| job.delivery == Delivery::Shared);
    let programs = shared.map(|job| job.program.clone());
    let directories = jobs.jobs.iter().map(|job| job.cwd.clone()).chain([out.to_path_buf()]);
    let needed: BTreeSet<PathBuf> = programs.chain(directories).collect();
    needed.into_iter().collect()
}
