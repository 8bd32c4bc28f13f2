//! Claims of the paper and our own expectations, judged by measured numbers. Pure.

use std::fmt;

use super::{
    arm::{Arm, MedianRange, mean_and_deviation},
    experiments::{
        Experiment, FIT, FORCED, IN_CORE, MIXED, MOST, NEAR, ONE_AT_A_TIME, OUT_OF_CORE, ROOMY, ROOMY_EXACT,
    },
    measure::TOGETHER,
    plot::short,
    results::Measured,
};

/// The paper's Table 2: policy, in core, out of core.
pub(super) const TABLE_2_CG: [(&str, f64, f64); 3] =
    [("cosched", 0.92, 1.3), ("gang", 1.02, 1.02), ("hybrid", 0.99, 0.99)];
pub(super) const TABLE_2_BT: [(&str, f64, f64); 3] =
    [("cosched", 0.9, 1.9), ("gang", 1.02, 1.07), ("hybrid", 0.9, 0.9)];

/// A claim: a number that should be on one side of a bound.
pub(super) struct Claim {
    pub(super) text: String,
    /// NaN where it was not measured, infinite where a run was too slow.
    pub(super) number: f64,
    side: Side,
    bound: f64,
    /// The measurements behind it.
    because: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Less,
    AtMost,
    AtLeast,
}
use Side::{AtLeast, AtMost};

impl Claim {
    fn new(
        text: impl Into<String>,
        number: f64,
        side: Side,
        bound: f64,
        because: impl Into<String>,
    ) -> Claim {
        Claim { text: text.into(), number, side, bound, because: because.into() }
    }

    /// `None` where it was not measured.
    pub(super) fn holds(&self) -> Option<bool> {
        let holds = match self.side {
            Side::Less => self.number < self.bound,
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
        let side = match self.side {
            Side::Less => "<",
            AtMost => "≤",
            AtLeast => "≥",
        };
        write!(
            f,
            "| {} | {number} | {side} {} | {verdict} | {} |",
            self.text,
            short(self.bound),
            self.because
        )
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
    ratio_of(measured, (group, one), (group, other))
}

/// The same across groups: (group, name).
fn ratio_of(measured: &Measured, one: (&str, &str), other: (&str, &str)) -> f64 {
    let of = |(group, name)| measured.arm(group, name).map_or(f64::NAN, Arm::makespan);
    let by = of(one) / of(other);
    if by == 0.0 { f64::NAN } else { by }
}

/// By how much less the turnarounds of one policy deviate from each other than those of another.
fn fairness(measured: &Measured, group: &str, policies: [&str; 2]) -> Claim {
    let spread = |name| measured.arm(group, name).and_then(|arm| arm.spread).unwrap_or(f64::NAN);
    let [one, other] = policies.map(spread);
    let [by, of] = policies;
    Claim::new(
        format!("{by} is fairer than {of}: deviation of the turnarounds by their mean, {by} by {of}"),
        one / other,
        Side::Less,
        1.0,
        format!("{by} {}, {of} {}", known(one), known(other)),
    )
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

/// Performance, as in the paper's Fig. 8: makespans against each other.
fn orders(measured: &Measured) -> Vec<Claim> {
    let exposed_of =
        |group, order| known(measured.arm(group, order).and_then(|arm| arm.exposed_s).unwrap_or(f64::NAN));
    let exposed = |group| exposed_of(group, "prefetch");
    let told = |one, other| {
        format!("{one} exposed {} s, {other} {} s", exposed_of(ROOMY, one), exposed_of(ROOMY, other))
    };
    let faster = |text, one, other| {
        Claim::new(text, ratio(measured, ROOMY, one, other), Side::Less, 1.0, told(one, other))
    };
    let swapping = |order, text| {
        let by = ratio_of(measured, (FORCED, order), (NEAR, "sequential"));
        Claim::new(text, by, AtLeast, 1.05, spent(measured, FORCED, order))
    };
    let fastest = ["sequential", "overlapped", "prefetch"]
        .map(|order| slowdown(measured, ROOMY, order))
        .into_iter()
        .fold(f64::NAN, f64::min);
    vec![
        faster("in core, makespan of overlapped by sequential", "overlapped", "sequential"),
        faster("in core, makespan of prefetch by overlapped", "prefetch", "overlapped"),
        Claim::new(
            "in core, gang that writes images at every switch, by one after the other (Table 2: 1.02), in \
             the fastest order",
            fastest,
            AtMost,
            like(1.02),
            "slots are of seconds here, of minutes in the paper",
        ),
        Claim::new(
            "in core, a greedy prefetch is better than an exact one: makespan of greedy by exact",
            ratio_of(measured, (ROOMY, "prefetch"), (ROOMY_EXACT, "prefetch")),
            Side::Less,
            1.0,
            format!("greedy exposed {} s, exact {} s", exposed(ROOMY), exposed(ROOMY_EXACT)),
        ),
        swapping("overlapped", "near out of core, sequential is best: makespan of overlapped by sequential"),
        swapping(
            "prefetch",
            "near out of core, prefetch suffers from a dramatic overhead: makespan of prefetch by sequential",
        ),
        Claim::new(
            "near out of core, asking for prefetch costs nothing unless swapping is asked for, too (not in \
             the paper): makespan of prefetch by sequential",
            ratio(measured, NEAR, "prefetch", "sequential"),
            AtMost,
            1.05,
            "a switch is sequential where memory does not hold both sets",
        ),
    ]
}

fn cosched(measured: &Measured) -> Vec<Claim> {
    let of = |n: u32| slowdown(measured, &format!("n = {n}"), "cosched");
    let unequal = |n: u32, text: &str, side, bound| {
        let arm = measured.arm(&format!("n = {n}"), "cosched");
        let faults = arm.map(Arm::faults_of_jobs).unwrap_or_default();
        let (mean, deviation) = mean_and_deviation(&faults);
        let because = format!("n = {n}: {} faults a minute by {}", known(deviation), known(mean));
        Claim::new(format!("{text}: deviation by mean"), deviation / mean, side, bound, because)
    };
    let worst = (FIT + 1..=MOST).map(of).fold(f64::NAN, f64::max);
    vec![
        Claim::new(
            "in core, n at once take less than n after the other (the paper: slightly): n = 3",
            of(FIT),
            Side::Less,
            1.0,
            spent(measured, "n = 3", "cosched"),
        ),
        Claim::new(
            "out of core they take far longer than one after the other (the paper's nine: 20 times as \
             long): the slowest number of jobs",
            worst,
            AtLeast,
            2.0,
            "each sweeps over all of its memory, so that what the next one needs is what was evicted",
        ),
        unequal(
            FIT + 1,
            "just out of core, some applications fault far more than others (Table 1: 475 by 704)",
            AtLeast,
            0.67,
        ),
        unequal(MOST, "far out of core, all fault alike (Table 1: 47 by 507)", AtMost, 0.093),
    ]
}

/// Bound for a number of the paper's runs in core: as good, but for five hundredths.
fn like(paper: f64) -> f64 {
    paper * 1.05
}

/// A row of the paper's Table 2, by its own measure: the makespan by the sum of the times alone. Out of core
/// co-scheduling is to be as slow as in the paper, and the others as fast; in core with some tolerance.
fn table_2(measured: &Measured, paper: &[(&str, f64, f64)]) -> Vec<Claim> {
    let cells = paper.iter().flat_map(|&(policy, inside, outside)| {
        [(policy, IN_CORE, "in core", inside), (policy, OUT_OF_CORE, "out of core", outside)]
    });
    cells
        .map(|(policy, group, place, number)| {
            let (side, bound) = match (policy, group) {
                ("cosched", OUT_OF_CORE) => (AtLeast, number),
                (_, OUT_OF_CORE) => (AtMost, number),
                _ => (AtMost, like(number)),
            };
            let text = format!("{place}, {policy} by one after the other (Table 2: {number})");
            // Table 2 has two decimals.
            let number = (slowdown(measured, group, policy) * 100.0).round() / 100.0;
            Claim::new(text, number, side, bound, spent(measured, group, policy))
        })
        .collect()
}

fn compute(measured: &Measured) -> Vec<Claim> {
    let mut claims = table_2(measured, &TABLE_2_BT);
    let [hybrid, gang, swapping] =
        ["hybrid", "gang", "cosched"].map(|name| spent(measured, OUT_OF_CORE, name));
    claims.push(Claim::new(
        "in core, hybrid is co-scheduling: makespans differ by, of 1",
        (ratio(measured, IN_CORE, "hybrid", "cosched") - 1.0).abs(),
        AtMost,
        0.1,
        "all jobs are one set",
    ));
    claims.push(Claim::new(
        "out of core, co-scheduling with swap by gang (the paper: 1.9 by 1.07)",
        ratio(measured, OUT_OF_CORE, "cosched", "gang"),
        AtLeast,
        1.0,
        swapping.clone(),
    ));
    claims.push(Claim::new(
        "out of core, hybrid by gang (the paper: 17 % better)",
        ratio(measured, OUT_OF_CORE, "hybrid", "gang"),
        AtMost,
        0.83,
        format!("{hybrid}; {gang}"),
    ));
    claims.push(Claim::new(
        "out of core, co-scheduling with swap by hybrid (the paper: 1.9 by 0.90)",
        ratio(measured, OUT_OF_CORE, "cosched", "hybrid"),
        AtLeast,
        1.0,
        swapping,
    ));
    claims.push(fairness(measured, OUT_OF_CORE, ["hybrid", "batch"]));
    claims.push(Claim::new(
        "exchanging a whole set at a time costs no more than one job of it, as the paper does (not in the \
         paper): makespan of sets by that of jobs",
        ratio_of(measured, (OUT_OF_CORE, "hybrid"), (ONE_AT_A_TIME, "hybrid")),
        AtMost,
        1.05,
        format!("{}; {}", hybrid, spent(measured, ONE_AT_A_TIME, "hybrid")),
    ));
    claims
}

fn communicate(measured: &Measured) -> Vec<Claim> {
    let mut claims = table_2(measured, &TABLE_2_CG);
    claims.push(Claim::new(
        "out of core, hybrid and gang are the same (the paper: 0.99 and 1.02): hybrid by gang",
        ratio(measured, OUT_OF_CORE, "hybrid", "gang"),
        AtMost,
        1.05,
        format!("{}; {}", spent(measured, OUT_OF_CORE, "hybrid"), spent(measured, OUT_OF_CORE, "gang")),
    ));
    claims
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
        fairness(measured, MIXED, ["paired", "batch"]),
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
    use super::{super::results::Group, *};

    /// Results in which every policy ends, the i-th in `10 (i + 1)` seconds, half of the time of all alone.
    fn measured(group: &str, arms: &[(&str, Option<&str>)]) -> Measured {
        let arm = |(at, (policy, order)): (usize, &(&str, Option<&str>))| Arm {
            policy: (*policy).into(),
            switching: order.map(Into::into),
            done: 1,
            makespan: MedianRange::of(&[10.0 * (at + 1) as f64]),
            relative_makespan: Some(0.5 * (at + 1) as f64),
            ..Arm::default()
        };
        let arms = arms.iter().enumerate().map(arm).collect();
        let group = Group { name: group.into(), arms, problem: None };
        Measured { groups: vec![group], ..Measured::default() }
    }

    #[test]
    fn jobs_that_communicate_are_judged_by_one_after_the_other_under_every_policy() {
        let all = [("hybrid", None), ("gang", None), ("cosched", None)];
        let claims = communicate(&measured(OUT_OF_CORE, &all));
        let verdict = |what: &str| {
            let claim = claims.iter().find(|claim| claim.text.starts_with(what)).unwrap();
            (claim.number, claim.holds())
        };
        assert_eq!(verdict("out of core, hybrid by one"), (0.5, Some(true)));
        assert_eq!(verdict("out of core, gang by one"), (1.0, Some(true)));
        assert_eq!(verdict("out of core, cosched by one"), (1.5, Some(true)));
        assert_eq!(verdict("in core, hybrid by one").1, None);
    }

    #[test]
    fn orders_are_judged_by_performance_and_a_tie_is_not_better() {
        let orders = [("gang", Some("prefetch")), ("gang", Some("overlapped")), ("gang", Some("sequential"))];
        let mut measured = measured(ROOMY, &orders);
        let verdicts =
            |measured: &Measured| super::orders(measured).iter().map(Claim::holds).collect::<Vec<_>>();
        assert_eq!(verdicts(&measured)[..3], [Some(true), Some(true), Some(true)]);
        measured.groups[0].arms[0].makespan = measured.groups[0].arms[1].makespan;
        assert_eq!(verdicts(&measured)[1], Some(false));
    }

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
