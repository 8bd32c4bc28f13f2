//! `coswitch run`: checks everything, runs the set, reports.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow};

use super::{Exit, Failure, Output};
use crate::{
    config::{self, Job, JobSet, Park},
    costs, doctor,
    engine::{self, EngineOptions, Outcome},
    journal::{self, RunEvent, RunOutcome},
    live::Live,
    report,
    run_name::RunName,
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
        let run = RunName::of_this_process();
        let out = self.out.clone().unwrap_or_else(|| Path::new("coswitch-runs").join(run.to_string()));
        if self.measure_alone {
            self.measure_alone(&mut job_set, &out, &run)?;
        }
        let (outcome, events) = self.run_set(job_set, &out, run.to_string())?;
        output.print(&report::fold(&events)).context("failed to print the report")?;
        Ok(exit_of(outcome.run))
    }

    /// Runs `job_set` in the directory `out` and keeps its journal there.
    fn run_set(&self, job_set: JobSet, out: &Path, run: String) -> anyhow::Result<(Outcome, Vec<RunEvent>)> {
        let out = new_directory(out)?;
        let mut journal = journal::Writer::open(&out.join(journal::FILE_NAME))?;
        let mut live = Live::new(self.quiet, &out);
        let (mut events, mut unwritten) = (Vec::new(), None);
        let options = EngineOptions { run, out: out.clone() };
        let outcome = engine::run(job_set, options, |event: RunEvent| {
            live.on_event(&event);
            if !event.kind.is_fleeting() {
                // The jobs must not die of a full disk under the journal; the run fails at its end instead.
                unwritten = unwritten.take().or(journal.append(&event).err());
                events.push(event);
            }
        })?;
        drop(live);
        costs::keep(&out, &events)?;
        unwritten.map_or(Ok((outcome, events)), |error| Err(error.into()))
    }

    /// Runs one of each kind of job by itself, and notes how long it ran.
    fn measure_alone(&self, job_set: &mut JobSet, out: &Path, run: &RunName) -> anyhow::Result<()> {
        for index in 0..job_set.jobs.len() {
            if job_set.jobs[index].alone.is_some() {
                continue;
            }
            let job = job_set.jobs[index].clone();
            let alone = self.time_alone(&job, job_set, &out.join("alone").join(&job.name), run)?;
            for like in job_set.jobs.iter_mut().filter(|other| is_alike(&job, other)) {
                like.alone.get_or_insert(alone);
            }
        }
        Ok(())
    }

    fn time_alone(&self, job: &Job, job_set: &JobSet, out: &Path, run: &RunName) -> anyhow::Result<Duration> {
        let mut only = job_set.clone();
        only.jobs = vec![Job { arrival: Duration::ZERO.into(), ..job.clone() }];
        let name = run.with_suffix(&format!("-a{}", job.id.0));
        let (_, events) =
            self.run_set(only, out, name).with_context(|| format!("failed to run {} alone", job.name))?;
        let report = report::fold(&events);
        let ended_well =
            |job: &&report::JobReport| job.outcome.as_ref().is_some_and(journal::JobOutcome::is_success);
        let times = report.jobs.iter().find(ended_well).and_then(|job| job.times.as_ref());
        times.map(|times| times.run).ok_or_else(|| anyhow!("{} did not end well alone", job.name))
    }
}

/// Whether two jobs do the same work.
fn is_alike(a: &Job, b: &Job) -> bool {
    (&a.program, &a.arguments, a.ranks, &a.env, &a.cwd, a.wait)
        == (&b.program, &b.arguments, b.ranks, &b.env, &b.cwd, b.wait)
}

/// A directory for a run. One that holds a journal belongs to another run.
fn new_directory(path: &Path) -> anyhow::Result<PathBuf> {
    fs::create_dir_all(path).with_context(|| format!("failed to make {}", path.display()))?;
    let path = path.canonicalize().with_context(|| format!("failed to find {}", path.display()))?;
    if path.join(journal::FILE_NAME).exists() {
        return Err(anyhow!("{} holds another run; name a new directory", path.display()));
    }
    Ok(path)
}

fn exit_of(outcome: RunOutcome) -> Exit {
    match outcome {
        RunOutcome::Done => Exit::Done,
        RunOutcome::JobsFailed => Exit::JobFailed,
        RunOutcome::Interrupted => Exit::Interrupted,
        RunOutcome::Aborted => Exit::Internal,
    }
}
