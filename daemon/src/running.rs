//! The running jobs of a node, and what makes them stand still although nothing was cut: the
//! [guard of memory](crate::guard), or a [slice](crate::slices) of other jobs.
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

use crate::cgroup::{CgroupError, JobCgroup};

/// For the ranks of a slice that is over to stop. Those that have not by then wait for a disk, and compute
/// nothing.
const STOP_LIMIT: Duration = Duration::from_millis(100);
/// The time between two looks whether they have.
const LOOK_EVERY: Duration = Duration::from_micros(20);

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
    use_of_slices: SliceUse,
}

struct Present {
    cgroup: JobCgroup,
    runs: bool,
    stopped: bool,
    /// The processor time of a job that was seen to stand still.
    used: Option<Duration>,
}

/// What the slices of a node have been for some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceUse {
    /// Times that jobs were stopped for others.
    pub switches: u64,
    /// From the first stop to the last thaw, in all.
    pub took: Duration,
    /// Processor time that jobs used in slices of others.
    pub overlap: Duration,
}

/// How a job stands that is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    Runs,
    Frozen,
}

impl Running {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A job runs from now on: it is thawed, if it may be.
    pub(crate) fn run(&self, job: JobId, cgroup: JobCgroup, before: Before) -> Result<(), CgroupError> {
        let mut state = self.lock();
        if before == Before::Frozen && state.may_run(job) {
            cgroup.thaw()?;
        }
        let stopped = before == Before::Frozen && !state.may_run(job);
        state.jobs.insert(job, Present { cgroup, runs: true, stopped, used: None });
        state.apply();
        Ok(())
    }

    /// A job is in memory and does not run, or is about to be frozen; a group that is stopped stays so.
    pub(crate) fn rest(&self, job: JobId, cgroup: JobCgroup) {
        self.lock().jobs.insert(job, Present { cgroup, runs: false, stopped: false, used: None });
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
        !self.is_over && !self.out_of_slice.contains(&job)
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
        for job in jobs {
            let may_run = self.may_run(job);
            self.set(job, !may_run);
        }
    }

    /// True where that was a change.
    fn set(&mut self, job: JobId, stopped: bool) -> bool {
        let Some(present) = self.jobs.get_mut(&job).filter(|it| it.runs && it.stopped != stopped) else {
            return false;
        };
        match if stopped { present.cgroup.stop() } else { present.cgroup.thaw() } {
            Ok(()) => present.stopped = stopped,
            Err(error) => warn!(%job, %error, "a running job could not be stopped or thawed"),
        }
        present.stopped == stopped
    }

    /// From now on these jobs stand still. They have stopped before any other one runs.
    pub(crate) fn begin_slice(&mut self, out_of_slice: BTreeSet<JobId>) {
        let began = Instant::now();
        self.out_of_slice = out_of_slice;
        let (enter, leave): (Vec<JobId>, Vec<JobId>) =
            self.jobs.keys().copied().partition(|job| self.may_run(*job));
        let leave: Vec<JobId> = leave.into_iter().filter(|job| self.set(*job, true)).collect();
        self.await_stop(&leave, began + STOP_LIMIT);
        self.count_overlap(&enter);
        for job in enter {
            self.set(job, false);
        }
        if !leave.is_empty() {
            self.use_of_slices.switches += 1;
            self.use_of_slices.took += began.elapsed();
            self.note_use(&leave);
        }
    }

    fn await_stop(&self, jobs: &[JobId], deadline: Instant) {
        for job in jobs {
            let Some(present) = self.jobs.get(job) else { continue };
            while !present.cgroup.has_stopped().unwrap_or(true) && Instant::now() < deadline {
                thread::sleep(LOOK_EVERY);
            }
        }
    }

    /// What they have used so far, to see later that it was all. The kernel counts the last microseconds of a
    /// process after it has said that it stands still.
    fn note_use(&mut self, jobs: &[JobId]) {
        for job in jobs {
            if let Some(present) = self.jobs.get_mut(job) {
                present.used = present.cgroup.processor_time();
            }
        }
    }

    /// What jobs have used that are about to run again, while they should not have.
    fn count_overlap(&mut self, jobs: &[JobId]) {
        for job in jobs {
            let Some(present) = self.jobs.get_mut(job) else { continue };
            if let Some(before) = present.used.take()
                && let Some(now) = present.cgroup.processor_time()
            {
                self.use_of_slices.overlap += now.saturating_sub(before);
            }
        }
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
