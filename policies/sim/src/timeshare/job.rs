//! Jobs of the time-sharing simulator: a specification for the scheduler and the work to do; also random ones
//! by seed.

use std::time::Duration;

use coswitch_policies::{Bytes, Communication, JobId, JobSpec, SimTime, spaceshare::queue::QueueId};
use serde::{Deserialize, Serialize};

use super::memory::MemoryCurve;
use crate::Seed;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimJob {
    /// The part that the scheduler sees.
    pub spec: JobSpec,
    /// The time that the job takes alone, which the scheduler does not see.
    pub work: Duration,
    /// The share of its time alone in which it communicates, if known: `paired` mixes by it, and other jobs
    /// of its set may compute meanwhile.
    pub communication: Option<Communication>,
    /// What a rank holds over time, where that is not what the specification declares.
    pub memory: Option<MemoryCurve>,
    /// Processors that each rank keeps busy: more than one where a rank stands for the job's part of a node.
    pub processors: u32,
    /// Among the jobs of the scheduler; the higher one comes first.
    #[serde(default)]
    pub priority: i32,
    /// The longest time it may run, which backfilling relies on; it is not ended then.
    #[serde(default)]
    pub limit: Option<Duration>,
    /// Under `batch`, where the cluster is divided; the first one elsewhere.
    #[serde(default)]
    pub queue: QueueId,
}

/// The bounds of a random workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadShape {
    pub jobs: u32,
    /// Ranks of a job: one to this.
    pub ranks_max: u32,
    /// Working set of a rank: one byte to this.
    pub memory_max: Bytes,
    /// Work of a job: one millisecond to this.
    pub work_max: Duration,
    /// Jobs arrive, several at once now and then, during this time.
    pub arrivals_within: Duration,
}

#[must_use]
pub fn random_workload(seed: u64, shape: &WorkloadShape) -> Vec<SimJob> {
    let mut seed = Seed::new(seed);
    (0..shape.jobs).map(|id| random_job(&mut seed, id, shape)).collect()
}

fn random_job(seed: &mut Seed, id: u32, shape: &WorkloadShape) -> SimJob {
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let ranks = u32::try_from(seed.between(1, shape.ranks_max.into())).unwrap_or(u32::MAX);
    let memory_per_rank = Bytes(seed.between(1, shape.memory_max.0));
    let work = Duration::from_millis(seed.between(1, millis(shape.work_max)));
    // A third at the beginning, the others on whole tenths, so that jobs often arrive together.
    let tenth = if seed.chance(333) { 0 } else { seed.between(0, 10) };
    let arrival = SimTime::default().after(shape.arrivals_within / 10 * u32::try_from(tenth).unwrap_or(0));
    let spec =
        JobSpec { id: JobId(id), name: format!("random-{id}").into(), ranks, memory_per_rank, arrival };
    let (communication, memory, limit, queue) = (None, None, None, QueueId::default());
    SimJob { spec, work, communication, memory, processors: 1, priority: 0, limit, queue }
}
