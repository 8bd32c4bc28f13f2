//! All node schedulers on one cluster with the same arrivals: those of Table 4.1, the other modes of DTS, and those of
//! the testbed. Degree, times and delay, each with its 95 % interval over seeds.

use std::time::Duration;

use coswitch_policies::local::{
    explicit::{Filling, LoadRule},
    flexible::{FlexibleRule, Thresholds},
};
use coswitch_policies::{Bytes, Rate};
use serde::{Deserialize, Serialize};

use super::{
    LocalModel, Shape, ShapeError, UNIT,
    models::Column,
    study::{Outcome, Run, make_all},
};
use crate::stats::Estimate;

/// One scheduler on the cluster. Times are in time units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// The scheduler.
    pub name: String,
    /// *SystemCoDe*, in 0..=1. Between models it compares only where they count the same: see the DYN lines.
    pub coscheduling: Estimate,
    /// *Dret*.
    pub distributed_return: Estimate,
    /// *Dwait*.
    pub distributed_wait: Estimate,
    /// *Lret*.
    pub local_return: Estimate,
    /// *SystemD* per task that ended.
    pub delay: Estimate,
    /// Percentage of processor time spent spinning.
    pub spun: Estimate,
}

/// The schedulers that are compared, with the numbers chosen here where the papers leave them open.
#[must_use]
pub fn contestants(shape: &Shape) -> Vec<(&'static str, LocalModel)> {
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
    vec![
        ("LIN", thesis(Column::Lin)),
        ("IMP, spin mst/10", thesis(Column::Imp)),
        ("ICS: IMP, woken first", LocalModel::Implicit { spin: shape.service() / 10, first: true }),
        ("EXP static", thesis(Column::Exp)),
        ("EXP balanced", LocalModel::ExplicitBalanced { period, rule: load, filling }),
        ("EXP distributed", LocalModel::ExplicitDistributed { period, rule: load, filling }),
        ("HPDT", thesis(Column::Hpdt)),
        ("DYN", thesis(Column::Dyn)),
        ("DYN, counted as PRE", dynamic),
        ("PRE", thesis(Column::Pre)),
        ("DCS", LocalModel::Demand { share: shape.slice / 4 }),
        ("FCS, slots of 5", LocalModel::Flexible { rule, slot }),
        (
            "BCS, slots of 1",
            LocalModel::Buffered { slot: UNIT, message: Bytes(1000), rate: Rate(1_000_000_000) },
        ),
    ]
}

/// Runs all [`contestants`] on `shape` with each seed.
///
/// # Errors
/// Where the shape cannot be simulated.
pub fn compare(shape: &Shape, seeds: &[u64], threads: usize) -> Result<Vec<Compared>, ShapeError> {
    shape.check()?;
    let contestants = contestants(shape);
    let run = |model: LocalModel, seed: u64| Run { shape: shape.clone(), model, seed };
    let runs: Vec<_> =
        contestants.iter().flat_map(|(_, model)| seeds.iter().map(|seed| run(*model, *seed))).collect();
    let outcomes = make_all(&runs, threads)?;
    let of_each = outcomes.chunks(seeds.len().max(1));
    Ok(contestants.iter().zip(of_each).map(|((name, _), outcomes)| compared(name, outcomes)).collect())
}

fn compared(name: &str, outcomes: &[Outcome]) -> Compared {
    let over = |number: fn(&Outcome) -> f64| Estimate::of(&outcomes.iter().map(number).collect::<Vec<_>>());
    Compared {
        name: name.into(),
        coscheduling: over(|outcome| outcome.coscheduling),
        distributed_return: over(|outcome| units(outcome.distributed.returned)),
        distributed_wait: over(|outcome| units(outcome.distributed.waited)),
        local_return: over(|outcome| units(outcome.local.returned)),
        delay: over(|outcome| units(Duration::from_secs_f64(outcome.delay_per_task))),
        spun: over(|outcome| 100.0 * outcome.spun),
    }
}

fn units(span: Duration) -> f64 {
    span.as_secs_f64() / UNIT.as_secs_f64()
}
