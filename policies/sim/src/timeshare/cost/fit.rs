//! Fits costs to measured runs: a line through the samples of each step, by least squares.

use std::time::Duration;

use coswitch_policies::Bytes;
use serde::{Deserialize, Serialize};

use super::{CostModel, Transfer};

/// A step of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CostStep {
    /// Moving the images of one node's jobs out of memory.
    Dump,
    Restore,
    /// From the request to the last marker.
    Flush,
    /// Starting the processes of a job for the first time.
    Launch,
}

/// One measured step, on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    pub step: CostStep,
    pub bytes: Bytes,
    pub took: Duration,
}

impl CostModel {
    /// This model with every measured step fitted: dump and restore as `fixed + bytes ÷ rate`, flush and
    /// launch as means. Steps without samples stay.
    #[must_use]
    pub fn fitted(mut self, samples: &[Sample]) -> Self {
        let of = |step: CostStep| samples.iter().filter(move |sample| sample.step == step);
        self.dump = line(of(CostStep::Dump)).unwrap_or(self.dump);
        self.restore = line(of(CostStep::Restore)).unwrap_or(self.restore);
        self.flush = mean(of(CostStep::Flush)).unwrap_or(self.flush);
        self.launch = mean(of(CostStep::Launch)).unwrap_or(self.launch);
        self
    }
}

/// Least squares. If all samples are of about one size, or the line would fall or begin below zero, the line
/// goes through the origin, because the samples then do not determine the fixed part.
fn line<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<Transfer> {
    let points: Vec<(f64, f64)> = samples
        .map(|sample| (sample.bytes.0 as f64, sample.took.as_secs_f64()))
        .filter(|(x, _)| *x > 0.0)
        .collect();
    if points.is_empty() {
        return None;
    }
    let n = points.len() as f64;
    let sum = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>();
    let (x, y) = (sum(|p| p.0) / n, sum(|p| p.1) / n);
    let spread = points.iter().map(|p| (p.0 - x).powi(2)).sum::<f64>();
    let slope = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum::<f64>() / spread;
    let fixed = y - slope * x;
    let sizes_differ = spread / n > (0.02 * x).powi(2);
    let (slope, fixed) = if sizes_differ && slope > 0.0 && fixed >= 0.0 {
        (slope, fixed)
    } else {
        (sum(|p| p.0 * p.1) / sum(|p| p.0 * p.0), 0.0)
    };
    let per_second = Bytes((1.0 / slope.max(1e-15)) as u64);
    Some(Transfer { fixed: Duration::from_secs_f64(fixed), per_second })
}

fn mean<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<Duration> {
    let times: Vec<Duration> = samples.map(|sample| sample.took).collect();
    let count = u32::try_from(times.len()).ok().filter(|count| *count > 0)?;
    Some(times.iter().sum::<Duration>() / count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(step: CostStep, mib: u64, millis: u64) -> Sample {
        Sample { step, bytes: Bytes::mib(mib), took: Duration::from_millis(millis) }
    }

    #[test]
    fn a_line_is_found_again_from_its_points() {
        let truth = Transfer { fixed: Duration::from_millis(40), per_second: Bytes::mib(500) };
        let samples: Vec<Sample> = [10, 100, 400, 1000]
            .map(|mib| Sample {
                step: CostStep::Dump,
                bytes: Bytes::mib(mib),
                took: truth.time(Bytes::mib(mib)),
            })
            .into();
        let fitted = CostModel::default().fitted(&samples);
        let off = fitted.dump.fixed.abs_diff(truth.fixed);
        assert!(off < Duration::from_micros(10), "{:?}", fitted.dump);
        assert!(fitted.dump.per_second.0.abs_diff(truth.per_second.0) < 100, "{:?}", fitted.dump);
        assert_eq!(fitted.restore, CostModel::default().restore, "there is no sample of it");
    }

    #[test]
    fn samples_of_one_size_say_nothing_of_the_fixed_part() {
        let samples = [sample(CostStep::Restore, 100, 90), sample(CostStep::Restore, 100, 110)];
        let fitted = CostModel::default().fitted(&samples).restore;
        assert_eq!(fitted.fixed, Duration::ZERO);
        assert!(fitted.per_second.0.abs_diff(Bytes::mib(1000).0) < 10);
        let falling = [sample(CostStep::Dump, 100, 90), sample(CostStep::Dump, 400, 10)];
        assert_eq!(CostModel::default().fitted(&falling).dump.fixed, Duration::ZERO);
    }

    #[test]
    fn steps_that_move_nothing_take_their_mean() {
        let samples =
            [sample(CostStep::Flush, 0, 1), sample(CostStep::Flush, 0, 3), sample(CostStep::Launch, 0, 70)];
        let fitted = CostModel::default().fitted(&samples);
        assert_eq!((fitted.flush.as_millis(), fitted.launch.as_millis()), (2, 70));
    }
}
