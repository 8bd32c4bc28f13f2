//! What each job had to fetch from the disk, as its control groups were sampled (paper 003, Table 1).

use std::{collections::BTreeMap, time::Duration};

use coswitch_policies::{Bytes, JobId, NodeId, SimTime};
use serde::{Deserialize, Serialize};

use crate::{journal::JobMemory, pairs, report::seconds};

/// Page faults and swapping of one job over its nodes, up to its last sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Paging {
    /// Page faults that waited for a disk.
    pub major_faults: u64,
    /// The most bytes that it had in swap at once: the sum of the most on each node.
    pub swapped: Bytes,
    /// From its first sample to its last.
    #[serde(rename = "sampled_s", serialize_with = "seconds")]
    pub sampled: Duration,
}

impl Paging {
    /// `None` where it was not sampled twice.
    pub fn faults_a_minute(&self) -> Option<f64> {
        let minutes = self.sampled.as_secs_f64() / 60.0;
        (minutes > 0.0).then(|| self.major_faults as f64 / minutes)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PagingFold(#[serde(with = "pairs")] BTreeMap<(JobId, NodeId), Part>);

/// A job on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Part {
    major_faults: u64,
    swapped: Bytes,
    began: SimTime,
    sampled: SimTime,
    /// The counter of the last sample. A restored job has a new group, which counts from zero.
    counted: u64,
}

impl PagingFold {
    pub(crate) fn on_sample(&mut self, at: SimTime, node: NodeId, sample: &JobMemory) {
        let first = || Part { major_faults: 0, swapped: Bytes(0), began: at, sampled: at, counted: 0 };
        let part = self.0.entry((sample.job, node)).or_insert_with(first);
        part.sampled = at;
        let before = if sample.major_faults < part.counted { 0 } else { part.counted };
        part.major_faults += sample.major_faults - before;
        part.counted = sample.major_faults;
        part.swapped = part.swapped.max(sample.swapped);
    }

    pub(crate) fn of(&self, job: JobId) -> Paging {
        let parts = self.0.range((job, NodeId(0))..=(job, NodeId(u32::MAX))).map(|(_, part)| part);
        parts.fold(Paging::default(), |sum, part| Paging {
            major_faults: sum.major_faults + part.major_faults,
            swapped: sum.swapped.saturating_add(part.swapped),
            sampled: sum.sampled.max(part.sampled.since(part.began)),
        })
    }

    /// Keeps the jobs that are listed.
    pub(crate) fn retain(&mut self, is_listed: impl Fn(JobId) -> bool) {
        self.0.retain(|(job, _), _| is_listed(*job));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_all_nodes_and_of_each_group_of_a_job_are_added() {
        let mut fold = PagingFold::default();
        let mut sample = |at_s, job, node, major_faults, mib| {
            let (job, swapped) = (JobId(job), Bytes::mib(mib));
            let sample = JobMemory { job, used: Bytes(0), major_faults, swapped };
            fold.on_sample(Duration::from_secs(at_s).into(), NodeId(node), &sample);
        };
        sample(5, 1, 0, 10, 4);
        sample(6, 1, 0, 25, 9);
        sample(35, 1, 0, 5, 0); // restored
        sample(6, 1, 1, 3, 1);
        sample(6, 2, 0, 7, 0);
        let paging = |major_faults, mib, sampled_s| Paging {
            major_faults,
            swapped: Bytes::mib(mib),
            sampled: Duration::from_secs(sampled_s),
        };
        assert_eq!(fold.of(JobId(1)), paging(33, 10, 30));
        assert_eq!(fold.of(JobId(1)).faults_a_minute(), Some(66.0));
        assert_eq!(fold.of(JobId(2)), paging(7, 0, 0));
        assert_eq!(fold.of(JobId(2)).faults_a_minute(), None);
        assert_eq!(fold.of(JobId(3)), Paging::default());
    }
}
