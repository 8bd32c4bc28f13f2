//! EXP: the explicit coscheduling of DTS (thesis §2.1, §3.2; Algorithms 1, 2 and 5).
//!
//! On each node a parallel slice (*PS*) and a local slice (*LS*) take turns; the two make up the iteration period (*IP*).
//!
//! | mode | who sets the slices | synchronised |
//! | --- | --- | --- |
//! | static | the console, once; it repeats them every synchronisation interval | yes |
//! | balanced | the console, from the mean of the nodes' load indices ([`console`]) | yes |
//! | distributed | each node, from its own load index ([`load`]) | no |
//!
//! ```text
//!                    PS over                            SlicesSet (sync_point), from anywhere
//!   parallel ─────────────────────► local         ─────────────────────────────────────────► parallel
//!      ▲             LS over          │
//!      └──────────────────────────────┘
//! ```

pub mod console;
pub mod load;
pub mod slices;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use console::Console;
pub use load::{LoadIndex, LoadRule};
pub use slices::Slices;

use super::{Model, NodeEvent, Task, TaskId};
use crate::SimTime;

/// What a node does with a slice whose kind of task is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Filling {
    /// As Algorithm 5: distributed tasks are stopped during the local slice; local tasks may fill the parallel one.
    DistributedStopped,
    /// As the thesis simulates it (ch. 4): either kind runs where the other has nobody ready.
    Both,
}

/// Which of the two slices it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Distributed tasks first.
    Parallel,
    /// Local tasks first.
    Local,
}

/// How the node's slices come to be.
#[derive(Clone, Debug, PartialEq)]
enum Mode {
    /// Static and balanced: only the console changes them.
    Told,
    /// Distributed: the node's own load does.
    Measured { index: LoadIndex, period: Duration },
}

/// The scheduler of DTS on one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Explicit {
    slice: Duration,
    slices: Slices,
    filling: Filling,
    mode: Mode,
    phase: Phase,
    phase_ends: Option<SimTime>,
}

impl Explicit {
    /// Static or balanced mode: `slices` until the console sends others.
    #[must_use]
    pub const fn told(slice: Duration, slices: Slices, filling: Filling) -> Self {
        Self { slice, slices, filling, mode: Mode::Told, phase: Phase::Parallel, phase_ends: None }
    }

    /// Distributed mode: `period` (*IP*) divided by the node's own load index, beginning with an idle node's slices.
    #[must_use]
    pub fn measured(slice: Duration, period: Duration, rule: LoadRule, filling: Filling) -> Self {
        let mode = Mode::Measured { index: LoadIndex::new(rule), period };
        let slices = Slices::for_load(0.0, period);
        Self { slice, slices, filling, mode, phase: Phase::Parallel, phase_ends: None }
    }

    /// The phase the node is in.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// The slices in force.
    #[must_use]
    pub const fn slices(&self) -> Slices {
        self.slices
    }

    fn begin(&mut self, now: SimTime, phase: Phase) -> SimTime {
        self.phase = phase;
        let length = match phase {
            Phase::Parallel => self.slices.parallel,
            Phase::Local => self.slices.local,
        };
        let ends = now.after(length);
        self.phase_ends = Some(ends);
        ends
    }

    fn next_phase(&mut self, now: SimTime) -> SimTime {
        match self.phase {
            Phase::Parallel => self.begin(now, Phase::Local),
            Phase::Local => self.begin(now, Phase::Parallel),
        }
    }

    fn measure(&mut self, now: SimTime, local_ready: usize) {
        if let Mode::Measured { index, period } = &mut self.mode
            && self.phase == Phase::Local
            && let Some(load) = index.sample(now, local_ready)
        {
            self.slices = Slices::for_load(load, *period);
        }
    }
}

impl Model for Explicit {
    fn slice(&self, _task: &Task) -> Duration {
        self.slice
    }

    fn rank(&self, task: &Task) -> u8 {
        match (self.phase, task.is_distributed()) {
            (Phase::Parallel, true) | (Phase::Local, false) => 2,
            (Phase::Parallel, false) => 1,
            (Phase::Local, true) => u8::from(self.filling == Filling::Both),
        }
    }

    fn may_run(&self, task: &Task) -> bool {
        self.rank(task) > 0
    }

    fn observe(
        &mut self,
        now: SimTime,
        event: &NodeEvent,
        _running: Option<TaskId>,
        local_ready: usize,
    ) -> Option<SimTime> {
        self.measure(now, local_ready);
        match event {
            NodeEvent::SlicesSet(slices) => {
                self.slices = *slices;
                Some(self.begin(now, Phase::Parallel))
            }
            NodeEvent::TimerFired if self.phase_ends.is_none_or(|ends| ends <= now) => {
                Some(self.next_phase(now))
            }
            _ if self.phase_ends.is_none() => Some(self.begin(now, Phase::Parallel)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        JobId,
        local::{LocalScheduler, NodeDecision, NodeScheduler},
    };

    const MS: Duration = Duration::from_millis(1);
    const LOCAL: TaskId = TaskId(0);
    const DISTRIBUTED: TaskId = TaskId(1);

    fn two_tasks(filling: Filling) -> (LocalScheduler<Explicit>, Vec<NodeDecision>) {
        let slices = Slices { parallel: 100 * MS, local: 50 * MS };
        let mut node = LocalScheduler::new(Explicit::told(10 * MS, slices, filling));
        let mut decisions = Vec::new();
        for (task, application) in [(LOCAL, None), (DISTRIBUTED, Some(JobId(7)))] {
            node.on_event(SimTime(0), NodeEvent::Arrived { task, application }, &mut decisions).unwrap();
        }
        (node, decisions)
    }

    #[test]
    fn the_slices_take_turns_and_the_console_starts_them_over() {
        let (mut node, mut decisions) = two_tasks(Filling::Both);
        assert_eq!(node.running(), Some(DISTRIBUTED));
        assert!(decisions.contains(&NodeDecision::SetTimer { at: SimTime(100_000_000) }));
        node.on_event(SimTime(100_000_000), NodeEvent::TimerFired, &mut decisions).unwrap();
        assert_eq!((node.running(), node.model().phase()), (Some(LOCAL), Phase::Local));
        decisions.clear();
        let slices = Slices { parallel: 80 * MS, local: 20 * MS };
        node.on_event(SimTime(120_000_000), NodeEvent::SlicesSet(slices), &mut decisions).unwrap();
        assert_eq!(node.running(), Some(DISTRIBUTED));
        assert!(decisions.contains(&NodeDecision::SetTimer { at: SimTime(200_000_000) }));
    }

    #[test]
    fn a_stopped_distributed_task_leaves_the_local_slice_idle() {
        for (filling, runs) in [(Filling::DistributedStopped, None), (Filling::Both, Some(DISTRIBUTED))] {
            let (mut node, mut decisions) = two_tasks(filling);
            let at = SimTime(100_000_000);
            node.on_event(at, NodeEvent::TimerFired, &mut decisions).unwrap();
            node.on_event(at, NodeEvent::Finished { task: LOCAL }, &mut decisions).unwrap();
            assert_eq!(node.running(), runs, "{filling:?}");
        }
    }

    #[test]
    fn in_distributed_mode_a_busy_node_gives_more_to_local_tasks() {
        let rule = LoadRule { past_weight: 0.0, ..LoadRule::default() };
        let model = Explicit::measured(10 * MS, Duration::from_secs(1), rule, Filling::Both);
        let mut node = LocalScheduler::new(model);
        let mut decisions = Vec::new();
        for task in 0..3 {
            let event = NodeEvent::Arrived { task: TaskId(task), application: None };
            node.on_event(SimTime(0), event, &mut decisions).unwrap();
        }
        assert_eq!(node.model().slices().local, 100 * MS);
        let mut timer = SimTime(0);
        while timer < SimTime(40_000_000_000) {
            if let Some(NodeDecision::SetTimer { at }) =
                decisions.iter().rev().find(|decision| matches!(decision, NodeDecision::SetTimer { .. }))
            {
                timer = *at;
            }
            decisions.clear();
            node.on_event(timer, NodeEvent::TimerFired, &mut decisions).unwrap();
        }
        assert_eq!(node.model().slices().local, 600 * MS, "three ready local tasks: sixth line of Table 2.1");
    }
}
