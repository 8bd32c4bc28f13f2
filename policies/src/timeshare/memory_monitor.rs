//! Working-set monitor: reports where a memory estimate is wrong.
//!
//! The first estimate is what a job declares. It holds until more than it and a thirty-second part of it is
//! resident: then the estimate is what is resident and an eighth for further growth ([`with_margin`]). An
//! estimate falls only when a job has run for a minute without a new peak, and by a quarter at least, for
//! programs begin small. On a full node each further sixty-fourth of a job that has outgrown its declaration
//! is reported, so that the margin stays current.
//!
//! A node is *under memory pressure* where a job has outgrown its declaration and seven eighths of the node's
//! capacity is resident; or where its cgroup is charged with as much, caches included, and faults or stalls
//! show that the kernel takes away memory in use. Pressure is reported once a second, and with every job that
//! grows.
//!
//! Apart from its estimate, which is for packing, a job has a *footprint*, by which it is planned where jobs
//! wait for their turns (`Footprint`, in `footprint.rs`).

mod footprint;

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{Bytes, Cluster, JobId, NodeId, Placement, SchedulerEvent, SimTime};
use footprint::Footprint;

/// A job has settled when it ran for this time without a new peak.
const SETTLED: Duration = Duration::from_secs(60);
/// A node whose running jobs are stopped is reported as often.
const REMIND_EVERY: Duration = Duration::from_secs(1);
/// The time over which faults and stalls are counted.
const WINDOW: Duration = Duration::from_secs(1);
/// Major faults in a second from which on the kernel takes away memory in use.
const FAULTS_MAX: u64 = 100;
/// The same, in thousandths of the time stalled (pressure stall information, `some`).
const STALL_MAX: u64 = 100;

/// The estimate for a job of which `resident` was measured.
#[must_use]
pub const fn with_margin(resident: Bytes) -> Bytes {
    resident.saturating_add(Bytes(resident.0.div_ceil(8)))
}

/// What was measured of a job on a node at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobSample {
    pub job: JobId,
    /// Memory in use, also in swap, without caches of files.
    pub resident: Bytes,
    /// Page faults so far that had to wait for a disk.
    pub major_faults: u64,
    pub stage: Stage,
}

/// What a job does while it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Runs,
    /// Frozen, all of it in memory: it cannot change.
    Rests,
    /// On its way out or in.
    Moves,
}

/// Why a node is under memory pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pressure {
    /// Of all its jobs.
    #[serde(rename = "held")]
    pub resident: Bytes,
    /// Their major faults in a second.
    pub faults: u64,
    /// How long some process of its jobs stalled for memory, in thousandths of the time.
    pub stall: u64,
}

/// A report to the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The estimate for the job on this node is wrong.
    Resident {
        job: JobId,
        node: NodeId,
        resident: Bytes,
    },
    MemoryPressure {
        node: NodeId,
        pressure: Pressure,
    },
    /// The job has another footprint than was reported last.
    Footprint {
        job: JobId,
        node: NodeId,
        resident: Bytes,
        /// By how much a second it grows while it runs, where it ran for long enough to tell.
        growth: Option<Bytes>,
        /// Whether it holds just that until it runs again.
        exact: bool,
    },
    /// The running jobs of the node exceed their allowance and are stopped.
    RunningStopped {
        node: NodeId,
    },
}

impl From<Finding> for SchedulerEvent {
    fn from(finding: Finding) -> Self {
        match finding {
            Finding::Resident { job, node, resident } => Self::Resident { job, node, resident },
            Finding::MemoryPressure { node, .. } => Self::MemoryPressure { node },
            Finding::Footprint { job, node, resident, growth, exact } => {
                Self::Footprint { job, node, resident, growth, exact }
            }
            Finding::RunningStopped { node } => Self::RunningStopped { node },
        }
    }
}

/// A job on one node.
#[derive(Clone, Debug)]
struct Part {
    estimate: Bytes,
    /// Whether it has outgrown what it declared.
    outgrown: bool,
    /// The resident memory that was reported last.
    reported: Bytes,
    peak: Bytes,
    /// How long it ran since its peak.
    since_peak: Duration,
    /// When it was last sampled, if it ran then.
    seen: Option<SimTime>,
    faults: Option<u64>,
    footprint: Footprint,
}

/// Faults and stalls of a node since a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    began: SimTime,
    faults: u64,
    stall: Option<Duration>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct MemoryMonitor {
    cluster: Cluster,
    parts: BTreeMap<(NodeId, JobId), Part>,
    windows: BTreeMap<NodeId, Window>,
    pressure_reported: BTreeMap<NodeId, SimTime>,
    stop_reported: BTreeMap<NodeId, SimTime>,
}

impl MemoryMonitor {
    #[must_use]
    pub fn new(cluster: Cluster) -> Self {
        let (parts, windows) = (BTreeMap::new(), BTreeMap::new());
        let (pressure_reported, stop_reported) = (BTreeMap::new(), BTreeMap::new());
        Self { cluster, parts, windows, pressure_reported, stop_reported }
    }

    /// A job was placed that declares as much for each of its ranks.
    pub fn on_launched(&mut self, job: JobId, placement: &Placement, declared: Bytes) {
        for block in placement.blocks() {
            let part = Part {
                estimate: declared.times(block.ranks),
                outgrown: false,
                reported: Bytes(0),
                peak: Bytes(0),
                since_peak: Duration::ZERO,
                seen: None,
                faults: None,
                footprint: Footprint::default(),
            };
            self.parts.insert((block.node, job), part);
        }
    }

    pub fn on_ended(&mut self, job: JobId) {
        self.parts.retain(|(_, of), _| *of != job);
    }

    /// Takes a sample of `node`: what its cgroup is charged with, how long its processes have stalled so far,
    /// where that is known, and its jobs.
    pub fn on_sample(
        &mut self,
        now: SimTime,
        node: NodeId,
        charged: Bytes,
        stall: Option<Duration>,
        jobs: &[JobSample],
    ) -> Vec<Finding> {
        self.forget_absent(node, jobs);
        let resident: Bytes = jobs.iter().map(|sample| sample.resident).sum();
        let full = self.full(node, resident);
        let mut found = Vec::new();
        let mut faults = 0;
        for sample in jobs {
            let Some(part) = self.parts.get_mut(&(node, sample.job)) else { continue };
            // After a restore the cgroup is another one, and counts anew.
            let before = part.faults.replace(sample.major_faults).unwrap_or(sample.major_faults);
            faults += sample.major_faults.saturating_sub(before);
            let (ran, job) = (part.ran(now, sample), sample.job);
            if let Some(resident) = part.learn(ran, sample, full) {
                found.push(Finding::Resident { job, node, resident });
            }
            if part.footprint.on_sample(ran, sample, self.cluster.capacity(node)) {
                found.push(part.footprint.finding(job, node));
            }
        }
        let pressure = self.pressure(now, node, stall, resident, faults);
        let thrashes =
            self.full(node, charged) && (pressure.faults >= FAULTS_MAX || pressure.stall >= STALL_MAX);
        let reported = self.pressure_reported.get(&node);
        let quiet = reported.is_none_or(|reported| now.since(*reported) >= WINDOW);
        if (full || thrashes) && self.any_outgrown(node, jobs) && (quiet || !found.is_empty()) {
            self.pressure_reported.insert(node, now);
            found.push(Finding::MemoryPressure { node, pressure });
        }
        found
    }

    /// The time that a job is out of memory is not time that it ran.
    fn forget_absent(&mut self, node: NodeId, jobs: &[JobSample]) {
        let here = self.parts.range_mut((node, JobId(0))..=(node, JobId(u32::MAX)));
        for ((_, job), part) in here {
            part.seen = part.seen.filter(|_| jobs.iter().any(|sample| sample.job == *job));
        }
    }

    /// A job left memory with an image of so many bytes: it comes back with as much.
    pub fn on_dumped(&mut self, job: JobId, node: NodeId, image: Bytes) -> Option<Finding> {
        let part = self.parts.get_mut(&(node, job))?;
        part.footprint.on_dumped(image).then(|| part.footprint.finding(job, node))
    }

    /// Whether the running jobs of the node are stopped at this moment.
    pub fn on_look(&mut self, now: SimTime, node: NodeId, stopped: bool) -> Option<Finding> {
        if !stopped {
            self.stop_reported.remove(&node);
            return None;
        }
        let reported = self.stop_reported.get(&node);
        let news = reported.is_none_or(|reported| now.since(*reported) >= REMIND_EVERY);
        news.then(|| {
            self.stop_reported.insert(node, now);
            Finding::RunningStopped { node }
        })
    }

    /// Whether `bytes` are seven eighths of the node's capacity.
    fn full(&self, node: NodeId, bytes: Bytes) -> bool {
        bytes.0 >= self.cluster.capacity(node).0 / 8 * 7
    }

    fn any_outgrown(&self, node: NodeId, jobs: &[JobSample]) -> bool {
        let outgrown = |part: &Part| part.outgrown;
        let is_there = jobs.iter().filter(|sample| sample.resident.0 > 0);
        is_there.filter_map(|sample| self.parts.get(&(node, sample.job))).any(outgrown)
    }

    /// Faults and stalls are known at the end of a window; before it they are 0.
    fn pressure(
        &mut self,
        now: SimTime,
        node: NodeId,
        stall: Option<Duration>,
        resident: Bytes,
        faults: u64,
    ) -> Pressure {
        let window = self.windows.entry(node).or_insert(Window { began: now, faults: 0, stall });
        window.faults += faults;
        let passed = now.since(window.began);
        if passed < WINDOW {
            return Pressure { resident, faults: 0, stall: 0 };
        }
        let stalled = stall.zip(window.stall).map(|(now, then)| now.saturating_sub(then));
        let by =
            |amount: u128, unit: u128| u64::try_from(amount * unit / passed.as_nanos()).unwrap_or(u64::MAX);
        let faults = by(window.faults.into(), 1_000_000_000);
        *window = Window { began: now, faults: 0, stall };
        Pressure { resident, faults, stall: by(stalled.unwrap_or_default().as_nanos(), 1000) }
    }
}

impl Part {
    /// How long the job ran since it was last sampled, if it ran then; `None` where it does not run now.
    fn ran(&mut self, now: SimTime, sample: &JobSample) -> Option<Duration> {
        let before = self.seen.take();
        self.seen = (sample.stage == Stage::Runs).then_some(now);
        self.seen.map(|_| before.map_or(Duration::ZERO, |before| now.since(before)))
    }

    /// The resident memory to report, where the estimate is wrong.
    fn learn(&mut self, ran: Option<Duration>, sample: &JobSample, full: bool) -> Option<Bytes> {
        self.since_peak += ran?;
        if sample.resident > self.peak {
            (self.peak, self.since_peak) = (sample.resident, Duration::ZERO);
        }
        // On a full node the margin has to be current.
        let grows_on = full && self.outgrown && sample.resident.0 > self.reported.0 + self.reported.0 / 64;
        if grows_on || sample.resident.0 > self.estimate.0.saturating_add(self.estimate.0 / 32) {
            (self.reported, self.estimate) = (sample.resident, with_margin(sample.resident));
            self.outgrown = true;
            return Some(sample.resident);
        }
        let less = with_margin(self.peak);
        if self.since_peak >= SETTLED && less.0 < self.estimate.0 / 4 * 3 {
            (self.reported, self.estimate) = (self.peak, less);
            return Some(self.peak);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NODE: NodeId = NodeId(1);
    const MIB: u64 = 1 << 20;

    /// Two jobs of two ranks on two nodes of 1000 MiB, which declare 300 and 400 MiB a rank.
    fn monitor() -> MemoryMonitor {
        let mut monitor = MemoryMonitor::new(Cluster::uniform(2, Bytes::mib(1000)));
        let placement = Placement::from_shares(&[1, 1]);
        monitor.on_launched(JobId(0), &placement, Bytes::mib(300));
        monitor.on_launched(JobId(1), &placement, Bytes::mib(400));
        monitor
    }

    fn sample(job: u32, mib: u64, major_faults: u64) -> JobSample {
        JobSample { job: JobId(job), resident: Bytes::mib(mib), major_faults, stage: Stage::Runs }
    }

    fn at(tenths: u64) -> SimTime {
        Duration::from_millis(100 * tenths).into()
    }

    fn resident(job: u32, mib: u64) -> Finding {
        Finding::Resident { job: JobId(job), node: NODE, resident: Bytes::mib(mib) }
    }

    #[test]
    fn growth_is_reported_when_it_passes_the_estimate() {
        let mut monitor = monitor();
        let mut see = |tenths, mib| monitor.on_sample(at(tenths), NODE, Bytes(0), None, &[sample(0, mib, 0)]);
        assert_eq!(see(0, 300), []);
        assert_eq!(see(1, 309), []);
        assert_eq!(see(2, 320), [resident(0, 320)]);
        assert_eq!(see(3, 360), [], "the new estimate covers it");
        assert_eq!(see(4, 380), [resident(0, 380)]);
    }

    #[test]
    fn a_job_that_does_not_run_is_not_measured() {
        let mut monitor = monitor();
        let moving = JobSample { stage: Stage::Moves, ..sample(0, 900, 0) };
        assert_eq!(monitor.on_sample(at(0), NODE, Bytes(0), None, &[moving, sample(7, 900, 0)]), []);
    }

    #[test]
    fn the_estimate_falls_once_a_job_has_settled() {
        let mut monitor = monitor();
        let mut reports = Vec::new();
        for tenths in 0..1300 {
            let mib = if tenths == 500 { 150 } else { 100 };
            let found = monitor.on_sample(at(tenths), NODE, Bytes(0), None, &[sample(1, mib, 0)]);
            let estimates = found.into_iter().filter(|found| matches!(found, Finding::Resident { .. }));
            reports.extend(estimates.map(|finding| (tenths, finding)));
        }
        assert_eq!(reports, [(1100, resident(1, 150))], "a minute after its last peak");
    }

    #[test]
    fn time_out_of_memory_does_not_settle_a_job() {
        let mut monitor = monitor();
        let mut see = |tenths, jobs: &[JobSample]| monitor.on_sample(at(tenths), NODE, Bytes(0), None, jobs);
        assert_eq!(see(0, &[sample(1, 100, 0)]), []);
        assert_eq!(see(1, &[]), [], "it left");
        assert_eq!(see(1000, &[sample(1, 100, 0)]), []);
    }

    #[test]
    fn a_full_node_is_under_pressure_only_where_a_job_outgrew_its_declaration() {
        let mut monitor = monitor();
        let mut see = |tenths, a, b| {
            let found =
                monitor.on_sample(at(tenths), NODE, Bytes(0), None, &[sample(0, a, 0), sample(1, b, 0)]);
            found.iter().any(|finding| matches!(finding, Finding::MemoryPressure { .. }))
        };
        assert!(!see(0, 300, 400));
        assert!(!see(1, 400, 400), "more than declared, but the node is not full");
        assert!(see(2, 500, 400));
        assert!(!see(3, 500, 400), "once a second");
        assert!(see(4, 510, 400), "or with a job that grows on");
        assert!(see(14, 510, 400));
    }

    #[test]
    fn faults_and_stalls_mean_pressure_where_the_cgroup_is_full() {
        let see = |charged, faults, stall: Option<u64>| {
            let mut monitor = monitor();
            let stall = |tenths: u64| stall.map(|ms| Duration::from_millis(ms * tenths / 10));
            (0..=10).any(|tenths| {
                let jobs = [sample(0, 400, faults * tenths / 10)];
                let found = monitor.on_sample(at(tenths), NODE, Bytes::mib(charged), stall(tenths), &jobs);
                found.iter().any(|finding| matches!(finding, Finding::MemoryPressure { .. }))
            })
        };
        assert!(see(990, 100, None) && see(990, 0, Some(100)));
        assert!(!see(990, 90, Some(90)), "programs fault as they start");
        assert!(!see(500, 500, Some(900)), "the node is not full");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_job_that_grows_and_shrinks_at_will_is_reported_a_few_times_only(
            sizes in prop::collection::vec(1u64..1000, 1..300)) {
            let mut monitor = monitor();
            let (mut reports, mut estimate) = (0, 300 * MIB);
            for (tenths, mib) in (0..).zip(&sizes) {
                for finding in monitor.on_sample(at(tenths), NODE, Bytes(0), None, &[sample(0, *mib, 0)]) {
                    let Finding::Resident { resident, .. } = finding else { continue };
                    prop_assert!(with_margin(resident).0 > estimate, "only growth within a minute");
                    (reports, estimate) = (reports + 1, with_margin(resident).0);
                }
                prop_assert!(mib * MIB <= estimate / 32 * 33 + 32, "never far above the estimate");
            }
            // From 300 MiB to 875 MiB by an eighth and more each time, then by a sixty-fourth.
            prop_assert!(reports <= 20, "{}", reports);
        }
    }
}
