//! Load index of a node: the smoothed length of its ready queue (thesis §2.1.2, formula 2.1, after Ferrari).
//!
//! The queue is sampled every second, during the local slice only and without distributed tasks; ten samples
//! make one mean `q`, and `Q ← Q·e^-P + q·(1 - e^-P)`.
//!
//! The printed `P = 1 / (LI · N)` with `LI = 10 s`, `N = 6`, applied once every `LI`, smooths over `LI · LI ·
//! N` = ten minutes and not over the one minute that the text states; for one minute it would be `P = 1 / N`.
//! [`LoadRule::default`] follows the printed formula, [`LoadRule::over_a_minute`] the text.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::SimTime;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadRule {
    /// Time between two samples of the queue.
    pub sample_every: Duration,
    /// Samples for one mean; times `sample_every` this is the interval *LI*.
    pub samples: u32,
    /// Weight of the last index, `e^-P`, in 0..=1.
    pub past_weight: f64,
    /// A smaller change of the index is not reported to the console (`Load_Threshold`).
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
    /// The weight that smooths over the minute of the text: `P = 1 / 6`.
    #[must_use]
    pub const fn over_a_minute() -> Self {
        let sample_every = Duration::from_secs(1);
        Self { sample_every, samples: 10, past_weight: 0.846_481_724_890_614_1, threshold: 1.0 }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct LoadIndex {
    rule: LoadRule,
    next_sample: Option<SimTime>,
    sum: f64,
    count: u32,
    index: f64,
    reported: Option<f64>,
}

impl LoadIndex {
    /// The index of an idle node.
    #[must_use]
    pub const fn new(rule: LoadRule) -> Self {
        Self { rule, next_sample: None, sum: 0.0, count: 0, index: 0.0, reported: None }
    }

    /// `Q`, in tasks.
    #[must_use]
    pub const fn value(&self) -> f64 {
        self.index
    }

    /// Samples a queue of `length` local tasks if a sample is due. Returns the new index when an interval is
    /// complete.
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

    /// The index, if it should be reported to the console: the first one, then each that differs from the
    /// last reported one by the threshold. (§2.1.2 compares with the last *computed* index, which would never
    /// report a slow rise, and Algorithm 2 has the comparison the other way round.)
    pub fn to_report(&mut self) -> Option<f64> {
        let is_news =
            self.reported.is_none_or(|reported| (self.index - reported).abs() >= self.rule.threshold);
        is_news.then(|| *self.reported.insert(self.index))
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
    fn the_rule_over_a_minute_is_the_printed_one_with_the_weight_of_the_text() {
        let text = LoadRule { past_weight: libm::exp(-1.0 / 6.0), ..LoadRule::default() };
        assert!((LoadRule::over_a_minute().past_weight - text.past_weight).abs() < 1e-15);
        assert_eq!(LoadRule { past_weight: text.past_weight, ..LoadRule::over_a_minute() }, text);
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
    fn changes_of_a_whole_task_are_reported() {
        let rule = LoadRule { past_weight: 0.0, samples: 1, ..LoadRule::default() };
        let mut index = LoadIndex::new(rule);
        assert_eq!(index.to_report(), Some(0.0));
        index.sample(SimTime(0), 1);
        assert_eq!(index.to_report(), Some(1.0));
        assert_eq!(index.to_report(), None);
    }
}
