//! `coswitch run`: checks the machine, runs the set, prints the report.

use std::{io, path::PathBuf, time::Duration};

use anyhow::Context;
use coswitch_policies::parse_duration;
use coswitch_report::{Report, fold};

use super::{
    Answer, Exit, Failure, Output,
    runs::{self, Alone, Runs},
};
use crate::{
    config::{self, ParkMethod},
    doctor,
};

/// Run a job set to its end and report.
#[derive(Debug, clap::Args)]
pub(crate) struct RunCommand {
    /// The run file.
    file: PathBuf,
    /// The directory for journal, logs and outputs [default: coswitch-runs/RUN].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Show nothing during the run.
    #[arg(short, long)]
    quiet: bool,
    /// First run each different job alone, so that the trade-off metric is known.
    #[arg(long)]
    measure_alone: bool,
    /// End the run after this time.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    limit: Option<Duration>,
}

impl RunCommand {
    pub(crate) fn carry_out(self, output: Output, umask: u32) -> Result<Exit, Failure> {
        let mut job_set = config::load(&self.file)?;
        let pages_out = job_set.scheduler.park == ParkMethod::PageOut;
        let findings = doctor::examine(&job_set.jobs, pages_out, job_set.cluster.stores_here());
        if !findings.is_fit() {
            return Err(Failure::Lacking(findings));
        }
        let runs = Runs::new(self.quiet, self.limit, umask)?;
        runs.prepare(&findings, &mut job_set.jobs);
        let out = runs::directory(self.out.as_deref(), &runs.name);
        if self.measure_alone
            && let Alone::Interrupted = runs.measure_alone(&mut job_set, &out.join("alone"))?
        {
            return Err(Failure::Interrupted("while jobs ran alone; the set itself did not run".into()));
        }
        let (outcome, events) = runs.run(job_set, &out, "")?;
        output.print(&fold(&events)).context("failed to print the report")?;
        Ok(outcome.into())
    }
}

impl Answer for Report {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        self.write_tables(out)
    }
}
