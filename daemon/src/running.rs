//! The running jobs of a node, and what makes them stand still although nothing was cut: the
//! [guard of memory](crate::guard), a [slice](crate::slices) of other jobs, or the
//! [node scheduler](crate::scheduling).
//!
//! All of that stops and thaws their groups here, so that none undoes what another one does. A job that a cut
//! freezes, or that stands still for a silent master, does not run: it is left alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use coswitch_policies::{Allowance, Bytes, JobId};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::cgroup::{CgroupError, JobCgroup, Stopper};

/// For the ranks of a slice that is over to stop. Those that have not by then wait for a disk, and compute
/// nothing.
const STOP_LIMIT: Duration = Duration::from_millis(100);
/// The processor time that the kernel may still count for a process that has stopped. Handling a packet in
/// the last steps of the stop is a possible cause. 20 µs were seen, once in thousands of slices.
const LAST_STEPS: Duration = Duration::from_micros(50);
/// The time before the first looks whether they have. Later ones are rarer: the thread that looks goes before
/// ranks, and where daemons share a processor it would keep them from stopping.
const FIRST_LOOKS: Duration = Duration::from_micros(20);
const LAST_LOOKS: Duration = Duration::from_millis(5);

/// See the module.
#[derive(Default)]
pub struct Running {
    state: Mutex<State>,
    pub(crate) changed: Condvar,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) allowance: Option<Allowance>,
    /// The jobs in memory.
    jobs: BTreeMap<JobId, Present>,
    /// All of them together hold more than the allowance.
    pub(crate) is_over: bool,
    /// Jobs that stand still because it is the slice of others.
    out_of_slice: BTreeSet<JobId>,
    /// Jobs that the node scheduler has stopped.
    held: BTreeSet<JobId>,
    use_of_slices: SliceUse,
}

struct Present {
    cgroup: JobCgroup,
    /// Of a job that runs.
    stopper: Option<Stopper>,
    /// As it was set last; `None` where that is not known.
    stopped: Option<bool>,
    /// The processor time of a job that was seen to stand still.
    used: Option<Duration>,
}

/// The warm switches of a node in some span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceUse {
    /// Times that jobs were stopped for others.
    pub switches: u64,
    /// From the first stop until others were let run, in all.
    pub took: Duration,
    /// Processor time that jobs used in slices of others. What the last steps of a stop take does not count.
    pub overlap: Duration,
}

/// How a job stands that is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    Runs,
    /// Or let run already: a freeze that fails thaws the processes itself.
    Frozen,
}

impl Running {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A job runs from now on: it is thawed if it may run, and stopped otherwise.
    pub(crate) fn run(&self, job: JobId, cgroup: JobCgroup, before: Before) -> Result<(), CgroupError> {
        let stopper = Some(cgroup.stopper()?);
        let stopped = (before == Before::Runs).then_some(false);
        let mut state = self.lock();
        state.jobs.insert(job, Present { cgroup, stopper, stopped, used: None });
        state.set(job).map(drop)
    }

    /// A job is in memory and does not run, or is about to be frozen; a group that is stopped stays so.
    pub(crate) fn rest(&self, job: JobId, cgroup: JobCgroup) {
        self.lock().jobs.insert(job, Present { cgroup, stopper: None, stopped: None, used: None });
    }

    /// A job is about to leave memory.
    pub(crate) fn leave(&self, job: JobId) {
        self.lock().jobs.remove(&job);
    }

    /// See [`crate::guard`].
    pub(crate) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// Since this was asked last.
    pub(crate) fn take_use_of_slices(&self) -> SliceUse {
        std::mem::take(&mut self.lock().use_of_slices)
    }
}

impl State {
    fn may_run(&self, job: JobId) -> bool {
        !self.is_over && !self.out_of_slice.contains(&job) && !self.held.contains(&job)
    }

    /// From now on the node scheduler lets these jobs stand still, and no others.
    pub(crate) fn hold(&mut self, jobs: BTreeSet<JobId>) {
        self.held = jobs;
        self.apply();
    }

    /// Looks whether the jobs exceed their allowance.
    pub(crate) fn look(&mut self) {
        let exceeds = self.allowance.as_ref().is_some_and(|allowance| self.exceeds(allowance));
        if exceeds != self.is_over {
            info!(allowance = ?self.allowance, stopped = exceeds, "memory of the jobs");
        }
        self.is_over = exceeds;
        self.apply();
    }

    /// Stops and thaws what has to be, without waiting.
    fn apply(&mut self) {
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        jobs.into_iter().for_each(|job| {
            self.try_set(job);
        });
    }

    /// Stops the job, or lets it run, where it is not as it has to be.
    fn set(&mut self, job: JobId) -> Result<bool, CgroupError> {
        let stopped = !self.may_run(job);
        let differs = |present: &&mut Present| present.stopped != Some(stopped);
        let Some(present) = self.jobs.get_mut(&job).filter(differs) else { return Ok(false) };
        let Some(stopper) = &present.stopper else { return Ok(false) };
        if stopped { stopper.stop() } else { stopper.let_run() }?;
        present.stopped = Some(stopped);
        Ok(true)
    }

    /// The same; true where that was a change.
    fn try_set(&mut self, job: JobId) -> bool {
        self.set(job).unwrap_or_else(|error| {
            warn!(%job, %error, "a running job could not be stopped or thawed");
            false
        })
    }

    /// From now on these jobs stand still. They have stopped before any other one runs.
    pub(crate) fn begin_slice(&mut self, out_of_slice: BTreeSet<JobId>) {
        let began = Instant::now();
        self.out_of_slice = out_of_slice;
        let (enter, leave): (Vec<JobId>, Vec<JobId>) =
            self.jobs.keys().copied().partition(|job| self.may_run(*job));
        let leave: Vec<JobId> = leave.into_iter().filter(|job| self.try_set(*job)).collect();
        self.await_stop(&leave, began);
        self.count_overlap(&enter);
        if !leave.is_empty() {
            self.use_of_slices.switches += 1;
            // From now on ranks run, this thread perhaps only after them.
            self.use_of_slices.took += began.elapsed();
        }
        enter.into_iter().for_each(|job| {
            self.try_set(job);
        });
        self.note_use(&leave);
    }

    fn await_stop(&mut self, jobs: &[JobId], began: Instant) {
        for job in jobs {
            let Some(stopper) = self.jobs.get_mut(job).and_then(|present| present.stopper.as_mut()) else {
                continue;
            };
            while !stopper.has_stopped() && began.elapsed() < STOP_LIMIT {
                thread::sleep((began.elapsed() / 2).clamp(FIRST_LOOKS, LAST_LOOKS));
            }
        }
    }

    /// What they have used so far, to see later that it was all.
    fn note_use(&mut self, jobs: &[JobId]) {
        for job in jobs {
            let used = self.stopper(*job).and_then(Stopper::processor_time);
            self.jobs.entry(*job).and_modify(|present| present.used = used);
        }
    }

    /// What jobs have used that are about to run again, while they should not have. One whose processes have
    /// all ended was ending: the kernel counts that as well.
    fn count_overlap(&mut self, jobs: &[JobId]) {
        for job in jobs {
            let Some(before) = self.jobs.get_mut(job).and_then(|present| present.used.take()) else {
                continue;
            };
            let Some(stopper) = self.stopper(*job) else { continue };
            let more = stopper.processor_time().unwrap_or_default().saturating_sub(before);
            if more > LAST_STEPS && stopper.has_processes() {
                self.use_of_slices.overlap += more;
            }
        }
    }

    fn stopper(&self, job: JobId) -> Option<&Stopper> {
        self.jobs.get(&job)?.stopper.as_ref()
    }

    /// Caches of files do not count, which takes longer to read.
    fn exceeds(&self, allowance: &Allowance) -> bool {
        let arriving = allowance.arriving.iter().filter(|(job, _)| !self.jobs.contains_key(job));
        let arriving: Bytes = arriving.map(|(_, bytes)| *bytes).sum();
        let exceeds = |of: fn(&JobCgroup) -> Bytes| {
            let held = self.jobs.values().map(|job| of(&job.cgroup)).sum::<Bytes>();
            held.saturating_add(arriving) > allowance.total
        };
        exceeds(|cgroup| cgroup.used().unwrap_or_default()) && exceeds(JobCgroup::working_set)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, process};

    use super::*;
    use crate::cgroup::{Hierarchies, NodeCgroup};

    const JOB: JobId = JobId(1);

    #[test]
    fn a_job_that_comes_stands_still_or_runs_as_it_has_to_also_after_a_freeze_that_failed() {
        let name = format!("running-test-{}", process::id());
        let node = NodeCgroup::create(Hierarchies::find().unwrap(), &name, None).unwrap();
        let group = node.job("job").unwrap();
        let running = Running::default();
        let freeze = group.freezer().join("cgroup.freeze");
        let mut stands = Vec::new();
        for (held, is_frozen) in [(true, false), (true, true), (false, false), (false, true)] {
            running.rest(JOB, group.clone());
            running.lock().hold(held.then_some(JOB).into_iter().collect());
            fs::write(&freeze, if is_frozen { "1" } else { "0" }).unwrap();
            running.run(JOB, group.clone(), Before::Frozen).unwrap();
            stands.push(fs::read_to_string(&freeze).unwrap().trim() == "1");
        }
        NodeCgroup::destroy(&Hierarchies::find().unwrap(), &name, Duration::from_secs(10)).unwrap();
        assert_eq!(stands, [true, true, false, false]);
    }
}
