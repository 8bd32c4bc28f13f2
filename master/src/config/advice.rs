//! Warnings about a run file that is right: what will happen in its run that its author may not expect.

use std::time::Duration;

use coswitch_policies::{
    AutoQuantum, Bytes, NodeId, Row, Scheduler, SchedulerEvent, ShortOfMemory, SimTime, SwitchOrder,
    timeshare::short_quantum::QuantumWatch,
};

use super::{
    choice::ParkMethod,
    job_set::{JobSet, Settings},
};

/// The shortest quantum that `auto` chooses, and its first.
pub const AUTO_QUANTUM_MIN: Duration = Duration::from_secs(1);
/// The bounds of `auto` without a run file.
pub const AUTO_BOUNDS: AutoQuantum = AutoQuantum { overhead: 20_000, longest: Duration::from_secs(600) };

/// A node whose jobs need more memory than it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overfull {
    pub node: NodeId,
    pub needed: Bytes,
    pub capacity: Bytes,
}

impl JobSet {
    /// The nodes where the kernel swaps: jobs never leave memory, and it does not hold all; or switches keep
    /// their order, and it does not hold a set and the next. The jobs are packed as if submitted together.
    pub fn overfull(&self) -> Vec<Overfull> {
        let Settings { park, switching, short_of_memory, .. } = self.scheduler;
        let suspends = park == ParkMethod::Suspend;
        let overlaps = switching != SwitchOrder::Sequential && short_of_memory == ShortOfMemory::Swap;
        if !suspends && !overlaps {
            return Vec::new();
        }
        let cluster = self.cluster();
        let Ok(mut scheduler) = Scheduler::new(cluster.clone(), self.scheduler_config()) else {
            return Vec::new();
        };
        scheduler.on_event(SimTime(0), SchedulerEvent::Submitted { jobs: self.specs() });
        let rows: Vec<Row<'_>> = scheduler.matrix().rows().collect();
        let at_once = if suspends { rows.len() } else { 2 };
        if rows.len() < at_once {
            return Vec::new();
        }
        let needed_from = |node, first| {
            let turns = rows.iter().cycle().skip(first).take(at_once);
            turns.map(|row| row.memory_on(node)).sum::<Bytes>()
        };
        let needed_on =
            |node| (0..rows.len()).map(|first| needed_from(node, first)).max().unwrap_or_default();
        let nodes =
            cluster.nodes().map(|(node, capacity)| Overfull { node, needed: needed_on(node), capacity });
        nodes.filter(|node| node.needed > node.capacity).collect()
    }

    /// What a user should know before the run.
    pub fn warnings(&self) -> Vec<String> {
        let overfull = self.overfull();
        // The first of several.
        let fullest = overfull.iter().rev().max_by_key(|node| node.needed.0 - node.capacity.0);
        let Some(Overfull { node, needed, capacity }) = fullest else { return Vec::new() };
        let others = match overfull.len() {
            1 => String::new(),
            all => format!(" (and too much on {})", coswitch_report::words::plural(all - 1, "more node")),
        };
        let why = if self.scheduler.park == ParkMethod::Suspend {
            "jobs are never taken out of memory (`park: suspend`); together they need"
        } else {
            "switches keep their order beyond memory (`short_of_memory: swap`); a set and the next need"
        };
        vec![format!("{why} {needed} on {node} of {capacity}{others}: the kernel will swap")]
    }
}

impl Settings {
    /// A watch over the given quantum; `None` where coswitch chooses it.
    pub fn quantum_watch(&self) -> Option<QuantumWatch> {
        self.auto.is_none().then(|| QuantumWatch::new(self.quantum, self.auto_bounds, AUTO_QUANTUM_MIN))
    }
}
