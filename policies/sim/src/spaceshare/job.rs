//! Jobs of the engine, made from the records of a log.

use std::time::Duration;

use coswitch_policies::{
    JobId, SimTime,
    spaceshare::{
        allocate::Request,
        machine::{GroupId, Machine},
        queue::{QueueId, QueuedJob},
    },
};
use serde::{Deserialize, Serialize};

use crate::workload::{
    Skipped,
    swf::{Log, Record},
};

/// A job that runs for `run` once it has its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceJob {
    /// The part that the queue sees. Its number is its index in the list.
    pub queued: QueuedJob,
    /// The run time, which no policy sees.
    pub run: Duration,
}

/// The jobs of a workload, in the order of submission, and the count of the records left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Jobs {
    /// The job at index `i` is `JobId(i)`.
    pub jobs: Vec<SpaceJob>,
    /// By job, the index of its record in the log.
    pub records: Vec<u32>,
    pub skipped: Skipped,
}

impl Jobs {
    /// The jobs of `log` that `machine` can ever hold. Times count from the log's beginning. `home` returns
    /// the queue and node group of a record. A job without a requested time is limited to its run time.
    #[must_use]
    pub fn of_log(log: &Log, machine: &Machine, home: impl Fn(&Record) -> (QueueId, GroupId)) -> Self {
        Self::in_boxes(log, 1, |_, group, request| machine.can_ever_hold(group, request), home)
    }

    /// The same on nodes of `cpus` CPUs each: a job of more processors gets whole nodes, and so perhaps more
    /// CPUs than it asked for.
    #[must_use]
    pub fn in_boxes(
        log: &Log,
        cpus: u32,
        holds: impl Fn(QueueId, GroupId, Request) -> bool,
        home: impl Fn(&Record) -> (QueueId, GroupId),
    ) -> Self {
        let mut order: Vec<u32> = (0..u32::try_from(log.records.len()).unwrap_or(u32::MAX)).collect();
        order.sort_by_key(|index| log.records[*index as usize].submit);
        let mut all = Self::default();
        for index in order {
            let record = &log.records[index as usize];
            let (queue, group) = home(record);
            match all.job_of(record, queue, group, cpus, &holds) {
                Ok(job) => {
                    all.jobs.push(job);
                    all.records.push(index);
                }
                Err(reason) => *reason(&mut all.skipped) += 1,
            }
        }
        all
    }

    fn job_of(
        &self,
        record: &Record,
        queue: QueueId,
        group: GroupId,
        cpus: u32,
        holds: &impl Fn(QueueId, GroupId, Request) -> bool,
    ) -> Result<SpaceJob, fn(&mut Skipped) -> &mut u32> {
        let run = record.run.ok_or((|s| &mut s.no_run_time) as fn(&mut Skipped) -> &mut u32)?;
        let size = record.size().ok_or((|s| &mut s.no_size) as fn(&mut Skipped) -> &mut u32)?;
        let request = Request { nodes: size.div_ceil(cpus), cpus: size.min(cpus) };
        if !holds(queue, group, request) {
            return Err(|s| &mut s.too_large);
        }
        let job = JobId(u32::try_from(self.jobs.len()).expect("a log has fewer than 2^32 jobs"));
        let submitted = SimTime::from(Duration::from_secs(record.submit));
        let run = Duration::from_secs(run);
        let limit = record.requested_time.map_or(run, Duration::from_secs);
        Ok(SpaceJob { queued: QueuedJob { job, queue, group, request, submitted, limit }, run })
    }
}

/// A job of the first queue that runs as long as its limit; times in seconds.
#[cfg(test)]
pub(super) fn space_job(number: u32, submitted: u64, request: Request, run: u64) -> SpaceJob {
    let run = Duration::from_secs(run);
    let queued = QueuedJob {
        job: JobId(number),
        queue: QueueId(0),
        group: GroupId(0),
        request,
        submitted: Duration::from_secs(submitted).into(),
        limit: run,
    };
    SpaceJob { queued, run }
}

#[cfg(test)]
mod tests {
    use coswitch_policies::spaceshare::allocate::FirstFit;

    use super::*;

    #[test]
    fn records_become_jobs_in_the_order_of_submission_and_the_others_are_counted() {
        let log: Log = "1 9 -1 5 2 -1 -1 2 60 -1 1 1 1 1 1 1 -1 -1\n\
                        2 3 -1 4 -1 -1 -1 1 -1 -1 1 1 1 1 1 1 -1 -1\n\
                        3 4 -1 -1 1 -1 -1 1 -1 -1 1 1 1 1 1 1 -1 -1\n\
                        4 4 -1 1 -1 -1 -1 0 -1 -1 1 1 1 1 1 1 -1 -1\n\
                        5 4 -1 1 9 -1 -1 9 -1 -1 1 1 1 1 1 1 -1 -1\n"
            .parse()
            .unwrap();
        let machine = Machine::single(Box::new(FirstFit::new(4)));
        let jobs = Jobs::of_log(&log, &machine, |_| (QueueId(0), GroupId(0)));
        assert_eq!(jobs.records, [1, 0]);
        assert_eq!(jobs.skipped, Skipped { no_run_time: 1, no_size: 1, too_large: 1, other_partition: 0 });
        let limits: Vec<u64> = jobs.jobs.iter().map(|job| job.queued.limit.as_secs()).collect();
        assert_eq!(limits, [4, 60]);
        assert_eq!(jobs.jobs[1].queued.job, JobId(1));
    }
}
