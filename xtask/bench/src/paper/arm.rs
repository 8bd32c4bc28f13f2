//! Results of one policy in a comparison, as `coswitch compare --output json` prints them.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Arm {
    pub(super) policy: String,
    pub(super) switching: Option<String>,
    pub(super) done: u32,
    pub(super) timed_out: u32,
    pub(super) failed: u32,
    pub(super) makespan: Option<MedianRange>,
    /// Makespan ÷ sum of the times alone: the paper's slowdown against ideal sequential batch scheduling.
    pub(super) relative_makespan: Option<f64>,
    pub(super) spread: Option<f64>,
    pub(super) tradeoff: Option<f64>,
    pub(super) exposed_s: Option<f64>,
    pub(super) moved: Option<f64>,
    pub(super) waiting: Option<f64>,
    pub(super) major_faults: Option<f64>,
    pub(super) swapped: Option<f64>,
    #[serde(default)]
    pub(super) jobs: Vec<Paging>,
}

/// What one job had to fetch from the disk.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Paging {
    /// Over all of its nodes.
    pub(super) major_faults_a_minute: Option<f64>,
    /// The most bytes in swap at once.
    pub(super) swapped: f64,
}

/// A median with its range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct MedianRange {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl MedianRange {
    /// `None` without values.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let (min, max) = (values.iter().copied().reduce(f64::min)?, values.iter().copied().reduce(f64::max)?);
        Some(Self { median: crate::pairs::median(values.iter().copied()), min, max })
    }

    pub(super) fn times(self, factor: f64) -> Self {
        Self { median: self.median * factor, min: self.min * factor, max: self.max * factor }
    }
}

/// Mean of some numbers and their deviation from it, divided by their count as in the paper's metric.
pub(super) fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / count).sqrt())
}

impl Arm {
    /// Table 1's numbers: major page faults a minute of each job.
    pub(super) fn faults_of_jobs(&self) -> Vec<f64> {
        self.jobs.iter().filter_map(|job| job.major_faults_a_minute).collect()
    }

    pub(super) fn name(&self) -> String {
        match &self.switching {
            Some(order) => format!("{}, {order}", self.policy),
            None => self.policy.clone(),
        }
    }

    /// Whether no run ended, and at least one took too long.
    pub(super) fn is_too_slow(&self) -> bool {
        self.makespan.is_none() && self.timed_out > 0
    }

    /// Whether no run ended because the kernel, too slow at evicting, killed jobs at their node's limit.
    pub(super) fn is_killed(&self) -> bool {
        self.policy == "cosched" && self.makespan.is_none() && self.failed > 0
    }

    /// Seconds: infinite where it was too slow or killed, NaN where it is unknown.
    pub(super) fn makespan(&self) -> f64 {
        let none = if self.is_too_slow() || self.is_killed() { f64::INFINITY } else { f64::NAN };
        self.makespan.map_or(none, |makespan| makespan.median)
    }

    /// Relative makespan, from the fastest run to the slowest.
    pub(super) fn slowdown(&self) -> Option<MedianRange> {
        let makespan = self.makespan?;
        Some(makespan.times(self.relative_makespan? / makespan.median))
    }

    /// For the whole machine.
    pub(super) fn faults_a_minute(&self) -> Option<f64> {
        Some(self.major_faults? * 60.0 / self.makespan?.median)
    }
}
