//! The node schedulers that a live node may have, with their parameters.

use std::{num::NonZeroUsize, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    LocalScheduler, Model, NodeScheduler,
    buffered::Buffered,
    demand::Demand,
    dynamic::Dynamic,
    explicit::{Console, Explicit, Filling, LoadRule, PowerWeight, Slices},
    flexible::{Flexible, FlexibleRule, Thresholds},
    high_priority::HighPriority,
    implicit::Implicit,
    linux::Linux,
    predictive::Predictive,
};
use crate::NodeId;

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
    /// ICS: a task that waits spins, then blocks ([`Implicit`]).
    Ics {
        slice: Duration,
        /// How long it spins; `None`: for `switches`.
        spin: Option<Duration>,
        /// The same in context switches, whose cost is measured (formulas 3.4 and 3.5).
        #[serde(default = "two_switches")]
        switches: u32,
        /// A task that is woken runs at once.
        #[serde(default = "yes")]
        is_woken_first: bool,
    },
    /// PCA: tasks that communicate more overtake ([`Predictive`]).
    Predictive { slice: Duration, overtakes_max: u32, past_weight: f64 },
    /// DCA: the same, judged by received messages only ([`Dynamic`]).
    Dynamic { slice: Duration, overtakes_max: u32, past_weight: f64 },
    /// HPDT: distributed tasks always run before local ones ([`HighPriority`]).
    Hpdt { slice: Duration },
    /// DTS: a parallel and a local slice take turns ([`Explicit`]).
    Dts { slice: Duration, mode: DtsMode, filling: Filling },
    /// FCS: slots from the master, used by the measured class of a process ([`Flexible`]).
    Fcs { slice: Duration, trial_slots: u32, forget_after: u32, thresholds: Thresholds },
    /// BCS: slots from the master, by which messages go as well ([`Buffered`]).
    Bcs {
        slice: Duration,
        #[serde(default)]
        buffering: Buffering,
    },
    /// LIN: no task is preferred ([`Linux`]); counted as the others are, and what they are compared with.
    RoundRobin { slice: Duration },
}

/// When messages go under BCS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buffering {
    /// Exchanges of a slot: "several of those can fit in a timeslot" (paper 000, §2.3.2).
    pub exchanges: u32,
    /// While no node has ranks of two jobs, messages go at once (the dedicated mode of the same section).
    pub dedicated: bool,
}

impl Buffering {
    pub const USUAL: Self = Self { exchanges: 1, dedicated: false };
}

impl Default for Buffering {
    fn default() -> Self {
        Self::USUAL
    }
}

/// How DTS sets its slices.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DtsMode {
    /// These, on all nodes at the same time.
    Static(Slices),
    /// Each node by its own load, out of this period (*IP*).
    Distributed {
        period: Duration,
        #[serde(default = "LoadRule::over_a_minute")]
        load: LoadRule,
    },
    /// The console, by the loads of all nodes and out of this period; on all nodes at the same time.
    Balanced { period: Duration, load: LoadRule },
}

/// No number of it is NaN: they come from a run file, which has none.
impl Eq for Technique {}

/// What settings without the field mean.
const fn yes() -> bool {
    true
}

const fn two_switches() -> u32 {
    2
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
    pub const ICS: Self =
        Self::Ics { slice: Self::SLICE, spin: None, switches: two_switches(), is_woken_first: true };
    pub const PREDICTIVE: Self =
        Self::Predictive { slice: Self::SLICE, overtakes_max: Self::OVERTAKES_MAX, past_weight: 0.0 };
    pub const DYNAMIC: Self =
        Self::Dynamic { slice: Self::SLICE, overtakes_max: Self::OVERTAKES_MAX, past_weight: 0.0 };

    /// *IP* of DTS: long against a look at the ranks, short for a person at the keyboard of a node.
    const PERIOD: Duration = Duration::from_millis(100);
    /// Equal slices.
    const SLICES: Slices = Slices { parallel: Duration::from_millis(50), local: Duration::from_millis(50) };
    /// A mean wait per message above it counts as long: some round trips between two nodes.
    const LONG_WAIT: Duration = Duration::from_micros(500);

    pub const HPDT: Self = Self::Hpdt { slice: Self::SLICE };
    pub const DTS: Self = Self::dts(
        DtsMode::Distributed { period: Self::PERIOD, load: LoadRule::over_a_minute() },
        Filling::Both,
    );
    pub const DTS_STATIC: Self = Self::dts(DtsMode::Static(Self::SLICES), Filling::Both);
    pub const DTS_BALANCED: Self =
        Self::dts(DtsMode::Balanced { period: Self::PERIOD, load: LoadRule::over_a_minute() }, Filling::Both);
    pub const DTS_STOP: Self = Self::dts(DtsMode::Static(Self::SLICES), Filling::DistributedStopped);
    pub const FCS: Self = Self::Fcs {
        slice: Self::SLICE,
        trial_slots: 2,
        forget_after: 8,
        thresholds: Thresholds { rare: 10, long_wait: Self::LONG_WAIT, high_ratio: 2.0 },
    };
    pub const BCS: Self = Self::Bcs { slice: Self::SLICE, buffering: Buffering::USUAL };
    pub const ROUND_ROBIN: Self = Self::RoundRobin { slice: Self::SLICE };

    const fn dts(mode: DtsMode, filling: Filling) -> Self {
        Self::Dts { slice: Self::SLICE, mode, filling }
    }

    /// How tasks wait for a message, where the user has not said it.
    #[must_use]
    pub const fn wait(self) -> Waiting {
        match self {
            Self::Dcs { .. } => Waiting::Spins,
            Self::Ics { .. } | Self::Fcs { .. } => Waiting::SpinsThenBlocks,
            Self::Predictive { .. }
            | Self::Dynamic { .. }
            | Self::Hpdt { .. }
            | Self::Dts { .. }
            | Self::Bcs { .. }
            | Self::RoundRobin { .. } => Waiting::Blocks,
        }
    }

    /// The master's slots, where the run file says no other length; `None`: it knows no slots.
    #[must_use]
    pub const fn slot(self) -> Option<Duration> {
        match self {
            Self::Fcs { .. } => Some(Duration::from_millis(50)),
            Self::Bcs { .. } => Some(Duration::from_millis(2)),
            _ => None,
        }
    }

    /// Messages between nodes wait for exchanges: they go in the one after that in which they are sent, and
    /// are there after it.
    #[must_use]
    pub const fn buffering(self) -> Option<Buffering> {
        match self {
            Self::Bcs { buffering, .. } => Some(buffering),
            _ => None,
        }
    }

    /// How long a task spins is decided anew for each, and changes with its class.
    #[must_use]
    pub const fn sets_spin(self) -> bool {
        matches!(self, Self::Fcs { .. })
    }

    /// The slices that begin together on all nodes; in balanced mode until the console has set others.
    #[must_use]
    pub fn common_slices(self) -> Option<Slices> {
        match self {
            Self::Dts { mode: DtsMode::Static(slices), .. } => Some(slices),
            Self::Dts { mode: DtsMode::Balanced { period, .. }, .. } => Some(Slices::for_load(0.0, period)),
            _ => None,
        }
    }

    /// What sets the slices of these nodes; `None`: each sets its own, or the run file does.
    pub fn console(self, nodes: impl IntoIterator<Item = (NodeId, PowerWeight)>) -> Option<Console> {
        let Self::Dts { mode: DtsMode::Balanced { period, .. }, .. } = self else { return None };
        Some(Console::new(period, nodes))
    }

    /// How long a task spins that may block afterwards.
    #[must_use]
    pub fn spin(self, context_switch: Duration) -> Duration {
        match self {
            Self::Ics { spin: Some(spin), .. } => spin,
            Self::Ics { spin: None, switches, .. } => context_switch.saturating_mul(switches),
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
            Self::Ics { slice, is_woken_first, .. } => {
                let spin = self.spin(context_switch);
                on(Implicit { slice, spin, is_woken_first }, processors)
            }
            Self::Predictive { slice, overtakes_max, past_weight } => {
                on(Predictive { slice, overtakes_max, past_weight }, processors)
            }
            Self::Dynamic { slice, overtakes_max, past_weight } => {
                on(Dynamic { slice, overtakes_max, past_weight, is_judged_by_sent: false }, processors)
            }
            Self::Hpdt { slice } => on(HighPriority { slice }, processors),
            Self::Dts { slice, mode: DtsMode::Static(slices), filling } => {
                on(Explicit::fixed(slice, slices, filling), processors)
            }
            Self::Dts { slice, mode: DtsMode::Distributed { period, load }, filling } => {
                on(Explicit::distributed(slice, period, load, filling), processors)
            }
            Self::Dts { slice, mode: DtsMode::Balanced { period, load }, filling } => {
                on(Explicit::balanced(slice, period, load, filling), processors)
            }
            Self::Fcs { slice, trial_slots, forget_after, thresholds } => {
                let forget_after = Some(forget_after);
                let rule = FlexibleRule { slice, trial_slots, forget_after, thresholds, context_switch };
                on(Flexible::new(rule), processors)
            }
            Self::Bcs { slice, .. } => on(Buffered::new(slice), processors),
            Self::RoundRobin { slice } => on(Linux { slice }, processors),
        }
    }
}

fn on(model: impl Model + Send + 'static, processors: NonZeroUsize) -> Box<dyn NodeScheduler + Send> {
    Box::new(LocalScheduler::on(model, processors).keeping_slices())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: Duration = Duration::from_micros(3);

    #[test]
    fn a_rank_under_ics_spins_for_so_many_switches_or_so_long() {
        assert_eq!(Technique::ICS.spin(SWITCH), Implicit::spin_limit(SWITCH));
        let ics = |spin, switches| {
            let slice = Technique::SLICE;
            Technique::Ics { slice, spin, switches, is_woken_first: true }.spin(SWITCH)
        };
        assert_eq!(ics(None, 5), 5 * SWITCH);
        assert_eq!(ics(Some(Duration::ZERO), 5), Duration::ZERO);
    }

    #[test]
    fn only_the_balanced_mode_has_a_console_which_begins_as_the_nodes_do() {
        let nodes = [0, 1].map(|node| (NodeId(node), PowerWeight::FASTEST));
        let console = Technique::DTS_BALANCED.console(nodes).expect("a console");
        assert_eq!(Technique::DTS_BALANCED.common_slices(), Some(console.slices()));
        for other in [Technique::DTS, Technique::DTS_STATIC, Technique::DTS_STOP, Technique::HPDT] {
            assert_eq!(other.console(nodes), None, "{other:?}");
        }
    }

    /// The settings of a run that was parked by an earlier version.
    #[test]
    fn a_technique_without_the_later_parameters_is_the_usual_one() {
        let read = |text: &str| serde_json::from_str::<Technique>(text).unwrap();
        let slice = r#""slice":{"secs":0,"nanos":10000000}"#;
        assert_eq!(read(&format!(r#"{{"ics":{{{slice},"spin":null}}}}"#)), Technique::ICS);
        assert_eq!(read(&format!(r#"{{"bcs":{{{slice}}}}}"#)), Technique::BCS);
        let mode = r#""mode":{"distributed":{"period":{"secs":0,"nanos":100000000}}}"#;
        assert_eq!(read(&format!(r#"{{"dts":{{{slice},{mode},"filling":"Both"}}}}"#)), Technique::DTS);
    }
}
