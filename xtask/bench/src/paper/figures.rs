//! Which picture shows what of a part. Pure.

use super::{
    arm::{Arm, Spread},
    claims,
    parts::{FIT, IN_CORE, OUT_OF_CORE, Part, TOO_MANY},
    plot::{self, Bar, Bars, Line, Lines},
    results::{Measured, Results},
};

/// The pictures of a part, with their file names.
pub(super) fn of(part: Part, measured: &Measured) -> Vec<(&'static str, String)> {
    match part {
        Part::Fig7 => {
            vec![("fig7-latency.svg", latency(measured)), ("fig7-bandwidth.svg", bandwidth(measured))]
        }
        Part::Fig8 => {
            vec![("fig8.svg", makespans(part, measured, |arm| arm.switching.clone().unwrap_or_default()))]
        }
        Part::Fig9 => vec![("fig9.svg", cosched(measured))],
        Part::Fig10a => vec![(
            "fig10a.svg",
            table(part, measured, &[("cosched", 0.92, 1.3), ("gang", 1.02, 1.02), ("hybrid", 0.99, 0.99)]),
        )],
        Part::Fig10b => vec![(
            "fig10b.svg",
            table(part, measured, &[("cosched", 0.9, 1.9), ("gang", 1.02, 1.07), ("hybrid", 0.9, 0.9)]),
        )],
        Part::Fig11 => vec![(
            "fig11.svg",
            makespans(part, measured, |arm| match arm.policy.as_str() {
                "hybrid" => "homogeneous (hybrid)".into(),
                policy => policy.into(),
            }),
        )],
        Part::Waiting => vec![("waiting.svg", waiting(measured))],
    }
}

fn curves(measured: &Measured, of: impl Fn(f64, Spread) -> Spread) -> Vec<Line> {
    let line = |curve: &super::results::Curve| Line {
        name: curve.name.clone(),
        points: curve
            .points
            .iter()
            .filter_map(|(x, values)| Some((*x, of(*x, Spread::of(values)?))))
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
    let rate = |bytes: f64, micros: Spread| Spread {
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
fn makespans(part: Part, measured: &Measured, name: impl Fn(&Arm) -> String) -> String {
    let bar = |arm: &Arm| Bar {
        name: name(arm),
        value: arm.makespan,
        more_than: too_slow(arm, measured),
        paper: None,
    };
    let groups =
        measured.groups.iter().map(|group| (group.name.clone(), group.arms.iter().map(bar).collect()));
    plot::bars(&Bars { title: part.title(), unit: "makespan, s", groups: groups.collect() })
}

/// Slowdowns as in Table 2; of the paper: in core and out of core.
fn table(part: Part, measured: &Measured, paper: &[(&str, f64, f64)]) -> String {
    // The sum of the times alone: by any arm that was done, or by those of the other group.
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
        title: part.title(),
        unit: "makespan ÷ sum of times alone",
        groups: vec![bars(IN_CORE, |(_, inside, _)| *inside), bars(OUT_OF_CORE, |(_, _, outside)| *outside)],
    })
}

#[allow(clippy::cast_precision_loss, reason = "up to six jobs")]
fn cosched(measured: &Measured) -> String {
    let alone = measured.arm("n = 1", "cosched").map_or(f64::NAN, Arm::makespan);
    let limit = |n: f64| Some(measured.limit_s / (n * alone)).filter(|slowdown| slowdown.is_finite());
    let (mut done, mut cut) = (Vec::new(), Vec::new());
    for (at, group) in measured.groups.iter().enumerate() {
        let n = (at + 1) as f64;
        let Some(arm) = group.arms.first() else { continue };
        match (arm.slowdown(), arm.is_too_slow().then(|| limit(n)).flatten()) {
            (Some(slowdown), _) => done.push((n, slowdown)),
            (None, Some(least)) => cut.push((n, Spread { median: least, min: least, max: least })),
            (None, None) => {}
        }
    }
    let paper = |n: f64, value: f64| (n, Spread { median: value, min: value, max: value });
    plot::lines(&Lines {
        title: Part::Fig9.title(),
        across: "n (three fit; the paper's: five, drawn where as much of memory is taken)",
        unit: "makespan ÷ (n · alone)",
        log_across: false,
        lines: vec![
            Line { name: "co-scheduled".into(), points: done, is_paper: false },
            Line { name: "at least: it was not waited for".into(), points: cut, is_paper: false },
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
        title: Part::Waiting.title(),
        unit: "three at once ÷ (3 · alone)",
        groups: vec![(
            "jobs that compute and communicate".into(),
            (0..measured.curves.len()).map(bar).collect(),
        )],
    })
}

/// The trade-off metric of all of them (paper 003, §5.1), its two terms apart.
pub(super) fn fairness(results: &Results) -> Option<String> {
    let parts = [(Part::Fig10a, "communicate"), (Part::Fig10b, "compute"), (Part::Fig11, "mixed")];
    let mut groups = Vec::new();
    for (part, jobs) in parts {
        let Some(measured) = results.parts.get(&part) else { continue };
        for group in &measured.groups {
            let bar = |arm: &Arm| Bar {
                name: arm.policy.clone(),
                value: arm.tradeoff.map(|sum| Spread { median: sum, min: sum, max: sum }),
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
