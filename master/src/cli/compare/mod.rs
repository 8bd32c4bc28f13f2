//! `coswitch compare`: runs the same jobs under several policies in turns.
//!
//! | file | what |
//! | --- | --- |
//! | `mod` | the command, and its answer |
//! | `turns` | makes the runs |
//! | `progress` | tells how many there are, and how long they take |

mod progress;
mod turns;

use std::{fs, io, path::PathBuf, time::Duration};

use anyhow::Context;
use coswitch_policies::{Bytes, Policy, SwitchOrder, parse_duration};
use coswitch_report::compare::{self, Arm, Comparison};

use super::{
    Answer, Exit, Failure, Output,
    runs::{self, Runs},
};
use crate::{
    config::{self, JobSet, Overfull, ParkMethod},
    doctor,
};
use progress::Progress;
use turns::{Ended, Turns};

const ALL_POLICIES: &str = "batch,cosched,gang,hybrid,paired";

/// Run a job set under several policies, in turns, and compare them.
#[derive(Debug, clap::Args)]
pub(crate) struct CompareCommand {
    /// The run file; its `policy` is not used.
    file: PathBuf,
    /// The policies.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = ALL_POLICIES)]
    #[arg(value_parser = policy)]
    policies: Vec<Policy>,
    /// The ways of switching, for policies that switch [default: that of the run file].
    #[arg(long, value_delimiter = ',', value_parser = order, value_name = "LIST")]
    switching: Vec<SwitchOrder>,
    /// How often each policy runs.
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// End a run that takes longer, and count it as too slow.
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = parse_duration)]
    limit: Duration,
    /// Begin no run after this time, and no further turn that would not end in it, by the longest turn so
    /// far; and do not repeat an arm that was too slow.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    within: Option<Duration>,
    /// The directory for the runs [default: coswitch-runs/RUN].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write a page with the comparison to this file; it needs no network.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Show nothing during the runs.
    #[arg(short, long)]
    quiet: bool,
}

type Sets = Vec<(Arm, JobSet)>;

pub(super) fn policy(text: &str) -> Result<Policy, String> {
    serde_json::from_value(text.into()).map_err(|_| format!("there is no policy `{text}`"))
}

pub(super) fn order(text: &str) -> Result<SwitchOrder, String> {
    serde_json::from_value(text.into()).map_err(|_| format!("there is no order `{text}`"))
}

impl CompareCommand {
    /// Checks the machine, measures each job alone, runs all arms, and compares the runs that have ended.
    pub(crate) fn carry_out(self, output: Output, umask: u32) -> Result<Exit, Failure> {
        let (mut sets, left_out) = self.sets()?;
        let Some((_, first)) = sets.first_mut() else {
            return Err(anyhow::anyhow!("nothing is left to compare: {}", left_out.join("; ")).into());
        };
        let findings = doctor::examine(
            &first.jobs,
            first.scheduler.park == ParkMethod::PageOut,
            first.cluster.stores_here(),
        );
        if !findings.is_fit() {
            return Err(Failure::Lacking(findings));
        }
        let runs = Runs::new(self.quiet, Some(self.limit), umask)?;
        runs.prepare(&findings, &mut first.jobs);
        let (name, to_measure) = (first.name.clone(), runs::kinds_to_measure(first).len());
        let arms = sets.iter().map(|(arm, _)| *arm);
        let progress = Progress::new(self.quiet, arms, self.repeat, self.limit, self.within);
        progress.announce(to_measure);
        let mut turns = Turns::new(runs, self.within, progress, &sets);
        let out = runs::directory(self.out.as_deref(), &turns.runs.name);
        let ended = match turns.measure_alone(&mut sets, &out.join("alone"))? {
            None => turns.run(&sets, self.repeat, &out),
            Some(stopped) => stopped,
        };
        let Ended { exit, stopped } = ended;
        let mut comparison = compare::compare(name, &turns.reports, left_out);
        comparison.partial = stopped.map(|why| turns.partial(why));
        output.print(&comparison).context("failed to print the comparison")?;
        if let Some(path) = &self.html {
            fs::write(path, compare::page(&comparison))
                .with_context(|| format!("failed to write {}", path.display()))?;
        }
        Ok(exit)
    }

    /// The job set for each arm, and the reason for each arm that is left out.
    fn sets(&self) -> Result<(Sets, Vec<String>), Failure> {
        let of_file = config::load_under(&self.file, self.policies.first().copied())?.scheduler.switching;
        let orders = if self.switching.is_empty() { vec![of_file] } else { self.switching.clone() };
        let (mut sets, mut left_out) = (Vec::new(), Vec::new());
        for arm in compare::arms(&self.policies, &orders) {
            let mut set = config::load_under(&self.file, Some(arm.policy))?;
            set.scheduler.switching = arm.switching.unwrap_or(of_file);
            match obstacle(&set) {
                Some(why) => left_out.push(format!("{arm}: {why}")),
                None => sets.push((arm, set)),
            }
        }
        Ok((sets, left_out))
    }
}

impl Answer for Comparison {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        self.write_tables(out)
    }
}

/// Why the set cannot run: without swap, the kernel would kill jobs that do not fit together.
fn obstacle(set: &JobSet) -> Option<String> {
    let (needed, capacity) = (set.memory_total(), set.capacity_total());
    if coswitch_daemon::swap::configured() > Bytes(0) {
        return None;
    }
    if set.scheduler.policy == Policy::Cosched {
        return (needed > capacity).then(|| {
            format!("all jobs at once need {needed}, the nodes have {capacity}, and this machine has no swap")
        });
    }
    let overfull = set.overfull();
    let Overfull { node, needed, capacity } = overfull.first()?;
    Some(format!(
        "sets in turn need {needed} together on {node}, which has {capacity}, and this machine has no swap"
    ))
}
