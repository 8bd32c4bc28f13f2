//! Event loop of space sharing: at each instant first the ends, then the arrivals, then the starts.
//!
//! Jobs are in one slice and named by their index; the ends of running jobs are in a heap. An event costs one
//! heap operation and the work of the policies; no step visits all jobs or all nodes.

use std::{cmp::Reverse, collections::BinaryHeap};

use coswitch_policies::{
    JobId, SimTime,
    spaceshare::{machine::Machine, queue::QueueOrder},
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Observer, SpaceJob};

/// When a job ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execution {
    pub started: SimTime,
    pub finished: SimTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SpaceError {
    /// A job is not numbered by its index, or was submitted before the job in front of it.
    #[error("the jobs are not numbered in the order of submission at place {0}")]
    NotInOrder(usize),
    /// No job runs and none will come, but jobs wait: the queue holds back a job that fits, or has one that
    /// never does.
    #[error("no job runs or arrives any more, and {0} jobs wait")]
    Stuck(usize),
}

/// Runs `jobs` (numbered by index, in the order of submission) on `machine` in the order that `order`
/// decides, and notifies `observer`.
///
/// # Errors
/// Where jobs are out of order, or wait for ever.
pub fn run(
    jobs: &[SpaceJob],
    machine: &mut Machine,
    order: &mut dyn QueueOrder,
    observer: &mut impl Observer,
) -> Result<Vec<Execution>, SpaceError> {
    check(jobs)?;
    let mut executions = vec![Execution::default(); jobs.len()];
    let mut ends: BinaryHeap<Reverse<(SimTime, JobId)>> = BinaryHeap::new();
    let mut coming = jobs.iter().peekable();
    let mut started = Vec::new();
    let mut wake = None;
    loop {
        let end = ends.peek().map(|Reverse((at, _))| *at);
        let arrival = coming.peek().map(|job| job.queued.submitted);
        let Some(now) = [end, arrival, wake].into_iter().flatten().min() else { break };
        while let Some(&Reverse((at, job))) = ends.peek()
            && at == now
        {
            ends.pop();
            observer.on_end(now, job, machine);
            assert!(machine.release(job), "a running job holds nodes");
            order.on_end(now, job);
        }
        while let Some(job) = coming.next_if(|job| job.queued.submitted == now) {
            order.submit(job.queued);
        }
        order.start(now, machine, &mut started);
        for queued in started.drain(..) {
            let index = queued.job.0 as usize;
            let finished = now.after(jobs[index].run);
            executions[index] = Execution { started: now, finished };
            ends.push(Reverse((finished, queued.job)));
            observer.on_start(now, &jobs[index], machine);
        }
        observer.on_instant(now, machine, order.waiting());
        wake = order.next_wake(now, machine).filter(|at| *at > now);
    }
    if order.waiting() > 0 { Err(SpaceError::Stuck(order.waiting())) } else { Ok(executions) }
}

pub(super) fn check(jobs: &[SpaceJob]) -> Result<(), SpaceError> {
    let numbered = |(place, job): (usize, &SpaceJob)| job.queued.job.0 as usize != place;
    let out = jobs.iter().enumerate().position(numbered);
    let early = jobs.windows(2).position(|two| two[1].queued.submitted < two[0].queued.submitted);
    match out.into_iter().chain(early.map(|place| place + 1)).min() {
        Some(place) => Err(SpaceError::NotInOrder(place)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use coswitch_policies::spaceshare::{
        allocate::{FirstFit, Request},
        queue::Fcfs,
    };

    use super::*;
    use crate::spaceshare::{NoObserver, job::space_job};

    fn job(number: u32, submitted: u64, nodes: u32, run: u64) -> SpaceJob {
        space_job(number, submitted, Request::nodes(nodes), run)
    }

    fn simulate(jobs: &[SpaceJob]) -> Result<Vec<(u64, u64)>, SpaceError> {
        let mut machine = Machine::single(Box::new(FirstFit::new(4)));
        let executions = run(jobs, &mut machine, &mut Fcfs::default(), &mut NoObserver)?;
        let seconds = |time: SimTime| time.0 / 1_000_000_000;
        Ok(executions
            .iter()
            .map(|execution| (seconds(execution.started), seconds(execution.finished)))
            .collect())
    }

    #[test]
    fn a_job_starts_at_the_instant_in_which_its_nodes_come_back() {
        let jobs = [job(0, 0, 3, 10), job(1, 1, 4, 5), job(2, 2, 1, 1), job(3, 15, 2, 1)];
        assert_eq!(simulate(&jobs), Ok(vec![(0, 10), (10, 15), (15, 16), (15, 16)]));
    }

    #[test]
    fn a_job_that_takes_no_time_ends_in_the_instant_it_starts() {
        assert_eq!(simulate(&[job(0, 3, 4, 0), job(1, 3, 4, 2)]), Ok(vec![(3, 3), (3, 5)]));
    }

    #[test]
    fn jobs_out_of_order_and_jobs_that_never_fit_are_errors() {
        assert_eq!(simulate(&[job(0, 3, 1, 1), job(1, 2, 1, 1)]), Err(SpaceError::NotInOrder(1)));
        assert_eq!(simulate(&[job(1, 3, 1, 1)]), Err(SpaceError::NotInOrder(0)));
        assert_eq!(simulate(&[job(0, 0, 5, 1), job(1, 0, 1, 1)]), Err(SpaceError::Stuck(2)));
    }
}
