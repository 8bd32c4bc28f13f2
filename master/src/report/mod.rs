//! The report of a run: a fold over its journal, and nothing else.
//!
//! Times come from `policies::metrics`, where every number is defined; what was moved and held is summed up here.

mod causes;
pub mod csv;
mod fold;
mod history;
mod lives;
pub(crate) mod memory;
pub mod page;
pub(crate) mod table;
pub mod trace;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use coswitch_policies::{Bytes, Class, Communication, JobId, NodeId, Policy};
use serde::{Serialize, Serializer};

use crate::journal::{JobOutcome, MachineUse, Phase, RankMeasured, RunOutcome};

pub use fold::fold;

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// What the run's directories are called.
    pub run: String,
    /// The run file's name.
    pub name: String,
    /// The limits of the matrix.
    pub policy: Option<Policy>,
    /// How many nodes.
    pub nodes: u32,
    /// What one node may hold.
    pub capacity: Bytes,
    /// How it ended; `None` where the journal was cut off.
    pub outcome: Option<RunOutcome>,
    /// Each job, in order.
    pub jobs: Vec<JobReport>,
    /// The set.
    pub set: SetReport,
    /// Each node's memory.
    pub memory: Vec<NodeMemory>,
    /// What the machine did meanwhile, other programs included; `None` where it is not told.
    pub machine: Option<MachineUse>,
    /// What the switches did, by step.
    pub phases: BTreeMap<Phase, PhaseTotal>,
    /// What each directory of the store took, each snapshot on each node counted.
    pub stored: BTreeMap<PathBuf, Bytes>,
    /// How sets and jobs outgrew what was declared, in words.
    pub outgrown: Vec<String>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

impl Report {
    /// The share of the ranks' running time that they waited for messages.
    pub fn waiting(&self) -> f64 {
        let waited: Duration = self.jobs.iter().map(|job| job.waiting).sum();
        waited.as_secs_f64() / self.jobs.iter().map(JobReport::ran).sum::<f64>().max(f64::MIN_POSITIVE)
    }
}

impl JobReport {
    /// Seconds that its ranks ran, together.
    fn ran(&self) -> f64 {
        self.times.as_ref().map_or(0.0, |times| times.run.as_secs_f64() * f64::from(self.ranks))
    }

    /// The share of that in which they waited for messages; `None` where it did not run to its end.
    pub fn waiting_share(&self) -> Option<f64> {
        Some(self.ran()).filter(|ran| *ran > 0.0).map(|ran| self.waiting.as_secs_f64() / ran)
    }
}

/// One job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobReport {
    /// Its number.
    pub job: JobId,
    /// Its name.
    pub name: String,
    /// Its ranks.
    pub ranks: u32,
    /// How it ended; `None` where it did not.
    pub outcome: Option<JobOutcome>,
    /// Its times, where it ended.
    #[serde(flatten)]
    pub times: Option<JobTimes>,
    /// How often it was restored.
    pub restores: u32,
    /// What its ranks have waited for messages, together.
    #[serde(rename = "waiting_s", serialize_with = "seconds")]
    pub waiting: Duration,
    /// What they have sent.
    pub sent: Bytes,
    /// The working set of one rank, as declared.
    pub declared: Bytes,
    /// The most that it was seen to hold on one node, where that was not what was declared.
    pub held: Option<Bytes>,
    /// How much it communicates, as last measured; `None` where it never was.
    pub communication: Option<JobCommunication>,
    /// The last lines it wrote, where it failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_output: String,
}

/// How much a job communicates, smoothed, as it was last measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct JobCommunication {
    /// What kind of job it is.
    pub class: Class,
    /// How often it became one of another kind, the first time included.
    pub changes: u32,
    /// The share of its time that it waits for messages, in thousandths.
    pub share: u16,
    /// What it sends in a second.
    pub bytes_per_second: Bytes,
    /// The same of each rank.
    pub ranks: Vec<RankMeasured>,
}

impl JobCommunication {
    fn learn(&mut self, share: Communication, bytes_per_second: Bytes, ranks: &[RankMeasured]) {
        let class = self.class.after(share);
        self.changes += u32::from(class != self.class);
        (self.class, self.share, self.bytes_per_second) = (class, share.get(), bytes_per_second);
        self.ranks.retain(|known| ranks.iter().all(|rank| rank.rank != known.rank));
        self.ranks.extend(ranks);
        self.ranks.sort_by_key(|rank| rank.rank);
    }
}

/// The times of a job, in seconds where they are serialised.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobTimes {
    /// Until it first ran.
    #[serde(rename = "wait_s", serialize_with = "seconds")]
    pub wait: Duration,
    /// In memory and running.
    #[serde(rename = "run_s", serialize_with = "seconds")]
    pub run: Duration,
    /// Out of its turn in memory, or on its way.
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
    /// By `alone`, else by `run`.
    pub slowdown: Option<f64>,
}

/// The whole set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SetReport {
    /// From the first submission to the last end.
    #[serde(rename = "makespan_s", serialize_with = "seconds")]
    pub makespan: Duration,
    /// Node time with a job running.
    pub utilisation: f64,
    /// Switches that stopped a set.
    pub switches: u32,
    /// Those of them that were sequential because memory did not hold both sets.
    pub fallbacks: u32,
    /// Time exposed by them.
    #[serde(rename = "exposed_s", serialize_with = "seconds")]
    pub exposed: Duration,
    /// Its share of the makespan.
    pub overhead: f64,
    /// Written by dumps.
    pub bytes_out: Bytes,
    /// Read by restores.
    pub bytes_in: Bytes,
    /// The working sets of all jobs.
    pub memory_total: Bytes,
    /// First term of the trade-off metric.
    pub relative_makespan: Option<f64>,
    /// Second term.
    pub spread: f64,
    /// Their sum.
    pub tradeoff: Option<f64>,
}

/// One node's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeMemory {
    /// The node.
    pub node: NodeId,
    /// The most its jobs held together.
    pub peak: Bytes,
    /// What they may hold.
    pub capacity: Bytes,
    /// How often it was looked at.
    pub samples: u32,
}

impl NodeMemory {
    /// Whether its jobs never held more than they may.
    pub fn is_within(&self) -> bool {
        self.peak <= self.capacity
    }
}

/// One step of all switches together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PhaseTotal {
    /// How often, counting each job on each node.
    pub count: u32,
    /// How long in all.
    #[serde(rename = "total_s", serialize_with = "seconds")]
    pub total: Duration,
    /// The longest.
    #[serde(rename = "longest_s", serialize_with = "seconds")]
    pub longest: Duration,
    /// How much of it was hidden: some job computed meanwhile.
    #[serde(rename = "hidden_s", serialize_with = "seconds")]
    pub hidden: Duration,
    /// What was moved.
    pub bytes: Bytes,
}

fn seconds<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(span.as_secs_f64())
}

fn optional_seconds<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    span.map(|span| span.as_secs_f64()).serialize(serializer)
}
