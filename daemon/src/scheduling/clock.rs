//! What a context switch costs on this machine, and the time of the node scheduler.

use std::{
    sync::mpsc::sync_channel,
    thread,
    time::{Duration, Instant, SystemTime},
};

use coswitch_policies::SimTime;

const ROUNDS: u32 = 200;

/// The time of the scheduler's events.
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn now(&self) -> SimTime {
        self.0.elapsed().into()
    }

    pub(super) fn of(&self, at: Instant) -> SimTime {
        at.saturating_duration_since(self.0).into()
    }

    /// Its time 0, since 1970.
    pub(super) fn began(&self) -> Duration {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        now.saturating_sub(self.0.elapsed())
    }

    pub(super) fn at(&self, time: SimTime) -> Instant {
        self.0 + time.since(SimTime(0))
    }
}

/// Measures how long it takes to give the processor to another thread, by two threads that wake each other on
/// one processor. Takes a few milliseconds.
pub(super) fn context_switch() -> Duration {
    let (there, its) = sync_channel(0);
    let (back, own) = sync_channel(0);
    let other = thread::spawn(move || {
        for () in its {
            if back.send(()).is_err() {
                return;
            }
        }
    });
    let round = || there.send(()).is_ok() && own.recv().is_ok();
    round();
    let begun = Instant::now();
    let rounds = (0..ROUNDS).take_while(|_| round()).count();
    let took = begun.elapsed();
    drop(there);
    // It has nothing left to do.
    let _ = other.join();
    took / (2 * u32::try_from(rounds).unwrap_or(ROUNDS).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_switch_takes_some_time_and_not_long() {
        let took = context_switch();
        assert!(took > Duration::ZERO && took < Duration::from_millis(10), "{took:?}");
    }
}
