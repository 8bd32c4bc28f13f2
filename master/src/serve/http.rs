//! The questions as HTTP: paths, bodies and codes. Who asks is told by the kernel (peer credentials).

use std::{
    convert::Infallible, os::unix::net::UnixListener as StdListener, path::Path as FilePath, sync::Arc,
    time::Duration,
};

use axum::{
    Json, Router,
    body::Body,
    extract::{ConnectInfo, DefaultBodyLimit, Path, Query, State, connect_info::Connected},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
    serve::IncomingStream,
};
use coswitch_policies::{JobId, NodeId};
use coswitch_report::{AccountState, journal::RunEvent};
use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};
use tokio::{
    net::UnixListener,
    sync::{
        broadcast::{self, error::RecvError},
        mpsc::UnboundedSender,
        oneshot,
    },
};

use super::metrics;
use crate::{
    accounts::{By, Filter, View},
    api::{Refusal, Reply, Request, Submission, User},
    config::Owner,
    engine::Ask,
};

/// A thousand jobs with large environments.
const BODY_MAX: usize = 64 << 20;
/// For the directory of users, which may be on another machine.
const NAMES_LIMIT: std::time::Duration = std::time::Duration::from_secs(10);

#[derive(Clone)]
pub(super) struct Api {
    pub(super) asks: UnboundedSender<Ask>,
    pub(super) events: broadcast::Sender<Arc<RunEvent>>,
    pub(super) registry: Arc<Registry>,
    /// Of the cluster.
    pub(super) directory: Arc<FilePath>,
}

/// Who is at the other end of the socket.
#[derive(Clone, Copy, Debug)]
struct Peer(Option<User>);

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        Self(stream.io().peer_cred().ok().map(|credentials| User(credentials.uid())))
    }
}

/// Serves until the process ends.
pub(super) async fn serve(listener: StdListener, api: Api) -> std::io::Result<()> {
    let routes = Router::new()
        .route("/v1/cluster", get(cluster))
        .route("/v1/jobs", get(jobs).post(submit))
        .route("/v1/jobs/{job}/end", get(wait))
        .route("/v1/jobs/{job}/why", get(why))
        .route("/v1/jobs/{job}/cancel", post(cancel))
        .route("/v1/jobs/{job}/park", post(park))
        .route("/v1/jobs/{job}/resume", post(resume))
        .route("/v1/nodes/{node}/drain", post(drain))
        .route("/v1/nodes/{node}/undrain", post(undrain))
        .route("/v1/timetable", get(timetable))
        .route("/v1/upgrade", post(upgrade))
        .route("/v1/accounts", get(accounts))
        .route("/v1/events", get(events))
        .route("/metrics", get(numbers))
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .with_state(api);
    let listener = UnixListener::from_std(listener)?;
    axum::serve(listener, routes.into_make_service_with_connect_info::<Peer>()).await
}

type From = ConnectInfo<Peer>;

async fn cluster(State(api): State<Api>, from: From) -> Response {
    api.ask(from, Request::Cluster).await
}

#[derive(Deserialize)]
struct Which {
    #[serde(default)]
    all: bool,
}

async fn jobs(State(api): State<Api>, from: From, Query(Which { all }): Query<Which>) -> Response {
    api.ask(from, Request::Jobs { all }).await
}

async fn submit(State(api): State<Api>, from: From, Json(mut jobs): Json<Vec<Submission>>) -> Response {
    let ConnectInfo(Peer(Some(user))) = from else { return refused(&unknown_user()) };
    if user != User::ROOT {
        // What the client says of them counts only where it is the same user.
        let found = tokio::task::spawn_blocking(move || Owner::named(&user.0.to_string()));
        let found = tokio::time::timeout(NAMES_LIMIT, found).await;
        let late = |_| format!("the name service has not answered within {NAMES_LIMIT:?}");
        let found = found.map_err(late).and_then(|found| found.map_err(|error| error.to_string())?);
        let owner = match found {
            Ok(owner) => owner,
            Err(why) => return refused(&Refusal::NotServed { user: user.0, why }),
        };
        for Submission { job, .. } in &mut jobs {
            if User::of(job, user) == user {
                job.owner.clone_from(&owner);
            }
        }
    }
    api.ask(from, Request::Submit(jobs)).await
}

async fn wait(State(api): State<Api>, from: From, Path(job): Path<u32>) -> Response {
    api.ask(from, Request::Wait(JobId(job))).await
}

async fn why(State(api): State<Api>, from: From, Path(job): Path<u32>) -> Response {
    api.ask(from, Request::Why(JobId(job))).await
}

async fn cancel(State(api): State<Api>, from: From, Path(job): Path<u32>) -> Response {
    api.ask(from, Request::Cancel(JobId(job))).await
}

async fn park(State(api): State<Api>, from: From, Path(job): Path<u32>) -> Response {
    api.ask(from, Request::Park(JobId(job))).await
}

async fn resume(State(api): State<Api>, from: From, Path(job): Path<u32>) -> Response {
    api.ask(from, Request::Resume(JobId(job))).await
}

async fn drain(State(api): State<Api>, from: From, Path(node): Path<u32>) -> Response {
    api.ask(from, Request::Drain(NodeId(node))).await
}

async fn undrain(State(api): State<Api>, from: From, Path(node): Path<u32>) -> Response {
    api.ask(from, Request::Undrain(NodeId(node))).await
}

#[derive(Deserialize)]
struct Ahead {
    /// Seconds.
    #[serde(default = "a_minute")]
    ahead: u64,
}

const fn a_minute() -> u64 {
    60
}

async fn timetable(State(api): State<Api>, from: From, Query(Ahead { ahead }): Query<Ahead>) -> Response {
    api.ask(from, Request::Timetable { ahead: Duration::from_secs(ahead) }).await
}

/// Which accounts are asked for.
#[derive(Deserialize)]
struct Accounts {
    user: Option<String>,
    since: Option<f64>,
    until: Option<f64>,
    job: Option<String>,
    state: Option<AccountState>,
    by: Option<By>,
}

/// The database is read beside all else: the engine is not asked.
async fn accounts(
    State(api): State<Api>,
    ConnectInfo(peer): From,
    Query(asked): Query<Accounts>,
) -> Response {
    let Some(user) = peer.0 else { return refused(&unknown_user()) };
    let own = (user != User::ROOT).then_some(user.0);
    let Accounts { user, since, until, job, state, by } = asked;
    let filter = Filter { own, user, since, until, job, state };
    let read = move || {
        let view = View::of_database(&api.directory).map_err(|error| error.to_string())?;
        let answer = match by {
            None => view.listing(&filter).map(|listing| json(&listing)),
            Some(by) => view.sums(&filter, by).map(|sums| json(&sums)),
        };
        answer.map_err(|error| error.to_string())
    };
    let answer = tokio::task::spawn_blocking(read).await.unwrap_or_else(|error| Err(error.to_string()));
    answer.unwrap_or_else(|why| refused(&Refusal::NoAccounts { why }))
}

fn unknown_user() -> Refusal {
    Refusal::BadRequest { why: "the kernel does not tell who you are".into() }
}

/// The body of the request for an upgrade.
#[derive(Deserialize)]
struct Upgrade {
    /// By number; none: all.
    #[serde(default)]
    nodes: Vec<NodeId>,
    #[serde(default)]
    dry_run: bool,
}

async fn upgrade(State(api): State<Api>, from: From, Json(asked): Json<Upgrade>) -> Response {
    let Upgrade { nodes, dry_run } = asked;
    api.ask(from, Request::Upgrade { nodes, dry_run }).await
}

/// The events of the cluster from now on, one JSON value in a line.
async fn events(State(api): State<Api>, ConnectInfo(peer): From) -> Response {
    // They tell of all jobs.
    if peer.0 != Some(User::ROOT) {
        return refused(&Refusal::OnlyRoot { user: peer.0.map_or(u32::MAX, |user| user.0) });
    }
    let lines = futures_util::stream::unfold(api.events.subscribe(), |mut events| async {
        loop {
            match events.recv().await {
                Ok(event) => {
                    if let Ok(line) = serde_json::to_string(&*event) {
                        return Some((Ok::<_, Infallible>(line + "\n"), events));
                    }
                }
                // A reader that is too slow goes on with the present.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    });
    ([("content-type", "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

async fn numbers(State(api): State<Api>) -> Response {
    metrics::answer(&api.registry)
}

impl Api {
    async fn ask(&self, ConnectInfo(Peer(user)): From, request: Request) -> Response {
        let Some(user) = user else { return refused(&unknown_user()) };
        let (answer, reply) = oneshot::channel();
        let ended = Reply::Refused(Refusal::Ending);
        let reply = match self.asks.send(Ask { user, request, answer }) {
            Ok(()) => reply.await.unwrap_or(ended),
            Err(_) => ended,
        };
        match reply {
            Reply::Cluster(status) => json(&status),
            Reply::Submitted(jobs) => json(&jobs),
            Reply::Jobs(queue) => json(&queue),
            Reply::Job(status) => json(&status),
            Reply::Why(reason) => json(&reason),
            Reply::Node(status) => json(&status),
            Reply::Timetable(timetable) => json(&timetable),
            Reply::Upgraded(nodes) => json(&nodes),
            Reply::Refused(refusal) => refused(&refusal),
        }
    }
}

fn json(answer: &impl Serialize) -> Response {
    Json(answer).into_response()
}

fn refused(refusal: &Refusal) -> Response {
    let code = match refusal {
        Refusal::UnknownJob { .. } | Refusal::UnknownNode { .. } => StatusCode::NOT_FOUND,
        Refusal::Ended { .. }
        | Refusal::CannotPark { .. }
        | Refusal::CannotDrain { .. }
        | Refusal::NotUpgraded { .. } => StatusCode::CONFLICT,
        Refusal::BadJob { .. } | Refusal::BadRequest { .. } => StatusCode::BAD_REQUEST,
        Refusal::NotServed { .. } | Refusal::OnlyRoot { .. } => StatusCode::FORBIDDEN,
        Refusal::Full { .. }
        | Refusal::QueueFull { .. }
        | Refusal::OwnQueueFull { .. }
        | Refusal::NotKept { .. }
        | Refusal::NoAccounts { .. }
        | Refusal::Ending => StatusCode::SERVICE_UNAVAILABLE,
    };
    (code, Json(refusal)).into_response()
}
