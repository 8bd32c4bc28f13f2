//! Makes the runs of a comparison, arm by arm and turn by turn, and keeps the reports of those that ended.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use coswitch_report::{
    Report,
    compare::{Arm, Partial, Stopped, order_of_turn},
    fold,
    journal::RunOutcome,
};

use super::progress::Progress;
use crate::{
    cli::{
        Exit,
        runs::{self, Alone, Runs},
    },
    config::JobSet,
};

/// Until a job has run alone: how long nodes take to come and go.
const SETUP: Duration = Duration::from_secs(1);

/// How the runs ended.
pub(super) struct Ended {
    pub(super) exit: Exit,
    /// Why not all runs were made.
    pub(super) stopped: Option<Stopped>,
}

impl Ended {
    fn interrupted() -> Self {
        Self { exit: Exit::Interrupted, stopped: Some(Stopped::Interrupted) }
    }

    fn failed(error: String) -> Self {
        eprintln!("coswitch failed: {error}");
        Self { exit: Exit::Internal, stopped: Some(Stopped::Failed { error }) }
    }
}

pub(super) struct Turns {
    pub(super) runs: Runs,
    began: Instant,
    within: Option<Duration>,
    progress: Progress,
    /// Of each arm, one for each turn.
    pub(super) reports: Vec<(Arm, Vec<Report>)>,
    too_slow: Vec<bool>,
    any_failed: bool,
}

impl Turns {
    pub(super) fn new(
        runs: Runs,
        within: Option<Duration>,
        progress: Progress,
        sets: &[(Arm, JobSet)],
    ) -> Self {
        let reports = sets.iter().map(|(arm, _)| (*arm, Vec::new())).collect();
        let (began, too_slow) = (Instant::now(), vec![false; sets.len()]);
        Self { runs, began, within, progress, reports, too_slow, any_failed: false }
    }

    /// Measures how long jobs run alone, for all sets; says how that ended where the user stopped it.
    pub(super) fn measure_alone(
        &mut self,
        sets: &mut [(Arm, JobSet)],
        out: &Path,
    ) -> anyhow::Result<Option<Ended>> {
        let Some(((_, first), others)) = sets.split_first_mut() else { return Ok(None) };
        let Alone::Measured { setup } = self.runs.measure_alone(first, out)? else {
            return Ok(Some(Ended::interrupted()));
        };
        for (_, set) in others {
            set.jobs.clone_from(&first.jobs);
        }
        let cores = runs::cores_of_a_node(&first.cluster);
        self.progress.expect(sets, cores, setup.unwrap_or(SETUP));
        Ok(None)
    }

    /// Runs each arm once in a turn, in so many turns.
    pub(super) fn run(&mut self, sets: &[(Arm, JobSet)], repeat: u32, out: &Path) -> Ended {
        let mut longest = Duration::ZERO;
        for turn in 0..repeat as usize {
            let turn_began = Instant::now();
            if turn > 0 && self.is_over(longest) {
                return self.ended(Some(Stopped::Within));
            }
            for at in order_of_turn(sets.len(), turn) {
                if self.too_slow[at] && self.within.is_some() {
                    continue;
                }
                if self.is_over(Duration::ZERO) {
                    return self.ended(Some(Stopped::Within));
                }
                if let Some(ended) = self.run_one(&sets[at], at, turn, out) {
                    return ended;
                }
            }
            longest = longest.max(turn_began.elapsed());
        }
        self.ended(None)
    }

    /// Whether what takes this long would end too late.
    fn is_over(&self, takes: Duration) -> bool {
        self.within.is_some_and(|within| self.began.elapsed() + takes > within)
    }

    fn ended(&self, stopped: Option<Stopped>) -> Ended {
        Ended { exit: if self.any_failed { Exit::JobFailed } else { Exit::Done }, stopped }
    }

    /// Makes one run; says how all ended where it did not come to its end.
    fn run_one(&mut self, (arm, set): &(Arm, JobSet), at: usize, turn: usize, out: &Path) -> Option<Ended> {
        if self.runs.interrupt.is_set() {
            return Some(Ended::interrupted());
        }
        let dir = out.join(arm.to_string().replace(", ", "-")).join(format!("turn-{}", turn + 1));
        self.progress.begin(at, turn);
        let began = Instant::now();
        let (outcome, events) = match self.runs.run(set.clone(), &dir, &format!("-t{turn}-{at}")) {
            Ok(ran) => ran,
            Err(error) => return Some(Ended::failed(format!("{arm}, turn {}: {error:#}", turn + 1))),
        };
        let report = fold(&events);
        let how = match outcome {
            RunOutcome::Interrupted => return Some(Ended::interrupted()),
            RunOutcome::Aborted => {
                let why = report.warnings.last().map_or("the run was given up", String::as_str);
                return Some(Ended::failed(format!("{arm}, turn {}: {why}", turn + 1)));
            }
            RunOutcome::Done => "done",
            RunOutcome::JobsFailed => "jobs failed",
            // Nothing tells these runs when their nodes are taken away.
            RunOutcome::TimedOut | RunOutcome::Parked => "not done",
        };
        self.reports[at].1.push(report);
        self.any_failed |= outcome == RunOutcome::JobsFailed;
        self.progress.end(at, how, began.elapsed());
        if outcome == RunOutcome::TimedOut {
            self.too_slow[at] = true;
            if self.within.is_some() {
                self.progress.give_up(at);
            }
        }
        None
    }

    pub(super) fn partial(&self, stopped: Stopped) -> Partial {
        let ended = self.reports.iter().map(|(_, reports)| reports.len()).sum();
        Partial { stopped, ended, planned: self.progress.planned() }
    }
}
