//! Simulation of the RMS scheduler: jobs share CPUs by timeslices and so are also suspended. Switching costs
//! nothing here.
//!
//! Timeslices end at the multiples of their length while jobs wait; the scheduler also runs at every arrival
//! and end.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use coswitch_policies::{
    JobId, SimTime,
    spaceshare::queue::rms::{Rms, RmsAct, RmsJob},
};

use super::{Execution, SpaceError, SpaceJob, engine::check};

struct Turns {
    rms: Rms,
    /// The remaining run time of each job that has not ended.
    left: BTreeMap<JobId, Duration>,
    /// The running jobs, and when each last started or resumed.
    running: BTreeMap<JobId, SimTime>,
    ends: BTreeSet<(SimTime, JobId)>,
    executions: Vec<Execution>,
}

/// Runs `jobs` as [`super::run`] does, under `rms` in timeslices of this length. A job counts as use only
/// while it runs.
///
/// # Errors
/// Where jobs are out of order, or one is larger than the machine.
pub fn run_rms(jobs: &[SpaceJob], rms: Rms, timeslice: Duration) -> Result<Vec<Execution>, SpaceError> {
    check(jobs)?;
    let mut turns = Turns {
        rms,
        left: BTreeMap::new(),
        running: BTreeMap::new(),
        ends: BTreeSet::new(),
        executions: vec![Execution::default(); jobs.len()],
    };
    let length = u64::try_from(timeslice.as_nanos()).unwrap_or(u64::MAX).max(1);
    let mut coming = jobs.iter().peekable();
    let mut slice = None;
    loop {
        let end = turns.ends.first().map(|(at, _)| *at);
        let arrival = coming.peek().map(|job| job.queued.submitted);
        let Some(now) = [end, arrival, slice].into_iter().flatten().min() else { break };
        while let Some(&(at, job)) = turns.ends.first()
            && at == now
        {
            turns.end(now, job);
        }
        while let Some(job) = coming.next_if(|job| job.queued.submitted == now) {
            turns.submit(job)?;
        }
        turns.schedule(now, slice == Some(now));
        let waits = turns.running.len() < turns.left.len();
        slice = waits.then(|| SimTime((now.0 / length + 1).saturating_mul(length)));
        if turns.running.is_empty() && waits && coming.peek().is_none() {
            return Err(SpaceError::Stuck(turns.left.len()));
        }
    }
    Ok(turns.executions)
}

impl Turns {
    fn submit(&mut self, job: &SpaceJob) -> Result<(), SpaceError> {
        let queued = job.queued;
        let rms = RmsJob {
            job: queued.job,
            root: false,
            priority: 0,
            request: queued.request,
            submitted: queued.submitted,
        };
        if !self.rms.submit(rms) {
            return Err(SpaceError::Stuck(1));
        }
        self.left.insert(queued.job, job.run);
        Ok(())
    }

    fn end(&mut self, now: SimTime, job: JobId) {
        self.ends.remove(&(now, job));
        self.running.remove(&job);
        self.left.remove(&job);
        self.rms.on_end(job);
        self.executions[job.0 as usize].finished = now;
    }

    fn schedule(&mut self, now: SimTime, expired: bool) {
        for act in self.rms.schedule(expired) {
            match act {
                RmsAct::Suspend(job) => {
                    let since = self.running.remove(&job).expect("it ran");
                    let left = self.left.get_mut(&job).expect("it has not ended");
                    self.ends.remove(&(since.after(*left), job));
                    *left -= now.since(since);
                }
                RmsAct::Start(job) | RmsAct::Resume(job) => {
                    if act == RmsAct::Start(job) {
                        self.executions[job.0 as usize].started = now;
                    }
                    self.running.insert(job, now);
                    self.ends.insert((now.after(self.left[&job]), job));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use coswitch_policies::spaceshare::allocate::Request;

    use super::*;
    use crate::spaceshare::{job::space_job, summarise};

    fn job(number: u32, submitted: u64, nodes: u32, cpus: u32, run: u64) -> SpaceJob {
        space_job(number, submitted, Request { nodes, cpus }, run)
    }

    fn lives(jobs: &[SpaceJob], limit: u32) -> Vec<(u64, u64)> {
        let executions = run_rms(jobs, Rms::new(4, 2, limit), Duration::from_secs(10)).unwrap();
        let seconds = |time: SimTime| time.0 / 1_000_000_000;
        executions.iter().map(|execution| (seconds(execution.started), seconds(execution.finished))).collect()
    }

    #[test]
    fn two_jobs_of_the_whole_machine_take_turns_and_a_small_one_beside_does_not() {
        let jobs = [job(0, 0, 4, 2, 30), job(1, 0, 4, 2, 30)];
        assert_eq!(lives(&jobs, 16), [(0, 50), (10, 60)]);
        assert_eq!(lives(&jobs, 8), [(0, 30), (30, 60)], "at the usage limit no job shares");
        let beside = [job(0, 0, 4, 1, 30), job(1, 5, 4, 1, 30)];
        assert_eq!(lives(&beside, 8), [(0, 30), (5, 35)]);
    }

    #[test]
    fn time_in_suspension_is_waiting_and_not_use() {
        let jobs = [job(0, 0, 4, 2, 30), job(1, 0, 4, 2, 30)];
        let executions = run_rms(&jobs, Rms::new(4, 2, 16), Duration::from_secs(10)).unwrap();
        let summary = summarise(&jobs, &executions, 8);
        assert!((summary.utilisation - 1.0).abs() < 1e-12, "{summary:?}");
        assert!((summary.wait_mean_s - 25.0).abs() < 1e-12, "{summary:?}");
        assert!(run_rms(&[job(0, 0, 5, 1, 1)], Rms::new(4, 2, 8), Duration::from_secs(10)).is_err());
    }
}
