//! Warnings about a run file that is right: what will happen in its run that its author may not expect.

use std::time::Duration;

use coswitch_policies::{
    AutoQuantum, Bytes, NodeId, Scheduler, SchedulerEvent, SimTime, timeshare::short_quantum::QuantumWatch,
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
    /// The nodes that do not hold all jobs together, where jobs never leave memory: the kernel swaps there.
    /// The jobs are packed as if submitted together.
    pub fn overfull(&self) -> Vec<Overfull> {
        if self.scheduler.park != ParkMethod::Suspend {
            return Vec::new();
        }
        let cluster = self.cluster();
        let Ok(mut scheduler) = Scheduler::new(cluster.clone(), self.scheduler_config()) else {
            return Vec::new();
        };
        scheduler.on_event(SimTime(0), SchedulerEvent::Submitted { jobs: self.specs() });
        let rows = scheduler.matrix().rows();
        let needed_on = |node| rows.clone().map(|row| row.memory_on(node)).sum();
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
        vec![format!(
            "jobs are never taken out of memory (`park: suspend`); together they need {needed} on {node} of \
             {capacity}{others}: the kernel will swap"
        )]
    }
}

impl Settings {
    /// A watch over the given quantum; `None` where coswitch chooses it.
    pub fn quantum_watch(&self) -> Option<QuantumWatch> {
        self.auto.is_none().then(|| QuantumWatch::new(self.quantum, self.auto_bounds, AUTO_QUANTUM_MIN))
    }
}
