//! What came of the experiments, as a page.

use std::fmt::{self, Write as _};

use crate::compared::Arm;

/// Columns of a bar.
const WIDTH: f64 = 30.0;

/// An experiment: its runs, and what they were to show.
pub(crate) struct Section {
    pub(crate) title: &'static str,
    pub(crate) about: &'static str,
    pub(crate) rows: Vec<Row>,
    pub(crate) claims: Vec<Claim>,
}

/// The runs of one policy.
#[derive(Clone)]
pub(crate) struct Row {
    label: String,
    arm: Arm,
}

impl Row {
    pub(crate) fn new(label: &str, arm: &Arm) -> Row {
        Row { label: label.into(), arm: arm.clone() }
    }
}

/// Something that was to be so: a number on the right side of another.
pub(crate) struct Claim {
    text: &'static str,
    number: f64,
    side: &'static str,
    bound: f64,
}

impl Claim {
    /// `side` is `<` or `>`; equal is as good.
    pub(crate) fn new(text: &'static str, number: f64, side: &'static str, bound: f64) -> Claim {
        Claim { text, number, side, bound }
    }

    /// What is not a number shows nothing.
    fn holds(&self) -> bool {
        match self.side {
            "<" => self.number <= self.bound,
            _ => self.number >= self.bound,
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.holds() { "**holds**" } else { "**does not hold here**" };
        let side = if self.side == "<" { '≤' } else { '≥' };
        write!(f, "- {}: {} ({side} {}): {verdict}", self.text, number(Some(self.number), 2), self.bound)
    }
}

fn number(value: Option<f64>, decimals: usize) -> String {
    match value {
        Some(value) if value.is_finite() => format!("{value:.decimals$}"),
        Some(_) => "more than was waited for".into(),
        None => "-".into(),
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## {}\n\n{}\n", self.title, self.about)?;
        writeln!(
            f,
            "| runs | policy | makespan, s (from - to) | slowdown | | exposed, s | waiting | major faults | fairness term | metric |"
        )?;
        writeln!(f, "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")?;
        let longest = self.rows.iter().filter_map(|row| row.arm.relative_makespan).fold(0.0, f64::max);
        for Row { label, arm } in &self.rows {
            let makespan = arm.makespan.map_or_else(
                || format!("none of {} done", arm.done + arm.timed_out + arm.failed),
                |of| format!("{:.1} ({:.1} - {:.1})", of.median, of.min, of.max),
            );
            let bar = arm.relative_makespan.map_or(1.0, |slowdown| slowdown / longest) * WIDTH;
            writeln!(
                f,
                "| {label} | {} | {makespan} | {} | `{}` | {} | {} | {} | {} | {} |",
                arm.name(),
                number(arm.relative_makespan, 2),
                "█".repeat((bar.round() as usize).max(1)),
                number(arm.exposed_s, 1),
                arm.waiting.map_or_else(|| "-".into(), |share| format!("{:.0} %", share * 100.0)),
                number(arm.major_faults, 0),
                number(arm.spread, 2),
                number(arm.tradeoff, 2),
            )?;
        }
        writeln!(f)?;
        self.claims.iter().try_for_each(|claim| writeln!(f, "{claim}"))
    }
}

/// The page of all of them.
pub(crate) fn whole(sections: &[Section], repeat: u32, limit: &str) -> String {
    let mut text = format!(
        "# The paper's experiments, here\n\n\
         Written by `cargo xtask paper`: A. Bouteiller et al., *Hybrid Preemptive Scheduling of MPI Applications on \
         Grids*, §5, with the programs of `examples/mpi`, the files of `examples/paper`, links of 100 Mbit/s where jobs \
         communicate, and real swap. Each policy ran {repeat} times, in turns with the others; a run was given {limit}. \
         Numbers are medians. *Slowdown* is the makespan by the sum of the times alone (the paper's Table 2); *waiting* is the \
         share of their running time that ranks waited for messages; the last columns are the second term and the sum of the \
         trade-off metric (`coswitch metrics`). Faults are those of the whole machine.\n"
    );
    for section in sections {
        let _ = write!(text, "\n{section}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_without_a_number_does_not_hold() {
        assert!(Claim::new("", 0.9, "<", 0.9).holds() && Claim::new("", f64::INFINITY, ">", 1.0).holds());
        assert!(!Claim::new("", f64::NAN, "<", 1.0).holds() && !Claim::new("", f64::NAN, ">", 1.0).holds());
        let told = Claim::new("hybrid by batch", 0.95, "<", 0.9).to_string();
        assert_eq!(told, "- hybrid by batch: 0.95 (≤ 0.9): **does not hold here**");
    }
}
