//! Tells on standard error how many runs a comparison makes, how long they take, and how each ended.
//!
//! Before a policy has run, its time is that of a simulation with the jobs' times alone, and at most the
//! limit; afterwards that of its last run.

use std::{fmt, time::Duration};

use coswitch_report::{compare::Arm, words::plural};
use coswitch_sim::{CostModel, Faults, SimJob, simulate_telling};

use crate::config::JobSet;

/// A simulation that has more events tells nothing.
const STEPS_MAX: usize = 300_000;

/// Time in words: in seconds, minutes or hours.
pub(super) struct About(pub(super) Duration);

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs_f64() {
            seconds if seconds < 10.0 => write!(f, "{seconds:.1} s"),
            seconds if seconds < 120.0 => write!(f, "{seconds:.0} s"),
            seconds if seconds < 7200.0 => write!(f, "{:.0} min", seconds / 60.0),
            seconds => write!(f, "{:.1} h", seconds / 3600.0),
        }
    }
}

/// The runs of a comparison.
pub(super) struct Progress {
    quiet: bool,
    arms: Vec<Expected>,
    limit: Duration,
    within: Option<Duration>,
    planned: usize,
    begun: usize,
}

struct Expected {
    arm: Arm,
    /// Runs that are still to be made.
    left: usize,
    /// How long one takes, where that is known.
    time: Option<Duration>,
}

impl Progress {
    pub(super) fn new(
        quiet: bool,
        arms: impl Iterator<Item = Arm>,
        repeat: u32,
        limit: Duration,
        within: Option<Duration>,
    ) -> Self {
        let arms: Vec<_> = arms.map(|arm| Expected { arm, left: repeat as usize, time: None }).collect();
        let planned = arms.len() * repeat as usize;
        Self { quiet, arms, limit, within, planned, begun: 0 }
    }

    pub(super) const fn planned(&self) -> usize {
        self.planned
    }

    fn tell(&self, text: &str) {
        if !self.quiet {
            eprintln!("{text}");
        }
    }

    /// Before the first run. So many jobs will run alone first.
    pub(super) fn announce(&self, alone: usize) {
        self.tell(&self.announcement(alone));
    }

    fn announcement(&self, alone: usize) -> String {
        let runs = plural(self.planned, "run");
        let most = About(self.limit.saturating_mul(u32::try_from(self.planned + alone).unwrap_or(u32::MAX)));
        let (limit, within) = (About(self.limit), self.within_in_words());
        let first = match alone {
            0 => String::new(),
            _ => format!("{} alone first, then ", plural(alone, "job")),
        };
        let all = format!(
            "comparing: {first}{runs} ({} × {})",
            if self.arms.len() == 1 { "1 policy".into() } else { format!("{} policies", self.arms.len()) },
            plural(self.arms.first().map_or(0, |arm| arm.left), "turn"),
        );
        format!(
            "{all}; each run ends after {limit} at the latest (--limit), so that all take at most \
             {most}{within}"
        )
    }

    fn within_in_words(&self) -> String {
        let words = |within| format!("; no run begins after {} (--within)", About(within));
        self.within.map_or_else(String::new, words)
    }

    /// Once the times alone are known: expects of each arm what a simulation says, and `setup` for its nodes.
    pub(super) fn expect(&mut self, sets: &[(Arm, JobSet)], cores: Option<u32>, setup: Duration) {
        let limit = self.limit;
        for (expected, (_, set)) in self.arms.iter_mut().zip(sets) {
            expected.time = simulated(set, cores).map(|time| (time + setup).min(limit));
        }
        let each: Vec<String> = self
            .arms
            .iter()
            .filter_map(|arm| Some(format!("{} about {} a run", arm.arm, About(arm.time?))))
            .collect();
        if let Some(left) = self.time_left() {
            let (runs, within) = (plural(self.planned, "run"), self.within_in_words());
            self.tell(&format!(
                "comparing: {runs} are to come, about {} in all{within}: {}",
                About(left),
                each.join("; ")
            ));
        }
    }

    fn time_left(&self) -> Option<Duration> {
        self.arms
            .iter()
            .filter(|arm| arm.left > 0)
            .map(|arm| Some(arm.time? * u32::try_from(arm.left).ok()?))
            .sum()
    }

    pub(super) fn begin(&mut self, at: usize, turn: usize) {
        self.begun += 1;
        let Expected { arm, time, .. } = &self.arms[at];
        let expected = time.map_or_else(String::new, |time| format!(", about {}", About(time)));
        self.tell(&format!("run {} of {}: {arm}, turn {}{expected}", self.begun, self.planned, turn + 1));
    }

    pub(super) fn end(&mut self, at: usize, how: &str, took: Duration) {
        let arm = &mut self.arms[at];
        arm.left = arm.left.saturating_sub(1);
        arm.time = Some(took);
        let left = match (self.planned - self.begun, self.time_left()) {
            (0, _) => "none is left".into(),
            (runs, Some(time)) => format!("{} left, about {}", plural(runs, "run"), About(time)),
            (runs, None) => format!("{} left", plural(runs, "run")),
        };
        let Expected { arm, .. } = &self.arms[at];
        self.tell(&format!(
            "run {} of {}: {arm}: {how} in {}; {left}",
            self.begun,
            self.planned,
            About(took)
        ));
    }

    /// The arm makes no more runs: it was too slow.
    pub(super) fn give_up(&mut self, at: usize) {
        let arm = &mut self.arms[at];
        self.planned -= std::mem::take(&mut arm.left);
    }
}

/// The makespan of the set by the cost model; `None` where a time alone is unknown.
fn simulated(set: &JobSet, cores: Option<u32>) -> Option<Duration> {
    let queues = set.queues();
    let job = |job: &crate::config::Job| {
        let (spec, work, priority, limit) = (job.spec(), job.alone?, job.priority, job.runs_at_most());
        let (communication, memory, queue) = (None, None, queues[&job.id]);
        Some(SimJob { spec, work, communication, memory, processors: 1, priority, limit, queue })
    };
    let jobs: Vec<SimJob> = set.jobs.iter().map(job).collect::<Option<_>>()?;
    let (cores, slice) = (cores.unwrap_or(1), set.scheduler.warm_slice());
    let cost = CostModel { cores, slice, ..CostModel::default() };
    let (cluster, config, faults) = (set.cluster(), set.scheduler_config(), Faults::default());
    let report = simulate_telling(&cluster, &config, &jobs, &cost, faults, STEPS_MAX, &mut |_| {}).ok()?;
    Some(report.metrics.makespan)
}

#[cfg(test)]
mod tests {
    use coswitch_policies::{Policy, SwitchOrder};

    use super::*;

    fn progress(within: Option<Duration>) -> Progress {
        let arms = [
            Arm { policy: Policy::Batch, switching: None },
            Arm { policy: Policy::Gang, switching: Some(SwitchOrder::Prefetch) },
        ];
        Progress::new(true, arms.into_iter(), 3, Duration::from_secs(60), within)
    }

    #[test]
    fn the_first_line_has_the_number_of_runs_and_the_most_that_they_take() {
        assert_eq!(
            progress(Some(Duration::from_secs(240))).announcement(2),
            "comparing: 2 jobs alone first, then 6 runs (2 policies × 3 turns); each run ends after 60 s at \
             the latest (--limit), so that all take at most 8 min; no run begins after 4 min (--within)"
        );
    }

    #[test]
    fn the_time_left_follows_the_last_run_of_each_policy() {
        let mut progress = progress(None);
        assert_eq!(progress.time_left(), None, "nothing is known");
        progress.begin(0, 0);
        progress.end(0, "done", Duration::from_secs(10));
        progress.begin(1, 0);
        progress.end(1, "done", Duration::from_secs(30));
        assert_eq!(progress.time_left(), Some(Duration::from_secs(2 * 10 + 2 * 30)));
        progress.give_up(1);
        assert_eq!((progress.time_left(), progress.planned()), (Some(Duration::from_secs(20)), 4));
    }

    #[test]
    fn times_are_told_in_fitting_units() {
        let about = |seconds| About(Duration::from_secs_f64(seconds)).to_string();
        assert_eq!([1.25, 95.0, 400.0, 9000.0].map(about), ["1.2 s", "95 s", "7 min", "2.5 h"]);
    }
}
