//! The effects of parameters on the coscheduling degree of the system (paper 001, Table 4.1), one parameter
//! at a time around a centre.
//!
//! | parameter | here |
//! | --- | --- |
//! | *NSTATIONS* | nodes |
//! | *MRQL* | tasks of a node that want its processor, local ones included |
//! | *maxm* | jobs that the ranks of a node belong to |
//! | *pdt* | the part of its tasks that are ranks |
//! | *MCO* | `overtakes_max` |
//!
//! An effect is the degree at the highest level minus that at the lowest one, and except for LIN and *MCO*
//! that of the differences to LIN, as the thesis has it and the simulation of the whole table.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use coswitch_policies::local::{Account, Technique};
use coswitch_sim::{
    local::{
        Trend,
        mix::{MixJob, Pattern},
        table_4_1::Parameter,
    },
    stats::SampleMean,
};

use super::Load;
use crate::{figure::Figure, stage::apart};

const SPAN: Duration = Duration::from_secs(2);
const SIMULATED_SPAN: Duration = Duration::from_secs(10);
const SIMULATED_SEEDS: u64 = 5;
/// A slice of computing, more or less, between two messages.
const RANKS: MixJob = MixJob {
    grain: Duration::from_millis(10),
    imbalance: 0.8,
    pattern: Pattern::Neighbour,
    steps: MixJob::ENDLESS,
    on_each: 1,
};

/// A load, and the parameter of two techniques.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    nodes: u32,
    /// Of each node.
    tasks: u32,
    /// Of these.
    ranks: u32,
    jobs: u32,
    overtakes: u32,
}

const CENTRE: Point = Point { nodes: 2, tasks: 4, ranks: 2, jobs: 1, overtakes: 2 };

/// The levels of each parameter, the lowest one first.
const ROWS: [(Parameter, &[Point]); 5] = [
    (Parameter::Stations, &[CENTRE, Point { nodes: 4, ..CENTRE }]),
    (Parameter::QueueLength, &[Point { tasks: 2, ranks: 1, ..CENTRE }, CENTRE]),
    (Parameter::Applications, &[CENTRE, Point { jobs: 2, ..CENTRE }]),
    (Parameter::Distributed, &[Point { ranks: 1, ..CENTRE }, CENTRE, Point { ranks: 3, ..CENTRE }]),
    (Parameter::Overtakes, &[Point { overtakes: 1, ..CENTRE }, CENTRE, Point { overtakes: 5, ..CENTRE }]),
];

/// Those of the thesis, in the order of its columns. Its IMP wakes no task before others.
const COLUMNS: [(&str, Technique); 6] = [
    ("LIN (round-robin)", Technique::ROUND_ROBIN),
    ("IMP (ics, in turn)", not_woken_first(Technique::ICS)),
    ("EXP (dts-static)", Technique::DTS_STATIC),
    ("HPDT", Technique::HPDT),
    ("DYN", Technique::DYNAMIC),
    ("PRE", Technique::PREDICTIVE),
];
const LIN: usize = 0;

const fn not_woken_first(technique: Technique) -> Technique {
    match technique {
        Technique::Ics { slice, spin, switches, .. } => {
            Technique::Ics { slice, spin, switches, is_woken_first: false }
        }
        other => other,
    }
}

/// The degree in each repetition, by point and column.
type Degrees = BTreeMap<(Point, usize), Vec<f64>>;

pub(super) fn measure(rounds: u32) -> Result<Vec<Figure>> {
    let places = places();
    let mut live = Degrees::new();
    for round in 0..rounds as usize {
        for at in (0..places.len()).map(|at| (at + round * places.len() / 2) % places.len()) {
            let (point, column) = places[at];
            let name = COLUMNS[column].0;
            let used = apart(|| point.load().live(point.technique(column), SPAN));
            let used = used.with_context(|| format!("failed to run {name} at {point:?}"))?;
            let degree = system_degree(used.iter().map(|used| used.account));
            let degree =
                degree.with_context(|| format!("no rank under {name} at {point:?} had a message"))?;
            eprintln!("  {name} at {point:?}: CoDe {degree:.3}");
            live.entry((point, column)).or_default().push(degree);
        }
    }
    let mut simulated = Degrees::new();
    for (point, column) in places {
        for seed in 1..=SIMULATED_SEEDS {
            let used = point.load().simulated(point.technique(column), SIMULATED_SPAN, seed);
            let degree = system_degree(used.iter().map(|used| used.account)).unwrap_or_default();
            simulated.entry((point, column)).or_default().push(degree);
        }
    }
    Ok(figures(&live, &simulated))
}

/// All points with the columns that run there, each once.
fn places() -> Vec<(Point, usize)> {
    let cells = ROWS.iter().flat_map(|(parameter, points)| {
        let columns = (0..COLUMNS.len()).filter(|column| parameter.of_thesis()[*column].is_some());
        columns.flat_map(|column| points.iter().map(move |point| (*point, column)))
    });
    let mut places: Vec<_> = cells.collect();
    places.sort_unstable();
    places.dedup();
    places
}

impl Point {
    fn load(self) -> Load {
        let on_each = |job| self.ranks / self.jobs + u32::from(job < self.ranks % self.jobs);
        let jobs = (0..self.jobs).map(|job| MixJob { on_each: on_each(job), ..RANKS }).collect();
        Load { nodes: self.nodes, jobs, hogs: self.tasks - self.ranks }
    }

    fn technique(self, column: usize) -> Technique {
        let mut technique = COLUMNS[column].1;
        if let Technique::Dynamic { overtakes_max, .. } | Technique::Predictive { overtakes_max, .. } =
            &mut technique
        {
            *overtakes_max = self.overtakes;
        }
        technique
    }
}

/// *SystemCoDe*: of all ranks on all nodes.
fn system_degree(accounts: impl Iterator<Item = Account>) -> Option<f64> {
    accounts.sum::<Account>().degrees().map(|degrees| degrees.coscheduling)
}

fn figures(live: &Degrees, simulated: &Degrees) -> Vec<Figure> {
    let mut figures = Vec::new();
    // The same class, another strength, another direction.
    let mut agreement = [[0_u32; 3]; 2];
    for (parameter, points) in ROWS {
        for (column, (name, _)) in COLUMNS.iter().enumerate() {
            let Some(thesis) = parameter.of_thesis()[column] else { continue };
            let [seen, model] = [live, simulated].map(|degrees| effect(degrees, parameter, points, column));
            for (counts, effect) in agreement.iter_mut().zip([seen, model]) {
                let trend = trend(effect);
                let at = if trend == thesis { 0 } else { 1 + usize::from(trend.is_other_way(thesis)) };
                counts[at] += 1;
            }
            let levels = |degrees: &Degrees, of: fn(f64) -> f64| {
                let level =
                    |point: &Point| format!("{:.2}", of(SampleMean::of(&degrees[&(*point, column)]).mean));
                points.iter().map(level).collect::<Vec<_>>().join(" ")
            };
            let detail = format!(
                "{} (thesis {thesis}) {}; CoDe {}, ThDe {}; simulated {} {}, CoDe {}",
                trend(seen),
                written(seen),
                levels(live, |degree| degree),
                levels(live, |degree| 1.0 - degree),
                trend(model),
                written(model),
                levels(simulated, |degree| degree),
            );
            let name = format!("{parameter}, {name}: effect on SystemCoDe");
            figures.push(Figure::plain(name, seen.mean, "").of(detail));
        }
    }
    for (where_, [same, strength, direction]) in ["live", "simulated"].into_iter().zip(agreement) {
        let name = format!("Table 4.1, {where_}: effects of the class of the thesis");
        let detail = format!("{strength} differ in strength only, {direction} in direction");
        figures.push(Figure::plain(name, f64::from(same), "").of(detail));
    }
    figures
}

/// Highest level minus lowest one, with its interval over repetitions.
fn effect(degrees: &Degrees, parameter: Parameter, points: &[Point], column: usize) -> SampleMean {
    let by_lin = column != LIN && parameter != Parameter::Overtakes;
    let at = |point: Point, repetition: usize| {
        let lin = if by_lin { degrees[&(point, LIN)][repetition] } else { 0.0 };
        degrees[&(point, column)][repetition] - lin
    };
    let (lowest, highest) = (points[0], points[points.len() - 1]);
    let repetitions = 0..degrees[&(lowest, column)].len();
    let effects: Vec<f64> = repetitions.map(|of| at(highest, of) - at(lowest, of)).collect();
    SampleMean::of(&effects)
}

/// By the size alone where there is no interval.
fn trend(effect: SampleMean) -> Trend {
    Trend::of(SampleMean { half_width: effect.half_width.or(Some(0.0)), ..effect })
}

fn written(effect: SampleMean) -> String {
    let interval = effect.half_width.map_or(String::new(), |half| format!(" ± {half:.3}"));
    format!("{:+.3}{interval}", effect.mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_has_its_tasks_of_which_some_are_ranks_of_so_many_jobs() {
        for (point, column) in places() {
            let load = point.load();
            let ranks: u32 = load.jobs.iter().map(|job| job.on_each).sum();
            assert_eq!((ranks, ranks + load.hogs), (point.ranks, point.tasks), "{point:?}");
            assert_eq!(load.jobs.len() as u32, point.jobs);
            let overtakes = match point.technique(column) {
                Technique::Dynamic { overtakes_max, .. } | Technique::Predictive { overtakes_max, .. } => {
                    overtakes_max
                }
                _ => CENTRE.overtakes,
            };
            assert_eq!(overtakes, point.overtakes, "{point:?}");
        }
    }

    #[test]
    fn an_effect_is_that_on_the_difference_to_lin() {
        let (low, high) = (CENTRE, Point { nodes: 4, ..CENTRE });
        let mut degrees = Degrees::new();
        for (column, [at_low, at_high]) in [(LIN, [0.2, 0.3]), (3, [0.6, 0.9])] {
            degrees.insert((low, column), vec![at_low; 2]);
            degrees.insert((high, column), vec![at_high, at_high]);
        }
        let of = |column| effect(&degrees, Parameter::Stations, &[low, high], column).mean;
        assert!((of(LIN) - 0.1).abs() < 1e-9 && (of(3) - 0.2).abs() < 1e-9);
        let alone = effect(&degrees, Parameter::Overtakes, &[low, high], 3).mean;
        assert!((alone - 0.3).abs() < 1e-9);
    }

    #[test]
    fn one_round_is_classed_by_size_and_has_no_interval() {
        let one = SampleMean::of(&[0.05]);
        assert_eq!((trend(one), written(one).as_str()), (Trend::ScarcelyIncreases, "+0.050"));
        assert_eq!(trend(SampleMean::of(&[0.05, -0.05])), Trend::Constant);
    }
}
