//! The report of a run, in numbers. Durations are serialised in seconds.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use coswitch_policies::{
    Bytes, Capacity, Class, Communication, JobId, NodeId, Policy, spaceshare::sharing::SpaceSharing,
};
use serde::{Deserialize, Serialize, Serializer};

use crate::{
    coscheduling::{JobTasks, NodeTasks},
    forecasts::Forecasts,
    journal::{JobOutcome, MachineUse, RankMeasured, RunOutcome, SwitchStep},
    paging::Paging,
    slices::Slices,
    snapshots::{Checkpoints, Copies},
};

/// The report of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The name of the run's directories.
    pub run: String,
    /// The run file's name.
    pub name: String,
    pub policy: Option<Policy>,
    /// The queue and the allocator, where jobs had nodes of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub space: Option<SpaceSharing>,
    pub nodes: u32,
    /// Memory that each node offers.
    pub capacity: Capacity,
    /// `None` where the journal was cut off.
    pub outcome: Option<RunOutcome>,
    pub jobs: Vec<JobReport>,
    /// So many jobs ended before those that are listed; the journal was compacted.
    #[serde(skip_serializing_if = "is_zero")]
    pub unlisted: u64,
    pub set: SetReport,
    pub memory: Vec<NodeMemory>,
    /// What the node scheduler of each node has counted; empty where there was none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes_scheduled: Vec<NodeTasks>,
    /// Counters of the machine over the run; `None` where the journal lacks them.
    pub machine: Option<MachineUse>,
    /// `None` where no jobs took slices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slices: Option<Slices>,
    /// `None` where no job was checkpointed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<Checkpoints>,
    /// `None` where no snapshot was copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<Copies>,
    /// The steps of all switches.
    #[serde(rename = "phases")]
    pub steps: BTreeMap<SwitchStep, StepTotal>,
    /// The size of all snapshots in each directory of the store, over all nodes.
    pub stored: BTreeMap<PathBuf, Bytes>,
    /// `None` where no job waited for a turn.
    pub forecasts: Option<Forecasts>,
    /// One sentence for each set or job that outgrew what was declared.
    pub outgrown: Vec<String>,
    pub warnings: Vec<String>,
}

impl Report {
    /// The share of the ranks' running time that they waited for messages.
    pub fn waiting(&self) -> f64 {
        let waited: Duration = self.jobs.iter().map(|job| job.waiting).sum();
        waited.as_secs_f64()
            / self.jobs.iter().map(JobReport::rank_seconds).sum::<f64>().max(f64::MIN_POSITIVE)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobReport {
    pub job: JobId,
    pub name: String,
    pub ranks: u32,
    /// `None` where the job did not end.
    pub outcome: Option<JobOutcome>,
    /// `None` where the job did not end.
    #[serde(flatten)]
    pub times: Option<JobTimes>,
    /// How often the job was restored.
    pub restores: u32,
    /// Time that its ranks waited for messages, summed.
    #[serde(rename = "waiting_s", serialize_with = "seconds")]
    pub waiting: Duration,
    /// Payload that its ranks sent.
    pub sent: Bytes,
    /// The declared working set of one rank.
    pub declared: Bytes,
    /// The largest resident memory on one node, where it differed from the declared one.
    #[serde(rename = "held")]
    pub resident: Option<Bytes>,
    /// What it had to fetch from the disk.
    #[serde(flatten)]
    pub paging: Paging,
    /// What node schedulers have counted; `None` where they have not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<JobTasks>,
    /// The last measurement; `None` where there is none.
    pub communication: Option<JobCommunication>,
    /// The last lines that the job wrote, where it failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_output: String,
}

impl JobReport {
    /// Time that its ranks ran, summed, in seconds.
    fn rank_seconds(&self) -> f64 {
        self.times.as_ref().map_or(0.0, |times| times.run.as_secs_f64() * f64::from(self.ranks))
    }

    /// The share of the running time that its ranks waited for messages; `None` where the job did not end.
    pub fn waiting_share(&self) -> Option<f64> {
        Some(self.rank_seconds()).filter(|ran| *ran > 0.0).map(|ran| self.waiting.as_secs_f64() / ran)
    }
}

/// How much a job communicates, smoothed, as last measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobCommunication {
    pub class: Class,
    /// How often the class changed, including the first classification.
    pub changes: u32,
    /// The share of its time that the job waits for messages, in thousandths.
    pub share: u16,
    pub bytes_per_second: Bytes,
    pub ranks: Vec<RankMeasured>,
}

impl JobCommunication {
    pub(crate) fn update(&mut self, share: Communication, bytes_per_second: Bytes, ranks: &[RankMeasured]) {
        let class = self.class.after(share);
        self.changes += u32::from(class != self.class);
        (self.class, self.share, self.bytes_per_second) = (class, share.get(), bytes_per_second);
        self.ranks.retain(|known| ranks.iter().all(|rank| rank.rank != known.rank));
        self.ranks.extend(ranks);
        self.ranks.sort_by_key(|rank| rank.rank);
    }
}

/// Where the time of a job went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobTimes {
    /// From submission to the first run.
    #[serde(rename = "wait_s", serialize_with = "seconds")]
    pub wait: Duration,
    #[serde(rename = "run_s", serialize_with = "seconds")]
    pub run: Duration,
    /// Stopped in memory, or on the way in or out.
    #[serde(rename = "suspended_s", serialize_with = "seconds")]
    pub suspended: Duration,
    /// Out of memory.
    #[serde(rename = "parked_s", serialize_with = "seconds")]
    pub parked: Duration,
    /// From submission to end.
    #[serde(rename = "turnaround_s", serialize_with = "seconds")]
    pub turnaround: Duration,
    /// With the cluster to itself.
    #[serde(rename = "alone_s", serialize_with = "optional_seconds")]
    pub alone: Option<Duration>,
    /// Turnaround by `alone`, or by `run` where `alone` is unknown.
    pub slowdown: Option<f64>,
}

/// The numbers of the whole job set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SetReport {
    /// From the first submission to the last end.
    #[serde(rename = "makespan_s", serialize_with = "seconds")]
    pub makespan: Duration,
    /// The share of the node time with a job running.
    pub utilisation: f64,
    /// Switches that stopped a set.
    pub switches: u32,
    /// Switches that were sequential because memory did not hold both sets.
    pub fallbacks: u32,
    /// Time in which no job ran because of a switch.
    #[serde(rename = "exposed_s", serialize_with = "seconds")]
    pub exposed: Duration,
    /// Exposed time by makespan.
    pub overhead: f64,
    /// Bytes written by dumps.
    pub bytes_out: Bytes,
    /// Bytes read by restores.
    pub bytes_in: Bytes,
    /// The declared working sets of all jobs.
    pub memory_total: Bytes,
    /// First term of the trade-off metric.
    pub relative_makespan: Option<f64>,
    /// Second term of the trade-off metric.
    pub spread: f64,
    /// The trade-off metric: the sum of both.
    pub tradeoff: Option<f64>,
}

/// The memory of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeMemory {
    pub node: NodeId,
    /// The most that its jobs held together.
    pub peak: Bytes,
    /// Memory that the node offers.
    pub capacity: Bytes,
    pub samples: u32,
}

impl NodeMemory {
    /// Whether the jobs never held more than the node offers.
    pub fn is_within(&self) -> bool {
        self.peak <= self.capacity
    }
}

/// One kind of step, summed over all switches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StepTotal {
    /// How often; each job on each node counts.
    pub count: u32,
    #[serde(rename = "total_s", serialize_with = "seconds")]
    pub total: Duration,
    #[serde(rename = "longest_s", serialize_with = "seconds")]
    pub longest: Duration,
    /// The part of `total` in which some job computed.
    #[serde(rename = "hidden_s", serialize_with = "seconds")]
    pub hidden: Duration,
    /// Bytes moved.
    pub bytes: Bytes,
}

const fn is_zero(number: &u64) -> bool {
    *number == 0
}

pub(crate) fn seconds<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(span.as_secs_f64())
}

fn optional_seconds<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    span.map(|span| span.as_secs_f64()).serialize(serializer)
}
