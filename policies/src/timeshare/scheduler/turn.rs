//! The turn of the front row: its beginning, its end, and the last decision about it.

use std::{collections::BTreeSet, time::Duration};

use crate::{Decision, JobId, SimTime, SlotId, TimerId, Turn, TurnChange};

/// The end of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strobe {
    /// No other row waits.
    Never,
    /// A timer was set.
    Set { timer: TimerId, at: SimTime },
    /// The timer fired; the turn ends as soon as no switch is under way.
    Due { at: SimTime },
}

/// Progress of the work ahead of the next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ahead {
    /// Nothing was planned yet.
    Open,
    /// The next row is to come when this timer fires.
    Set { timer: TimerId },
    /// The timer fired.
    Due,
    /// The next row is coming, or has come.
    Begun,
    /// A step failed: nothing more in this turn.
    GivenUp,
}

/// A turn that began.
#[derive(Clone, Debug)]
pub(super) struct Running {
    slot: SlotId,
    since: SimTime,
    strobe: Strobe,
    ahead: Ahead,
    /// The running jobs of the row; beside them, the backfilled jobs of other rows.
    jobs: BTreeSet<JobId>,
    backfilled: BTreeSet<JobId>,
    /// Jobs of the row that came or went since the last decision.
    changed: BTreeSet<JobId>,
    /// A job of the turn ended since the last decision.
    ended: bool,
    /// The end of the turn in the last decision, once there was one.
    told: Option<Option<SimTime>>,
}

impl Running {
    pub(super) fn new(slot: SlotId, since: SimTime, jobs: BTreeSet<JobId>) -> Self {
        let (backfilled, changed) = (BTreeSet::new(), BTreeSet::new());
        Self {
            slot,
            since,
            strobe: Strobe::Never,
            ahead: Ahead::Open,
            jobs,
            backfilled,
            changed,
            ended: false,
            told: None,
        }
    }

    /// Takes note whether a job of the row runs. `ended` is asked only where the job matters to this turn.
    pub(super) fn note(&mut self, job: JobId, present: bool, ended: impl FnOnce() -> bool) {
        let changed = if present { self.jobs.insert(job) } else { self.jobs.remove(&job) };
        if !(changed || self.changed.contains(&job) || self.backfilled.contains(&job)) {
            return;
        }
        if ended() {
            self.ended |= changed | self.changed.remove(&job) | self.backfilled.remove(&job);
        } else if changed && !self.changed.remove(&job) {
            self.changed.insert(job);
        }
    }

    pub(super) fn on_timer(&mut self, timer: TimerId) {
        if let Strobe::Set { timer: set, at } = self.strobe
            && set == timer
        {
            self.strobe = Strobe::Due { at };
        }
        if self.ahead == (Ahead::Set { timer }) {
            self.ahead = Ahead::Due;
        }
    }

    pub(super) const fn slot(&self) -> SlotId {
        self.slot
    }

    pub(super) const fn since(&self) -> SimTime {
        self.since
    }

    pub(super) fn may_work_ahead(&self) -> bool {
        self.ahead != Ahead::GivenUp && !self.is_over()
    }

    /// Whether it is time for the next row to come; true once.
    pub(super) fn take_due_ahead(&mut self) -> bool {
        let due = self.ahead == Ahead::Due;
        if due {
            self.ahead = Ahead::Begun;
        }
        due
    }

    /// When the turn ends, where that is known.
    pub(super) const fn ends(&self) -> Option<SimTime> {
        match self.strobe {
            Strobe::Never => None,
            Strobe::Set { at, .. } | Strobe::Due { at } => Some(at),
        }
    }

    /// When the turn ends, where that is known and nothing was planned ahead.
    pub(super) const fn ends_without_ahead(&self) -> Option<SimTime> {
        match (self.ahead, self.strobe) {
            (Ahead::Open, Strobe::Set { at, .. }) => Some(at),
            _ => None,
        }
    }

    pub(super) fn set_ahead(&mut self, at: SimTime, next: &mut u32) -> Option<Decision> {
        let timer = TimerId(*next);
        *next += 1;
        self.ahead = Ahead::Set { timer };
        Some(Decision::SetTimer { timer, at })
    }

    /// The work ahead is over.
    pub(super) fn end_ahead(&mut self, failed: bool) {
        if failed {
            self.ahead = Ahead::GivenUp;
        }
    }

    pub(super) const fn is_over(&self) -> bool {
        matches!(self.strobe, Strobe::Due { .. })
    }

    /// Whether less than half of the quantum is left: too little for a job that joins now.
    pub(super) fn is_late(&self, now: SimTime, quantum: Duration) -> bool {
        now.since(self.since) * 2 > quantum
    }

    /// No other row waits: a timer that was set means nothing any more.
    pub(super) const fn forget_strobe(&mut self) {
        self.strobe = Strobe::Never;
    }

    /// Other rows wait: sets the timer that ends the turn, unless there is one.
    pub(super) fn set_strobe(&mut self, now: SimTime, quantum: Duration, next: &mut u32) -> Option<Decision> {
        if self.strobe != Strobe::Never {
            return None;
        }
        let (timer, at) = (TimerId(*next), self.since.after(quantum).max(now));
        *next += 1;
        self.strobe = Strobe::Set { timer, at };
        Some(Decision::SetTimer { timer, at })
    }

    /// The turn as last decided.
    pub(super) fn turn(&self) -> Option<Turn> {
        let jobs = self.jobs.iter().chain(&self.backfilled).copied().collect();
        self.told.map(|ends| Turn { slot: self.slot, jobs, ends })
    }

    /// The decision about the turn, where it differs from the last one.
    pub(super) fn tell(&mut self, backfilled: BTreeSet<JobId>) -> Option<Decision> {
        let ends = self.ends();
        let before = std::mem::replace(&mut self.backfilled, backfilled);
        let changed = std::mem::take(&mut self.changed);
        let news = std::mem::take(&mut self.ended) || !changed.is_empty() || before != self.backfilled;
        let Some(told) = self.told.replace(ends) else { return self.turn().map(Decision::SlotStarted) };
        if !news && told == ends {
            return None;
        }
        let (mut came, mut went): (Vec<JobId>, Vec<JobId>) =
            changed.into_iter().partition(|job| self.jobs.contains(job));
        came.extend(self.backfilled.difference(&before));
        went.extend(before.difference(&self.backfilled));
        Some(Decision::SlotChanged(TurnChange { slot: self.slot, came, went, ends }))
    }
}
