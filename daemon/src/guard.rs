//! Guard of memory: stops the running jobs of a node where they grow into memory that suspended jobs hold,
//! faster than these can leave.
//!
//! The master plans with what jobs hold and are expected to hold, and says what running jobs may hold
//! together on a node where not all that they declare is free. It hears what they hold ten times a second;
//! in that time a program can fill a node. So the daemon looks more often, by a thread of its own, and
//! freezes their groups. The ranks on other nodes wait for messages meanwhile. The kernel's limit, which
//! would kill a process, is never met.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use coswitch_policies::{Bytes, JobId};
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
    allowance: Option<Bytes>,
    /// The jobs that run, and whether they are stopped.
    running: BTreeMap<JobId, (JobCgroup, bool)>,
    is_stopped: bool,
    has_ended: bool,
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

    /// Running jobs may hold so much together; `None`: as much as there is.
    pub(crate) fn allow(&self, allowance: Option<Bytes>) {
        self.shared.lock().allowance = allowance;
        self.shared.changed.notify_all();
    }

    /// A job runs from now on.
    pub(crate) fn enter(&self, job: JobId, cgroup: JobCgroup) {
        self.shared.lock().running.insert(job, (cgroup, false));
    }

    /// A job is about to be frozen or ended; a group that is stopped stays so.
    pub(crate) fn leave(&self, job: JobId) {
        self.shared.lock().running.remove(&job);
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
        let exceeds = self.allowance.is_some_and(|allowance| self.exceeds(allowance));
        if exceeds != self.is_stopped {
            let held: Bytes = self.running.values().map(|(cgroup, _)| cgroup.working_set()).sum();
            info!(%held, allowance = ?self.allowance, stopped = exceeds, "memory of the running jobs");
        }
        self.is_stopped = exceeds;
        for (job, (cgroup, stopped)) in self.running.iter_mut().filter(|(_, (_, is))| *is != exceeds) {
            match if exceeds { cgroup.stop() } else { cgroup.thaw() } {
                Ok(()) => *stopped = exceeds,
                Err(error) => warn!(%job, %error, "a running job could not be stopped or thawed"),
            }
        }
    }

    /// Caches of files do not count, which takes longer to read.
    fn exceeds(&self, allowance: Bytes) -> bool {
        let sum = |of: fn(&JobCgroup) -> Bytes| -> Bytes {
            self.running.values().map(|(cgroup, _)| of(cgroup)).sum()
        };
        sum(|cgroup| cgroup.used().unwrap_or_default()) > allowance && sum(JobCgroup::working_set) > allowance
    }
}
