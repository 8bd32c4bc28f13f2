//! The node schedulers that a live node may have, with their parameters.

use std::{num::NonZeroUsize, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    LocalScheduler, Model, NodeScheduler, demand::Demand, dynamic::Dynamic, implicit::Implicit,
    predictive::Predictive,
};

/// How a task waits for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// With its processor, until that is taken.
    Spins,
    SpinsThenBlocks,
    Blocks,
}

/// Technique and parameters of a live node's scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Technique {
    /// DCS: a message calls its receiver ([`Demand`]).
    Dcs { slice: Duration, share: Duration, credit_max: Duration },
    /// ICS: a task that waits spins, then blocks, and runs at once when it is woken ([`Implicit`]). None: it
    /// spins for twice the measured cost of a context switch (formula 3.5).
    Ics { slice: Duration, spin: Option<Duration> },
    /// PCA: tasks that communicate more overtake ([`Predictive`]).
    Predictive { slice: Duration, overtakes_max: u32, past_weight: f64 },
    /// DCA: the same, judged by received messages only ([`Dynamic`]).
    Dynamic { slice: Duration, overtakes_max: u32, past_weight: f64 },
}

impl Technique {
    /// Time a task may run while others wait for its processor.
    const SLICE: Duration = Duration::from_millis(10);
    /// By which the running task must exceed the receiver of a message.
    const SHARE: Duration = Duration::from_micros(200);
    /// What a receiver may be called for after a time without messages.
    const CREDIT_MAX: Duration = Duration::from_millis(20);
    /// *MCO*, the thesis' default.
    const OVERTAKES_MAX: u32 = 2;

    pub const DCS: Self = Self::Dcs { slice: Self::SLICE, share: Self::SHARE, credit_max: Self::CREDIT_MAX };
    pub const ICS: Self = Self::Ics { slice: Self::SLICE, spin: None };
    pub const PREDICTIVE: Self =
        Self::Predictive { slice: Self::SLICE, overtakes_max: Self::OVERTAKES_MAX, past_weight: 0.0 };
    pub const DYNAMIC: Self =
        Self::Dynamic { slice: Self::SLICE, overtakes_max: Self::OVERTAKES_MAX, past_weight: 0.0 };

    /// How tasks wait for a message, where the user has not said it.
    #[must_use]
    pub const fn wait(self) -> Waiting {
        match self {
            Self::Dcs { .. } => Waiting::Spins,
            Self::Ics { .. } => Waiting::SpinsThenBlocks,
            Self::Predictive { .. } | Self::Dynamic { .. } => Waiting::Blocks,
        }
    }

    /// How long a task spins that may block afterwards.
    #[must_use]
    pub fn spin(self, context_switch: Duration) -> Duration {
        match self {
            Self::Ics { spin: Some(spin), .. } => spin,
            _ => Implicit::spin_limit(context_switch),
        }
    }

    /// A scheduler for so many processors.
    #[must_use]
    pub fn scheduler(
        self,
        processors: NonZeroUsize,
        context_switch: Duration,
    ) -> Box<dyn NodeScheduler + Send> {
        match self {
            Self::Dcs { slice, share, credit_max } => {
                on(Demand { slice, share, credit_max: Some(credit_max) }, processors)
            }
            Self::Ics { slice, .. } => {
                let spin = self.spin(context_switch);
                on(Implicit { slice, spin, is_woken_first: true }, processors)
            }
            Self::Predictive { slice, overtakes_max, past_weight } => {
                on(Predictive { slice, overtakes_max, past_weight }, processors)
            }
            Self::Dynamic { slice, overtakes_max, past_weight } => {
                on(Dynamic { slice, overtakes_max, past_weight, is_judged_by_sent: false }, processors)
            }
        }
    }
}

fn on(model: impl Model + Send + 'static, processors: NonZeroUsize) -> Box<dyn NodeScheduler + Send> {
    Box::new(LocalScheduler::on(model, processors).keeping_slices())
}
