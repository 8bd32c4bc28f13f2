//! `coswitch explain`: the matrix of a run file, with explanations.

mod round;

use std::{collections::BTreeMap, io, path::PathBuf};

use anyhow::Context;
use coswitch_policies::{
    Alternate, Communication, JobId, Rotation, SchedulerConfig,
    timeshare::explain::{Explanation, explain_jobs},
};
use serde::Serialize;

use super::{Answer, Exit, Failure, Output, simulate::load_costs};
use crate::config;
use round::Round;

/// Show and explain the matrix of a run file; start nothing.
#[derive(Debug, clap::Args)]
pub(crate) struct ExplainCommand {
    /// The run file.
    file: PathBuf,
    /// How long switches take and how much jobs communicate: a cost file, or the directory of an earlier run.
    #[arg(long, value_name = "PATH")]
    costs: Option<PathBuf>,
    /// Which jobs are backfilled into the slots of others, instead of the file's `alternate`: `none`,
    /// `whole`, or `partial`, which backfills the ranks on idle nodes only and is shown, but never run.
    #[arg(long, value_parser = alternate)]
    alternate: Option<Alternate>,
}

fn alternate(text: &str) -> Result<Alternate, String> {
    serde_json::from_value(text.into()).map_err(|_| format!("`{text}` is not `none`, `whole` or `partial`"))
}

impl ExplainCommand {
    /// Fills the matrix with all jobs of the file in the order of arrival, and prints it.
    pub(crate) fn carry_out(self, output: Output) -> Result<Exit, Failure> {
        let mut set = config::load_to_plan(&self.file)?;
        let alternate = self.alternate.unwrap_or(set.scheduler.alternate);
        set.scheduler.alternate = if alternate == Alternate::Partial { Alternate::None } else { alternate };
        let (cost, measured) = load_costs(self.costs.as_deref())?;
        let known = set.jobs.iter().filter_map(|job| Some((job.id, measured.communication_of(&job.name)?)));
        let known: BTreeMap<JobId, Communication> = known.collect();
        let limits = set.jobs.iter().filter_map(|job| Some((job.id, job.runs_at_most()?))).collect();
        let queues = set.queues().into_iter().collect();
        let shown = SchedulerConfig { alternate, ..set.scheduler_config() };
        let explanation = explain_jobs(set.cluster(), shown, set.specs(), &known, limits, queues);
        let explanation = explanation.context("failed to fill the matrix")?;
        let round = match explanation.sets.len() {
            0 | 1 => None,
            turns => Some(round::simulate(&set, &cost, &known, turns).context("failed to simulate a round")?),
        };
        let mut warnings = set.warnings();
        let short = round.as_ref().and_then(|round| round.short_quantum);
        warnings.extend(short.map(|short| format!("{short} ({})", self.costs_in_words())));
        let rotation = set.scheduler_config().rotation;
        output.print(&Explained { round, rotation, explanation, warnings }).context("failed to print")?;
        Ok(Exit::Done)
    }

    fn costs_in_words(&self) -> String {
        match &self.costs {
            Some(path) => format!("by the costs in {}", path.display()),
            None => "by the built-in cost model; `--costs RUN` takes what a run has measured".into(),
        }
    }
}

#[derive(Serialize)]
struct Explained {
    #[serde(flatten)]
    explanation: Explanation,
    /// As many simulated turns as there are sets; `None` where there is only one.
    round: Option<Round>,
    rotation: Rotation,
    warnings: Vec<String>,
}

impl Answer for Explained {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        write!(out, "{}", self.explanation)?;
        if let Some(round) = &self.round {
            match self.rotation {
                Rotation::Set => writeln!(out, "\nall turns once: {round}")?,
                Rotation::Job => writeln!(out, "\n{} turns: {round}", self.explanation.sets.len())?,
            }
        }
        self.warnings.iter().try_for_each(|warning| writeln!(out, "warning: {warning}"))
    }
}
