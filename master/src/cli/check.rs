//! `coswitch check`: checks a run file.

use std::{io, path::PathBuf};

use anyhow::Context;
use coswitch_report::words::plural;
use serde::Serialize;

use super::{Answer, Exit, Failure, Output};
use crate::config::{self, JobSet};

/// Check a run file; start nothing.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckCommand {
    /// The run file.
    file: PathBuf,
}

impl CheckCommand {
    pub(crate) fn carry_out(self, output: Output) -> Result<Exit, Failure> {
        let job_set = config::load(&self.file)?;
        let warnings = job_set.warnings();
        output.print(&Checked { job_set, warnings }).context("failed to print")?;
        Ok(Exit::Done)
    }
}

#[derive(Serialize)]
struct Checked {
    #[serde(flatten)]
    job_set: JobSet,
    warnings: Vec<String>,
}

impl Answer for Checked {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let JobSet { file, cluster, scheduler, jobs, .. } = &self.job_set;
        let (declared, capacity) = (self.job_set.memory_total(), self.job_set.capacity_total());
        writeln!(out, "{} is right", file.display())?;
        writeln!(
            out,
            "  {} on {} of {} each",
            plural(jobs.len(), "job"),
            plural(cluster.nodes as usize, "node"),
            cluster.memory
        )?;
        let times = declared.0 as f64 / capacity.0 as f64;
        writeln!(out, "  jobs need {declared} in all, {times:.1} times what the nodes hold")?;
        writeln!(out, "  policy {}, quantum {:?}", scheduler.policy, scheduler.quantum)?;
        self.warnings.iter().try_for_each(|warning| writeln!(out, "warning: {warning}"))
    }
}
