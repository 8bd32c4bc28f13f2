//! The pictures of each experiment. Pure.

use super::{
    arm::{Arm, MedianRange},
    claims,
    experiments::{Experiment, FIT, IN_CORE, OUT_OF_CORE, TOO_MANY},
    plot::{self, Bar, Bars, Line, Lines},
    results::{Measured, Results},
};

/// The pictures of an experiment, with their file names.
pub(super) fn of(experiment: Experiment, measured: &Measured) -> Vec<(&'static str, String)> {
    match experiment {
        Experiment::Fig7 => {
            vec![("fig7-latency.svg", latency(measured)), ("fig7-bandwidth.svg", bandwidth(measured))]
        }
        Experiment::Fig8 => {
            vec![(
                "fig8.svg",
                makespans(experiment, measured, |arm| arm.switching.clone().unwrap_or_default()),
            )]
        }
        Experiment::Fig9 => vec![("fig9.svg", cosched(measured))],
        Experiment::Fig10a => vec![("fig10a.svg", table(experiment, measured, &claims::TABLE_2_CG))],
        Experiment::Fig10b => vec![("fig10b.svg", table(experiment, measured, &claims::TABLE_2_BT))],
        Experiment::Fig11 => vec![(
            "fig11.svg",
            makespans(experiment, measured, |arm| match arm.policy.as_str() {
                "hybrid" => "homogeneous (hybrid)".into(),
                policy => policy.into(),
            }),
        )],
        Experiment::Waiting => vec![("waiting.svg", waiting(measured))],
    }
}

fn curves(measured: &Measured, of: impl Fn(f64, MedianRange) -> MedianRange) -> Vec<Line> {
    let line = |curve: &super::results::Curve| Line {
        name: curve.name.clone(),
        points: curve
            .points
            .iter()
            .filter_map(|(x, values)| Some((*x, of(*x, MedianRange::of(values)?))))
            .collect(),
        is_paper: false,
    };
    measured.curves.iter().map(line).collect()
}

fn latency(measured: &Measured) -> String {
    plot::lines(&Lines {
        title: "Fig. 7: one-way time between two nodes",
        across: "size of a message",
        unit: "µs, half a round trip",
        log_across: true,
        lines: curves(measured, |_, micros| micros),
    })
}

fn bandwidth(measured: &Measured) -> String {
    let rate = |bytes: f64, micros: MedianRange| MedianRange {
        median: bytes / micros.median,
        min: bytes / micros.max,
        max: bytes / micros.min,
    };
    plot::lines(&Lines {
        title: "Fig. 7: bandwidth between two nodes",
        across: "size of a message",
        unit: "MB/s",
        log_across: true,
        lines: curves(measured, rate),
    })
}

fn too_slow(arm: &Arm, measured: &Measured) -> Option<f64> {
    arm.is_too_slow().then_some(measured.limit_s)
}

/// Makespans in seconds, group by group.
fn makespans(experiment: Experiment, measured: &Measured, name: impl Fn(&Arm) -> String) -> String {
    let bar = |arm: &Arm| Bar {
        name: name(arm),
        value: arm.makespan,
        more_than: too_slow(arm, measured),
        paper: None,
    };
    let groups =
        measured.groups.iter().map(|group| (group.name.clone(), group.arms.iter().map(bar).collect()));
    plot::bars(&Bars { title: experiment.title(), unit: "makespan, s", groups: groups.collect() })
}

/// Slowdowns as in Table 2; `paper`: policy, in core, out of core.
fn table(experiment: Experiment, measured: &Measured, paper: &[(&str, f64, f64)]) -> String {
    // The sum of the times alone, from any arm that ended, or from the other group.
    let sum_alone = |group: &str| {
        let sum = |arm: &Arm| Some(arm.makespan?.median / arm.relative_makespan?);
        measured.arms(group).iter().find_map(sum)
    };
    let alone = |group: &str| {
        let of_others = || Some(sum_alone(IN_CORE)? * f64::from(TOO_MANY) / f64::from(FIT));
        sum_alone(group).or_else(of_others)
    };
    let bars = |group: &'static str, of_paper: fn(&(&str, f64, f64)) -> f64| {
        let bar = |arm: &Arm| Bar {
            name: arm.policy.clone(),
            value: arm.slowdown(),
            more_than: too_slow(arm, measured).zip(alone(group)).map(|(limit, alone)| limit / alone),
            paper: paper.iter().find(|(policy, ..)| *policy == arm.policy).map(of_paper),
        };
        (group.to_owned(), measured.arms(group).iter().map(bar).collect())
    };
    plot::bars(&Bars {
        title: experiment.title(),
        unit: "makespan ÷ sum of times alone",
        groups: vec![bars(IN_CORE, |(_, inside, _)| *inside), bars(OUT_OF_CORE, |(_, _, outside)| *outside)],
    })
}

fn cosched(measured: &Measured) -> String {
    let alone = measured.arm("n = 1", "cosched").map_or(f64::NAN, Arm::makespan);
    let limit = |n: f64| Some(measured.limit_s / (n * alone)).filter(|slowdown| slowdown.is_finite());
    let (mut done, mut cut) = (Vec::new(), Vec::new());
    for (at, group) in measured.groups.iter().enumerate() {
        let n = (at + 1) as f64;
        let Some(arm) = group.arms.first() else { continue };
        match (arm.slowdown(), arm.is_too_slow().then(|| limit(n)).flatten()) {
            (Some(slowdown), _) => done.push((n, slowdown)),
            (None, Some(least)) => cut.push((n, MedianRange { median: least, min: least, max: least })),
            (None, None) => {}
        }
    }
    let paper = |n: f64, value: f64| (n, MedianRange { median: value, min: value, max: value });
    plot::lines(&Lines {
        title: Experiment::Fig9.title(),
        across: "n (three fit; of the paper's five do, drawn at the same share of memory)",
        unit: "makespan ÷ (n · alone)",
        log_across: false,
        lines: vec![
            Line { name: "co-scheduled".into(), points: done, is_paper: false },
            Line { name: "at least: the run was ended".into(), points: cut, is_paper: false },
            Line {
                name: "the paper's (n = 5 and 9)".into(),
                points: vec![paper(3.0, 0.9), paper(5.4, 20.0)],
                is_paper: true,
            },
        ],
    })
}

fn waiting(measured: &Measured) -> String {
    let bar = |at: usize| Bar {
        name: measured.curves[at].name.clone(),
        value: claims::together(measured, at),
        more_than: None,
        paper: None,
    };
    plot::bars(&Bars {
        title: Experiment::Waiting.title(),
        unit: "three at once ÷ (3 · alone)",
        groups: vec![(
            "jobs that compute and communicate".into(),
            (0..measured.curves.len()).map(bar).collect(),
        )],
    })
}

/// The trade-off metric of all experiments (paper 003, §5.1).
pub(super) fn fairness(results: &Results) -> Option<String> {
    let jobs_of =
        [(Experiment::Fig10a, "communicate"), (Experiment::Fig10b, "compute"), (Experiment::Fig11, "mixed")];
    let mut groups = Vec::new();
    for (experiment, jobs) in jobs_of {
        let Some(measured) = results.experiments.get(&experiment) else { continue };
        for group in &measured.groups {
            let bar = |arm: &Arm| Bar {
                name: arm.policy.clone(),
                value: arm.tradeoff.map(|sum| MedianRange { median: sum, min: sum, max: sum }),
                more_than: None,
                paper: None,
            };
            let name = group.name.split(',').next().unwrap_or_default();
            groups.push((format!("{jobs}, {name}"), group.arms.iter().map(bar).collect()));
        }
    }
    let title = "Trade-off metric: relative makespan + deviation ÷ mean of turnarounds; less is better";
    (!groups.is_empty()).then(|| plot::bars(&Bars { title, unit: "sum of both terms", groups }))
}
