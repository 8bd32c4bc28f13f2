//! Polling as the caller sees it: completions if there are any, else progress, else perhaps a rest.

use super::completion::Completion;
use super::wait::Pause;
use super::{Core, Engine, Handle, SharedEngine};
use crate::abi::{FI_EAGAIN, FI_EAVAIL};
use std::os::linux::fs::MetadataExt;
use std::time::Duration;

/// With several threads in the process, a sleeper may hold a lock of the MPI library that another thread needs, so it
/// must look up often.
const SLEEP_AMONG_THREADS: Duration = Duration::from_micros(100);

/// What reading a completion queue gives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// So many entries were written.
    Entries(usize),
    /// There is none.
    Empty,
    /// A failure must be fetched first.
    Failed,
}

impl Read {
    /// The way libfabric says it.
    pub(crate) fn code(self) -> isize {
        match self {
            Read::Entries(count) => count as isize,
            Read::Empty => -(FI_EAGAIN as isize),
            Read::Failed => -(FI_EAVAIL as isize),
        }
    }
}

/// What to do, without the lock, after a poll that found nothing.
#[derive(Debug)]
enum Rest {
    None,
    Yield,
    Sleep { ticket: u32, bound: Duration },
}

impl Core {
    fn pop_completions(
        &mut self,
        queue: Handle,
        count: usize,
        write: &mut dyn FnMut(usize, &Completion, &Core),
    ) -> Read {
        let Some(entries) = self.queues.get_mut(queue) else { return Read::Empty };
        if !entries.failed.is_empty() {
            return Read::Failed;
        }
        let mut taken = 0;
        while taken < count
            && let Some(entry) = self.queues.get_mut(queue).and_then(|entries| entries.done.pop_front())
        {
            write(taken, &entry, self);
            taken += 1;
        }
        if taken == 0 { Read::Empty } else { Read::Entries(taken) }
    }
}

impl Engine {
    /// Makes progress; true if anything moved.
    pub(super) fn poll(&mut self) -> bool {
        self.port.counters().on_polled(1);
        let moved = self.progress();
        if moved {
            self.waiter.on_active();
        }
        moved
    }

    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// After a poll that found nothing. A decision to sleep is followed by one more look, because the bell is only
    /// heard from the ticket on.
    fn rest(&mut self) -> Rest {
        let (policy, spin) = self.core.segment.wait_policy();
        let started = self.started;
        let (pause, waited) = self.waiter.on_idle(policy, spin, || started.elapsed().as_nanos() as u64);
        if waited > 0 {
            self.port.counters().on_waited(waited);
        }
        match pause {
            Pause::None => Rest::None,
            Pause::Yield => Rest::Yield,
            Pause::Sleep(bound) => {
                let ticket = self.port.bell().ticket();
                if self.poll() {
                    return Rest::None;
                }
                self.sleepers += 1;
                Rest::Sleep { ticket, bound }
            }
        }
    }

    /// Whether the last poll moved a large payload, and the daemon may want this core to move it on.
    fn shall_share(&mut self) -> bool {
        std::mem::take(&mut self.bulk) && {
            let (policy, _) = self.core.segment.wait_policy();
            let now = self.now_ns();
            self.waiter.on_bulk(policy, now)
        }
    }

    /// Wakes this process's sleeping threads if there is something new for them.
    fn tell_sleepers(&self, events_before: u64) {
        if self.sleepers > 0 && self.core.events != events_before {
            self.port.bell().ring();
        }
    }
    fn rested(&mut self, slept: bool) {
        self.sleepers -= u32::from(slept);
        let took = self.waiter.on_paused(self.now_ns());
        self.port.counters().on_waited(took);
        self.poll();
    }
}

impl SharedEngine {
    /// Runs `act` under the lock, and lets threads that sleep know if it completed anything.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut Engine) -> R) -> R {
        let mut engine = self.lock();
        let before = engine.core.events;
        let result = act(&mut engine);
        engine.tell_sleepers(before);
        result
    }

    /// Reads up to `count` completions. Without any it makes progress, and rests if the caller seems to do nothing
    /// but wait.
    pub(crate) fn read_queue(
        &self,
        queue: Handle,
        count: usize,
        write: &mut dyn FnMut(usize, &Completion, &Core),
    ) -> Read {
        let step = self.with(|engine| {
            let found = engine.core.pop_completions(queue, count, write);
            if found != Read::Empty {
                return Ok(found);
            }
            let moved = engine.poll();
            let found = engine.core.pop_completions(queue, count, write);
            if found == Read::Empty && engine.shall_share() {
                return Err(Rest::Yield);
            }
            if moved || found != Read::Empty {
                return Ok(found);
            }
            match engine.rest() {
                Rest::None => Ok(engine.core.pop_completions(queue, count, write)),
                rest => Err(rest),
            }
        });
        match step {
            Ok(found) => found,
            Err(rest) => {
                self.take_rest(rest);
                self.with(|engine| engine.core.pop_completions(queue, count, write))
            }
        }
    }

    /// Makes progress for a caller that waits for `value` to change.
    pub(crate) fn poll_for<V>(&self, value: impl Fn(&Core) -> V, seen: impl FnOnce(&V) -> bool) -> V {
        let (now, rest) = self.with(|engine| {
            let moved = engine.poll();
            let now = value(&engine.core);
            let rest = if moved || !seen(&now) { Rest::None } else { engine.rest() };
            (now, rest)
        });
        match rest {
            Rest::None => now,
            rest => {
                self.take_rest(rest);
                self.with(|engine| value(&engine.core))
            }
        }
    }

    /// A poll of another kind (a peek) has found nothing.
    pub(crate) fn rest_after_miss(&self) {
        let rest = self.with(|engine| engine.rest());
        self.take_rest(rest);
    }

    fn take_rest(&self, rest: Rest) {
        let slept = match rest {
            Rest::None => return,
            Rest::Yield => {
                std::thread::yield_now();
                false
            }
            Rest::Sleep { ticket, bound } => {
                let bound = if is_single_threaded() { bound } else { bound.min(SLEEP_AMONG_THREADS) };
                self.segment.rank_bell(self.local).wait(ticket, Some(bound));
                true
            }
        };
        self.with(|engine| engine.rested(slept));
    }
}

/// A directory has two links more than it has subdirectories, and there is one for every thread.
fn is_single_threaded() -> bool {
    std::fs::metadata("/proc/self/task").is_ok_and(|task| task.st_nlink() <= 3)
}
