//! `coswitch run`: checks the machine, runs the set, prints the report.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use coswitch_policies::parse_duration;
use coswitch_report::{Report, fold, journal::RunOutcome};

use super::{
    Answer, Exit, Failure, Output,
    runs::{self, Alone, Runs},
};
use crate::{
    config::{self, JobSet, ParkMethod},
    doctor,
    parked::Parked,
    standing::since_1970,
};

/// Run a job set to its end and report.
#[derive(Debug, clap::Args)]
pub(crate) struct RunCommand {
    /// The run file.
    #[arg(required_unless_present = "resume")]
    file: Option<PathBuf>,
    /// The directory for journal, logs and outputs [default: coswitch-runs/RUN].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on with the run whose jobs are parked: its directory.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["file", "out", "measure_alone"])]
    resume: Option<PathBuf>,
    /// Show nothing during the run.
    #[arg(short, long)]
    quiet: bool,
    /// First run each different job alone, so that the trade-off metric is known.
    #[arg(long)]
    measure_alone: bool,
    /// End the run after this time.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    limit: Option<Duration>,
    /// Park all jobs so that the run is over after this time, and keep them for `--resume`. In an allocation
    /// of Slurm its end counts, if that is earlier.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    park_after: Option<Duration>,
}

impl RunCommand {
    pub(crate) fn carry_out(self, output: Output, umask: u32) -> Result<Exit, Failure> {
        let parked = self.resume.as_deref().map(read_parked).transpose()?;
        let mut job_set = match (&parked, &self.file) {
            (Some((_, parked)), _) => parked.job_set.clone(),
            (None, Some(file)) => config::load(file)?,
            (None, None) => unreachable!("one of both is required"),
        };
        let pages_out = job_set.scheduler.park == ParkMethod::PageOut;
        let findings = doctor::examine(&job_set.jobs, pages_out, job_set.cluster.stores_here());
        if !findings.is_fit() {
            return Err(Failure::Lacking(findings));
        }
        let mut runs = Runs::new(self.quiet, self.limit, umask)?;
        let of_allocation =
            job_set.cluster.allocation.as_ref().and_then(|allocation| allocation.end(since_1970()));
        let asked = self.park_after.map(|after| since_1970() + after);
        runs.ends = [of_allocation, asked].into_iter().flatten().min();
        runs.prepare(&findings, &mut job_set.jobs);
        let (out, (outcome, events)) = match parked {
            Some((out, parked)) => {
                let ran = runs.resume(parked.with(job_set), &out)?;
                (out, ran)
            }
            None => {
                let out = runs::directory(self.out.as_deref(), &runs.name);
                if self.measure_alone
                    && let Alone::Interrupted = runs.measure_alone(&mut job_set, &out.join("alone"))?
                {
                    let when = "while jobs ran alone; the set itself did not run";
                    return Err(Failure::Interrupted(when.into()));
                }
                let ran = runs.run(job_set, &out, "")?;
                (out, ran)
            }
        };
        output.print(&fold(&events)).context("failed to print the report")?;
        if outcome == RunOutcome::Parked {
            eprintln!(
                "the jobs that have not ended are parked; `coswitch run --resume {}` goes on with them",
                out.display()
            );
        }
        Ok(outcome.into())
    }
}

/// The run that is parked in `directory`. Its allocation is the present one.
fn read_parked(directory: &Path) -> Result<(PathBuf, Parked), Failure> {
    let parked = Parked::read(directory).map_err(Failure::Standing)?;
    let out = directory.canonicalize().context("failed to find the directory of the run")?;
    let mut cluster = parked.job_set.cluster.clone();
    if cluster.allocation.is_some() {
        let allocation = config::allocation().map_err(|error| Failure::Standing(error.into()))?;
        config::check_resumed(&cluster, &allocation)
            .map_err(|why| Failure::Standing(anyhow::anyhow!(why)))?;
        cluster.allocation = Some(allocation);
    }
    let job_set = JobSet { cluster, ..parked.job_set.clone() };
    Ok((out, parked.with(job_set)))
}

impl Answer for Report {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        self.write_tables(out)
    }
}
