//! `coswitch run`: checks everything, runs the set, reports.

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use coswitch_policies::parse_duration;

use super::{
    Exit, Failure, Output,
    runs::{self, Runs},
};
use crate::{
    config::{self, Park},
    doctor,
    journal::RunOutcome,
    report,
};

/// Run a job set to its end and report.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// The run file.
    file: PathBuf,
    /// The directory for journal, logs and outputs [default: coswitch-runs/RUN].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Show nothing while it runs.
    #[arg(short, long)]
    quiet: bool,
    /// First run each different job alone, so that the trade-off metric is known.
    #[arg(long)]
    measure_alone: bool,
    /// End it after so long.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    limit: Option<Duration>,
}

impl Run {
    /// Runs the set.
    pub(crate) fn carry_out(self, output: Output) -> Result<Exit, Failure> {
        let mut job_set = config::load(&self.file)?;
        let pages_out = job_set.scheduler.park == Park::PageOut;
        let findings = doctor::examine(&job_set.jobs, pages_out, &job_set.cluster.store);
        if !findings.is_fit() {
            return Err(Failure::Lacking(findings));
        }
        let runs = Runs::new(self.quiet, self.limit);
        let out = runs::directory(self.out.as_deref(), &runs.name);
        if self.measure_alone {
            runs.measure_alone(&mut job_set, &out.join("alone"))?;
        }
        let (outcome, events) = runs.run(job_set, &out, "")?;
        output.print(&report::fold(&events)).context("failed to print the report")?;
        Ok(exit_of(outcome))
    }
}

pub(super) fn exit_of(outcome: RunOutcome) -> Exit {
    match outcome {
        RunOutcome::Done => Exit::Done,
        RunOutcome::JobsFailed => Exit::JobFailed,
        RunOutcome::TimedOut => Exit::TimedOut,
        RunOutcome::Interrupted => Exit::Interrupted,
        RunOutcome::Aborted => Exit::Internal,
    }
}
