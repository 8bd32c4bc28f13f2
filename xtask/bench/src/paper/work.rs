//! Work given by time: how many steps or repetitions a job of a run file needs here to take so long alone.
//!
//! All arms of a comparison do the same work, so it is counted; it is counted anew on each machine, so that a
//! job outlives as many slots on a fast one as on a slow one.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Words before the amount of a job's work: of repetitions, where it has any.
const OPTIONS: [&str; 2] = ["--repeat, \"", "--steps, \""];

/// The amount of work of one job, and how it was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Work {
    pub(super) job: String,
    /// Seconds that it is to take alone.
    pub(super) wanted_s: f64,
    /// Steps or repetitions that were measured alone, and their seconds.
    pub(super) measured: u64,
    pub(super) took_s: f64,
}

impl Work {
    /// Whole steps or repetitions, at least one.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at least 1, and `as` saturates"
    )]
    pub(super) fn amount(&self) -> u64 {
        (self.measured as f64 * self.wanted_s / self.took_s).round().max(1.0) as u64
    }

    /// Seconds that the whole steps or repetitions should take alone.
    pub(super) fn expected_s(&self) -> f64 {
        self.took_s * self.amount() as f64 / self.measured as f64
    }
}

/// Where the text of a job is in a run file.
fn block(text: &str, job: &str) -> Result<std::ops::Range<usize>> {
    let begin = text.find(&format!("  - name: {job}\n")).with_context(|| format!("no job `{job}`"))?;
    let length = text[begin + 1..].find("  - name: ").map_or(text.len() - begin, |at| at + 1);
    Ok(begin..begin + length)
}

/// Where the amount of a job's work is.
fn place(text: &str, job: &str) -> Result<std::ops::Range<usize>> {
    let block = block(text, job)?;
    let begin = OPTIONS.iter().find_map(|option| Some(text[block.clone()].find(option)? + option.len()));
    let begin = block.start + begin.with_context(|| format!("no steps or repetitions of job `{job}`"))?;
    let length = text[begin..].find('"').context("a quotation mark is missing")?;
    Ok(begin..begin + length)
}

/// Steps or repetitions of a job.
pub(super) fn amount(text: &str, job: &str) -> Result<u64> {
    let place = place(text, job)?;
    text[place].parse().with_context(|| format!("the amount of work of job `{job}` is no number"))
}

/// The run file with this amount of work for a job.
pub(super) fn with_amount(text: &str, job: &str, amount: u64) -> Result<String> {
    let mut text = text.to_owned();
    text.replace_range(place(&text, job)?, &amount.to_string());
    Ok(text)
}

/// The run file with only this job, and only once.
pub(super) fn alone(text: &str, job: &str) -> Result<String> {
    let first = text.find("  - name: ").context("a run file without jobs")?;
    let block = &text[block(text, job)?];
    let lines = block.lines().filter(|line| !line.trim_start().starts_with("count:"));
    let job: Vec<&str> = lines.collect();
    Ok(format!("{}{}\n", &text[..first], job.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "nodes: 2
jobs:
  - name: one
    command: [a, --steps, \"20\"]
    count: 6
  - name: two
    command: [b, --repeat, \"3\"]
    count: 4
";

    #[test]
    fn a_machine_three_times_as_fast_gets_three_times_the_work() {
        let work = |took_s| Work { job: "one".into(), wanted_s: 12.0, measured: 20, took_s };
        assert_eq!([work(6.0).amount(), work(2.0).amount(), work(1000.0).amount()], [40, 120, 1]);
        assert_eq!(work(2.0).expected_s(), 12.0);
        assert_eq!(work(1000.0).expected_s(), 50.0);
    }

    #[test]
    fn each_job_has_its_own_amount_of_work() {
        assert_eq!((amount(FILE, "one").unwrap(), amount(FILE, "two").unwrap()), (20, 3));
        let text = with_amount(FILE, "two", 17).unwrap();
        assert_eq!((amount(&text, "one").unwrap(), amount(&text, "two").unwrap()), (20, 17));
        assert!(amount(FILE, "three").is_err());
    }

    #[test]
    fn a_job_alone_has_no_company() {
        let text = alone(FILE, "two").unwrap();
        assert_eq!(text, "nodes: 2\njobs:\n  - name: two\n    command: [b, --repeat, \"3\"]\n");
    }
}
