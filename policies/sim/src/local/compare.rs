//! Comparison of all node schedulers on one cluster with the same arrivals: those of Table 4.1, the other
//! modes of DTS, and those of the testbed. Degree, times and delay have 95 % intervals over seeds.

use std::time::Duration;

use coswitch_policies::{
    Bytes, Rate,
    local::{
        explicit::{Filling, LoadRule},
        flexible::{FlexibleRule, Thresholds},
    },
};
use serde::{Deserialize, Serialize};

use super::{
    LocalModel, Shape, ShapeError, UNIT,
    measures::units,
    models::Column,
    study::{RunFigures, StudyRun, run_all},
};
use crate::stats::SampleMean;

/// Figures of one scheduler. Times are in time units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    pub name: String,
    /// *SystemCoDe*, in 0..=1. Comparable between models only where they count alike: see the DYN lines.
    pub coscheduling: SampleMean,
    /// *Dret*.
    pub distributed_return: SampleMean,
    /// *Dwait*.
    pub distributed_wait: SampleMean,
    /// *Lret*.
    pub local_return: SampleMean,
    /// *Lwait*.
    pub local_wait: SampleMean,
    /// *SystemD* per task that ended.
    pub delay: SampleMean,
    /// Percentage of processor time spent spinning.
    pub spun: SampleMean,
}

impl Compared {
    /// Every number by its name.
    #[must_use]
    pub const fn figures(&self) -> [(&'static str, SampleMean); 7] {
        [
            ("SystemCoDe", self.coscheduling),
            ("Dret", self.distributed_return),
            ("Dwait", self.distributed_wait),
            ("Lret", self.local_return),
            ("Lwait", self.local_wait),
            ("SystemD_per_task", self.delay),
            ("spinning_percent", self.spun),
        ]
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contestant {
    /// The name on the command line.
    pub key: &'static str,
    pub name: &'static str,
    pub model: LocalModel,
}

/// The compared schedulers, with the parameters chosen here where the papers leave them open.
#[must_use]
pub fn contestants(shape: &Shape) -> Vec<Contestant> {
    let thesis = |column| LocalModel::of_thesis(column, shape, 0);
    let filling = Filling::Both;
    let load = LoadRule { sample_every: UNIT, ..LoadRule::over_a_minute() };
    let period = 200 * UNIT;
    let (slot, context_switch) = (5 * UNIT, UNIT / 20);
    let thresholds = Thresholds { rare: 2, long_wait: shape.service() / 10, high_ratio: 2.0 };
    let rule = FlexibleRule {
        slice: shape.slice,
        trial_slots: 1,
        forget_after: Some(8),
        thresholds,
        context_switch,
    };
    let mut dynamic = thesis(Column::Dyn);
    if let LocalModel::Dynamic { is_judged_by_sent, .. } = &mut dynamic {
        *is_judged_by_sent = true;
    }
    let all = [
        ("lin", "LIN", thesis(Column::Lin)),
        ("imp", "IMP, spin mst/10", thesis(Column::Imp)),
        ("ics", "ICS: IMP, woken first", LocalModel::Implicit { spin: shape.service() / 10, first: true }),
        ("exp", "EXP static", thesis(Column::Exp)),
        ("exp-balanced", "EXP balanced", LocalModel::ExplicitBalanced { period, rule: load, filling }),
        (
            "exp-distributed",
            "EXP distributed",
            LocalModel::ExplicitDistributed { period, rule: load, filling },
        ),
        ("hpdt", "HPDT", thesis(Column::Hpdt)),
        ("dyn", "DYN", thesis(Column::Dyn)),
        ("dyn-as-pre", "DYN, counted as PRE", dynamic),
        ("pre", "PRE", thesis(Column::Pre)),
        ("dcs", "DCS", LocalModel::Demand { share: shape.slice / 4 }),
        ("fcs", "FCS, slots of 5", LocalModel::Flexible { rule, slot }),
        (
            "bcs",
            "BCS, slots of 1",
            LocalModel::Buffered { slot: UNIT, message: Bytes(1000), rate: Rate(1_000_000_000) },
        ),
    ];
    all.map(|(key, name, model)| Contestant { key, name, model }).into()
}

/// Runs all [`contestants`] on `shape` with each seed.
///
/// # Errors
/// Where the shape cannot be simulated.
pub fn compare(shape: &Shape, seeds: &[u64], threads: usize) -> Result<Vec<Compared>, ShapeError> {
    shape.check()?;
    let contestants = contestants(shape);
    let run = |model: LocalModel, seed: u64| StudyRun { shape: shape.clone(), model, seed };
    let runs: Vec<_> =
        contestants.iter().flat_map(|one| seeds.iter().map(|seed| run(one.model, *seed))).collect();
    let figures = run_all(&runs, threads)?;
    let of_each = figures.chunks(seeds.len().max(1));
    Ok(contestants.iter().zip(of_each).map(|(one, figures)| compared(one.name, figures)).collect())
}

fn compared(name: &str, figures: &[RunFigures]) -> Compared {
    let over =
        |number: fn(&RunFigures) -> f64| SampleMean::of(&figures.iter().map(number).collect::<Vec<_>>());
    Compared {
        name: name.into(),
        coscheduling: over(|figures| figures.coscheduling),
        distributed_return: over(|figures| units(figures.distributed.returned)),
        distributed_wait: over(|figures| units(figures.distributed.waited)),
        local_return: over(|figures| units(figures.local.returned)),
        local_wait: over(|figures| units(figures.local.waited)),
        delay: over(|figures| units(Duration::from_secs_f64(figures.delay_per_task))),
        spun: over(|figures| 100.0 * figures.spun),
    }
}
