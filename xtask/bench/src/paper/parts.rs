//! The parts of the evaluation: what is run for each, and what it is likely to take.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A figure or table of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Part {
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

/// One comparison: a file of `examples/paper/`, with words of it replaced.
pub(super) struct Call {
    /// Of the group of results that it makes.
    pub(super) name: String,
    pub(super) file: &'static str,
    pub(super) replaced: Vec<(&'static str, String)>,
    pub(super) policies: &'static str,
    /// As of the file where empty.
    pub(super) switching: &'static str,
    /// What a turn takes on two idle cores, in seconds.
    turn_s: u32,
}

/// Jobs of `compute.yaml` and `communication.yaml` that fit on a node.
pub(super) const FIT: u32 = 3;
/// And so many that they do not.
pub(super) const TOO_MANY: u32 = 6;
pub(super) const IN_CORE: &str = "in core, n = 3";
pub(super) const OUT_OF_CORE: &str = "out of core, n = 6";
pub(super) const ROOMY: &str = "(a) in core";
pub(super) const NEAR: &str = "(b) near out of core";
pub(super) const MIXED: &str = "four of each";

fn call(name: impl Into<String>, file: &'static str, policies: &'static str, turn_s: u32) -> Call {
    Call { name: name.into(), file, replaced: Vec::new(), policies, switching: "", turn_s }
}

impl Call {
    fn with(mut self, word: &'static str, instead: impl Into<String>) -> Self {
        self.replaced.push((word, instead.into()));
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

impl Part {
    pub(super) fn title(self) -> &'static str {
        match self {
            Part::Fig7 => "Fig. 7: latency and bandwidth of the driver",
            Part::Fig8 => "Fig. 8: orders of a switch",
            Part::Fig9 => "Fig. 9, Table 1: n co-scheduled jobs as n passes memory",
            Part::Fig10a => "Fig. 10 (a), Table 2: jobs that mostly communicate",
            Part::Fig10b => "Fig. 10 (b), Table 2: jobs that mostly compute",
            Part::Fig11 => "Fig. 11: sets of jobs alike, and of jobs that go well together",
            Part::Waiting => "What ranks do while they wait (not in the paper)",
        }
    }

    /// Its comparisons; none where it is measured otherwise.
    pub(super) fn calls(self) -> Vec<Call> {
        let orders = "sequential,overlapped,prefetch";
        match self {
            Part::Fig7 | Part::Waiting => Vec::new(),
            Part::Fig8 => vec![
                Call { switching: orders, ..call(ROOMY, "switching.yaml", "gang", 38) },
                Call { switching: orders, ..call(NEAR, "switching.yaml", "gang", 38) }
                    .with("memory: 640MiB", "memory: 360MiB"),
            ],
            Part::Fig9 => (1..=TOO_MANY)
                .map(|count| {
                    call(
                        format!("n = {count}"),
                        "compute.yaml",
                        "cosched",
                        if count > FIT { 25 } else { 2 + 3 * count },
                    )
                    .with("count: 6", format!("count: {count}"))
                })
                .collect(),
            Part::Fig10a => table_2("communication.yaml", 48, 90),
            Part::Fig10b => {
                let longer = |call: Call| call.with("\"260\"", "\"520\"").with("quantum: 4s", "quantum: 8s");
                table_2("compute.yaml", 70, 180).into_iter().map(longer).collect()
            }
            Part::Fig11 => vec![call(MIXED, "pairs.yaml", "batch,gang,hybrid,paired", 135)],
        }
    }

    /// What one repetition of it takes on two idle cores, in seconds.
    fn turn_s(self) -> u32 {
        match self {
            Part::Fig7 => 20,
            Part::Waiting => 38,
            compared => compared.calls().iter().map(|call| call.turn_s).sum(),
        }
    }
}

/// What the first of these parts may take of the time that is left for them all.
pub(super) fn share(parts: &[Part], left: Duration) -> Duration {
    let all: u32 = parts.iter().map(|part| part.turn_s()).sum();
    parts.first().map_or(left, |first| left * first.turn_s() / all.max(1))
}

/// The same of the calls of a part.
pub(super) fn share_of_call(calls: &[Call], left: Duration) -> Duration {
    let all: u32 = calls.iter().map(|call| call.turn_s).sum();
    calls.first().map_or(left, |first| left * first.turn_s / all.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_may_take_all_that_is_left() {
        let left = Duration::from_secs(600);
        assert_eq!(share(&[Part::Waiting], left), left);
        let first = share(Part::value_variants(), left);
        assert!(first < left / 10, "{first:?}");
    }

    #[test]
    fn every_word_that_is_replaced_is_in_its_file() {
        for call in Part::value_variants().iter().flat_map(|part| part.calls()) {
            let text = std::fs::read_to_string(super::super::call::examples().join(call.file)).unwrap();
            assert!(call.replaced.iter().all(|(word, _)| text.contains(word)), "{}", call.name);
        }
    }
}
