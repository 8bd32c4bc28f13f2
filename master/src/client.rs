//! Asks a cluster that `coswitch serve` holds, over its socket.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::ValueEnum;
use coswitch_policies::{JobId, NodeId};
use coswitch_report::journal::RunEvent;
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Response, StatusCode,
    body::{Bytes, Incoming},
};
use hyper_util::rt::TokioIo;
use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;
use tokio::{net::UnixStream, runtime::Runtime, time::timeout};

use crate::{
    accounts::{By, Filter, Listing, Sums},
    api::{ClusterStatus, JobStatus, NodeStatus, NodeUpgrade, Queue, Reason, Refusal, Submission, Submitted},
};

/// The cluster answers at once, unless its disk is blocked.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Error)]
pub enum ClientError {
    #[error("no cluster is served at {}: {cause}; start one by `coswitch serve FILE`", .path.display())]
    NoCluster { path: PathBuf, cause: io::Error },
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the cluster has ended before it answered")]
    Gone(#[source] hyper::Error),
    #[error("the cluster has closed the connection")]
    Closed,
    #[error("the cluster has not answered for {} s", .0.as_secs())]
    Late(Duration),
    #[error("the cluster answered what this version of coswitch does not understand: {0}")]
    Strange(String),
    #[error("failed to ask")]
    Own(#[from] io::Error),
}

/// Asks the cluster at one socket.
pub struct Client {
    path: PathBuf,
    runtime: Runtime,
}

impl Client {
    /// # Errors
    /// Where no runtime can be made; the socket is looked at with each question.
    pub fn new(path: &Path) -> Result<Self, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { path: path.into(), runtime })
    }

    /// # Errors
    /// [`ClientError`], as for all questions.
    pub fn cluster(&self) -> Result<ClusterStatus, ClientError> {
        self.ask(Method::GET, "/v1/cluster", &(), Some(ANSWER_LIMIT))
    }

    /// # Errors
    /// [`ClientError`]; where one job is refused, none is submitted.
    pub fn submit(&self, jobs: &[Submission]) -> Result<Vec<Submitted>, ClientError> {
        self.ask(Method::POST, "/v1/jobs", &jobs, Some(ANSWER_LIMIT))
    }

    /// # Errors
    /// [`ClientError`]
    pub fn jobs(&self, all: bool) -> Result<Queue, ClientError> {
        self.ask(Method::GET, &format!("/v1/jobs?all={all}"), &(), Some(ANSWER_LIMIT))
    }

    /// Waits until the job has ended, for however long that takes.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn wait(&self, job: JobId) -> Result<JobStatus, ClientError> {
        self.block_on(self.end_of(job))
    }

    /// The same, beside other questions.
    pub(crate) async fn end_of(&self, JobId(job): JobId) -> Result<JobStatus, ClientError> {
        self.request(Method::GET, &format!("/v1/jobs/{job}/end"), &(), None).await
    }

    /// # Errors
    /// [`ClientError`]
    pub fn cancel(&self, JobId(job): JobId) -> Result<JobStatus, ClientError> {
        self.ask(Method::POST, &format!("/v1/jobs/{job}/cancel"), &(), Some(ANSWER_LIMIT))
    }

    /// Waits until nothing of the job is in memory.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn park(&self, JobId(job): JobId) -> Result<JobStatus, ClientError> {
        self.ask(Method::POST, &format!("/v1/jobs/{job}/park"), &(), None)
    }

    /// # Errors
    /// [`ClientError`]
    pub fn resume(&self, JobId(job): JobId) -> Result<JobStatus, ClientError> {
        self.ask(Method::POST, &format!("/v1/jobs/{job}/resume"), &(), Some(ANSWER_LIMIT))
    }

    /// Waits until no job is in memory on the node.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn drain(&self, NodeId(node): NodeId) -> Result<NodeStatus, ClientError> {
        self.ask(Method::POST, &format!("/v1/nodes/{node}/drain"), &(), None)
    }

    /// # Errors
    /// [`ClientError`]
    pub fn undrain(&self, NodeId(node): NodeId) -> Result<NodeStatus, ClientError> {
        self.ask(Method::POST, &format!("/v1/nodes/{node}/undrain"), &(), Some(ANSWER_LIMIT))
    }

    /// # Errors
    /// [`ClientError`]
    pub fn why(&self, JobId(job): JobId) -> Result<Reason, ClientError> {
        self.ask(Method::GET, &format!("/v1/jobs/{job}/why"), &(), Some(ANSWER_LIMIT))
    }

    /// What a user's jobs that have ended have used; root sees those of all users.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn accounts(&self, filter: &Filter) -> Result<Listing, ClientError> {
        self.ask(Method::GET, &query(filter, None), &(), Some(ANSWER_LIMIT))
    }

    /// The same, summed up.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn sums(&self, filter: &Filter, by: By) -> Result<Sums, ClientError> {
        self.ask(Method::GET, &query(filter, Some(by)), &(), Some(ANSWER_LIMIT))
    }

    /// Waits until the daemons of these nodes, or of all, are replaced.
    ///
    /// # Errors
    /// [`ClientError`]; some of the nodes may have been upgraded before, which the refusal tells.
    pub fn upgrade(&self, nodes: &[NodeId], dry_run: bool) -> Result<Vec<NodeUpgrade>, ClientError> {
        let body = serde_json::json!({ "nodes": nodes, "dry_run": dry_run });
        self.ask(Method::POST, "/v1/upgrade", &body, None)
    }

    /// Carries out what asks several questions at once, or follows the cluster.
    pub(crate) fn block_on<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(what)
    }

    fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
        limit: Option<Duration>,
    ) -> Result<T, ClientError> {
        self.block_on(self.request(method, path, body, limit))
    }

    /// A question that does not wait for other ones.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        limit: Duration,
    ) -> Result<T, ClientError> {
        self.request(Method::GET, path, &(), Some(limit)).await
    }

    async fn request<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
        limit: Option<Duration>,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(io::Error::from)?;
        let asked = async {
            let response = self.exchange(method, path, body).await?;
            let code = response.status();
            let answer = response.into_body().collect().await.map_err(ClientError::Gone)?;
            Ok::<_, ClientError>((code, answer.to_bytes()))
        };
        let (code, answer) = match limit {
            Some(limit) => timeout(limit, asked).await.map_err(|_| ClientError::Late(limit))?,
            None => asked.await,
        }?;
        if code == StatusCode::OK {
            return serde_json::from_slice(&answer).map_err(|_| strange(&answer));
        }
        Err(refusal(&answer))
    }

    /// The events of the cluster from now on.
    pub(crate) async fn events(&self, limit: Duration) -> Result<Events, ClientError> {
        let asked = self.exchange(Method::GET, "/v1/events", Vec::new());
        let response = timeout(limit, asked).await.map_err(|_| ClientError::Late(limit))??;
        if response.status() != StatusCode::OK {
            let answer = response.into_body().collect().await.map_err(ClientError::Gone)?;
            return Err(refusal(&answer.to_bytes()));
        }
        Ok(Events { body: response.into_body(), read: Vec::new() })
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Response<Incoming>, ClientError> {
        let stream = UnixStream::connect(&self.path).await;
        let stream = stream.map_err(|cause| ClientError::NoCluster { path: self.path.clone(), cause })?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(ClientError::Gone)?;
        tokio::spawn(connection);
        let request = hyper::Request::builder()
            .method(method)
            .uri(path)
            .header("host", "coswitch")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(io::Error::other)?;
        sender.send_request(request).await.map_err(ClientError::Gone)
    }
}

/// The path of a question about accounts.
fn query(filter: &Filter, by: Option<By>) -> String {
    let Filter { own: _, user, since, until, job, state } = filter;
    let by = by.and_then(|by| Some(by.to_possible_value()?.get_name().to_owned()));
    let values = [
        ("user", user.clone()),
        ("since", since.map(|date| date.to_string())),
        ("until", until.map(|date| date.to_string())),
        ("job", job.clone()),
        ("state", state.map(|state| state.to_string())),
        ("by", by),
    ];
    let values = values.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", escaped(&value?))));
    format!("/v1/accounts?{}", values.collect::<Vec<_>>().join("&"))
}

/// A value of a query, as a URL has it.
fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(escape).collect()
}

fn strange(answer: &[u8]) -> ClientError {
    ClientError::Strange(String::from_utf8_lossy(answer).into_owned())
}

fn refusal(answer: &[u8]) -> ClientError {
    serde_json::from_slice::<Refusal>(answer).map_or_else(|_| strange(answer), Into::into)
}

/// The events of a cluster, one a line.
pub(crate) struct Events {
    body: Incoming,
    /// What has come of the lines that were not taken yet.
    read: Vec<u8>,
}

impl Events {
    /// The next event; `None` where the cluster has closed the connection. Lines that this version does not
    /// understand are passed over. Nothing is lost where the caller stops waiting.
    pub(crate) async fn next(&mut self) -> Option<RunEvent> {
        loop {
            while let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                if let Ok(event) = serde_json::from_slice(&line) {
                    return Some(event);
                }
            }
            let frame = self.body.frame().await?.ok()?;
            self.read.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        }
    }
}
