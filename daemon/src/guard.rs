//! Guard of memory: stops the running jobs of a node where they grow into memory that suspended jobs hold,
//! faster than these can leave.
//!
//! The master plans with what jobs hold and are expected to hold, and gives an allowance to a node where not
//! all that running jobs declare is free. It hears what they hold ten times a second at most; in that time a
//! program can fill a node. So the daemon looks more often, by a thread of its own, and freezes their groups.
//! The ranks on other nodes wait for messages meanwhile. The kernel's limit, which would kill a process, is
//! never met.

use std::{
    io,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use coswitch_policies::Allowance;

use crate::running::Running;

/// The time between two looks while there is an allowance.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// See the module.
pub struct Guard {
    running: Arc<Running>,
    has_ended: Arc<AtomicBool>,
}

impl Guard {
    /// Starts the thread, which ends with the guard.
    ///
    /// # Errors
    /// Where there can be no more threads.
    pub fn start(running: Arc<Running>) -> io::Result<Self> {
        let guard = Self { running, has_ended: Arc::default() };
        let (running, has_ended) = (Arc::clone(&guard.running), Arc::clone(&guard.has_ended));
        thread::Builder::new().name("guard".into()).spawn(move || watch(&running, &has_ended))?;
        Ok(guard)
    }

    /// What the jobs may hold together; `None`: as much as there is. Says whether they exceed it.
    pub(crate) fn allow(&self, allowance: Option<Allowance>) -> bool {
        let mut state = self.running.lock();
        state.allowance = allowance;
        state.look();
        self.running.changed.notify_all();
        state.is_over
    }

    /// As it was last said.
    pub(crate) fn allowance(&self) -> Option<Allowance> {
        self.running.lock().allowance.clone()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        // Locked, so that the thread either sees it or is waiting.
        drop(self.running.lock());
        self.running.changed.notify_all();
    }
}

fn watch(running: &Running, has_ended: &AtomicBool) {
    let mut state = running.lock();
    while !has_ended.load(Ordering::Relaxed) {
        state.look();
        let idle = state.allowance.is_none() && !state.is_over;
        let rest = if idle { Duration::from_secs(1) } else { LOOK_EVERY };
        let woken = running.changed.wait_timeout(state, rest);
        state = woken.unwrap_or_else(PoisonError::into_inner).0;
    }
}
