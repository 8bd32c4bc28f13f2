//! `coswitch serve`: a cluster that stays, to which users bring their jobs over a Unix socket.
//!
//! ```text
//!   client ── HTTP on the socket ──▶ [`http`], a thread of its own ── Ask ──▶ engine ── Reply ──▶ client
//! ```
//! A client that is slow or gone delays only its own answers. [`web`] shows the cluster to browsers.

mod http;
mod metrics;
mod socket;
mod web;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use anyhow::Context;
use coswitch_report::journal::RunEvent;
use tokio::{
    runtime::Builder,
    sync::{
        broadcast,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    },
};

use crate::{config::JobSet, engine::Ask};
use metrics::Metrics;
use prometheus_client::registry::Registry;
pub use socket::{DEFAULT as DEFAULT_SOCKET, Socket, SocketError};
use web::Shown;
pub use web::{AddressError, Bound, DEFAULT_HTTP, HttpAddress, LivePage};

/// A reader of the event stream that is later than this many events has a gap.
const EVENTS: usize = 4096;

/// The server, which ends with the process; its socket is removed when this is dropped.
pub struct Server {
    socket: Socket,
    asks: UnboundedSender<Ask>,
    events: broadcast::Sender<Arc<RunEvent>>,
    metrics: Metrics,
    registry: Arc<Registry>,
}

impl Server {
    /// Listens on the socket from now on. What users ask waits until the engine takes it; accounts are those
    /// of `directory`.
    ///
    /// # Errors
    /// Where another cluster is served there, or the socket cannot be made.
    pub fn start(path: PathBuf, directory: &Path) -> anyhow::Result<(Self, UnboundedReceiver<Ask>)> {
        let socket = Socket::bind(path)?;
        let (asks, asked) = unbounded_channel();
        let (events, _) = broadcast::channel(EVENTS);
        let (metrics, registry) = Metrics::new();
        let registry = Arc::new(registry);
        let (asking, registered) = (asks.clone(), Arc::clone(&registry));
        let directory = directory.into();
        let api = http::Api { asks: asking, events: events.clone(), registry: registered, directory };
        let listener = socket.listener().context("failed to listen")?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let serve = move || {
            if let Err(error) = runtime.block_on(http::serve(listener, api)) {
                tracing::error!(%error, "the socket is not served any more");
            }
        };
        thread::Builder::new().name("api".into()).spawn(serve).context("failed to start a thread")?;
        Ok((Self { socket, asks, events, metrics, registry }, asked))
    }

    /// Shows the cluster of `jobs` to browsers. Its token is kept in `directory`.
    ///
    /// # Errors
    /// Where the token cannot be kept.
    pub fn show(&self, bound: Bound, directory: &Path, jobs: &JobSet) -> anyhow::Result<LivePage> {
        let shown = Shown {
            asks: self.asks.clone(),
            events: self.events.subscribe(),
            registry: Arc::clone(&self.registry),
            nodes: jobs.cluster.nodes,
            memory: jobs.cluster.memory.clone(),
            quantum: jobs.scheduler.quantum,
        };
        LivePage::start(bound, directory, shown)
    }

    pub fn path(&self) -> &Path {
        self.socket.path()
    }

    /// Passes an event on to those who follow the cluster.
    pub fn tell(&mut self, event: &RunEvent) {
        self.metrics.on_event(&event.kind);
        if self.events.receiver_count() == 0 {
            return;
        }
        // Nobody may follow any more.
        let _ = self.events.send(Arc::new(event.clone()));
    }
}
