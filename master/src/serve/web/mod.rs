//! `coswitch serve --http`: the cluster as a live page in a browser, for whoever holds the token, and its
//! metrics.
//!
//! ```text
//!   engine ── events, answers ──▶ [`watch`] ── views ──▶ [`routes`] ◀── [`access`] ◀── GET, token ── browser
//!                                    └─ draws by [`page`]
//! ```
//! It has a thread of its own, and nothing of the engine or of the users' socket ever waits for it. It shows
//! and changes nothing.

mod access;
mod address;
mod page;
mod routes;
mod token;
mod watch;

use std::{
    net::TcpListener as StdListener,
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::Context;
use coswitch_policies::Capacity;
use coswitch_report::{Recent, journal::RunEvent};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use nix::sys::socket::{setsockopt, sockopt::TcpUserTimeout};
use prometheus_client::registry::Registry;
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Builder,
    sync::{Semaphore, broadcast, mpsc::UnboundedSender, watch as signal},
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::engine::Ask;
use access::Access;
pub use address::{AddressError, DEFAULT_HTTP, HttpAddress};
use routes::Web;
use token::TokenFiles;
use watch::{Views, Watch};

const CONNECTIONS_MAX: usize = 96;
/// The head of a request has to come within this, also that of the next one on a connection.
const HEAD_LIMIT: Duration = Duration::from_secs(20);
const HEAD_BYTES_MAX: usize = 16 << 10;
/// A peer that takes nothing for so long is gone.
const PEER_LIMIT: Duration = Duration::from_secs(30);
/// After a failed `accept`, for example for want of descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(200);
/// For the last news of the pages that are open, when the cluster ends.
const LAST_NEWS_LIMIT: Duration = Duration::from_secs(1);
/// The past and the time to come on the page: so many turns of a quantum, and at least a minute.
const TURNS: u32 = 3;
const WINDOW_MIN: Duration = Duration::from_secs(60);
const WINDOW_MAX: Duration = Duration::from_secs(3600);

/// An address at which nothing is served yet.
#[derive(Debug)]
pub struct Bound {
    listener: StdListener,
    address: HttpAddress,
}

impl Bound {
    /// # Errors
    /// [`AddressError`]
    pub fn bind(address: HttpAddress) -> Result<Self, AddressError> {
        let listener = address.bind()?;
        Ok(Self { listener, address })
    }
}

/// The cluster that a page shows.
pub(super) struct Shown {
    pub(super) asks: UnboundedSender<Ask>,
    pub(super) events: broadcast::Receiver<Arc<RunEvent>>,
    pub(super) registry: Arc<Registry>,
    pub(super) nodes: u32,
    pub(super) memory: Capacity,
    pub(super) quantum: Duration,
}

/// The server. When this is dropped, pages that are open have their last news, and the token is forgotten.
pub struct LivePage {
    url: String,
    url_file: PathBuf,
    beyond_this_machine: bool,
    stop: signal::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    _files: TokenFiles,
}

impl LivePage {
    /// Serves from now on. The token and the address are kept in `directory`.
    pub(super) fn start(bound: Bound, directory: &Path, shown: Shown) -> anyhow::Result<Self> {
        let files = TokenFiles::open(directory).context("failed to keep the token of the live page")?;
        let Bound { listener, address } = bound;
        let local = listener.local_addr().context("failed to find the port of the live page")?;
        let host = HttpAddress { port: local.port(), ..address.reachable(local.ip()) };
        let url = format!("http://{host}/?token={}", files.token.text());
        let url_file = files.note_url(&url).context("failed to keep the address of the live page")?;
        listener.set_nonblocking(true)?;
        let window = (shown.quantum * TURNS).clamp(WINDOW_MIN, WINDOW_MAX);
        let recent = Recent::new(shown.nodes, shown.memory, window);
        let (views, (stop, stopped)) = (Views::new(), signal::channel(false));
        let web = Web {
            access: Arc::new(Access::new(&files.token, names(&address))),
            token: files.token.clone(),
            views: views.clone(),
            registry: shown.registry,
            viewers: Web::viewers(),
            stop: stopped,
        };
        let watch = Watch::new(shown.asks, recent, window, views);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let serve = move || {
            runtime.block_on(async {
                tokio::spawn(watch.run(shown.events));
                if let Err(error) = accept(listener, web).await {
                    tracing::error!(%error, "the live page is not served any more");
                }
            });
        };
        let thread = thread::Builder::new().name("live-page".into()).spawn(serve);
        let thread = Some(thread.context("failed to start a thread")?);
        let beyond_this_machine = !local.ip().is_loopback();
        Ok(Self { url, url_file, beyond_this_machine, stop, thread, _files: files })
    }

    /// With the token.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Without the token.
    #[must_use]
    pub fn bare_url(&self) -> &str {
        self.url.split('?').next().unwrap_or_default()
    }

    /// The file that holds the address with the token.
    #[must_use]
    pub fn url_file(&self) -> &Path {
        &self.url_file
    }

    /// Whether others than programs on this machine can connect.
    #[must_use]
    pub const fn is_beyond_this_machine(&self) -> bool {
        self.beyond_this_machine
    }
}

impl Drop for LivePage {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        // It ends within a time of its own.
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::warn!("the thread of the live page has failed");
        }
    }
}

/// The names by which a user may call this machine.
fn names(address: &HttpAddress) -> Vec<String> {
    let own = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let short = own.as_ref().and_then(|own| own.split_once('.')).map(|(short, _)| short.to_owned());
    let all = [Some("localhost".into()), Some(address.host.clone()), own, short];
    all.into_iter().flatten().filter(|name| !name.is_empty()).collect()
}

/// Takes connections until the server ends, and lets those that are open have their last news.
async fn accept(listener: StdListener, web: Web) -> std::io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let (mut stop, routes) = (web.stop.clone(), web.routes());
    let mut connections = JoinSet::new();
    while !*stop.borrow() {
        while connections.try_join_next().is_some() {}
        let place = Arc::clone(&free);
        // More connections wait in the kernel until one ends.
        let next = async { (place.acquire_owned().await, listener.accept().await) };
        let taken = tokio::select! {
            taken = next => taken,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match taken {
            (Ok(place), Ok((stream, _))) => {
                let (routes, stop) = (routes.clone(), stop.clone());
                connections.spawn(async move {
                    converse(stream, routes, stop).await;
                    drop(place);
                });
            }
            (_, Err(error)) => {
                tracing::debug!(%error, "no connection");
                sleep(ACCEPT_AGAIN).await;
            }
            (Err(_), _) => break,
        }
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    let _ = timeout(LAST_NEWS_LIMIT, ended).await;
    Ok(())
}

/// Serves one connection until it ends.
async fn converse(stream: TcpStream, routes: axum::Router, mut stop: signal::Receiver<bool>) {
    let limit = PEER_LIMIT.as_millis() as u32;
    if let Err(error) = setsockopt(&stream.as_fd(), TcpUserTimeout, &limit) {
        tracing::debug!(%error, "a peer that is gone is noticed late");
    }
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_LIMIT).max_buf_size(HEAD_BYTES_MAX);
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        done = connection.as_mut() => Some(done),
        _ = stop.wait_for(|stop| *stop) => None,
    };
    let done = match ended {
        Some(done) => done,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = done {
        tracing::debug!(%error, "a connection has ended");
    }
}
