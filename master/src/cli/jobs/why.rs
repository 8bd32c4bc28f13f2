//! `coswitch why`: one sentence on why a job is where it is.

use std::io;

use anyhow::Context;

use super::{Cluster, find_all};
use crate::{
    api::Reason,
    cli::{Answer, Exit, Failure, Output},
};

/// Say why a job is where it is: by the scheduler's own reasons.
#[derive(Debug, clap::Args)]
pub(crate) struct WhyCommand {
    /// The job, by number or name.
    job: String,
    #[command(flatten)]
    cluster: Cluster,
}

impl WhyCommand {
    pub(crate) fn carry_out(self, output: Output) -> Result<Exit, Failure> {
        let client = self.cluster.client()?;
        let job = find_all(&client, std::slice::from_ref(&self.job))?.remove(0);
        output.print(&client.why(job.job)?).context("failed to print")?;
        Ok(Exit::Done)
    }
}

impl Answer for Reason {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        writeln!(out, "{} {}: {}", self.job, self.name, self.text)
    }
}
