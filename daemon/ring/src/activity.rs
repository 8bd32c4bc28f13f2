//! What a rank does at present, for the scheduler of its node: written by the rank, and read without its
//! help.
//!
//! The scheduler asks for the next arrival of a rank that is not favoured, and for the next sleep of one
//! whose processor others want. So anything else costs one load, and a stream of messages rings the scheduler
//! once.
//!
//! A rank that the kernel runs as soon as it is woken must not wait for the scheduler before that. Its next
//! arrival is asked for quietly: the sender writes down the time, and the rank rings when it sleeps again.
//! The scheduler hears of the arrival then, or sees it at its next look.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

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

/// What becomes of the next arrival, or has become of it: values of [`Asked::state`].
const NOT_ASKED: u32 = 0;
const ASKED: u32 = 1;
const ARRIVED: u32 = 2;
const ASKED_QUIETLY: u32 = 3;
const SERVED: u32 = 4;

/// How the scheduler asks for the next arrival of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// It rings.
    AtOnce,
    /// The next sleep after it rings.
    Quietly,
}

impl Ask {
    const fn state(self) -> u32 {
        match self {
            Self::AtOnce => ASKED,
            Self::Quietly => ASKED_QUIETLY,
        }
    }
}

/// An arrival that the scheduler has asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// How long ago it was. A rank may write any time there.
    pub ago: Duration,
    /// The rank has run since, and sleeps again.
    pub is_served: bool,
}

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
struct Asked {
    state: AtomicU32,
    /// Nanoseconds of the machine's clock.
    arrived_ns: AtomicU64,
}

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

    /// Asks for the next arrival. One that has been noted stays.
    pub fn ask_for_arrival(&self, ask: Ask) {
        if self.asked.state.load(Ordering::Relaxed) != ask.state() {
            self.change_asked(&[NOT_ASKED, ASKED, ASKED_QUIETLY], ask.state());
        }
    }

    /// Ends that. An arrival that has been noted stays.
    pub fn stop_asking(&self) {
        self.change_asked(&[ASKED, ASKED_QUIETLY], NOT_ASKED);
    }

    /// Notes an arrival. How the scheduler has asked for it, if it has.
    pub(crate) fn note_arrival(&self) -> Option<Ask> {
        let state = self.asked.state.load(Ordering::Relaxed);
        let ask = [Ask::AtOnce, Ask::Quietly].into_iter().find(|ask| ask.state() == state)?;
        // The time is written before the state, so a scheduler that reads this state also reads the time.
        self.asked.arrived_ns.store(now_ns(), Ordering::Relaxed);
        self.change_asked(&[state], ARRIVED).then_some(ask)
    }

    /// Whether an arrival has been noted, and neither served nor taken.
    pub(crate) fn has_arrival(&self) -> bool {
        self.asked.state.load(Ordering::Relaxed) == ARRIVED
    }

    /// The next sleep is to ring the scheduler.
    pub fn watch_for_sleep(&self) {
        self.watched.store(1, Ordering::Relaxed);
    }

    /// Whether the scheduler is to be rung, because the rank is about to sleep. Its processor may have a
    /// successor already; then only a message that was served is worth a ring.
    pub(crate) fn note_sleep(&self, has_successor: bool) -> bool {
        let is_served = self.has_arrival() && self.change_asked(&[ARRIVED], SERVED);
        let is_watched = !has_successor && self.watched.load(Ordering::Relaxed) != 0;
        is_watched && self.watched.swap(0, Ordering::SeqCst) != 0 || is_served
    }

    /// The message that has arrived since the scheduler asked; it has to ask again.
    pub fn take_arrival(&self) -> Option<Arrival> {
        let state = self.asked.state.load(Ordering::Acquire);
        if state != ARRIVED && state != SERVED {
            return None;
        }
        // The rank may have slept in between.
        let state = self.asked.state.swap(NOT_ASKED, Ordering::SeqCst);
        let ago = now_ns().saturating_sub(self.asked.arrived_ns.load(Ordering::Relaxed));
        Some(Arrival { ago: Duration::from_nanos(ago), is_served: state == SERVED })
    }

    /// Whether it was one of these values.
    fn change_asked(&self, from: &[u32], to: u32) -> bool {
        let change = |from: &u32| {
            self.asked.state.compare_exchange(*from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        };
        from.iter().any(change)
    }
}

/// The clock of this machine.
fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to a local. Each Linux has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity() -> Activity {
        let [process, doing, watched, state] = [0; 4].map(AtomicU32::new);
        Activity { process, doing, watched, asked: Asked { state, arrived_ns: AtomicU64::new(0) } }
    }

    #[test]
    fn only_the_first_arrival_since_the_scheduler_asked_rings_it() {
        let activity = activity();
        assert_eq!(activity.note_arrival(), None, "it has not asked");
        activity.ask_for_arrival(Ask::AtOnce);
        assert_eq!(activity.note_arrival(), Some(Ask::AtOnce));
        assert_eq!(activity.note_arrival(), None);
        activity.ask_for_arrival(Ask::AtOnce);
        activity.stop_asking();
        assert!(!activity.take_arrival().expect("it stays noted").is_served);
        assert_eq!(activity.take_arrival(), None);
        assert_eq!(activity.note_arrival(), None);
    }

    #[test]
    fn an_arrival_that_is_asked_for_quietly_rings_when_the_rank_sleeps_again() {
        let activity = activity();
        activity.ask_for_arrival(Ask::Quietly);
        assert!(!activity.note_sleep(false), "nothing has arrived");
        assert_eq!(activity.note_arrival(), Some(Ask::Quietly));
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(activity.note_arrival(), None, "the first one counts");
        assert!(activity.note_sleep(false));
        assert!(!activity.note_sleep(false));
        let arrival = activity.take_arrival().expect("an arrival");
        assert!(arrival.is_served && arrival.ago >= Duration::from_millis(2), "{arrival:?}");
        activity.ask_for_arrival(Ask::Quietly);
        activity.note_arrival();
        assert!(!activity.take_arrival().expect("an arrival").is_served, "it sleeps still, or computes");
    }

    #[test]
    fn the_scheduler_may_ask_in_the_other_way() {
        let activity = activity();
        activity.ask_for_arrival(Ask::Quietly);
        activity.ask_for_arrival(Ask::AtOnce);
        assert_eq!(activity.note_arrival(), Some(Ask::AtOnce));
        activity.take_arrival();
        activity.ask_for_arrival(Ask::AtOnce);
        activity.ask_for_arrival(Ask::Quietly);
        assert_eq!(activity.note_arrival(), Some(Ask::Quietly));
    }

    #[test]
    fn only_the_first_sleep_since_it_is_watched_rings_the_scheduler() {
        let activity = activity();
        assert!(!activity.note_sleep(false));
        activity.watch_for_sleep();
        assert!(!activity.note_sleep(true), "a rank that it has woken is next");
        assert!(activity.note_sleep(false));
        assert!(!activity.note_sleep(false));
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
