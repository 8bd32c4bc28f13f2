//! Benchmark of the node schedulers over real ranks: how long a message waits for a rank that computes beside
//! two others on one processor, and what share of it each of them has.
//!
//! The receiver wants to compute for 29 % of the time, which is less than its fair share. Its sender is on
//! the same node, so that the figure is the wait for the processor and not the network.

use anyhow::{Context, Result};
use coswitch_daemon::protocol::Wait;
use coswitch_examples::Program;
use coswitch_policies::{Bytes, local::Technique};
use serde::Deserialize;

use crate::{
    figure::{Bound, Figure},
    pairs::median,
    programs,
    stage::{Stage, apart, said_by},
};

/// Technique and way of waiting.
const WAYS: [(&str, Option<Technique>, Wait); 6] = [
    ("none", None, Wait::SpinBlock),
    ("dcs, spin-block", Some(Technique::DCS), Wait::SpinBlock),
    ("dcs", Some(Technique::DCS), Wait::Spin),
    ("ics", Some(Technique::ICS), Wait::SpinBlock),
    ("predictive", Some(Technique::PREDICTIVE), Wait::Block),
    ("dynamic", Some(Technique::DYNAMIC), Wait::Block),
];
const SECONDS: &str = "6";

/// A line of the program.
#[derive(Deserialize)]
struct Answered {
    median_us: f64,
    p90_us: f64,
    share: f64,
}

/// One run: what the receiver says, and the shares of the two others.
struct Run {
    receiver: Answered,
    others: [f64; 2],
}

impl Run {
    /// By how much of it the shares of the two others differ, in percent.
    fn unfairness(&self) -> f64 {
        let [one, two] = self.others;
        (one - two).abs() / one.max(two) * 100.0
    }
}

pub(crate) fn measure(rounds: u32) -> Result<Vec<Figure>> {
    let program = programs::example(Program::Answer)?;
    let mut runs: [Vec<Run>; WAYS.len()] = std::array::from_fn(|_| Vec::new());
    for round in 0..rounds as usize {
        for at in (0..WAYS.len()).map(|at| (at + round) % WAYS.len()) {
            let (name, technique, wait) = WAYS[at];
            let run = apart(|| run(&program, technique, wait));
            runs[at].push(run.with_context(|| format!("failed to measure {name}"))?);
        }
    }
    let figures = WAYS.iter().zip(&runs).flat_map(|((name, technique, wait), runs)| {
        let of = |value: fn(&Run) -> f64| median(runs.iter().map(value));
        let waits = format!("node scheduler {name}: a message waits for a rank beside two, median");
        let aim = Bound::AtMost(50.0);
        let is_aimed_at = (*technique, *wait) == (Some(Technique::DCS), Wait::SpinBlock);
        let waited = of(|run| run.receiver.median_us);
        let waited = match is_aimed_at {
            true => Figure::bounded(waits, waited, "us", aim),
            false => Figure::plain(waits, waited, "us"),
        };
        let shares = format!(
            "p90 {:.0} us; shares of the processor {:.3}, {:.3}, {:.3}; {rounds} runs of {SECONDS} s",
            of(|run| run.receiver.p90_us),
            of(|run| run.receiver.share),
            of(|run| run.others[0]),
            of(|run| run.others[1]),
        );
        let differ = format!("node scheduler {name}: shares of the two differ by");
        let differ = match is_aimed_at {
            true => Figure::bounded(differ, of(Run::unfairness), "%", Bound::AtMost(5.0)),
            false => Figure::plain(differ, of(Run::unfairness), "%"),
        };
        [waited.of(shares), differ]
    });
    Ok(figures.collect())
}

fn run(program: &str, technique: Option<Technique>, wait: Wait) -> Result<Run> {
    let stage = Stage::favouring(technique, 2, Bytes::mib(512))?;
    let computes = [program, "--only-compute", "--seconds", SECONDS];
    let mut others = [(); 2].map(|()| stage.launch(&computes, &[0], wait));
    let mut receiver = stage.launch(&[program, "--seconds", SECONDS], &[0, 0], wait);
    let outputs = [&receiver, &others[0], &others[1]].map(|job| job.output.clone());
    stage.end_of(&mut receiver)?;
    others.iter_mut().try_for_each(|job| stage.end_of(job))?;
    let said = |job: usize, rank| -> Result<Answered> {
        let text = said_by(&outputs[job], rank)?;
        let line = text.lines().find(|line| line.starts_with('{')).context("a rank says nothing")?;
        Ok(serde_json::from_str(line)?)
    };
    let run = Run { receiver: said(0, 1)?, others: [said(1, 0)?.share, said(2, 0)?.share] };
    stage.strike()?;
    Ok(run)
}
