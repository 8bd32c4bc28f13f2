//! Node schedulers by name, with their parameters.

use std::{fmt, num::NonZeroUsize, time::Duration};

use coswitch_policies::{
    Bytes, NodeId, Rate,
    local::{
        LocalScheduler, Model, NodeScheduler,
        buffered::Buffered,
        demand::Demand,
        dynamic::Dynamic,
        explicit::{Console, Explicit, Filling, LoadRule, PowerWeight, Slices},
        flexible::{Flexible, FlexibleRule},
        high_priority::HighPriority,
        implicit::Implicit,
        linux::Linux,
        predictive::Predictive,
    },
};
use serde::{Deserialize, Serialize};

use super::{Shape, UNIT};

/// A model to simulate. Its times are absolute, so build it from the shape it runs on
/// ([`LocalModel::of_thesis`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LocalModel {
    Linux,
    /// IMP or, with `first`, ICS of the testbed.
    Implicit {
        /// How long a task spins.
        spin: Duration,
        /// Whether a woken task runs at once.
        first: bool,
    },
    /// EXP, static mode, synchronised at the beginning.
    Explicit {
        /// *PS* and *LS*.
        slices: Slices,
        /// Which tasks may use a slice of the other kind.
        filling: Filling,
    },
    /// EXP, balanced mode: one console for all nodes, which are equally fast.
    ExplicitBalanced {
        /// *IP*.
        period: Duration,
        rule: LoadRule,
        /// Which tasks may use a slice of the other kind.
        filling: Filling,
    },
    /// EXP, distributed mode.
    ExplicitDistributed {
        /// *IP*.
        period: Duration,
        rule: LoadRule,
        /// Which tasks may use a slice of the other kind.
        filling: Filling,
    },
    HighPriority,
    Dynamic {
        /// *MCO*.
        overtakes_max: u32,
        /// *P*.
        past_weight: f64,
        is_judged_by_sent: bool,
    },
    Predictive {
        /// *MCO*.
        overtakes_max: u32,
        /// *P*.
        past_weight: f64,
    },
    Demand {
        share: Duration,
    },
    /// FCS under a master that sends strobes.
    Flexible {
        rule: FlexibleRule,
        /// Time between two strobes.
        slot: Duration,
    },
    /// BCS under a master that sends strobes.
    Buffered {
        /// Time between two strobes, and length of a communication phase.
        slot: Duration,
        message: Bytes,
        /// Rate of a node's link, each way.
        rate: Rate,
    },
}

/// The columns of Table 4.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Column {
    Lin,
    Imp,
    Exp,
    Hpdt,
    Dyn,
    Pre,
}

impl Column {
    /// In the order of the table.
    pub const ALL: [Self; 6] = [Self::Lin, Self::Imp, Self::Exp, Self::Hpdt, Self::Dyn, Self::Pre];
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Lin => "LIN",
            Self::Imp => "IMP",
            Self::Exp => "EXP",
            Self::Hpdt => "HPDT",
            Self::Dyn => "DYN",
            Self::Pre => "PRE",
        };
        f.pad(name)
    }
}

impl LocalModel {
    /// As simulated in thesis ch. 4: spin `mst / 10`, *PS* = *LS* = 100 units, `P ≈ 0`, and *MCO* = *MRQL* +
    /// `mco_offset`.
    #[must_use]
    pub fn of_thesis(column: Column, shape: &Shape, mco_offset: i32) -> Self {
        let mco = shape.queue_length.round() as i32 + mco_offset;
        let overtakes_max = u32::try_from(mco).unwrap_or(0);
        match column {
            Column::Lin => Self::Linux,
            Column::Imp => Self::Implicit { spin: shape.service() / 10, first: false },
            Column::Exp => Self::Explicit {
                slices: Slices { parallel: 100 * UNIT, local: 100 * UNIT },
                filling: Filling::Both,
            },
            Column::Hpdt => Self::HighPriority,
            Column::Dyn => Self::Dynamic { overtakes_max, past_weight: 0.0, is_judged_by_sent: false },
            Column::Pre => Self::Predictive { overtakes_max, past_weight: 0.0 },
        }
    }

    /// The same model with another *MCO*; none where the model has no *MCO*.
    #[must_use]
    pub const fn overtaking_at_most(mut self, mco: u32) -> Option<Self> {
        let (Self::Dynamic { overtakes_max, .. } | Self::Predictive { overtakes_max, .. }) = &mut self else {
            return None;
        };
        *overtakes_max = mco;
        Some(self)
    }

    /// The console of DTS, where the model has one.
    pub(super) fn console(&self, stations: u32) -> Option<Console> {
        let Self::ExplicitBalanced { period, .. } = *self else { return None };
        let equals = (0..stations).map(|node| (NodeId(node), PowerWeight::FASTEST));
        Some(Console::new(period, equals))
    }

    /// Time between two strobes of the master, where the model needs them.
    #[must_use]
    pub const fn slot(&self) -> Option<Duration> {
        match self {
            Self::Flexible { slot, .. } | Self::Buffered { slot, .. } => Some(*slot),
            _ => None,
        }
    }

    pub(super) fn scheduler(&self, slice: Duration, processors: NonZeroUsize) -> Box<dyn NodeScheduler> {
        fn on(model: impl Model + 'static, processors: NonZeroUsize) -> Box<dyn NodeScheduler> {
            Box::new(LocalScheduler::on(model, processors))
        }
        match *self {
            Self::Linux => on(Linux { slice }, processors),
            Self::Implicit { spin, first } => on(Implicit { slice, spin, is_woken_first: first }, processors),
            Self::Explicit { slices, filling } => on(Explicit::fixed(slice, slices, filling), processors),
            Self::ExplicitBalanced { period, rule, filling } => {
                on(Explicit::balanced(slice, period, rule, filling), processors)
            }
            Self::ExplicitDistributed { period, rule, filling } => {
                on(Explicit::distributed(slice, period, rule, filling), processors)
            }
            Self::HighPriority => on(HighPriority { slice }, processors),
            Self::Dynamic { overtakes_max, past_weight, is_judged_by_sent } => {
                on(Dynamic { slice, overtakes_max, past_weight, is_judged_by_sent }, processors)
            }
            Self::Predictive { overtakes_max, past_weight } => {
                on(Predictive { slice, overtakes_max, past_weight }, processors)
            }
            Self::Demand { share } => on(Demand { slice, share, credit_max: None }, processors),
            Self::Flexible { rule, .. } => on(Flexible::new(rule), processors),
            Self::Buffered { .. } => on(Buffered::new(slice), processors),
        }
    }
}
