//! What a rank does at present, for the scheduler of its node: written by the rank, and read without its
//! help.
//!
//! The scheduler asks for the next arrival of a rank that is not favoured, and for the next sleep of one
//! whose processor others want. So anything else costs one load, and a stream of messages rings the scheduler
//! once.

use std::sync::atomic::{AtomicU32, Ordering};

/// What a rank does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum Doing {
    /// It computes, or has not begun to use MPI.
    #[default]
    Computes = 0,
    /// It waits for a message, and polls.
    Polls = 1,
    /// It waits for a message, and sleeps.
    Sleeps = 2,
}

impl Doing {
    fn from_raw(raw: u32) -> Doing {
        match raw {
            1 => Doing::Polls,
            2 => Doing::Sleeps,
            _ => Doing::Computes,
        }
    }
}

/// Values of [`Activity::asked`].
const NOT_ASKED: u32 = 0;
const ASKED: u32 = 1;
const ARRIVED: u32 = 2;

/// See the module.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Activity {
    /// In the rank's own namespace; 0 before it uses MPI.
    process: AtomicU32,
    doing: AtomicU32,
    /// The next sleep is to ring the scheduler.
    watched: AtomicU32,
    asked: Asked,
}

/// On a cache line that the rank does not write: all that send to it read this.
#[repr(C, align(64))]
#[derive(Debug)]
struct Asked(AtomicU32);

impl Activity {
    /// Tells which process the rank is.
    pub fn set_process(&self, process: u32) {
        self.process.store(process, Ordering::Release);
    }

    /// `None` before the rank uses MPI.
    pub fn process(&self) -> Option<u32> {
        Some(self.process.load(Ordering::Acquire)).filter(|process| *process != 0)
    }

    /// Only the rank calls it, one thread at a time.
    pub fn set_doing(&self, doing: Doing) {
        // A store would take the cache line from its readers.
        if self.doing.load(Ordering::Relaxed) != doing as u32 {
            self.doing.store(doing as u32, Ordering::Release);
        }
    }

    pub fn doing(&self) -> Doing {
        Doing::from_raw(self.doing.load(Ordering::Acquire))
    }

    /// The next arrival is to ring the scheduler.
    pub fn ask_for_arrival(&self) {
        let _ = self.asked.0.compare_exchange(NOT_ASKED, ASKED, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// Ends that. An arrival that has been noted stays.
    pub fn stop_asking(&self) {
        let _ = self.asked.0.compare_exchange(ASKED, NOT_ASKED, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// Notes an arrival. Whether the scheduler is to be rung.
    pub(crate) fn note_arrival(&self) -> bool {
        self.asked.0.load(Ordering::Relaxed) == ASKED
            && self.asked.0.compare_exchange(ASKED, ARRIVED, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// The next sleep is to ring the scheduler.
    pub fn watch_for_sleep(&self) {
        self.watched.store(1, Ordering::Relaxed);
    }

    /// Whether the scheduler is to be rung, because the rank is about to sleep.
    pub(crate) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed) != 0 && self.watched.swap(0, Ordering::SeqCst) != 0
    }

    /// Whether a message has arrived since the scheduler asked; it has to ask again.
    pub fn take_arrival(&self) -> bool {
        self.asked.0.compare_exchange(ARRIVED, NOT_ASKED, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity() -> Activity {
        let [process, doing, watched, asked] = [0; 4].map(AtomicU32::new);
        Activity { process, doing, watched, asked: Asked(asked) }
    }

    #[test]
    fn only_the_first_arrival_since_the_scheduler_asked_rings_it() {
        let activity = activity();
        assert!(!activity.note_arrival(), "it has not asked");
        activity.ask_for_arrival();
        assert!(activity.note_arrival());
        assert!(!activity.note_arrival());
        activity.ask_for_arrival();
        activity.stop_asking();
        assert!(activity.take_arrival(), "it stays noted");
        assert!(!activity.take_arrival());
        assert!(!activity.note_arrival());
    }

    #[test]
    fn only_the_first_sleep_since_it_is_watched_rings_the_scheduler() {
        let activity = activity();
        assert!(!activity.is_watched());
        activity.watch_for_sleep();
        assert!(activity.is_watched());
        assert!(!activity.is_watched());
    }

    #[test]
    fn what_a_rank_does_is_read_as_it_was_told() {
        let activity = activity();
        for doing in [Doing::Polls, Doing::Sleeps, Doing::Sleeps, Doing::Computes] {
            activity.set_doing(doing);
            assert_eq!(activity.doing(), doing);
        }
    }
}
