//! The load index of a node: the smoothed length of its ready queue (thesis §2.1.2, formula 2.1, after Ferrari).
//!
//! The queue is sampled every second, during the local slice only and without distributed tasks; ten samples make one
//! mean `q`, and `Q ← Q·e^-P + q·(1 - e^-P)`.
//!
//! As printed, `P = 1 / (LI · N)` with `LI = 10 s`, `N = 6`. Applied once every `LI` this smooths over `LI · LI · N` = ten
//! minutes, not over the one minute the text speaks of; that would be `P = 1 / N`. [`LoadRule::default`] is as printed,
//! [`LoadRule::over_a_minute`] as meant.

use std::time::Duration;

use crate::SimTime;

/// How a load index is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadRule {
    /// Time between two looks at the queue.
    pub sample_every: Duration,
    /// Looks that make up one mean; with `sample_every` the interval *LI*.
    pub samples: u32,
    /// Weight of the last index, `e^-P`, in 0..=1.
    pub past_weight: f64,
    /// A change of the index smaller than this is not told to the console (`Load_Threshold`).
    pub threshold: f64,
}

impl Default for LoadRule {
    fn default() -> Self {
        Self {
            sample_every: Duration::from_secs(1),
            samples: 10,
            past_weight: libm::exp(-1.0 / 60.0),
            threshold: 1.0,
        }
    }
}

impl LoadRule {
    /// With the weight that smooths over the minute of the text: `P = 1 / 6`.
    #[must_use]
    pub fn over_a_minute() -> Self {
        Self { past_weight: libm::exp(-1.0 / 6.0), ..Self::default() }
    }
}

/// The index of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadIndex {
    rule: LoadRule,
    next_sample: Option<SimTime>,
    sum: f64,
    count: u32,
    index: f64,
    told: Option<f64>,
}

impl LoadIndex {
    /// An idle node's.
    #[must_use]
    pub const fn new(rule: LoadRule) -> Self {
        Self { rule, next_sample: None, sum: 0.0, count: 0, index: 0.0, told: None }
    }

    /// `Q`, in tasks.
    #[must_use]
    pub const fn value(&self) -> f64 {
        self.index
    }

    /// Looks at a queue of `length` local tasks, if it is time to. Gives the new index when an interval is complete.
    pub fn sample(&mut self, now: SimTime, length: usize) -> Option<f64> {
        if self.next_sample.is_some_and(|next| now < next) {
            return None;
        }
        self.next_sample = Some(now.after(self.rule.sample_every));
        let length = length as f64;
        self.sum += length;
        self.count += 1;
        if self.count < self.rule.samples {
            return None;
        }
        let mean = self.sum / f64::from(self.count);
        (self.sum, self.count) = (0.0, 0);
        self.index = self.index * self.rule.past_weight + mean * (1.0 - self.rule.past_weight);
        Some(self.index)
    }

    /// The index, if the console should hear of it: the first one, and then each that differs from the last one told by
    /// the threshold. (§2.1.2 compares with the last *computed* index, by which a slow rise would never be told, and
    /// Algorithm 2 has the comparison the other way round.)
    pub fn tell(&mut self) -> Option<f64> {
        let is_news = self.told.is_none_or(|told| (self.index - told).abs() >= self.rule.threshold);
        is_news.then(|| *self.told.insert(self.index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn after_intervals(rule: LoadRule, length: usize, intervals: u64) -> LoadIndex {
        let mut index = LoadIndex::new(rule);
        for second in 0..intervals * 10 {
            index.sample(SimTime(second * SECOND), length);
        }
        index
    }

    #[test]
    fn the_index_approaches_a_steady_queue_as_formula_2_1_says() {
        let index = after_intervals(LoadRule::default(), 4, 3);
        let expected = 4.0 * (1.0 - libm::exp(-3.0 / 60.0));
        assert!((index.value() - expected).abs() < 1e-12);
    }

    #[test]
    fn as_printed_one_minute_of_load_is_hardly_seen() {
        assert!(after_intervals(LoadRule::default(), 1, 6).value() < 0.1);
        assert!(after_intervals(LoadRule::over_a_minute(), 1, 6).value() > 0.63);
    }

    #[test]
    fn looks_closer_than_the_interval_do_not_count() {
        let mut index = LoadIndex::new(LoadRule::default());
        assert!((0..100).all(|millis| index.sample(SimTime(millis * 1_000_000), 5).is_none()));
    }

    #[test]
    fn the_console_hears_of_changes_of_a_whole_task() {
        let rule = LoadRule { past_weight: 0.0, samples: 1, ..LoadRule::default() };
        let mut index = LoadIndex::new(rule);
        assert_eq!(index.tell(), Some(0.0));
        index.sample(SimTime(0), 1);
        assert_eq!(index.tell(), Some(1.0));
        assert_eq!(index.tell(), None);
    }
}
