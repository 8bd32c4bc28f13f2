//! Claims of the paper and our own expectations, judged by measured numbers. Pure.

use std::fmt;

use super::{
    arm::{Arm, MedianRange},
    experiments::{Experiment, IN_CORE, MIXED, NEAR, OUT_OF_CORE, ROOMY},
    measure::TOGETHER,
    plot::short,
    results::Measured,
};

/// A claim: a number that should be on one side of a bound.
pub(super) struct Claim {
    pub(super) text: &'static str,
    /// NaN where it was not measured, infinite where a run was too slow.
    pub(super) number: f64,
    side: Side,
    bound: f64,
    /// The measurements behind it.
    because: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    AtMost,
    AtLeast,
}
use Side::{AtLeast, AtMost};

impl Claim {
    fn new(text: &'static str, number: f64, side: Side, bound: f64, because: impl Into<String>) -> Claim {
        Claim { text, number, side, bound, because: because.into() }
    }

    /// `None` where it was not measured.
    pub(super) fn holds(&self) -> Option<bool> {
        let holds = match self.side {
            AtMost => self.number <= self.bound,
            AtLeast => self.number >= self.bound,
        };
        (!self.number.is_nan()).then_some(holds)
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.holds() {
            Some(true) => "**holds**",
            Some(false) => "**does not hold here**",
            None => "**not measured**",
        };
        let number = match self.number {
            number if number.is_nan() => "–".into(),
            number if number.is_infinite() => "without end".into(),
            number => short(number),
        };
        let side = if self.side == AtMost { "≤" } else { "≥" };
        write!(f, "| {} | {number} | {side} {} | {verdict} | {} |", self.text, self.bound, self.because)
    }
}

pub(super) fn of(experiment: Experiment, measured: &Measured) -> Vec<Claim> {
    match experiment {
        Experiment::Fig7 => driver(measured),
        Experiment::Fig8 => orders(measured),
        Experiment::Fig9 => cosched(measured),
        Experiment::Fig10a => communicate(measured),
        Experiment::Fig10b => compute(measured),
        Experiment::Fig11 => pairs(measured),
        Experiment::Waiting => waiting(measured),
    }
}

/// A makespan divided by another; NaN where the other run never ended.
fn ratio(measured: &Measured, group: &str, one: &str, other: &str) -> f64 {
    let of = |name| measured.arm(group, name).map_or(f64::NAN, Arm::makespan);
    let by = of(one) / of(other);
    if by == 0.0 { f64::NAN } else { by }
}

fn slowdown(measured: &Measured, group: &str, name: &str) -> f64 {
    let Some(arm) = measured.arm(group, name) else { return f64::NAN };
    let unknown = if arm.is_too_slow() || arm.is_killed() { f64::INFINITY } else { f64::NAN };
    arm.slowdown().map_or(unknown, |slowdown| slowdown.median)
}

fn known(value: f64) -> String {
    if value.is_nan() { "–".into() } else { short(value) }
}

/// Waits, exposed time and page faults of an arm, in words.
fn spent(measured: &Measured, group: &str, name: &str) -> String {
    let Some(arm) = measured.arm(group, name) else { return String::new() };
    let waited = arm.waiting.map(|share| format!("ranks waited {:.0} % of their time", share * 100.0));
    let exposed = arm
        .exposed_s
        .filter(|exposed| *exposed > 0.0)
        .map(|exposed| format!("switches exposed {exposed:.1} s"));
    let faults =
        arm.major_faults.filter(|faults| *faults > 1000.0).map(|faults| format!("{faults:.0} major faults"));
    let told: Vec<String> = [waited, exposed, faults].into_iter().flatten().collect();
    if told.is_empty() { String::new() } else { format!("{name}: {}", told.join(", ")) }
}

fn driver(measured: &Measured) -> Vec<Claim> {
    let at = |curve: &str, bytes: f64| {
        let points = measured.curves.iter().find(|of| of.name == curve).map(|curve| &curve.points);
        let found = points.and_then(|points| points.iter().find(|(x, _)| (x - bytes).abs() < 0.5));
        found.and_then(|(_, values)| MedianRange::of(values)).map_or(f64::NAN, |of| of.median)
    };
    let both = |bytes| (at("coswitch, 100 Mbit/s", bytes), at("MPICH over tcp, 100 Mbit/s", bytes));
    let ((a, b), (c, d)) = (both(1.0), both(1_048_576.0));
    let rate = |micros: f64| 1_048_576.0 / micros;
    vec![
        Claim::new(
            "a message that goes through a daemon, as in MPICH-V, takes a few times as long: 1 B by MPICH \
             over tcp",
            a / b,
            AtMost,
            2.5,
            format!("{} µs, MPICH {} µs", known(a), known(b)),
        ),
        Claim::new(
            "and has the bandwidth of Ethernet all the same: 1 MiB by MPICH over tcp",
            d / c,
            AtLeast,
            0.9,
            format!("{} MB/s, MPICH {} MB/s", known(rate(c)), known(rate(d))),
        ),
    ]
}

fn orders(measured: &Measured) -> Vec<Claim> {
    let exposed = |order| measured.arm(ROOMY, order).and_then(|arm| arm.exposed_s).unwrap_or(f64::NAN);
    let [sequential, overlapped, prefetch] = ["sequential", "overlapped", "prefetch"].map(exposed);
    let told = format!("exposed {} s, {} s, {} s", known(sequential), known(overlapped), known(prefetch));
    vec![
        Claim::new(
            "in core, overlapped exposes less than sequential",
            overlapped / sequential,
            AtMost,
            1.0,
            &told,
        ),
        Claim::new(
            "in core, prefetch exposes less than overlapped",
            prefetch / overlapped,
            AtMost,
            1.0,
            &told,
        ),
        Claim::new(
            "near out of core, sequential is best (in the paper prefetch had a dramatic overhead): \
             makespan of prefetch by sequential",
            ratio(measured, NEAR, "prefetch", "sequential"),
            AtLeast,
            1.05,
            "coswitch falls back to sequential by itself where memory does not hold both sets, so that \
             asking for prefetch costs nothing",
        ),
    ]
}

fn cosched(measured: &Measured) -> Vec<Claim> {
    let of = |n: u32| slowdown(measured, &format!("n = {n}"), "cosched");
    let worst = (4..=6).map(of).fold(f64::NAN, f64::max);
    vec![
        Claim::new(
            "in core, n at once take less than n after the other (the paper: slightly): n = 3",
            of(3),
            AtMost,
            1.0,
            spent(measured, "n = 3", "cosched"),
        ),
        Claim::new(
            "out of core they take far longer (the paper's nine: 20 times as long): the slowest of n = 4, \
             5, 6 by n = 3",
            worst / of(3),
            AtLeast,
            2.0,
            "each sweeps over all of its memory, so that what the next one needs is what was evicted",
        ),
    ]
}

fn compute(measured: &Measured) -> Vec<Claim> {
    let in_core = ratio(measured, IN_CORE, "hybrid", "cosched");
    let by = |one, other| ratio(measured, OUT_OF_CORE, one, other);
    let (hybrid, gang) = (spent(measured, OUT_OF_CORE, "hybrid"), spent(measured, OUT_OF_CORE, "gang"));
    let both = format!("{hybrid}; {gang}");
    let swapping = spent(measured, OUT_OF_CORE, "cosched");
    vec![
        Claim::new(
            "in core, hybrid is co-scheduling: makespans differ by, of 1",
            (in_core - 1.0).abs(),
            AtMost,
            0.1,
            "all jobs are one set",
        ),
        Claim::new(
            "in core, hybrid by batch (the paper: 0.90)",
            ratio(measured, IN_CORE, "hybrid", "batch"),
            AtMost,
            0.95,
            spent(measured, IN_CORE, "batch"),
        ),
        Claim::new(
            "in core, gang costs little: by batch (the paper: 1.02)",
            ratio(measured, IN_CORE, "gang", "batch"),
            AtMost,
            1.1,
            spent(measured, IN_CORE, "gang"),
        ),
        Claim::new(
            "out of core, hybrid by batch (the paper: 0.90)",
            by("hybrid", "batch"),
            AtMost,
            0.9,
            &hybrid,
        ),
        Claim::new(
            "out of core, hybrid by gang (the paper: 17 % better)",
            by("hybrid", "gang"),
            AtMost,
            0.83,
            both,
        ),
        Claim::new(
            "out of core, co-scheduling with swap by gang (the paper: 1.9 by 1.07)",
            by("cosched", "gang"),
            AtLeast,
            1.0,
            &swapping,
        ),
        Claim::new(
            "out of core, co-scheduling with swap by hybrid (the paper: 1.9 by 0.90)",
            by("cosched", "hybrid"),
            AtLeast,
            1.0,
            swapping,
        ),
    ]
}

fn communicate(measured: &Measured) -> Vec<Claim> {
    let by = |one, other| ratio(measured, OUT_OF_CORE, one, other);
    vec![
        Claim::new(
            "in core, co-scheduling by one after the other (the paper: 0.92)",
            slowdown(measured, IN_CORE, "cosched"),
            AtMost,
            0.97,
            format!("a full link is shared, not multiplied; {}", spent(measured, IN_CORE, "batch")),
        ),
        Claim::new(
            "out of core, hybrid and gang are the same (the paper: 0.99 and 1.02): hybrid by gang",
            by("hybrid", "gang"),
            AtMost,
            1.05,
            format!("{}; {}", spent(measured, OUT_OF_CORE, "hybrid"), spent(measured, OUT_OF_CORE, "gang")),
        ),
        Claim::new(
            "out of core, co-scheduling with swap by hybrid (the paper: 1.3 by 0.99)",
            by("cosched", "hybrid"),
            AtLeast,
            1.0,
            spent(measured, OUT_OF_CORE, "cosched"),
        ),
    ]
}

fn pairs(measured: &Measured) -> Vec<Claim> {
    let paired = ratio(measured, MIXED, "paired", "hybrid");
    let because = format!("{}; {}", spent(measured, MIXED, "paired"), spent(measured, MIXED, "hybrid"));
    let against = |other| (ratio(measured, MIXED, "paired", other), spent(measured, MIXED, other));
    let ((by_batch, of_batch), (by_gang, of_gang)) = (against("batch"), against("gang"));
    vec![
        Claim::new(
            "paired by homogeneous sets, as in the paper (2.7 % better)",
            paired,
            AtMost,
            0.973,
            &because,
        ),
        Claim::new(
            "as is to be expected on links that one job fills (10 % better)",
            paired,
            AtMost,
            0.9,
            because,
        ),
        Claim::new(
            "the mixed set by one job after the other (Table 2: 0.90)",
            by_batch,
            AtMost,
            0.9,
            of_batch,
        ),
        Claim::new("the mixed set by gang (Table 2: 17 % better)", by_gang, AtMost, 0.83, of_gang),
    ]
}

/// Makespan of jobs that run at once, divided by as many times that of one alone.
pub(super) fn together(measured: &Measured, at: usize) -> Option<MedianRange> {
    let [(_, alone), (_, together)] = &measured.curves.get(at)?.points[..] else { return None };
    let ratios: Vec<f64> =
        alone.iter().zip(together).map(|(alone, together)| together / (alone * TOGETHER as f64)).collect();
    MedianRange::of(&ratios)
}

fn waiting(measured: &Measured) -> Vec<Claim> {
    // Seconds of jobs at once.
    let seconds = |name: &str| {
        let curve = measured.curves.iter().find(|curve| curve.name.contains(name));
        curve
            .and_then(|curve| MedianRange::of(&curve.points.get(1)?.1))
            .map_or(f64::NAN, |spread| spread.median)
    };
    let [tcp, spin, block, both] = ["tcp", "spin: ", "block: ", "spin-block"].map(seconds);
    let against =
        |one: f64, other: f64| format!("{} s and {} s for {TOGETHER} at once", known(one), known(other));
    vec![
        Claim::new(
            "sleeping while waiting, by stock MPICH's polling over tcp: block",
            block / tcp,
            AtMost,
            1.0,
            against(block, tcp),
        ),
        Claim::new("the same: spin-block", both / tcp, AtMost, 1.0, against(both, tcp)),
        Claim::new(
            "by polling over the same driver: block by spin",
            block / spin,
            AtMost,
            1.0,
            against(block, spin),
        ),
        Claim::new("the same: spin-block by spin", both / spin, AtMost, 1.0, against(both, spin)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_without_a_number_has_no_verdict_and_a_slow_run_is_slower() {
        let claim = |number, side| Claim::new("", number, side, 1.0, "").holds();
        assert_eq!(claim(f64::NAN, AtMost), None);
        assert_eq!([claim(f64::INFINITY, AtLeast), claim(f64::INFINITY, AtMost)], [Some(true), Some(false)]);
        assert_eq!(claim(1.0, AtMost), Some(true));
        let nothing = Measured::default();
        for experiment in clap::ValueEnum::value_variants() {
            assert!(of(*experiment, &nothing).iter().all(|claim| claim.holds().is_none()), "{experiment:?}");
        }
    }
}
