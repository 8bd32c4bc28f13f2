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
mod machine_counters;
mod run;
mod shell;

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use coswitch_dispatcher::provisioning::{
    Provisioning,
    virtual_nodes::{self, VirtualNodes, VirtualRequest},
};

use coswitch_report::journal::{RunEvent, RunOutcome};
use tokio::sync::{
    mpsc::{UnboundedReceiver, unbounded_channel},
    oneshot,
};

use crate::{
    api::{Reply, Request, User},
    config::JobSet,
    install::Installation,
    interrupt::Interrupt,
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
}

/// Where the events of a run go. The engine must not be blocked by it, since it would hear no signal then.
pub trait EventSink {
    /// Takes an event, whether there is room or not.
    fn tell(&mut self, event: RunEvent);
    /// Whether more events may come.
    fn has_room(&self) -> bool;
    /// Waits until more events may come. May be given up and called again.
    fn room(&mut self) -> impl Future<Output = ()>;
}

/// Runs `jobs` to their end and passes everything that happens to `events`.
///
/// # Errors
/// Where coswitch itself fails; the outcome says whether a job did.
pub fn run(jobs: JobSet, options: EngineOptions, events: &mut impl EventSink) -> anyhow::Result<Outcome> {
    let (_, mut nobody) = unbounded_channel();
    let request = virtual_request(&jobs, &options)?;
    run_on::<VirtualNodes>(&request, jobs, &options, (&mut nobody, false), events)
}

/// Holds the cluster of `jobs`, runs what users bring, and answers them, until it is interrupted.
///
/// # Errors
/// As [`run`].
pub fn serve(
    jobs: JobSet,
    options: EngineOptions,
    asks: &mut UnboundedReceiver<Ask>,
    events: &mut impl EventSink,
) -> anyhow::Result<Outcome> {
    let request = virtual_request(&jobs, &options)?;
    run_on::<VirtualNodes>(&request, jobs, &options, (asks, true), events)
}

fn run_on<P: Provisioning>(
    request: &P::Request,
    jobs: JobSet,
    options: &EngineOptions,
    asks: (&mut UnboundedReceiver<Ask>, bool),
    events: &mut impl EventSink,
) -> anyhow::Result<Outcome> {
    let nodes = P::start(request).context("failed to start the nodes")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(shell::drive(jobs, options, &nodes, asks, events));
    runtime.shutdown_timeout(Duration::from_secs(1));
    nodes.end().context("failed to remove what the run has left")?;
    outcome
}

fn virtual_request(jobs: &JobSet, options: &EngineOptions) -> anyhow::Result<VirtualRequest> {
    let Installation { daemon, launcher, driver } = Installation::find()?;
    let cluster = &jobs.cluster;
    Ok(VirtualRequest {
        run: options.run.clone(),
        nodes: virtual_nodes::equal_nodes(cluster.nodes, cluster.memory, &cluster.store, cluster.arena)?,
        rate: cluster.rate,
        stop_after: cluster.stop_after,
        logs: options.out.clone(),
        daemon,
        launcher,
        driver,
    })
}
