//! Polling: returns completions, makes progress where there are none, and pauses where nothing moves.

use super::completion::Completion;
use super::wait::Pause;
use super::{Core, Engine, Handle, SharedEngine};
use crate::abi::{FI_EAGAIN, FI_EAVAIL};
use coswitch_ring::Doing;
use std::os::linux::fs::MetadataExt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Bound of a sleep in a process with several threads: the sleeper may hold a lock of the MPI library that
/// another thread needs.
const SLEEP_AMONG_THREADS: Duration = Duration::from_micros(100);

/// Result of reading a completion queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadResult {
    /// Number of entries written.
    Entries(usize),
    /// The queue is empty.
    Empty,
    /// The caller must fetch a failure first.
    Failed,
}

impl ReadResult {
    /// The return value of libfabric's call.
    pub(crate) fn code(self) -> isize {
        match self {
            ReadResult::Entries(count) => count as isize,
            ReadResult::Empty => -(FI_EAGAIN as isize),
            ReadResult::Failed => -(FI_EAVAIL as isize),
        }
    }
}

/// A [`Pause`] to be taken after releasing the lock; a sleep carries the ticket of the bell.
#[derive(Debug)]
enum ArmedPause {
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
    ) -> ReadResult {
        let Some(entries) = self.queues.get_mut(queue) else { return ReadResult::Empty };
        if !entries.failed.is_empty() {
            return ReadResult::Failed;
        }
        let mut taken = 0;
        while taken < count
            && let Some(entry) = self.queues.get_mut(queue).and_then(|entries| entries.done.pop_front())
        {
            write(taken, &entry, self);
            taken += 1;
        }
        if taken == 0 { ReadResult::Empty } else { ReadResult::Entries(taken) }
    }
}

impl Engine {
    /// Makes progress; true if anything moved.
    pub(super) fn poll(&mut self) -> bool {
        self.port.counters().on_polled(1);
        let started = self.started;
        self.waiter.on_poll(|| started.elapsed().as_nanos() as u64);
        let moved = self.progress();
        if moved {
            self.waiter.on_active();
            self.port.activity().set_doing(Doing::Computes);
        }
        moved
    }

    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Chooses the pause after a poll that found nothing. Before a sleep it polls once more, because only
    /// rings after the ticket end the sleep.
    fn next_pause(&mut self) -> ArmedPause {
        let (policy, spin) = self.core.segment.wait_policy();
        let started = self.started;
        let (pause, waited) = self.waiter.on_idle(policy, spin, || started.elapsed().as_nanos() as u64);
        if waited > 0 {
            self.port.counters().on_waited(waited);
            self.port.activity().set_doing(Doing::Polls);
        }
        match pause {
            Pause::None => ArmedPause::None,
            Pause::Yield => ArmedPause::Yield,
            Pause::Sleep(bound) => {
                let ticket = self.port.bell().ticket();
                if self.poll() {
                    return ArmedPause::None;
                }
                self.sleepers += 1;
                self.port.on_sleep();
                ArmedPause::Sleep { ticket, bound }
            }
        }
    }

    /// Whether the last poll moved a large payload and the daemon may need this core to process it.
    fn should_yield(&mut self) -> bool {
        std::mem::take(&mut self.bulk) && {
            let (policy, _) = self.core.segment.wait_policy();
            let now = self.now_ns();
            self.waiter.on_bulk(policy, now)
        }
    }

    /// Wakes this process's sleeping threads if the state has changed.
    fn wake_sleepers(&self, changes_before: u64) {
        if self.sleepers > 0 && self.core.changes != changes_before {
            self.port.bell().ring();
        }
    }

    fn after_pause(&mut self, slept: bool) {
        self.sleepers -= u32::from(slept);
        let took = self.waiter.on_paused(self.now_ns());
        self.port.counters().on_waited(took);
        self.port.activity().set_doing(Doing::Polls);
        self.poll();
    }
}

impl SharedEngine {
    /// Runs `act` under the lock and wakes sleeping threads if it completed anything.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut Engine) -> R) -> R {
        let mut engine = self.lock();
        let before = engine.core.changes;
        let result = act(&mut engine);
        engine.wake_sleepers(before);
        result
    }

    /// Reads up to `count` completions. If there are none, it makes progress, and pauses if the caller seems
    /// to do nothing but wait.
    pub(crate) fn read_queue(
        &self,
        queue: Handle,
        count: usize,
        write: &mut dyn FnMut(usize, &Completion, &Core),
    ) -> ReadResult {
        let read = self.with(|engine| {
            let found = engine.core.pop_completions(queue, count, write);
            if found != ReadResult::Empty {
                return Ok(found);
            }
            let moved = engine.poll();
            let found = engine.core.pop_completions(queue, count, write);
            if found == ReadResult::Empty && engine.should_yield() {
                return Err(ArmedPause::Yield);
            }
            if moved || found != ReadResult::Empty {
                return Ok(found);
            }
            match engine.next_pause() {
                ArmedPause::None => Ok(engine.core.pop_completions(queue, count, write)),
                pause => Err(pause),
            }
        });
        match read {
            Ok(found) => found,
            Err(pause) => {
                self.take_pause(pause);
                self.with(|engine| engine.core.pop_completions(queue, count, write))
            }
        }
    }

    /// Makes progress for a caller that waits for `value` to change.
    pub(crate) fn poll_for<V>(&self, value: impl Fn(&Core) -> V, seen: impl FnOnce(&V) -> bool) -> V {
        let (now, pause) = self.with(|engine| {
            let moved = engine.poll();
            let now = value(&engine.core);
            let pause = if moved || !seen(&now) { ArmedPause::None } else { engine.next_pause() };
            (now, pause)
        });
        match pause {
            ArmedPause::None => now,
            pause => {
                self.take_pause(pause);
                self.with(|engine| value(&engine.core))
            }
        }
    }

    /// Pauses after a poll of another kind (a peek) that found nothing.
    pub(crate) fn pause_after_miss(&self) {
        let pause = self.with(|engine| engine.next_pause());
        self.take_pause(pause);
    }

    fn take_pause(&self, pause: ArmedPause) {
        let slept = match pause {
            ArmedPause::None => return,
            ArmedPause::Yield => {
                std::thread::yield_now();
                false
            }
            ArmedPause::Sleep { ticket, bound } => {
                let bound = if is_single_threaded() { bound } else { bound.min(SLEEP_AMONG_THREADS) };
                self.segment.rank_bell(self.local).wait(ticket, Some(bound));
                true
            }
        };
        self.with(|engine| engine.after_pause(slept));
    }
}

/// Whether this process has no other thread. As long as it has never had one, the C library says so without a
/// system call, which would be paid at each wait.
fn is_single_threaded() -> bool {
    never_had_another_thread() || has_no_other_thread()
}

/// False where the C library does not say (glibc before 2.32).
fn never_had_another_thread() -> bool {
    static FLAG: LazyLock<Option<&AtomicU8>> = LazyLock::new(|| {
        // SAFETY: the call looks a name up in the libraries of this process. What it finds is the C library's
        // variable of this name, one byte, which lives as long as the process; else it is null.
        unsafe {
            libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()).cast::<AtomicU8>().as_ref()
        }
    });
    FLAG.is_some_and(|flag| flag.load(Ordering::Relaxed) != 0)
}

/// `/proc/self/task` has one subdirectory per thread, and a directory has two links more than subdirectories.
fn has_no_other_thread() -> bool {
    std::fs::metadata("/proc/self/task").is_ok_and(|task| task.st_nlink() <= 3)
}
