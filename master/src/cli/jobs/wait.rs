//! `coswitch wait`: waits until jobs have ended.

use std::{io, time::Duration};

use anyhow::Context;
use coswitch_policies::JobId;
use coswitch_report::words::span;
use serde::Serialize;
use tokio::time::timeout;

use super::{Cluster, find_all};
use crate::{
    api::{JobState, JobStatus, Queue},
    cli::{Answer, Exit, Failure, Output},
    client::{Client, ClientError},
};

/// So long nothing is said, and so often a change.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// Wait until jobs have ended; exits with 1 where one failed or was cancelled.
#[derive(Debug, clap::Args)]
pub(crate) struct WaitCommand {
    /// The jobs, by number or name [default: all that have not ended].
    jobs: Vec<String>,
    #[command(flatten)]
    cluster: Cluster,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Ended(Vec<JobStatus>);

impl WaitCommand {
    pub(crate) fn carry_out(self, output: Output) -> Result<Exit, Failure> {
        let client = self.cluster.client()?;
        let jobs = match &self.jobs[..] {
            [] => client.jobs(false)?.jobs,
            words => find_all(&client, words)?,
        };
        wait_for(&client, &jobs.iter().map(|job| job.job).collect::<Vec<_>>(), output)
    }
}

pub(super) fn wait_for(client: &Client, jobs: &[JobId], output: Output) -> Result<Exit, Failure> {
    let mut ended = Ended(Vec::new());
    for job in jobs {
        let waiting = client.block_on(wait_and_tell(client, *job, output));
        ended.0.push(waiting?);
    }
    output.print(&ended).context("failed to print")?;
    let all_done = ended.0.iter().all(|job| job.state == JobState::Done);
    Ok(if all_done { Exit::Done } else { Exit::JobFailed })
}

/// Waits for one job. Tells people its state and its next turn until it has begun.
async fn wait_and_tell(client: &Client, job: JobId, output: Output) -> Result<JobStatus, ClientError> {
    let end = client.end_of(job);
    tokio::pin!(end);
    let mut told = None;
    loop {
        match timeout(TELL_EVERY, &mut end).await {
            Ok(ended) => return ended,
            Err(_) if output != Output::Human => {}
            Err(_) => {
                // The cluster may be lost just now: the wait itself says so.
                let Ok(queue) = client.get::<Queue>("/v1/jobs?all=false", TELL_EVERY).await else { continue };
                let pending = |status: &&JobStatus| status.job == job && status.began.is_none();
                let Some(status) = queue.jobs.iter().find(pending) else { continue };
                if told.replace(status.state) != Some(status.state) {
                    let next = status.next_turn(queue.now);
                    eprintln!("{job} {}: {}, next turn: {next}", status.name, status.state);
                }
            }
        }
    }
}

impl Answer for Ended {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        for JobStatus { job, name, outcome, submitted, ended, ran, .. } in &self.0 {
            let outcome = outcome.as_ref().map(ToString::to_string).unwrap_or_default();
            let after = ended.map(|ended| span(ended.since(*submitted))).unwrap_or_default();
            writeln!(
                out,
                "{job} {name}: {outcome} {after} after it was submitted; it ran for {}",
                span(*ran)
            )?;
        }
        Ok(())
    }
}
