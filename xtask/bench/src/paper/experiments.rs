//! Experiments of the paper's evaluation: the comparisons of each, and how long they usually take.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A figure or table of paper 003, §5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Experiment {
    /// Latency and bandwidth of the driver
    Fig7,
    /// The orders of a switch, in core and near out of core
    Fig8,
    /// With Table 1: n co-scheduled jobs, as n passes memory
    Fig9,
    /// With Table 2: co-scheduling, gang and hybrid of jobs that communicate
    Fig10a,
    /// With Table 2: the same of jobs that compute
    Fig10b,
    /// Sets of jobs alike, and of jobs that go well together
    Fig11,
    /// What ranks do while they wait (not in the paper)
    Waiting,
}

/// One comparison: a file of `examples/paper/`, with some of its words replaced.
pub(super) struct Call {
    /// The group of its results.
    pub(super) name: String,
    pub(super) file: &'static str,
    pub(super) replaced: Vec<(&'static str, String)>,
    /// Jobs, and the seconds that each is to take alone.
    pub(super) lasting: Vec<(&'static str, f64)>,
    pub(super) policies: &'static str,
    /// Empty: as in the file.
    pub(super) switching: &'static str,
    /// Seconds of a turn on two idle cores.
    turn_s: u32,
}

/// Jobs of `compute.yaml` and `communication.yaml` that fit on a node.
pub(super) const FIT: u32 = 3;
/// Jobs that do not fit.
pub(super) const TOO_MANY: u32 = 6;
/// The most jobs at once, as in the paper's Fig. 9 and Table 1.
pub(super) const MOST: u32 = 9;
pub(super) const IN_CORE: &str = "in core, n = 3";
pub(super) const OUT_OF_CORE: &str = "out of core, n = 6";
pub(super) const ONE_AT_A_TIME: &str = "out of core, n = 6, one job exchanged at a time";
pub(super) const ROOMY: &str = "(a) in core";
pub(super) const ROOMY_EXACT: &str = "(a) in core, exact oracle";
pub(super) const NEAR: &str = "(b) near out of core";
pub(super) const FORCED: &str = "(b) near out of core, swapping";
pub(super) const MIXED: &str = "four of each";

fn call(name: impl Into<String>, file: &'static str, policies: &'static str, turn_s: u32) -> Call {
    Call {
        name: name.into(),
        file,
        replaced: Vec::new(),
        lasting: Vec::new(),
        policies,
        switching: "",
        turn_s,
    }
}

impl Call {
    /// A file as it is.
    pub(super) fn of_file(file: &'static str, policies: &'static str) -> Self {
        call(file, file, policies, 0)
    }

    fn with(mut self, word: &'static str, instead: impl Into<String>) -> Self {
        self.replaced.push((word, instead.into()));
        self
    }

    /// Turns that usually end in this time, at least one.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    pub(super) fn turns_in(&self, within: Duration) -> u32 {
        (within.as_secs_f64() / f64::from(self.turn_s)).max(1.0) as u32
    }

    fn lasting(mut self, job: &'static str, seconds: f64) -> Self {
        self.lasting.push((job, seconds));
        self
    }
}

/// Table 2: in core and out of core, against the jobs one after the other.
fn table_2(file: &'static str, inside_s: u32, outside_s: u32) -> Vec<Call> {
    let all = "batch,cosched,gang,hybrid";
    vec![
        call(IN_CORE, file, all, inside_s).with("count: 6", format!("count: {FIT}")),
        call(OUT_OF_CORE, file, all, outside_s).with("count: 6", format!("count: {TOO_MANY}")),
    ]
}

impl Experiment {
    pub(super) fn title(self) -> &'static str {
        match self {
            Experiment::Fig7 => "Fig. 7: latency and bandwidth of the driver",
            Experiment::Fig8 => "Fig. 8: orders of a switch",
            Experiment::Fig9 => "Fig. 9, Table 1: n co-scheduled jobs as n passes memory",
            Experiment::Fig10a => "Fig. 10 (a), Table 2: jobs that mostly communicate",
            Experiment::Fig10b => "Fig. 10 (b), Table 2: jobs that mostly compute",
            Experiment::Fig11 => "Fig. 11: sets of jobs alike, and of jobs that go well together",
            Experiment::Waiting => "What ranks do while they wait (not in the paper)",
        }
    }

    /// Its comparisons; none for an experiment that measures curves.
    pub(super) fn calls(self) -> Vec<Call> {
        let orders = "sequential,overlapped,prefetch";
        match self {
            Experiment::Fig7 | Experiment::Waiting => Vec::new(),
            Experiment::Fig8 => {
                let taking = |name, orders, turn_s| Call {
                    switching: orders,
                    ..call(name, "switching.yaml", "gang", turn_s).lasting("compute", 4.0)
                };
                let near = |name, orders, turn_s| {
                    taking(name, orders, turn_s).with("memory: 640MiB", "memory: 360MiB")
                };
                let beside = "quantum: 2s\n  needs: declared\n  short_of_memory: swap";
                vec![
                    taking(ROOMY, orders, 38),
                    taking(ROOMY_EXACT, "prefetch", 13).with("quantum: 2s", "quantum: 2s\n  oracle: exact"),
                    near(NEAR, orders, 38),
                    near(FORCED, "overlapped,prefetch", 60).with("quantum: 2s", beside),
                ]
            }
            Experiment::Fig9 => (1..=MOST)
                .map(|count| {
                    call(
                        format!("n = {count}"),
                        "compute.yaml",
                        "cosched",
                        if count > FIT { 50 } else { 2 + 3 * count },
                    )
                    .with("count: 6", format!("count: {count}"))
                    .lasting("compute", 3.5)
                })
                .collect(),
            // Every job needs several slots, as in the paper: else gang is batch.
            Experiment::Fig10a => {
                let calls = table_2("communication.yaml", 100, 200).into_iter();
                calls.map(|call| call.lasting("cg", 8.0)).collect()
            }
            Experiment::Fig10b => {
                // The same share of time for each job: of three jobs that run at a time one is exchanged
                // three times as often.
                let singly = call(ONE_AT_A_TIME, "compute.yaml", "hybrid", 60)
                    .with("quantum: 4s", "quantum: 1333ms\n  rotation: job");
                let calls = table_2("compute.yaml", 135, 290).into_iter().chain([singly]);
                calls.map(|call| call.lasting("compute", 12.0)).collect()
            }
            Experiment::Fig11 => vec![
                call(MIXED, "pairs.yaml", "batch,gang,hybrid,paired", 135)
                    .lasting("compute", 3.5)
                    .lasting("communicate", 3.5),
            ],
        }
    }

    /// Seconds of one repetition on two idle cores.
    fn turn_s(self) -> u32 {
        match self {
            Experiment::Fig7 => 20,
            Experiment::Waiting => 38,
            compared => compared.calls().iter().map(|call| call.turn_s).sum(),
        }
    }
}

/// Share of the time left that the first of these experiments may take.
pub(super) fn share(experiments: &[Experiment], left: Duration) -> Duration {
    let all: u32 = experiments.iter().map(|experiment| experiment.turn_s()).sum();
    experiments.first().map_or(left, |first| left * first.turn_s() / all.max(1))
}

/// The same for the comparisons of an experiment.
pub(super) fn share_of_call(calls: &[Call], left: Duration) -> Duration {
    let all: u32 = calls.iter().map(|call| call.turn_s).sum();
    calls.first().map_or(left, |first| left * first.turn_s / all.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_experiment_may_take_all_the_time_left() {
        let left = Duration::from_secs(600);
        assert_eq!(share(&[Experiment::Waiting], left), left);
        let first = share(Experiment::value_variants(), left);
        assert!(first < left / 10, "{first:?}");
    }

    #[test]
    fn every_job_of_table_2_outlives_several_slots() {
        for experiment in [Experiment::Fig10a, Experiment::Fig10b] {
            for call in experiment.calls() {
                let text = std::fs::read_to_string(super::super::call::examples().join(call.file)).unwrap();
                let (_, slot) = text.split_once("quantum: ").unwrap();
                let slot: f64 = slot.split_once('s').unwrap().0.parse().unwrap();
                assert!(call.lasting.iter().all(|(_, seconds)| seconds / slot > 2.5), "{}", call.name);
            }
        }
    }

    #[test]
    fn three_repetitions_take_little_more_than_an_hour() {
        let turn: u32 = Experiment::value_variants().iter().map(|experiment| experiment.turn_s()).sum();
        assert!((3600..=4500).contains(&(3 * turn)), "{turn} s a repetition");
    }

    #[test]
    fn every_replaced_word_is_in_its_file() {
        for call in Experiment::value_variants().iter().flat_map(|experiment| experiment.calls()) {
            let text = std::fs::read_to_string(super::super::call::examples().join(call.file)).unwrap();
            assert!(call.replaced.iter().all(|(word, _)| text.contains(word)), "{}", call.name);
            assert!(call.lasting.iter().all(|(job, _)| super::super::work::amount(&text, job).is_ok()));
            assert!(!call.lasting.is_empty(), "{}: work is given by time", call.name);
        }
    }
}
