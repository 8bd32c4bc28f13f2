//! Carries out one experiment. A failure becomes part of its results and does not stop the others.

use std::{
    fmt::Display,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use coswitch_policies::Rate;

use super::{
    call::{self, Stop},
    experiments::{self, Experiment},
    results::{Curve, Group, Measured, SHAPE},
    work::Work,
};
use crate::{pingpong, together};

/// The paper's network.
const ETHERNET: Rate = Rate(100_000_000);
const SIZES: [u32; 8] = [1, 64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
pub(super) const TOGETHER: usize = 3;
/// Seconds that a job of the experiment on waiting takes alone.
const WAITING_S: f64 = 2.0;
/// Extra time for an experiment in a process of its own.
const PATIENCE: Duration = Duration::from_secs(240);

/// Runs `experiment`; `share` is the time it should take.
pub(super) fn measure(
    experiment: Experiment,
    repeat: u32,
    share: Duration,
    limit: Duration,
    stop: &Stop,
) -> Measured {
    let began = Instant::now();
    let mut measured =
        Measured { shape: SHAPE, repeat, limit_s: limit.as_secs_f64(), load: load(), ..Measured::default() };
    let calls = experiment.calls();
    if let Some(first) = calls.first() {
        (measured.work, measured.problem) =
            told("the measurement of jobs alone", call::calibrate(first, limit, stop));
        if measured.problem.is_some() {
            return measured;
        }
    }
    for at in 0..calls.len() {
        if stop.is_asked() {
            return measured;
        }
        let within = experiments::share_of_call(&calls[at..], share.saturating_sub(began.elapsed()));
        let call_began = Instant::now();
        let turns = calls[at].turns_in(within).min(repeat);
        let compared = call::compare(&calls[at], &measured.work, turns, within, limit, stop);
        let (arms, problem) = told(&calls[at].name, compared);
        let turns = arms.iter().map(|arm| arm.done + arm.timed_out + arm.failed).max().unwrap_or(0);
        eprintln!("      {}: {turns} turns in {:.0} s", calls[at].name, call_began.elapsed().as_secs_f64());
        measured.groups.push(Group { name: calls[at].name.clone(), arms, problem });
    }
    if calls.is_empty() {
        (measured.curves, measured.problem) =
            told(experiment.title(), curves_apart(experiment, repeat, share, stop));
    }
    measured.took_s = began.elapsed().as_secs_f64();
    measured
}

fn told<T: Default>(what: impl Display, result: Result<T>) -> (T, Option<String>) {
    match result {
        Ok(value) => (value, None),
        Err(error) => {
            eprintln!("      {what} failed: {error:#}");
            (T::default(), Some(format!("{error:#}")))
        }
    }
}

/// Measures in a process of its own, so that its death is only a failed experiment.
fn curves_apart(experiment: Experiment, repeat: u32, share: Duration, stop: &Stop) -> Result<Vec<Curve>> {
    let own = std::env::current_exe().context("failed to find this program")?;
    let mut command = Command::new(own);
    let name = serde_json::to_value(experiment)?;
    command.args(["--part", name.as_str().expect("a name"), "--repeat", &repeat.to_string()]);
    let text = call::output(command, share + PATIENCE, &[0], stop)?;
    serde_json::from_str(&text).context("the measurement is no JSON")
}

/// The other side of [`curves_apart`].
#[allow(clippy::print_stdout, reason = "the answer to the process that asked")]
pub(super) fn print_curves(experiment: Experiment, repeat: u32) -> Result<()> {
    let curves = match experiment {
        Experiment::Fig7 => driver(repeat)?,
        Experiment::Waiting => waiting(repeat)?,
        _ => bail!("{experiment:?} is a comparison"),
    };
    println!("{}", serde_json::to_string(&curves)?);
    Ok(())
}

/// One-way times in microseconds by size, on links of the paper's rate and of the machine's own.
fn driver(repeat: u32) -> Result<Vec<Curve>> {
    let mut curves = Vec::new();
    for (rate, link) in [(Some(ETHERNET), "100 Mbit/s"), (None, "no limit")] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for bytes in SIZES {
            let (own, other): (Vec<f64>, Vec<f64>) =
                pingpong::times(bytes, rate, repeat)?.into_iter().unzip();
            ours.push((f64::from(bytes), own));
            theirs.push((f64::from(bytes), other));
        }
        curves.push(Curve { name: format!("coswitch, {link}"), points: ours });
        curves.push(Curve { name: format!("MPICH over tcp, {link}"), points: theirs });
    }
    Ok(curves)
}

/// Seconds by number of jobs.
fn waiting(repeat: u32) -> Result<Vec<Curve>> {
    let rate = Rate(2 * ETHERNET.0);
    let first = Work {
        job: "heat".into(),
        wanted_s: WAITING_S,
        measured: 50,
        took_s: together::alone(&["--memory", "60MiB", "--steps", "50"], rate)?,
    };
    let steps = first.amount().to_string();
    let ways = together::measure(&["--memory", "60MiB", "--steps", &steps], rate, TOGETHER, repeat)?;
    let curve = |way: together::Way| Curve {
        name: way.name.into(),
        points: vec![(1.0, way.alone), (TOGETHER as f64, way.together)],
    };
    Ok(ways.into_iter().map(curve).collect())
}

fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(f64::NAN)
}
