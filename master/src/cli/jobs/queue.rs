//! `coswitch queue`: where the jobs are, and when each runs next.

use std::{io, time::Duration};

use anyhow::Context;
use comfy_table::Cell;
use coswitch_policies::SimTime;
use coswitch_report::{
    table::{right, table},
    words::{plural, span},
};
use jiff::{SignedDuration, Zoned};

use super::Cluster;
use crate::{
    api::{JobState, JobStatus, Queue},
    cli::{Answer, Exit, Failure, Output},
};

/// List your jobs: where each is, when it runs next, and when it will be done.
///
/// The forecast is the scheduler's own. It knows nothing of jobs that will be submitted, and when a job is
/// done only where its time alone or its time limit is known.
#[derive(Debug, clap::Args)]
pub(crate) struct QueueCommand {
    /// Also jobs that have ended.
    #[arg(short, long)]
    all: bool,
    #[command(flatten)]
    cluster: Cluster,
}

impl QueueCommand {
    pub(crate) fn carry_out(self, output: Output) -> Result<Exit, Failure> {
        let queue = self.cluster.client()?.jobs(self.all)?;
        output.print(&queue).context("failed to print")?;
        Ok(Exit::Done)
    }
}

impl Answer for Queue {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        if !self.jobs.is_empty() {
            let mut table = table();
            // Most clusters have none.
            let has_priorities = self.jobs.iter().any(|job| job.priority != 0);
            let priority = has_priorities.then_some("priority");
            let has_groups = self.jobs.iter().any(|job| job.group.is_some());
            let group = has_groups.then_some("group");
            let first = ["job", "name", "state"].into_iter().chain(group).chain(["ranks"]).chain(priority);
            table.set_header(first.chain(["ran", "next turn", "done"]));
            for job in &self.jobs {
                let first = [job.job.0.to_string(), job.name.clone(), job.state.to_string()].map(Cell::new);
                let group = has_groups.then(|| Cell::new(job.group.as_deref().unwrap_or_default()));
                let priority = has_priorities.then(|| right(job.priority));
                let numbers = [right(job.ranks)].into_iter().chain(priority).chain([right(span(job.ran))]);
                let last = [job.next_turn(self.now), done(job, self.now)].map(Cell::new);
                table.add_row(first.into_iter().chain(group).chain(numbers).chain(last));
            }
            writeln!(out, "{table}")?;
        }
        for (nodes, what) in [(&self.lost, "down"), (&self.drained, "drained")] {
            let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
            if !nodes.is_empty() {
                writeln!(out, "{what}: {}", nodes.join(", "))?;
            }
        }
        writeln!(out, "{}", plural(self.jobs.len(), "job"))
    }
}

fn done(job: &JobStatus, now: SimTime) -> String {
    match (&job.outcome, job.ended, job.outlook.done) {
        (_, Some(at), _) if job.state == JobState::Cancelled => {
            format!("cancelled, {} ago", span(now.since(at)))
        }
        (Some(outcome), Some(at), _) => format!("{outcome}, {} ago", span(now.since(at))),
        (_, _, Some(at)) => format!("about {}", clock(at.since(now))),
        _ => "not known".into(),
    }
}

/// The time of day after so long.
fn clock(after: Duration) -> String {
    let at = SignedDuration::try_from(after).ok().and_then(|after| Zoned::now().checked_add(after).ok());
    at.map_or_else(|| format!("in {}", span(after)), |at| at.strftime("%H:%M:%S").to_string())
}
