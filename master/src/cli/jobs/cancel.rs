//! `coswitch cancel`: ends jobs.

use super::{Cluster, find_all};
use crate::cli::{Exit, Failure};

/// End jobs. Returns when nothing of them is left.
#[derive(Debug, clap::Args)]
pub(crate) struct CancelCommand {
    /// The jobs, by number or name.
    #[arg(required = true)]
    jobs: Vec<String>,
    #[command(flatten)]
    cluster: Cluster,
}

impl CancelCommand {
    pub(crate) fn carry_out(self) -> Result<Exit, Failure> {
        let client = self.cluster.client()?;
        let jobs = find_all(&client, &self.jobs)?;
        for job in &jobs {
            client.cancel(job.job)?;
        }
        for job in &jobs {
            client.wait(job.job)?;
        }
        Ok(Exit::Done)
    }
}
