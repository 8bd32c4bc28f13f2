//! Carries out the master's [strobes](coswitch_policies::strobe) on this node: a thread stops the jobs whose
//! slice is over and lets those of the next one run, by the clock.

use std::{
    collections::{BTreeSet, VecDeque},
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use coswitch_policies::{JobId, strobe::Strobe};
use tracing::{debug, warn};

use crate::{
    node_clock::{self, Boot, OtherClock, Reading},
    processors::{TimeSlice, precede_ranks, set_time_slice, wake_on_time},
    running::Running,
};

/// The time between two looks at what the master has said, while no slice ends.
const IDLE: Duration = Duration::from_secs(1);

/// See the module.
pub struct Slices {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    told: Mutex<Told>,
    changed: Condvar,
}

struct Told {
    /// Of the master.
    clock: OtherClock,
    /// The present one, and those that follow it.
    strobe: Option<Strobe>,
    next: VecDeque<Strobe>,
    has_ended: bool,
}

impl Slices {
    /// Starts the thread, which ends with this.
    ///
    /// # Errors
    /// Where there can be no more threads.
    pub fn start(running: Arc<Running>) -> io::Result<Self> {
        let clock = OtherClock::unknown(Boot::own());
        let told = Mutex::new(Told { clock, strobe: None, next: VecDeque::new(), has_ended: false });
        let shared = Arc::new(Shared { told, changed: Condvar::new() });
        let its = Arc::clone(&shared);
        let thread = thread::Builder::new().name("slices".into()).spawn(move || its.run(&running))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The master's clock was read, and that has just arrived.
    pub(crate) fn on_reading(&self, reading: &Reading) {
        self.shared.lock().clock.on_reading(reading, node_clock::now());
        // A strobe may have come before.
        self.shared.changed.notify_all();
    }

    /// When this strobe begins, by the master's clock, it takes the place of the one before.
    pub(crate) fn on_strobe(&self, strobe: Strobe) {
        debug!(rows = strobe.rows.rows.len(), "strobe");
        self.shared.lock().next.push_back(strobe);
        self.shared.changed.notify_all();
    }
}

impl Drop for Slices {
    fn drop(&mut self) {
        self.shared.lock().has_ended = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, running: &Running) {
        if let Err(error) = precede_ranks() {
            warn!(%error, "slices begin late: their thread cannot run before the ranks");
        }
        set_time_slice(TimeSlice::Short);
        wake_on_time();
        let mut present = BTreeSet::new();
        let mut told = self.lock();
        while !told.has_ended {
            let now = node_clock::now();
            let (others, until) = told.slice(now);
            if others != present {
                running.lock().begin_slice(others.clone());
                present = others;
            }
            let left = |until: i64| until.saturating_sub(node_clock::now()).max(0).unsigned_abs();
            let rest = until.map_or(IDLE, |until| Duration::from_nanos(left(until)));
            told = self.changed.wait_timeout(told, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Told {
    /// The jobs that stand still in this slice, and when to ask again, by the own clock.
    fn slice(&mut self, now: i64) -> (BTreeSet<JobId>, Option<i64>) {
        let Some(offset) = self.clock.offset() else { return Default::default() };
        let now = now - offset;
        while self.next.front().is_some_and(|strobe| strobe.begin <= now) {
            self.strobe = self.next.pop_front();
        }
        let slice = self.strobe.as_ref().and_then(|strobe| strobe.at(now));
        let next = self.next.front().map(|strobe| strobe.begin);
        let until = slice.and_then(|slice| slice.until).into_iter().chain(next).min();
        let row = slice.and_then(|slice| slice.row).zip(self.strobe.as_ref());
        let others = row.map(|(row, strobe)| strobe.rows.others(row)).unwrap_or_default();
        (others, until.map(|until| until + offset))
    }
}

#[cfg(test)]
mod tests {
    use coswitch_policies::strobe::Rows;

    use super::*;

    fn strobe(begin: i64, rows: &[&[u32]]) -> Strobe {
        let rows = rows.iter().map(|row| row.iter().map(|job| JobId(*job)).collect()).collect();
        Strobe { rows: Rows { slice: Duration::from_nanos(10), rows }, begin }
    }

    #[test]
    fn each_strobe_counts_from_its_beginning_on_by_the_masters_clock() {
        let mut told = Told {
            clock: OtherClock::unknown(Boot::own()),
            strobe: None,
            next: [strobe(100, &[&[1], &[2]]), strobe(125, &[&[3], &[1]])].into(),
            has_ended: false,
        };
        let still = |jobs: &[u32]| -> BTreeSet<JobId> { jobs.iter().map(|job| JobId(*job)).collect() };
        assert_eq!(told.slice(0), (still(&[]), None), "the clock is not known yet");
        // The master's clock is 1000 behind.
        told.clock.on_reading(&Reading { boot: Boot::default(), at: 0 }, 1000);
        assert_eq!(told.slice(1000), (still(&[]), Some(1100)));
        assert_eq!(told.slice(1100), (still(&[2]), Some(1110)));
        assert_eq!(told.slice(1115), (still(&[1]), Some(1120)));
        assert_eq!(told.slice(1121), (still(&[2]), Some(1125)), "the next strobe begins amid this slice");
        assert_eq!(told.slice(1125), (still(&[1]), Some(1135)));
        told.next.push_back(strobe(130, &[&[1]]));
        assert_eq!(told.slice(1131), (still(&[]), None), "a single row runs all the time");
    }
}
