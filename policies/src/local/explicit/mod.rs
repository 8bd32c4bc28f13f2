//! EXP: the explicit coscheduling of DTS (thesis §2.1, §3.2; Algorithms 1, 2 and 5).
//!
//! On each node a parallel slice (*PS*) and a local slice (*LS*) take turns; the two make up the iteration
//! period (*IP*).
//!
//! | mode | slices are set by | synchronised |
//! | --- | --- | --- |
//! | static | the console, once; it repeats them every synchronisation interval | yes |
//! | balanced | the console, from the mean of the nodes' load indices ([`console`]) | yes |
//! | distributed | each node, from its own load index ([`load`]) | no |
//!
//! Only the console divides a load index by the [power weight](power) of its node: in distributed mode Table
//! 2.1 takes the load index as it is (§2.1.3).
//!
//! ```text
//!                    PS over                            SlicesSet (sync_point), from anywhere
//!   parallel ─────────────────────► local         ─────────────────────────────────────────► parallel
//!      ▲             LS over          │
//!      └──────────────────────────────┘
//! ```

pub mod console;
pub mod load;
pub mod power;
pub mod slices;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use console::Console;
pub use load::{LoadIndex, LoadRule};
pub use power::{PowerWeight, WeightError};
pub use slices::{CommonSlices, Slices};

use super::{Model, NodeDecision, NodeView, Task, TaskEvent};
use crate::SimTime;

/// How a node uses a slice when no task of its kind is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Filling {
    /// As in Algorithm 5: distributed tasks are stopped during the local slice; local tasks may use the
    /// parallel one.
    DistributedStopped,
    /// As the thesis simulates it (ch. 4): either kind may use the other's slice while no task of that kind
    /// is ready.
    Both,
}

/// The kind of slice the node is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SliceKind {
    /// Distributed tasks run first.
    Parallel,
    /// Local tasks run first.
    Local,
}

/// How the slices are set.
#[derive(Clone, Debug, PartialEq)]
enum Mode {
    /// By the console, once.
    Static,
    /// By the console, from the loads that the nodes report.
    Balanced(LoadIndex),
    /// By the node, from its own load.
    Distributed { index: LoadIndex, period: Duration },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Explicit {
    slice: Duration,
    slices: Slices,
    filling: Filling,
    mode: Mode,
    current: SliceKind,
    current_ends: Option<SimTime>,
}

impl Explicit {
    /// Static mode: keeps `slices` until the console sends others.
    #[must_use]
    pub const fn fixed(slice: Duration, slices: Slices, filling: Filling) -> Self {
        Self { slice, slices, filling, mode: Mode::Static, current: SliceKind::Parallel, current_ends: None }
    }

    /// Balanced mode: starts with the slices of an idle cluster for `period` (*IP*), until the console sends
    /// others; the node reports its load.
    #[must_use]
    pub fn balanced(slice: Duration, period: Duration, rule: LoadRule, filling: Filling) -> Self {
        let mode = Mode::Balanced(LoadIndex::new(rule));
        Self { mode, ..Self::fixed(slice, Slices::for_load(0.0, period), filling) }
    }

    /// Distributed mode: divides `period` (*IP*) by the node's own load index, starting as an idle node.
    #[must_use]
    pub fn distributed(slice: Duration, period: Duration, rule: LoadRule, filling: Filling) -> Self {
        let mode = Mode::Distributed { index: LoadIndex::new(rule), period };
        Self { mode, ..Self::fixed(slice, Slices::for_load(0.0, period), filling) }
    }

    #[must_use]
    pub const fn current(&self) -> SliceKind {
        self.current
    }

    #[must_use]
    pub const fn slices(&self) -> Slices {
        self.slices
    }

    fn begin(&mut self, now: SimTime, current: SliceKind) -> NodeDecision {
        self.current = current;
        let length = match current {
            SliceKind::Parallel => self.slices.parallel,
            SliceKind::Local => self.slices.local,
        };
        let at = now.after(length);
        self.current_ends = Some(at);
        NodeDecision::SetTimer { at }
    }

    fn begin_next(&mut self, now: SimTime) -> NodeDecision {
        match self.current {
            SliceKind::Parallel => self.begin(now, SliceKind::Local),
            SliceKind::Local => self.begin(now, SliceKind::Parallel),
        }
    }

    /// Samples the load, which counts in the local slice only. Returns the index to report to the console.
    fn measure(&mut self, at: NodeView) -> Option<f64> {
        if self.current != SliceKind::Local {
            return None;
        }
        match &mut self.mode {
            Mode::Static => None,
            Mode::Balanced(index) => index.sample(at.now, at.local_ready).and_then(|_| index.to_report()),
            Mode::Distributed { index, period } => {
                if let Some(load) = index.sample(at.now, at.local_ready) {
                    self.slices = Slices::for_load(load, *period);
                }
                None
            }
        }
    }
}

impl Model for Explicit {
    fn slice(&self, _task: &Task) -> Duration {
        self.slice
    }

    fn precedence(&self, task: &Task) -> u8 {
        match (self.current, task.is_distributed()) {
            (SliceKind::Parallel, true) | (SliceKind::Local, false) => 2,
            (SliceKind::Parallel, false) => 1,
            (SliceKind::Local, true) => u8::from(self.filling == Filling::Both),
        }
    }

    fn may_run(&self, task: &Task) -> bool {
        self.precedence(task) > 0
    }

    fn observe(&mut self, at: NodeView, event: &TaskEvent, decisions: &mut Vec<NodeDecision>) {
        decisions.extend(self.measure(at).map(|index| NodeDecision::ReportLoad { index }));
        let NodeView { now, .. } = at;
        match event {
            TaskEvent::SlicesSet(slices) => {
                self.slices = *slices;
                decisions.push(self.begin(now, SliceKind::Parallel));
            }
            TaskEvent::TimerFired if self.current_ends.is_none_or(|ends| ends <= now) => {
                decisions.push(self.begin_next(now));
            }
            _ if self.current_ends.is_none() => decisions.push(self.begin(now, SliceKind::Parallel)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
