//! Table 4.1 of the thesis: the effect of each parameter on the coscheduling degree of the system.
//!
//! All combinations of the levels run under every model with the same seeds. The *effect* of a parameter is
//! the mean, over the levels of the others, of the degree at its highest level minus that at its lowest;
//! except for LIN, degrees are differences to LIN in the same run. Each seed gives one effect; their mean and
//! 95 % interval (Student) give the class ([`Trend`]).

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use super::{
    Crowding, LocalModel, Shape, ShapeError, Trend,
    models::Column,
    study::{RunFigures, StudyRun, run_all},
};
use crate::stats::SampleMean;

/// The rows of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Parameter {
    /// *NSTATIONS* 4, 8, 16.
    Stations,
    /// *MRQL* 2, 5.
    QueueLength,
    /// *maxm* 1, 3, 5.
    Applications,
    /// *pdt* 0.2, 0.5, 0.8.
    Distributed,
    /// *MCO* from *MRQL* - 2 to *MRQL* + 2, on 4 nodes.
    Overtakes,
}

impl Parameter {
    /// In the order of the table.
    pub const ALL: [Self; 5] =
        [Self::Stations, Self::QueueLength, Self::Applications, Self::Distributed, Self::Overtakes];

    /// The printed classes of Table 4.1, by column; none where it has a dash.
    #[must_use]
    pub const fn of_thesis(self) -> [Option<Trend>; 6] {
        use Trend::{
            Constant as C, Decreases as D, Increases as I, ScarcelyDecreases as SD, ScarcelyIncreases as SI,
        };
        match self {
            Self::Stations => [Some(C), Some(C), Some(C), Some(C), Some(C), Some(C)],
            Self::QueueLength => [Some(D), Some(C), Some(SI), Some(I), Some(I), Some(I)],
            Self::Applications => [Some(C), Some(C), Some(C), Some(SI), Some(SI), Some(SI)],
            Self::Distributed => [Some(SI), Some(SI), Some(SD), Some(D), Some(D), Some(D)],
            Self::Overtakes => [None, None, None, None, Some(I), Some(I)],
        }
    }

    fn level(self, point: &Point) -> i32 {
        let scaled = |value: f64| (value * 10.0).round() as i32;
        match self {
            Self::Stations => i32::try_from(point.stations).unwrap_or(i32::MAX),
            Self::QueueLength => scaled(point.queue_length),
            Self::Applications => i32::try_from(point.applications).unwrap_or(i32::MAX),
            Self::Distributed => scaled(point.distributed),
            Self::Overtakes => point.mco_offset,
        }
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Stations => "NSTATIONS",
            Self::QueueLength => "MRQL",
            Self::Applications => "maxm",
            Self::Distributed => "pdt",
            Self::Overtakes => "MCO",
        })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct TableOptions {
    /// The values that are not varied: served tasks, crowding, grain, slice.
    pub shape: Shape,
    pub seeds: Vec<u64>,
    /// The table does not depend on it.
    pub threads: usize,
}

/// The effect of a parameter on a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Highest level minus lowest.
    pub effect: SampleMean,
    /// The degree, or the difference to LIN, at each level, lowest first.
    pub levels: Vec<SampleMean>,
    pub trend: Trend,
}

/// A row of the table; none where the model does not have the parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub parameter: Parameter,
    /// By column.
    pub cells: [Option<Cell>; 6],
}

/// Table 4.1 as measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    pub crowding: Crowding,
    /// Repetitions.
    pub seeds: usize,
    pub runs: usize,
    /// In the order of the thesis.
    pub rows: Vec<Row>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    stations: u32,
    queue_length: f64,
    applications: u32,
    distributed: f64,
    mco_offset: i32,
}

/// A run of the table with its levels, column and seed.
struct Placed {
    point: Point,
    column: Column,
    repetition: usize,
    run: StudyRun,
}

/// Runs all combinations and computes the table.
///
/// # Errors
/// Where the shape in the options cannot be simulated.
pub fn table_4_1(options: &TableOptions) -> Result<Table, ShapeError> {
    let placed = plan_runs(options);
    let runs: Vec<_> = placed.iter().map(|placed| placed.run.clone()).collect();
    let figures = run_all(&runs, options.threads)?;
    let study = Study { placed, figures, repetitions: options.seeds.len() };
    let rows = Parameter::ALL
        .map(|parameter| Row { parameter, cells: Column::ALL.map(|column| study.cell(parameter, column)) });
    Ok(Table {
        crowding: options.shape.crowding,
        seeds: options.seeds.len(),
        runs: runs.len(),
        rows: rows.into(),
    })
}

fn points() -> Vec<Point> {
    let mut points = Vec::new();
    for stations in [4, 8, 16] {
        for queue_length in [2.0, 5.0] {
            for applications in [1, 3, 5] {
                for distributed in [0.2, 0.5, 0.8] {
                    points.push(Point { stations, queue_length, applications, distributed, mco_offset: 0 });
                }
            }
        }
    }
    points
}

fn plan_runs(options: &TableOptions) -> Vec<Placed> {
    let mut placed = Vec::new();
    for (repetition, seed) in options.seeds.iter().enumerate() {
        let mut place = |point: Point, column| {
            let shape = Shape {
                stations: point.stations,
                queue_length: point.queue_length,
                applications: point.applications,
                distributed: point.distributed,
                ..options.shape.clone()
            };
            let model = LocalModel::of_thesis(column, &shape, point.mco_offset);
            placed.push(Placed { point, column, repetition, run: StudyRun { shape, model, seed: *seed } });
        };
        for point in points() {
            for column in Column::ALL {
                place(point, column);
            }
        }
        for point in points().into_iter().filter(|point| point.stations == 4) {
            for mco_offset in [-2, -1, 1, 2] {
                for column in [Column::Dyn, Column::Pre] {
                    place(Point { mco_offset, ..point }, column);
                }
            }
        }
    }
    placed
}

struct Study {
    placed: Vec<Placed>,
    figures: Vec<RunFigures>,
    repetitions: usize,
}

impl Study {
    fn cell(&self, parameter: Parameter, column: Column) -> Option<Cell> {
        parameter.of_thesis()[column as usize]?;
        // The effect of MCO compares a model with itself, because LIN has no MCO.
        let minus_lin = column != Column::Lin && parameter != Parameter::Overtakes;
        let per_seed: Vec<Vec<f64>> = (0..self.repetitions)
            .map(|repetition| self.levels(parameter, column, repetition, minus_lin))
            .collect();
        let count = per_seed.first()?.len();
        let levels = (0..count)
            .map(|level| SampleMean::of(&per_seed.iter().map(|levels| levels[level]).collect::<Vec<_>>()));
        let effects: Vec<_> = per_seed.iter().map(|levels| levels[count - 1] - levels[0]).collect();
        let effect = SampleMean::of(&effects);
        Some(Cell { effect, levels: levels.collect(), trend: Trend::of(effect) })
    }

    /// The mean degree at each level of the parameter in one repetition.
    fn levels(&self, parameter: Parameter, column: Column, repetition: usize, minus_lin: bool) -> Vec<f64> {
        let mut levels = BTreeMap::<i32, (f64, f64)>::new();
        let of_repetition = self.placed.iter().zip(&self.figures).filter(|(placed, _)| {
            placed.repetition == repetition
                && (parameter == Parameter::Overtakes && placed.point.stations == 4
                    || placed.point.mco_offset == 0)
        });
        for (placed, figures) in of_repetition {
            let sign = match placed.column {
                own if own == column => 1.0,
                Column::Lin if minus_lin => -1.0,
                _ => continue,
            };
            let (sum, count) = levels.entry(parameter.level(&placed.point)).or_default();
            *sum += sign * figures.coscheduling;
            *count += if sign > 0.0 { 1.0 } else { 0.0 };
        }
        levels.into_values().map(|(sum, count)| sum / count).collect()
    }
}
