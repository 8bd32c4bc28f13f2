//! Pairs of measurements taken in turns, and their medians.

use std::{
    io::{IsTerminal as _, Write as _, stderr},
    time::Instant,
};

use anyhow::Result;

/// Measurements of two things, equally many.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pairs {
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

impl Pairs {
    pub(crate) fn new(ours: Vec<f64>, theirs: Vec<f64>) -> Self {
        assert_eq!(ours.len(), theirs.len(), "each is one half of a pair");
        Self { ours, theirs }
    }

    /// The median of ours ÷ theirs, pair by pair.
    pub(crate) fn ratio(&self) -> f64 {
        median(self.ours.iter().zip(&self.theirs).map(|(ours, theirs)| ours / theirs))
    }

    /// Both medians and the number of pairs; `scale` converts to `unit`.
    pub(crate) fn detail(&self, ours: &str, theirs: &str, scale: f64, unit: &str) -> String {
        let (a, b) = (median(self.ours.iter().copied()) * scale, median(self.theirs.iter().copied()) * scale);
        format!("{ours} {a:.2} {unit}, {theirs} {b:.2} {unit}; {} pairs", self.ours.len())
    }
}

/// Calls both `rounds` times, in turns; the first one changes from pair to pair. Shows each pair on standard
/// error: a line of its own, or on a terminal the same line again.
pub(crate) fn take_turns<A, B>(
    rounds: u32,
    mut ours: impl FnMut() -> Result<A>,
    mut theirs: impl FnMut() -> Result<B>,
) -> Result<Vec<(A, B)>> {
    let began = Instant::now();
    let pair = |round| {
        let pair = if round % 2 == 0 {
            let first = ours()?;
            (first, theirs()?)
        } else {
            let first = theirs()?;
            (ours()?, first)
        };
        let progress = progress(round + 1, rounds, began.elapsed().as_secs(), stderr().is_terminal());
        // A closed standard error is no reason to stop.
        let _ = stderr().write_all(progress.as_bytes());
        Ok(pair)
    };
    (0..rounds).map(pair).collect()
}

fn progress(done: u32, of: u32, seconds: u64, on_terminal: bool) -> String {
    let text = format!("  pair {done} of {of}, {seconds} s");
    match (on_terminal, done == of) {
        (false, _) => format!("{text}\n"),
        (true, false) => format!("\r{text}\x1b[K"),
        (true, true) => "\r\x1b[K".into(),
    }
}

/// The median: of an even number the mean of the two in the middle, without values NaN.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_taken_pair_by_pair() {
        // The machine was three times slower in the second pair, which both halves show.
        let pairs = Pairs::new(vec![2.0, 6.0, 2.2], vec![1.0, 3.0, 1.0]);
        assert!((pairs.ratio() - 2.0).abs() < 1e-9);
        assert_eq!(pairs.detail("a", "b", 10.0, "s"), "a 22.00 s, b 10.00 s; 3 pairs");
    }

    #[test]
    fn the_first_one_changes_from_pair_to_pair() {
        let order = std::cell::RefCell::new(String::new());
        let note = |name| {
            order.borrow_mut().push(name);
            Ok(name)
        };
        let pairs = take_turns(3, || note('a'), || note('b')).unwrap();
        assert_eq!(pairs, [('a', 'b'); 3]);
        assert_eq!(*order.borrow(), "abbaab");
    }

    #[test]
    fn progress_is_a_line_for_each_pair_or_one_line_that_a_terminal_clears() {
        assert_eq!(progress(1, 2, 34, false), "  pair 1 of 2, 34 s\n");
        assert_eq!(progress(1, 2, 34, true), "\r  pair 1 of 2, 34 s\x1b[K");
        assert_eq!(progress(2, 2, 70, true), "\r\x1b[K");
    }

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0]), 2.5);
        assert!(median([]).is_nan());
    }
}
