//! `coswitch explain`: the matrix that a run file would get, and why.

use std::{io, path::PathBuf, time::Duration};

use anyhow::Context;
use coswitch_policies::explain::{Explanation, explain_jobs};
use coswitch_sim::CostModel;
use serde::Serialize;

use super::{Answer, Exit, Failure, Output, simulate::load_costs};
use crate::config;

/// Show the matrix that a run file would get, and why; start nothing.
#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    /// The run file.
    file: PathBuf,
    /// How long switches take: a file of costs, or the directory of a run that was measured.
    #[arg(long, value_name = "PATH")]
    costs: Option<PathBuf>,
}

impl Explain {
    /// Fills the matrix with all jobs of the file, in the order of their arrival.
    pub(crate) fn carry_out(self, output: Output) -> Result<Exit, Failure> {
        let job_set = config::load(&self.file)?;
        let explanation = explain_jobs(job_set.cluster(), job_set.scheduler_config(), job_set.specs());
        let explanation = explanation.context("failed to fill the matrix")?;
        let cost = load_costs(self.costs.as_deref())?;
        let explained = Explained { round_s: round(&explanation, &cost).as_secs_f64(), explanation };
        output.print(&explained).context("failed to print")?;
        Ok(Exit::Done)
    }
}

/// How long the switches of one round of all turns take, if nobody may wait in memory.
fn round(explanation: &Explanation, cost: &CostModel) -> Duration {
    let switched = explanation.sets.iter().filter(|set| set.out.0 > 0 || set.into.0 > 0);
    switched.map(|set| cost.flush + cost.dump.time(set.out) + cost.restore.time(set.into)).sum()
}

#[derive(Serialize)]
struct Explained {
    #[serde(flatten)]
    explanation: Explanation,
    /// See [`round`]; seconds.
    round_s: f64,
}

impl Answer for Explained {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        write!(out, "{}", self.explanation)?;
        if self.round_s > 0.0 {
            writeln!(out, "\nall turns once: about {:.1} s of switching", self.round_s)?;
        }
        Ok(())
    }
}
