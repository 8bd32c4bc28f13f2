//! What jobs hold, against what is assumed of them: which samples of the nodes' cgroups the scheduler has to hear of.
//!
//! What a job declares is the first guess. It is believed until the job holds more by a thirty-second part: then what it
//! holds, and an eighth for its further growth ([`with_margin`]), is assumed instead. It is assumed to need less only when it has
//! run for a minute without a new peak, and by a quarter at least, for programs begin small. On a
//! full node each further sixty-fourth of a job that has outgrown its declaration is told, so that the margin is one of now.
//!
//! A node is *under_pressure* where a job has outgrown its declaration and all jobs there hold seven eighths of what it offers; or its group
//! is as full, caches included, and faults or stalls show that the kernel takes away what is in use. Told once a second, and with news of who grows.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{Bytes, Cluster, JobId, NodeId, Placement, SimTime};

/// A job that never had a new peak for so long, of the time it ran, is taken for what it is.
const SETTLED: Duration = Duration::from_secs(60);
/// Faults and stalls are counted over so long.
const WINDOW: Duration = Duration::from_secs(1);
/// So many major faults a second show that memory in use is taken away.
const FAULTS_MAX: u64 = 100;
/// So many thousandths of the time stalled do (pressure stall information, `some`).
const STALL_MAX: u64 = 100;

/// What is assumed of a job that was seen to hold `held`.
#[must_use]
pub const fn with_margin(held: Bytes) -> Bytes {
    held.saturating_add(Bytes(held.0.div_ceil(8)))
}

/// What a job holds of a node at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobSample {
    /// The job.
    pub job: JobId,
    /// In memory or in swap, without caches of files.
    pub held: Bytes,
    /// Page faults so far that had to wait for a disk.
    pub major_faults: u64,
    /// Whether it runs: else it may be on its way out or in.
    pub runs: bool,
}

/// Why a node is under_pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pressure {
    /// What its jobs hold.
    pub held: Bytes,
    /// Their major faults in a second.
    pub faults: u64,
    /// How long some process of its jobs stalled for memory, in thousandths of the time.
    pub stall: u64,
}

/// Something the scheduler has to hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// See [`SchedulerEvent::Held`](crate::SchedulerEvent::Held).
    Held {
        /// The job.
        job: JobId,
        /// Where.
        node: NodeId,
        /// How much.
        held: Bytes,
    },
    /// See [`SchedulerEvent::MemoryPressure`](crate::SchedulerEvent::MemoryPressure).
    MemoryPressure {
        /// Which node.
        node: NodeId,
        /// Why.
        pressure: Pressure,
    },
}

/// A job on one node.
#[derive(Clone, Copy, Debug)]
struct Part {
    assumed: Bytes,
    /// Whether it has outgrown what it declared.
    outgrown: bool,
    /// What was told last.
    told: Bytes,
    peak: Bytes,
    /// How long it ran since the peak was new, up to when it was last seen to run.
    since_peak: Duration,
    seen: Option<SimTime>,
    faults: Option<u64>,
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
    told: BTreeMap<NodeId, SimTime>,
}

impl MemoryMonitor {
    /// Nothing is known.
    #[must_use]
    pub const fn new(cluster: Cluster) -> Self {
        Self { cluster, parts: BTreeMap::new(), windows: BTreeMap::new(), told: BTreeMap::new() }
    }

    /// A job was placed and declares so much for each rank.
    pub fn on_launched(&mut self, job: JobId, placement: &Placement, declared: Bytes) {
        for block in placement.blocks() {
            let assumed = declared.times(block.ranks);
            let (peak, since_peak) = (Bytes(0), Duration::ZERO);
            let part =
                Part { assumed, outgrown: false, told: Bytes(0), peak, since_peak, seen: None, faults: None };
            self.parts.insert((block.node, job), part);
        }
    }

    /// A job is over.
    pub fn on_ended(&mut self, job: JobId) {
        self.parts.retain(|(_, of), _| *of != job);
    }

    /// What the group of `node` is charged with, how long its processes have stalled so far, where that is known, and its jobs.
    pub fn on_sample(
        &mut self,
        now: SimTime,
        node: NodeId,
        charged: Bytes,
        stall: Option<Duration>,
        jobs: &[JobSample],
    ) -> Vec<Finding> {
        let held: Bytes = jobs.iter().map(|sample| sample.held).sum();
        let full = self.full(node, held);
        let mut found = Vec::new();
        let mut faults = 0;
        for sample in jobs {
            let Some(part) = self.parts.get_mut(&(node, sample.job)) else { continue };
            // After a restore the group is another one.
            let before = part.faults.replace(sample.major_faults).unwrap_or(sample.major_faults);
            faults += sample.major_faults.saturating_sub(before);
            if let Some(held) = part.learn(now, sample, full) {
                found.push(Finding::Held { job: sample.job, node, held });
            }
        }
        let pressure = self.pressure(now, node, stall, held, faults);
        let thrashes =
            self.full(node, charged) && (pressure.faults >= FAULTS_MAX || pressure.stall >= STALL_MAX);
        let quiet = self.told.get(&node).is_none_or(|told| now.since(*told) >= WINDOW);
        if (full || thrashes) && self.any_outgrown(node, jobs) && (quiet || !found.is_empty()) {
            self.told.insert(node, now);
            found.push(Finding::MemoryPressure { node, pressure });
        }
        found
    }

    /// Whether so much is seven eighths of what the node offers.
    fn full(&self, node: NodeId, bytes: Bytes) -> bool {
        bytes.0 >= self.cluster.capacity(node).0 / 8 * 7
    }

    fn any_outgrown(&self, node: NodeId, jobs: &[JobSample]) -> bool {
        let outgrown = |part: &Part| part.outgrown;
        let is_there = jobs.iter().filter(|sample| sample.held.0 > 0);
        is_there.filter_map(|sample| self.parts.get(&(node, sample.job))).any(outgrown)
    }

    /// Faults and stalls are known where a window is over, else none.
    fn pressure(
        &mut self,
        now: SimTime,
        node: NodeId,
        stall: Option<Duration>,
        held: Bytes,
        faults: u64,
    ) -> Pressure {
        let window = self.windows.entry(node).or_insert(Window { began: now, faults: 0, stall });
        window.faults += faults;
        let passed = now.since(window.began);
        if passed < WINDOW {
            return Pressure { held, faults: 0, stall: 0 };
        }
        let stalled = stall.zip(window.stall).map(|(now, then)| now.saturating_sub(then));
        let by =
            |amount: u128, unit: u128| u64::try_from(amount * unit / passed.as_nanos()).unwrap_or(u64::MAX);
        let faults = by(window.faults.into(), 1_000_000_000);
        *window = Window { began: now, faults: 0, stall };
        Pressure { held, faults, stall: by(stalled.unwrap_or_default().as_nanos(), 1000) }
    }
}

impl Part {
    /// What the scheduler has to hear that it holds.
    fn learn(&mut self, now: SimTime, sample: &JobSample, full: bool) -> Option<Bytes> {
        let before = self.seen.take();
        if !sample.runs {
            return None;
        }
        self.seen = Some(now);
        let ran = before.map_or(Duration::ZERO, |before| now.since(before));
        self.since_peak += ran;
        if sample.held > self.peak {
            (self.peak, self.since_peak) = (sample.held, Duration::ZERO);
        }
        // On a full node the margin has to be one of now.
        let grows_on = full && self.outgrown && sample.held.0 > self.told.0 + self.told.0 / 64;
        if grows_on || sample.held.0 > self.assumed.0.saturating_add(self.assumed.0 / 32) {
            (self.told, self.assumed) = (sample.held, with_margin(sample.held));
            self.outgrown = true;
            return Some(sample.held);
        }
        let less = with_margin(self.peak);
        if self.since_peak >= SETTLED && less.0 < self.assumed.0 / 4 * 3 {
            (self.told, self.assumed) = (self.peak, less);
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

    /// Two jobs of two ranks on two nodes of 1000 MiB, that declare 300 and 400 MiB a rank.
    fn watch() -> MemoryMonitor {
        let mut watch = MemoryMonitor::new(Cluster::uniform(2, Bytes::mib(1000)));
        let placement = Placement::from_shares(&[1, 1]);
        watch.on_launched(JobId(0), &placement, Bytes::mib(300));
        watch.on_launched(JobId(1), &placement, Bytes::mib(400));
        watch
    }

    fn sample(job: u32, mib: u64, major_faults: u64) -> JobSample {
        JobSample { job: JobId(job), held: Bytes::mib(mib), major_faults, runs: true }
    }

    fn at(tenths: u64) -> SimTime {
        Duration::from_millis(100 * tenths).into()
    }

    fn held(job: u32, mib: u64) -> Finding {
        Finding::Held { job: JobId(job), node: NODE, held: Bytes::mib(mib) }
    }

    #[test]
    fn growth_is_told_when_it_passes_what_is_assumed() {
        let mut watch = watch();
        let mut see = |tenths, mib| watch.on_sample(at(tenths), NODE, Bytes(0), None, &[sample(0, mib, 0)]);
        assert_eq!(see(0, 300), []);
        assert_eq!(see(1, 309), []);
        assert_eq!(see(2, 320), [held(0, 320)]);
        assert_eq!(see(3, 360), [], "that much was assumed meanwhile");
        assert_eq!(see(4, 380), [held(0, 380)]);
    }

    #[test]
    fn a_job_that_is_on_its_way_is_not_measured() {
        let mut watch = watch();
        let moving = JobSample { runs: false, ..sample(0, 900, 0) };
        assert_eq!(watch.on_sample(at(0), NODE, Bytes(0), None, &[moving, sample(7, 900, 0)]), []);
    }

    #[test]
    fn a_job_needs_less_once_it_has_settled() {
        let mut watch = watch();
        let mut told = Vec::new();
        for tenths in 0..1300 {
            let mib = if tenths == 500 { 150 } else { 100 };
            let found = watch.on_sample(at(tenths), NODE, Bytes(0), None, &[sample(1, mib, 0)]);
            told.extend(found.into_iter().map(|finding| (tenths, finding)));
        }
        assert_eq!(told, [(1100, held(1, 150))], "a minute after its last peak");
    }

    #[test]
    fn a_full_node_is_pressed_only_by_who_outgrew_its_word() {
        let mut watch = watch();
        let mut see = |tenths, a, b| {
            let found =
                watch.on_sample(at(tenths), NODE, Bytes(0), None, &[sample(0, a, 0), sample(1, b, 0)]);
            found.iter().any(|finding| matches!(finding, Finding::MemoryPressure { .. }))
        };
        assert!(!see(0, 300, 400));
        assert!(!see(1, 400, 400), "more than it said, and there is room");
        assert!(see(2, 500, 400));
        assert!(!see(3, 500, 400), "once a second");
        assert!(see(4, 510, 400), "or with who grows on");
        assert!(see(14, 510, 400));
    }

    #[test]
    fn faults_and_stalls_press_a_node_whose_group_is_full() {
        let see = |charged, faults, stall: Option<u64>| {
            let mut watch = watch();
            let stall = |tenths: u64| stall.map(|ms| Duration::from_millis(ms * tenths / 10));
            (0..=10).any(|tenths| {
                let jobs = [sample(0, 400, faults * tenths / 10)];
                let found = watch.on_sample(at(tenths), NODE, Bytes::mib(charged), stall(tenths), &jobs);
                found.iter().any(|finding| matches!(finding, Finding::MemoryPressure { .. }))
            })
        };
        assert!(see(990, 100, None) && see(990, 0, Some(100)));
        assert!(!see(990, 90, Some(90)), "programs fault as they start");
        assert!(!see(500, 500, Some(900)), "the node has room");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_job_that_grows_and_shrinks_at_will_is_told_a_few_times_only(sizes in prop::collection::vec(1u64..1000, 1..300)) {
            let mut watch = watch();
            let (mut told, mut assumed) = (0, 300 * MIB);
            for (tenths, mib) in (0..).zip(&sizes) {
                for finding in watch.on_sample(at(tenths), NODE, Bytes(0), None, &[sample(0, *mib, 0)]) {
                    let Finding::Held { held, .. } = finding else { continue };
                    prop_assert!(with_margin(held).0 > assumed, "only growth within a minute");
                    (told, assumed) = (told + 1, with_margin(held).0);
                }
                prop_assert!(mib * MIB <= assumed / 32 * 33 + 32, "what is held is never far above what is assumed");
            }
            // From 300 MiB to 875 MiB by an eighth and more each time, then by a sixty-fourth.
            prop_assert!(told <= 20, "{}", told);
        }
    }
}
