//! Asks a cluster that `coswitch serve` holds, over its socket.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use coswitch_policies::JobId;
use http_body_util::{BodyExt, Full};
use hyper::{Method, StatusCode, body::Bytes};
use hyper_util::rt::TokioIo;
use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;
use tokio::{net::UnixStream, runtime::Runtime, time::timeout};

use crate::api::{ClusterStatus, JobStatus, Queue, Reason, Refusal, Submission, Submitted};

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
    pub fn wait(&self, JobId(job): JobId) -> Result<JobStatus, ClientError> {
        self.ask(Method::GET, &format!("/v1/jobs/{job}/end"), &(), None)
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

    /// # Errors
    /// [`ClientError`]
    pub fn why(&self, JobId(job): JobId) -> Result<Reason, ClientError> {
        self.ask(Method::GET, &format!("/v1/jobs/{job}/why"), &(), Some(ANSWER_LIMIT))
    }

    fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
        limit: Option<Duration>,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(io::Error::from)?;
        let asked = self.exchange(method, path, body);
        let (code, answer) = self.runtime.block_on(async {
            match limit {
                Some(limit) => timeout(limit, asked).await.map_err(|_| ClientError::Late(limit))?,
                None => asked.await,
            }
        })?;
        let strange = || ClientError::Strange(String::from_utf8_lossy(&answer).into_owned());
        if code == StatusCode::OK {
            return serde_json::from_slice(&answer).map_err(|_| strange());
        }
        Err(serde_json::from_slice::<Refusal>(&answer).map_or_else(|_| strange(), Into::into))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Bytes), ClientError> {
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
        let response = sender.send_request(request).await.map_err(ClientError::Gone)?;
        let code = response.status();
        let answer = response.into_body().collect().await.map_err(ClientError::Gone)?;
        Ok((code, answer.to_bytes()))
    }
}
