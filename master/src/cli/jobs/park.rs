//! `coswitch park` and `coswitch resume`: takes jobs out of memory for as long as their user likes.

use super::{Cluster, find_all};
use crate::cli::{Exit, Failure};

/// Take jobs out of memory until `coswitch resume`. Returns when nothing of them is there.
///
/// What they have computed is kept, and the time does not count towards their limits.
#[derive(Debug, clap::Args)]
pub(crate) struct ParkCommand {
    /// The jobs, by number or name.
    #[arg(required = true)]
    jobs: Vec<String>,
    #[command(flatten)]
    cluster: Cluster,
}

/// Let parked jobs take turns again.
#[derive(Debug, clap::Args)]
pub(crate) struct ResumeCommand {
    /// The jobs, by number or name.
    #[arg(required = true)]
    jobs: Vec<String>,
    #[command(flatten)]
    cluster: Cluster,
}

impl ParkCommand {
    pub(crate) fn carry_out(self) -> Result<Exit, Failure> {
        let client = self.cluster.client()?;
        for job in find_all(&client, &self.jobs)? {
            client.park(job.job)?;
        }
        Ok(Exit::Done)
    }
}

impl ResumeCommand {
    pub(crate) fn carry_out(self) -> Result<Exit, Failure> {
        let client = self.cluster.client()?;
        for job in find_all(&client, &self.jobs)? {
            client.resume(job.job)?;
        }
        Ok(Exit::Done)
    }
}
