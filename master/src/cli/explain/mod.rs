//! `coswitch explain`: the matrix that a run file would get, and why.

mod round;

use std::{collections::BTreeMap, io, path::PathBuf};

use anyhow::Context;
use coswitch_policies::{
    Alternate, Communication, JobId, SchedulerConfig,
    timeshare::explain::{Explanation, explain_jobs},
};
use serde::Serialize;

use super::{Answer, Exit, Failure, Output, simulate::load_costs};
use crate::config;
use round::Round;

/// Show the matrix that a run file would get, and why; start nothing.
#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    /// The run file.
    file: PathBuf,
    /// How long switches take and how much jobs communicate: a file of costs, or the directory of a run that was measured.
    #[arg(long, value_name = "PATH")]
    costs: Option<PathBuf>,
    /// Which jobs go on on the idle nodes of others, instead of what the file says: `none`, `whole`, or `partial`, those of their
    /// ranks whose nodes are idle, which is only drawn.
    #[arg(long, value_parser = alternate)]
    alternate: Option<Alternate>,
}

fn alternate(text: &str) -> Result<Alternate, String> {
    serde_json::from_value(text.into()).map_err(|_| format!("`{text}` is not `none`, `whole` or `partial`"))
}

impl Explain {
    /// Fills the matrix with all jobs of the file, in the order of their arrival.
    pub(crate) fn carry_out(self, output: Output) -> Result<Exit, Failure> {
        let mut set = config::load_to_plan(&self.file)?;
        let alternate = self.alternate.unwrap_or(set.scheduler.alternate);
        set.scheduler.alternate = if alternate == Alternate::Partial { Alternate::None } else { alternate };
        let (cost, told) = load_costs(self.costs.as_deref())?;
        let known = set.jobs.iter().filter_map(|job| Some((job.id, told.communication_of(&job.name)?)));
        let known: BTreeMap<JobId, Communication> = known.collect();
        let shown = SchedulerConfig { alternate, ..set.scheduler_config() };
        let explanation = explain_jobs(set.cluster(), shown, set.specs(), &known);
        let explanation = explanation.context("failed to fill the matrix")?;
        let round = match explanation.sets.len() {
            0 | 1 => None,
            turns => Some(round::simulate(&set, &cost, &known, turns).context("failed to simulate a round")?),
        };
        output.print(&Explained { round, explanation }).context("failed to print")?;
        Ok(Exit::Done)
    }
}

#[derive(Serialize)]
struct Explained {
    #[serde(flatten)]
    explanation: Explanation,
    /// All turns once, as simulated; where there is more than one.
    round: Option<Round>,
}

impl Answer for Explained {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        write!(out, "{}", self.explanation)?;
        if let Some(round) = &self.round {
            writeln!(out, "\nall turns once: {round}")?;
        }
        Ok(())
    }
}
