//! The commands with which users bring jobs to a cluster and follow them.

mod cancel;
mod cat;
mod drain;
mod park;
mod queue;
mod submit;
mod top;
mod upgrade;
mod wait;
mod why;

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::anyhow;
use coswitch_policies::JobId;
use nix::unistd::geteuid;

pub(crate) use cancel::CancelCommand;
pub(crate) use cat::CatCommand;
pub(crate) use drain::{DrainCommand, UndrainCommand};
pub(crate) use park::{ParkCommand, ResumeCommand};
pub(crate) use queue::QueueCommand;
pub(crate) use submit::SubmitCommand;
pub(crate) use top::TopCommand;
pub(crate) use upgrade::UpgradeCommand;
pub(crate) use wait::WaitCommand;
pub(crate) use why::WhyCommand;

use super::Failure;
use crate::{
    api::{JobStatus, Queue, Refusal},
    client::{Client, ClientError},
    config::Job,
    serve::DEFAULT_SOCKET,
};

/// Which cluster is meant.
#[derive(Debug, clap::Args)]
pub(super) struct Cluster {
    /// The socket on which the cluster is served.
    #[arg(long, value_name = "PATH", env = "COSWITCH_SOCKET", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
}

impl Cluster {
    pub(super) fn client(&self) -> Result<Client, Failure> {
        Ok(Client::new(&self.socket)?)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused(refusal) => Self::Refused(refusal),
            error => Self::Internal(anyhow!(error)),
        }
    }
}

/// The job that a user calls `3`, `job-3` or `heat`.
fn find<'a>(queue: &'a Queue, word: &str) -> Result<&'a JobStatus, Failure> {
    let number = word.strip_prefix("job-").unwrap_or(word).parse().ok().map(JobId);
    let by_number = queue.jobs.iter().find(|job| Some(job.job) == number);
    let found = by_number.or_else(|| queue.jobs.iter().find(|job| job.name == word));
    found.ok_or_else(|| match number {
        Some(job) => Failure::Refused(Refusal::UnknownJob { job }),
        None => {
            let why = format!("there is no job called `{word}`; `coswitch queue --all` lists your jobs");
            Failure::Refused(Refusal::BadRequest { why })
        }
    })
}

/// The jobs that a user names, in that order.
fn find_all(client: &Client, words: &[String]) -> Result<Vec<JobStatus>, Failure> {
    let queue = client.jobs(true)?;
    words.iter().map(|word| find(&queue, word).cloned()).collect()
}

/// As [`find_all`]; a name that no job has means the array that was submitted by it.
fn find_with_arrays(queue: &Queue, words: &[String]) -> Result<Vec<JobId>, Failure> {
    let mut jobs = Vec::new();
    for word in words {
        match find(queue, word) {
            Ok(job) => jobs.push(job.job),
            Err(failure) => {
                let before = jobs.len();
                jobs.extend(queue.jobs.iter().filter(|job| is_of_array(&job.name, word)).map(|job| job.job));
                if jobs.len() == before {
                    return Err(failure);
                }
            }
        }
    }
    Ok(jobs)
}

/// Whether a job is called `ARRAY-NUMBER`.
fn is_of_array(job: &str, array: &str) -> bool {
    let number = job.strip_prefix(array).and_then(|rest| rest.strip_prefix('-'));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Gives a job the environment of this process, on which its own variables come.
pub(super) fn with_environment(job: &mut Job) {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let mut environment: BTreeMap<String, String> = std::env::vars_os().filter_map(text).collect();
    if let Some(owner) = job.owner.as_ref().filter(|_| geteuid().is_root()) {
        environment = owner.environment(environment);
    }
    environment.append(&mut job.env);
    job.env = environment;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_all_jobs_with_its_name_and_a_number() {
        for (job, array, expected) in [
            ("heat-1", "heat", true),
            ("heat-12", "heat", true),
            ("heat", "heat", false),
            ("heat-", "heat", false),
            ("heat-1-7", "heat", false),
            ("heat-x", "heat", false),
            ("preheat-1", "heat", false),
        ] {
            assert_eq!(is_of_array(job, array), expected, "{job} of {array}");
        }
    }
}
