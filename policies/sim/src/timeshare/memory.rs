//! Memory of simulated jobs over time, and what daemons and master do about it: samples ten times a second,
//! and running jobs that are stopped where a node exceeds its allowance.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use coswitch_policies::{
    Allowance, Bytes, Cluster, JobId, NodeId, Placement, SchedulerEvent, SimTime,
    timeshare::memory_monitor::{JobSample, MemoryMonitor},
};
use serde::{Deserialize, Serialize};

/// The time between two samples, and between two looks at an allowance.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What a rank holds by the work it has done: straight lines between these points, and constant before the
/// first and after the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MemoryCurve(Arc<[(Duration, Bytes)]>);

impl MemoryCurve {
    /// A curve through these points, sorted by work.
    #[must_use]
    pub fn new(mut points: Vec<(Duration, Bytes)>) -> Self {
        points.sort_by_key(|(work, _)| *work);
        Self(points.into())
    }

    pub(crate) fn at(&self, work: Duration) -> Bytes {
        let after = self.0.partition_point(|(at, _)| *at <= work);
        let before = after.checked_sub(1).map(|before| self.0[before]);
        match (before, self.0.get(after)) {
            (Some((from, low)), Some((to, high))) => {
                let (done, span) = ((work - from).as_nanos(), (*to - from).as_nanos().max(1));
                let between = |low: u64, high: u64| {
                    low + u64::try_from(u128::from(high - low) * done / span).unwrap_or(u64::MAX)
                };
                let (low, high) = (low.0, high.0);
                Bytes(if low <= high { between(low, high) } else { low + high - between(high, low) })
            }
            (Some((_, bytes)), None) => bytes,
            (None, first) => first.map_or(Bytes(0), |(_, bytes)| *bytes),
        }
    }
}

/// The memory monitor of a simulation, and the allowances of its nodes.
pub(crate) struct Watch {
    monitor: MemoryMonitor,
    allowances: BTreeMap<NodeId, Allowance>,
    /// When it next looks, and samples.
    pub(crate) due: SimTime,
    sample: SimTime,
    /// Nodes whose running jobs are stopped.
    stopped: BTreeSet<NodeId>,
}

/// What a look at a node leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Stop,
    GoOn,
    Stay,
}

impl Watch {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self {
            monitor: MemoryMonitor::new(cluster),
            allowances: BTreeMap::new(),
            due: SimTime::default(),
            sample: SimTime::default(),
            stopped: BTreeSet::new(),
        }
    }

    pub(crate) fn on_launched(&mut self, job: JobId, placement: &Placement, declared: Bytes) {
        self.monitor.on_launched(job, placement, declared);
    }

    pub(crate) fn on_ended(&mut self, job: JobId) {
        self.monitor.on_ended(job);
    }

    pub(crate) fn on_dumped(&mut self, job: JobId, node: NodeId, image: Bytes) -> Option<SchedulerEvent> {
        self.monitor.on_dumped(job, node, image).map(Into::into)
    }

    /// Takes over new allowances. Says when the next look is due, where that is earlier than it was.
    pub(crate) fn set_allowances(
        &mut self,
        now: SimTime,
        allowances: BTreeMap<NodeId, Allowance>,
    ) -> Option<SimTime> {
        let look = now.after(LOOK_EVERY);
        let sooner = !allowances.is_empty() && look < self.due;
        self.allowances = allowances;
        sooner.then(|| {
            self.due = look;
            look
        })
    }

    /// The next look after one at this time, and whether this one takes a sample.
    pub(crate) fn on_look(&mut self, now: SimTime) -> (SimTime, bool) {
        let samples = now >= self.sample;
        if samples {
            self.sample = now.after(SAMPLE_EVERY);
        }
        let guards = !self.allowances.is_empty() || !self.stopped.is_empty();
        self.due = if guards { now.after(LOOK_EVERY) } else { self.sample };
        (self.due, samples)
    }

    /// Whether the node, whose jobs hold so much, has no room for those that are about to come.
    pub(crate) fn is_full(&self, node: NodeId, held: Bytes) -> bool {
        self.allowances.get(&node).is_some_and(|Allowance { total, arriving }| {
            held.saturating_add(arriving.values().copied().sum()) > *total
        })
    }

    /// Whether the running jobs of a node may go on, given what all its jobs hold; and the event for the
    /// scheduler, if any.
    pub(crate) fn look(&mut self, now: SimTime, node: NodeId, held: Bytes) -> (Look, Option<SchedulerEvent>) {
        // In the simulator a job holds all that it comes with from the beginning.
        let exceeds = self.allowances.get(&node).is_some_and(|allowance| held > allowance.total);
        let changed = if exceeds { self.stopped.insert(node) } else { self.stopped.remove(&node) };
        let look = match (changed, exceeds) {
            (true, true) => Look::Stop,
            (true, false) => Look::GoOn,
            (false, _) => Look::Stay,
        };
        (look, self.monitor.on_look(now, node, exceeds).map(Into::into))
    }

    pub(crate) fn on_sample(
        &mut self,
        now: SimTime,
        node: NodeId,
        jobs: &[JobSample],
    ) -> Vec<SchedulerEvent> {
        let charged = jobs.iter().map(|sample| sample.resident).sum();
        self.monitor.on_sample(now, node, charged, None, jobs).into_iter().map(Into::into).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_goes_straight_from_point_to_point() {
        let point = |seconds, mib| (Duration::from_secs(seconds), Bytes::mib(mib));
        let curve = MemoryCurve::new(vec![point(2, 100), point(4, 300), point(6, 100)]);
        let at = |millis| curve.at(Duration::from_millis(millis)).0 >> 20;
        assert_eq!([0, 2000, 3000, 4000, 5500, 9000].map(at), [100, 100, 200, 300, 150, 100]);
        assert_eq!(MemoryCurve::new(vec![]).at(Duration::ZERO), Bytes(0));
    }
}
