//! `coswitch explain`: the matrix that a run file would get, and why.

use std::{io, path::PathBuf};

use anyhow::Context;
use coswitch_policies::explain::{Explanation, explain_jobs};
use serde::Serialize;

use super::{Answer, Exit, Failure, Output};
use crate::config;

/// Show the matrix that a run file would get, and why; start nothing.
#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    /// The run file.
    file: PathBuf,
}

impl Explain {
    /// Fills the matrix with all jobs of the file, in the order of their arrival.
    pub(crate) fn carry_out(self, output: Output) -> Result<Exit, Failure> {
        let job_set = config::load(&self.file)?;
        let explanation = explain_jobs(job_set.cluster(), job_set.scheduler_config(), job_set.specs());
        let explanation = explanation.context("failed to fill the matrix")?;
        output.print(&Explained(explanation)).context("failed to print")?;
        Ok(Exit::Done)
    }
}

#[derive(Serialize)]
#[serde(transparent)]
struct Explained(Explanation);

impl Answer for Explained {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        write!(out, "{}", self.0)
    }
}
