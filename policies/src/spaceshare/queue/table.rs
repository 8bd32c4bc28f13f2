//! Table of queues: priorities, node groups and limits (paper 002 §2.1-2.3, §4.0).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{QueueId, QueuedJob};
use crate::{
    JobId, SimTime,
    spaceshare::{allocate::Request, machine::GroupId},
};

/// Priority, in thousandths of a point, so that sums are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Priority(pub i64);

impl Priority {
    /// `n` whole points.
    #[must_use]
    pub const fn points(n: i64) -> Self {
        Self(n * 1000)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSpec {
    pub name: String,
    pub group: GroupId,
    /// The priority of a job when it is submitted.
    pub priority: Priority,
    /// Nodes of a job that does not state its number (§2.1: `set per_request ncpus`).
    pub nodes_default: u32,
    /// The most nodes a job may request.
    pub nodes_max: Option<u32>,
    /// The longest time limit of a job, and the limit of a job that states none.
    pub time_max: Option<Duration>,
    /// The most jobs of the queue that may run at once.
    pub running_max: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum QueueError {
    #[error("there is no queue {0}")]
    Unknown(u16),
    #[error("queue `{queue}` takes jobs of up to {max} nodes, not {nodes}")]
    TooWide { queue: String, max: u32, nodes: u32 },
    #[error("queue `{queue}` takes jobs of up to {max:?}, not {limit:?}")]
    TooLong { queue: String, max: Duration, limit: Duration },
}

impl QueueSpec {
    /// A queue without limits, whose jobs take one node by default.
    #[must_use]
    pub fn new(name: &str, group: GroupId, priority: Priority) -> Self {
        let (nodes_max, time_max, running_max) = (None, None, None);
        Self { name: name.into(), group, priority, nodes_default: 1, nodes_max, time_max, running_max }
    }
}

/// All queues; a [`QueueId`] is an index into it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct QueueTable(pub Vec<QueueSpec>);

impl QueueTable {
    #[must_use]
    pub fn find(&self, name: &str) -> Option<QueueId> {
        (0..).map(QueueId).zip(&self.0).find(|(_, queue)| queue.name == name).map(|(id, _)| id)
    }

    /// The job as it would wait in `queue`, with missing values filled in.
    ///
    /// # Errors
    /// Where the queue does not admit the job.
    pub fn job(
        &self,
        queue: QueueId,
        job: JobId,
        submitted: SimTime,
        nodes: Option<u32>,
        limit: Option<Duration>,
    ) -> Result<QueuedJob, QueueError> {
        let spec = self.0.get(usize::from(queue.0)).ok_or(QueueError::Unknown(queue.0))?;
        let nodes = nodes.unwrap_or(spec.nodes_default);
        if let Some(max) = spec.nodes_max.filter(|max| nodes > *max) {
            return Err(QueueError::TooWide { queue: spec.name.clone(), max, nodes });
        }
        if let (Some(max), Some(limit)) = (spec.time_max, limit)
            && limit > max
        {
            return Err(QueueError::TooLong { queue: spec.name.clone(), max, limit });
        }
        let limit = limit.or(spec.time_max).unwrap_or(Duration::MAX);
        Ok(QueuedJob { job, queue, group: spec.group, request: Request::nodes(nodes), submitted, limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> QueueTable {
        let hour = Duration::from_secs(3600);
        let short = QueueSpec {
            nodes_default: 4,
            nodes_max: Some(16),
            time_max: Some(hour),
            ..QueueSpec::new("q16s", GroupId(1), Priority::points(10))
        };
        QueueTable(vec![short])
    }

    #[test]
    fn missing_values_of_a_job_come_from_its_queue() {
        let (table, hour) = (table(), Duration::from_secs(3600));
        let queue = table.find("q16s").unwrap();
        let job = table.job(queue, JobId(0), SimTime(0), None, None).unwrap();
        assert_eq!((job.request.nodes, job.limit, job.group), (4, hour, GroupId(1)));
        assert_eq!(table.find("q32s"), None);
    }

    #[test]
    fn a_job_past_the_limits_of_its_queue_is_refused_with_the_reason() {
        let (table, queue) = (table(), QueueId(0));
        let refused = |nodes, secs| {
            let limit = Some(Duration::from_secs(secs));
            table.job(queue, JobId(0), SimTime(0), Some(nodes), limit).unwrap_err().to_string()
        };
        assert_eq!(refused(17, 60), "queue `q16s` takes jobs of up to 16 nodes, not 17");
        assert_eq!(refused(16, 3601), "queue `q16s` takes jobs of up to 3600s, not 3601s");
        assert_eq!(table.job(QueueId(1), JobId(0), SimTime(0), None, None), Err(QueueError::Unknown(1)));
    }
}
