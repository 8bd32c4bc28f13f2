//! Guard of memory: stops the running jobs of a node where they grow into memory that suspended jobs hold,
//! faster than these can leave.
//!
//! The master plans with what jobs hold and are expected to hold, and gives an allowance to a node where not
//! all that running jobs declare is free. It hears what they hold ten times a second at most; in that time a
//! program can fill a node. So the daemon looks more often, by a thread of its own, and freezes their groups.
//! The ranks on other nodes wait for messages meanwhile. The kernel's limit, which would kill a process, is
//! never met.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use coswitch_policies::{Allowance, Bytes, JobId};
use tracing::{info, warn};

use crate::cgroup::JobCgroup;

/// The time between two looks while there is an allowance.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// See the module.
pub struct Guard {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    allowance: Option<Allowance>,
    /// The jobs in memory.
    jobs: BTreeMap<JobId, Present>,
    is_stopped: bool,
    has_ended: bool,
}

struct Present {
    cgroup: JobCgroup,
    runs: bool,
    /// By the guard.
    stopped: bool,
}

impl Guard {
    /// Starts the thread, which ends with the guard.
    ///
    /// # Errors
    /// Where there can be no more threads.
    pub fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let its = Arc::clone(&shared);
        thread::Builder::new().name("guard".into()).spawn(move || its.watch())?;
        Ok(Self { shared })
    }

    /// What the jobs may hold together; `None`: as much as there is. Says whether they exceed it.
    pub(crate) fn allow(&self, allowance: Option<Allowance>) -> bool {
        let mut state = self.shared.lock();
        state.allowance = allowance;
        state.look();
        self.shared.changed.notify_all();
        state.is_stopped
    }

    /// As it was last said.
    pub(crate) fn allowance(&self) -> Option<Allowance> {
        self.shared.lock().allowance.clone()
    }

    /// A job runs from now on.
    pub(crate) fn run(&self, job: JobId, cgroup: JobCgroup) {
        self.shared.lock().jobs.insert(job, Present { cgroup, runs: true, stopped: false });
    }

    /// A job is in memory and does not run, or is about to be frozen; a group that is stopped stays so.
    pub(crate) fn rest(&self, job: JobId, cgroup: JobCgroup) {
        self.shared.lock().jobs.insert(job, Present { cgroup, runs: false, stopped: false });
    }

    /// A job is about to leave memory.
    pub(crate) fn leave(&self, job: JobId) {
        self.shared.lock().jobs.remove(&job);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.shared.lock().is_stopped
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.shared.lock().has_ended = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self) {
        let mut state = self.lock();
        while !state.has_ended {
            state.look();
            let idle = state.allowance.is_none() && !state.is_stopped;
            let rest = if idle { Duration::from_secs(1) } else { LOOK_EVERY };
            let woken = self.changed.wait_timeout(state, rest);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl State {
    fn look(&mut self) {
        let exceeds = self.allowance.as_ref().is_some_and(|allowance| self.exceeds(allowance));
        if exceeds != self.is_stopped {
            info!(allowance = ?self.allowance, stopped = exceeds, "memory of the jobs");
        }
        self.is_stopped = exceeds;
        for (job, present) in self.jobs.iter_mut().filter(|(_, job)| job.runs && job.stopped != exceeds) {
            match if exceeds { present.cgroup.stop() } else { present.cgroup.thaw() } {
                Ok(()) => present.stopped = exceeds,
                Err(error) => warn!(%job, %error, "a running job could not be stopped or thawed"),
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
