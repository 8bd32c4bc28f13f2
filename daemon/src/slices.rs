//! Carries out on this node what happens on all of them at one time: a thread follows the master's
//! [strobes](coswitch_policies::strobe) by the clock.
//!
//! | the node scheduler | what a slice means |
//! | --- | --- |
//! | knows no slices | jobs whose slice is over are stopped, and those of the next one run |
//! | has slots (FCS, BCS) | it learns whose slot begins; under BCS messages are exchanged by them |
//! | has common slices (DTS, static or balanced) | it learns that they begin; there are no strobes |
//!
//! In balanced mode the master [sets](crate::protocol::Asked::Slices) the common slices.

use std::{
    collections::{BTreeSet, VecDeque},
    io,
    ops::Range,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use coswitch_policies::{
    JobId,
    local::{
        Buffering, Technique,
        explicit::{self, CommonSlices},
    },
    strobe::Strobe,
};
use tracing::{debug, warn};

use crate::{
    node_clock::{self, Boot, OtherClock, Reading},
    plane,
    processors::{TimeSlice, precede_ranks, set_time_slice, wake_on_time},
    running::Running,
    scheduling::Teller,
};

/// The time between two looks at what the master has said, while no slice ends.
const IDLE: Duration = Duration::from_secs(1);
/// Where more strobes wait, the first of them are left out.
const NEXT_MAX: usize = 64;

/// What the beginning of a slice does. See the module.
pub(crate) enum Meaning {
    Stops(Arc<Running>),
    /// With a data plane where messages wait for exchanges.
    Slot(Teller, Option<(plane::Teller, Buffering)>),
    /// With the slices that the node has before the master sets others.
    Common(Teller, explicit::Slices),
}

impl Meaning {
    pub(crate) fn of(
        technique: Option<Technique>,
        scheduler: Option<Teller>,
        running: Arc<Running>,
        plane: plane::Teller,
    ) -> Self {
        match (scheduler, technique) {
            (Some(scheduler), Some(technique)) if technique.slot().is_some() => {
                Self::Slot(scheduler, technique.buffering().map(|buffering| (plane, buffering)))
            }
            (Some(scheduler), Some(technique)) => match technique.common_slices() {
                Some(slices) => Self::Common(scheduler, slices),
                None => Self::Stops(running),
            },
            _ => Self::Stops(running),
        }
    }
}

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
    /// The present one, and those that follow it, in the order in which they begin.
    strobe: Option<Strobe>,
    next: VecDeque<Strobe>,
    /// The same for common slices that the master sets.
    common: Option<CommonSlices>,
    next_common: Option<CommonSlices>,
    has_ended: bool,
}

impl Slices {
    /// Starts the thread, which ends with this.
    ///
    /// # Errors
    /// Where there can be no more threads.
    pub(crate) fn start(meaning: Meaning) -> io::Result<Self> {
        let told = Mutex::new(Told::by(OtherClock::unknown(Boot::own())));
        let shared = Arc::new(Shared { told, changed: Condvar::new() });
        let its = Arc::clone(&shared);
        let thread = thread::Builder::new().name("slices".into()).spawn(move || its.run(&meaning))?;
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
        self.shared.lock().add(strobe);
        self.shared.changed.notify_all();
    }

    /// The same for common slices.
    pub(crate) fn on_common(&self, common: CommonSlices) {
        debug!(slices = ?common.slices, "common slices");
        self.shared.lock().next_common = Some(common);
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

    fn run(&self, meaning: &Meaning) {
        if let Err(error) = precede_ranks() {
            warn!(%error, "slices begin late: their thread cannot run before the ranks");
        }
        set_time_slice(TimeSlice::Short);
        wake_on_time();
        let mut begun = Begun::default();
        let mut told = self.lock();
        while !told.has_ended {
            let until = told.begin(meaning, &mut begun);
            let left = |until: i64| until.saturating_sub(node_clock::now()).max(0).unsigned_abs();
            let rest = until.map_or(IDLE, |until| Duration::from_nanos(left(until)));
            told = self.changed.wait_timeout(told, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The present slice.
#[derive(Default)]
struct Begun {
    /// The jobs that stand still in it.
    others: BTreeSet<JobId>,
    /// The end of the slice that the node scheduler knows of, by the master's clock; with common slices the
    /// beginning of their interval.
    known: Option<i64>,
    /// The end of the exchange that the data plane knows of, by the master's clock.
    exchange: Option<i64>,
    /// Who was to stand still in the last slice, where too little of it was left for the others to run.
    passed_over: Option<BTreeSet<JobId>>,
}

impl Told {
    const fn by(clock: OtherClock) -> Self {
        let next = VecDeque::new();
        Self { clock, strobe: None, next, common: None, next_common: None, has_ended: false }
    }

    /// A master sends its strobes in the order in which they begin. So those that wait and would begin later
    /// are of another master, and its machine has restarted since: by the new clock they may be days ahead.
    fn add(&mut self, strobe: Strobe) {
        self.next.retain(|earlier| earlier.begin < strobe.begin);
        if self.next.len() == NEXT_MAX {
            self.next.pop_front();
        }
        self.next.push_back(strobe);
    }

    /// Begins the present slice, where that has not been done. Returns when to ask again, by the own clock.
    fn begin(&mut self, meaning: &Meaning, begun: &mut Begun) -> Option<i64> {
        let now = node_clock::now();
        match meaning {
            Meaning::Stops(running) => {
                let (mut others, until) = self.slice(now);
                if others != begun.others {
                    if let Some(all) = self.passed_over(&others, now, begun) {
                        others = all;
                    }
                    running.lock().begin_slice(others.clone());
                    begun.others = others;
                }
                until
            }
            Meaning::Slot(scheduler, buffered) => {
                let (row, end) = self.slot(now);
                if end != begun.known {
                    scheduler.strobe(row);
                    begun.known = end;
                }
                let exchanged = buffered.as_ref().and_then(|(plane, buffering)| {
                    let exchange = self.exchange(*buffering, now);
                    let next = exchange.as_ref().map(|exchange| exchange.end);
                    if next != begun.exchange {
                        let begins = |exchange: Range<i64>| plane::Command::Exchange(exchange.start);
                        plane.tell(exchange.map_or(plane::Command::SendAtOnce, begins));
                        begun.exchange = next;
                    }
                    next
                });
                self.or_next(self.by_own_clock(exchanged.or(end)))
            }
            Meaning::Common(scheduler, usual) => {
                let (slices, begin, end) = self.common(now, *usual)?;
                if begun.known != Some(begin) {
                    scheduler.begin(slices);
                    begun.known = Some(begin);
                }
                self.by_own_clock(Some(end))
            }
        }
    }

    /// The present strobe, its time, and what the own clock has more.
    fn strobe(&mut self, now: i64) -> Option<(&Strobe, i64, i64)> {
        let offset = self.clock.offset()?;
        let now = now - offset;
        while self.next.front().is_some_and(|strobe| strobe.begin <= now) {
            self.strobe = self.next.pop_front();
        }
        Some((self.strobe.as_ref()?, now, offset))
    }

    fn by_own_clock(&self, time: Option<i64>) -> Option<i64> {
        Some(time? + self.clock.offset()?)
    }

    /// The end of a slice, or the next strobe, whichever comes first.
    fn or_next(&self, until: Option<i64>) -> Option<i64> {
        let offset = self.clock.offset()?;
        let next = self.next.front().map(|strobe| strobe.begin + offset);
        until.into_iter().chain(next).min()
    }

    /// The jobs that stand still in this slice, and when to ask again, by the own clock.
    fn slice(&mut self, now: i64) -> (BTreeSet<JobId>, Option<i64>) {
        let found = self.strobe(now).and_then(|(strobe, now, offset)| {
            let slice = strobe.at(now)?;
            let others = slice.row.map(|row| strobe.rows.others(row)).unwrap_or_default();
            Some((others, slice.until.map(|until| until + offset)))
        });
        let (others, until) = found.unwrap_or_default();
        (others, self.or_next(until))
    }

    /// The jobs of this slot, and when it ends, by the master's clock.
    fn slot(&mut self, now: i64) -> (BTreeSet<JobId>, Option<i64>) {
        let found = self.strobe(now).and_then(|(strobe, now, _)| {
            let slot = strobe.slot(now)?;
            let row = slot.row.and_then(|row| strobe.rows.rows.get(row)).cloned().unwrap_or_default();
            Some((row, slot.until))
        });
        found.unwrap_or_default()
    }

    /// When messages were exchanged last and are exchanged next, by the master's clock; `None`: they go at
    /// once.
    fn exchange(&mut self, buffering: Buffering, now: i64) -> Option<Range<i64>> {
        let (strobe, now, _) = self.strobe(now)?;
        let is_shared = strobe.rows.rows.len() > 1;
        (is_shared || !buffering.dedicated).then(|| strobe.exchange(now, buffering.exchanges))?
    }

    /// All jobs that take slices, if the thread has come so late for a slice that its jobs would hardly run
    /// before they had to stop again: all of them stand still for the rest of it. Not twice in succession, so
    /// that each slice has its turn.
    fn passed_over(
        &mut self,
        others: &BTreeSet<JobId>,
        now: i64,
        begun: &mut Begun,
    ) -> Option<BTreeSet<JobId>> {
        let late = self.strobe(now).filter(|(strobe, now, _)| strobe.is_nearly_over(*now));
        let all = late.map(|(strobe, ..)| strobe.rows.rows.iter().flatten().copied().collect());
        let all = all.filter(|_| begun.passed_over.as_ref() != Some(others));
        begun.passed_over = all.is_some().then(|| others.clone());
        all
    }

    /// The present common slices, the beginning of their synchronisation interval, and when to ask again, by
    /// the master's clock.
    fn common(&mut self, now: i64, usual: explicit::Slices) -> Option<(explicit::Slices, i64, i64)> {
        let now = now - self.clock.offset()?;
        if let Some(next) = self.next_common.take_if(|next| next.begin <= now) {
            self.common = Some(next);
        }
        let common = self.common.unwrap_or(CommonSlices { slices: usual, begin: 0 });
        let (begin, end) = common.interval(now);
        Some((common.slices, begin, self.next_common.map_or(end, |next| end.min(next.begin))))
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
        let mut told = Told::by(OtherClock::unknown(Boot::own()));
        told.next = [strobe(100, &[&[1], &[2]]), strobe(125, &[&[3], &[1]])].into();
        let still = |jobs: &[u32]| -> BTreeSet<JobId> { jobs.iter().map(|job| JobId(*job)).collect() };
        assert_eq!(told.slice(0), (still(&[]), None), "the clock is not known yet");
        // The master's clock is 1000 behind.
        told.clock.on_reading(&Reading { boot: Boot::default(), at: 0 }, 1000);
        assert_eq!(told.slice(1000), (still(&[]), Some(1100)));
        assert_eq!(told.slice(1100), (still(&[2]), Some(1110)));
        assert_eq!(told.slice(1115), (still(&[1]), Some(1120)));
        assert_eq!(told.slice(1121), (still(&[2]), Some(1125)), "the next strobe begins amid this slice");
        assert_eq!(told.slice(1125), (still(&[1]), Some(1135)));
        told.add(strobe(130, &[&[1]]));
        assert_eq!(told.slice(1131), (still(&[]), None), "a single row runs all the time");
    }

    #[test]
    fn a_strobe_before_a_restart_of_the_masters_machine_keeps_no_later_one_back() {
        let mut told = Told::by(OtherClock::unknown(Boot::default()));
        told.clock.on_reading(&Reading { boot: Boot::own(), at: 9000 }, 1000);
        told.add(strobe(9020, &[&[1]]));
        // The clock began anew, and is 1010 behind.
        told.clock.on_reading(&Reading { boot: Boot::default(), at: 0 }, 1010);
        told.add(strobe(25, &[&[1], &[2]]));
        assert_eq!(told.slice(1035), (BTreeSet::from([JobId(2)]), Some(1045)));
        assert!(told.next.is_empty());
        (0..1000).for_each(|begin| told.add(strobe(begin, &[&[1]])));
        assert_eq!(told.next.len(), NEXT_MAX);
        assert_eq!(told.next.back(), Some(&strobe(999, &[&[1]])));
    }

    #[test]
    fn a_slot_is_the_same_one_whatever_the_clocks_differ_by() {
        let mut told = Told::by(OtherClock::unknown(Boot::own()));
        told.next = [strobe(100, &[&[1], &[2]])].into();
        told.clock.on_reading(&Reading { boot: Boot::default(), at: 0 }, 1000);
        let row = |jobs: &[u32]| -> BTreeSet<JobId> { jobs.iter().map(|job| JobId(*job)).collect() };
        assert_eq!(told.slot(1100), (row(&[1]), Some(110)));
        assert_eq!(told.slot(1115), (row(&[2]), Some(120)));
        assert_eq!(told.slot(1120), (row(&[]), Some(130)), "the slot of all others");
        told.clock.on_reading(&Reading { boot: Boot::default(), at: 500 }, 1498);
        assert_eq!(told.slot(1128), (row(&[1]), Some(140)), "two nanoseconds ahead");
    }

    #[test]
    fn messages_go_at_once_while_no_node_has_ranks_of_two_jobs() {
        let mut told = Told::by(OtherClock::unknown(Boot::own()));
        told.clock.on_reading(&Reading { boot: Boot::default(), at: 0 }, 1000);
        told.next = [strobe(100, &[&[1]]), strobe(120, &[&[1], &[2]])].into();
        let [usual, twice] = [1, 2].map(|exchanges| Buffering { exchanges, dedicated: false });
        let dedicated = Buffering { dedicated: true, ..usual };
        assert_eq!(told.exchange(usual, 1099), None, "no strobe has begun");
        assert_eq!(told.exchange(usual, 1100), Some(100..110));
        assert_eq!(told.exchange(twice, 1100), Some(100..105));
        assert_eq!(told.exchange(dedicated, 1100), None);
        assert_eq!(told.exchange(dedicated, 1120), Some(120..130), "two jobs share a node");
    }

    #[test]
    fn a_slice_that_is_nearly_over_is_passed_over_once() {
        let mut told = Told::by(OtherClock::unknown(Boot::own()));
        told.clock.on_reading(&Reading { boot: Boot::default(), at: 0 }, 1000);
        told.next = [strobe(100, &[&[1], &[2]])].into();
        let (mut begun, others) = (Begun::default(), BTreeSet::from([JobId(2)]));
        let mut at = |now| told.passed_over(&others, now, &mut begun);
        let all = Some(BTreeSet::from([JobId(1), JobId(2)]));
        assert_eq!(at(1107), None, "a quarter is left");
        assert_eq!(at(1108), all);
        assert_eq!(at(1128), None, "this time it has its turn");
        assert_eq!(at(1148), all);
    }

    #[test]
    fn common_slices_begin_when_the_master_says_and_anew_after_each_interval() {
        let slices = |parallel, local| {
            let [parallel, local] = [parallel, local].map(Duration::from_nanos);
            explicit::Slices { parallel, local }
        };
        let (usual, set) = (slices(3, 2), slices(1, 4));
        let mut told = Told::by(OtherClock::unknown(Boot::own()));
        assert_eq!(told.common(1128, usual), None, "the clock is not known yet");
        told.clock.on_reading(&Reading { boot: Boot::default(), at: 500 }, 1498);
        assert_eq!(told.common(1128, usual), Some((usual, 100, 150)), "the master's clock says 130");
        told.next_common = Some(CommonSlices { slices: set, begin: 142 });
        assert_eq!(told.common(1128, usual), Some((usual, 100, 142)), "nothing begins anew before");
        assert_eq!(told.common(1140, usual), Some((set, 142, 192)));
        assert_eq!(told.common(1191, usual), Some((set, 192, 242)));
    }
}
