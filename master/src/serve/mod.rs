//! `coswitch serve`: a cluster that stays, to which users bring their jobs over a Unix socket.
//!
//! ```text
//!   client ── HTTP on the socket ──▶ [`http`], a thread of its own ── Ask ──▶ engine ── Reply ──▶ client
//! ```
//! A client that is slow or gone delays only its own answers.

mod http;
mod metrics;
mod socket;

use std::{path::PathBuf, sync::Arc, thread};

use anyhow::Context;
use coswitch_report::journal::RunEvent;
use tokio::{
    runtime::Builder,
    sync::{
        broadcast,
        mpsc::{UnboundedReceiver, unbounded_channel},
    },
};

use crate::engine::Ask;
use metrics::Metrics;
pub use socket::{DEFAULT as DEFAULT_SOCKET, Socket, SocketError};

/// A reader of the event stream that is later than this many events has a gap.
const EVENTS: usize = 4096;

/// The server, which ends with the process; its socket is removed when this is dropped.
pub struct Server {
    socket: Socket,
    events: broadcast::Sender<Arc<str>>,
    metrics: Metrics,
}

impl Server {
    /// Listens on the socket from now on. What users ask waits until the engine takes it.
    ///
    /// # Errors
    /// Where another cluster is served there, or the socket cannot be made.
    pub fn start(path: PathBuf) -> anyhow::Result<(Self, UnboundedReceiver<Ask>)> {
        let socket = Socket::bind(path)?;
        let (asks, asked) = unbounded_channel();
        let (events, _) = broadcast::channel(EVENTS);
        let (metrics, registry) = Metrics::new();
        let api = http::Api { asks, events: events.clone(), registry: Arc::new(registry) };
        let listener = socket.listener().context("failed to listen")?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let serve = move || {
            if let Err(error) = runtime.block_on(http::serve(listener, api)) {
                tracing::error!(%error, "the socket is not served any more");
            }
        };
        thread::Builder::new().name("api".into()).spawn(serve).context("failed to start a thread")?;
        Ok((Self { socket, events, metrics }, asked))
    }

    pub fn path(&self) -> &std::path::Path {
        self.socket.path()
    }

    /// Passes an event on to those who follow the cluster.
    pub fn tell(&mut self, event: &RunEvent) {
        self.metrics.on_event(&event.kind);
        if self.events.receiver_count() == 0 {
            return;
        }
        if let Ok(line) = serde_json::to_string(event) {
            // Nobody may follow any more.
            let _ = self.events.send(line.into());
        }
    }
}
