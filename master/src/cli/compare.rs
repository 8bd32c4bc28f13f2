//! `coswitch compare`: runs the same jobs under several policies in turns.

use std::{
    fs, io,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Context;
use coswitch_policies::{Bytes, Policy, SwitchOrder, parse_duration};
use coswitch_report::{
    compare::{self, Arm, Comparison},
    fold,
    journal::RunOutcome,
};

use super::{
    Answer, Exit, Failure, Output,
    runs::{self, Runs},
};
use crate::{
    config::{self, JobSet, ParkMethod},
    doctor,
};

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
    /// Begin no further turn that would not end in this time, by the longest turn so far, and do not repeat
    /// an arm that was too slow.
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
    /// Checks the machine, measures each job alone, then runs all arms.
    pub(crate) fn carry_out(self, output: Output, umask: u32) -> Result<Exit, Failure> {
        let (mut sets, left_out) = self.sets()?;
        let Some((_, first)) = sets.first_mut() else {
            return Err(anyhow::anyhow!("nothing is left to compare: {}", left_out.join("; ")).into());
        };
        let findings =
            doctor::examine(&first.jobs, first.scheduler.park == ParkMethod::PageOut, &first.cluster.store);
        if !findings.is_fit() {
            return Err(Failure::Lacking(findings));
        }
        let began = Instant::now();
        let runs = Runs::new(self.quiet, Some(self.limit), umask);
        runs.prepare(&findings, &mut first.jobs);
        let out = runs::directory(self.out.as_deref(), &runs.name);
        runs.measure_alone(first, &out.join("alone"))?;
        let (name, jobs) = (first.name.clone(), first.jobs.clone());
        for (_, set) in &mut sets {
            set.jobs.clone_from(&jobs);
        }
        let mut reports: Vec<_> = sets.iter().map(|(arm, _)| (*arm, Vec::new())).collect();
        let mut all = RunOutcome::Done;
        let (mut longest, mut too_slow) = (Duration::ZERO, vec![false; sets.len()]);
        for turn in 0..self.repeat as usize {
            let turn_began = Instant::now();
            if turn > 0 && self.within.is_some_and(|within| began.elapsed() + longest > within) {
                break;
            }
            for at in compare::order_of_turn(sets.len(), turn) {
                let (arm, set) = &sets[at];
                if too_slow[at] && self.within.is_some() {
                    continue;
                }
                let dir = out.join(arm.to_string().replace(", ", "-")).join(format!("turn-{}", turn + 1));
                let (outcome, events) = runs.run(set.clone(), &dir, &format!("-t{turn}-{at}"))?;
                reports[at].1.push(fold(&events));
                match outcome {
                    RunOutcome::Done => {}
                    RunOutcome::TimedOut => too_slow[at] = true,
                    RunOutcome::JobsFailed => all = outcome,
                    RunOutcome::Interrupted | RunOutcome::Aborted => return Ok(outcome.into()),
                }
            }
            longest = longest.max(turn_began.elapsed());
        }
        let comparison = compare::compare(name, &reports, left_out);
        if let Some(path) = &self.html {
            fs::write(path, compare::page(&comparison))
                .with_context(|| format!("failed to write {}", path.display()))?;
        }
        output.print(&comparison).context("failed to print the comparison")?;
        Ok(all.into())
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
    let swaps = coswitch_daemon::swap::configured() > Bytes(0);
    (set.scheduler.policy == Policy::Cosched && needed > capacity && !swaps).then(|| {
        format!("all jobs at once need {needed}, the nodes have {capacity}, and this machine has no swap")
    })
}
