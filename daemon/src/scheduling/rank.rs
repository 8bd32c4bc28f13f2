//! What has happened to a rank between two looks at it, as events of its scheduler. Pure.
//!
//! ```text
//!              polls, favoured              sleeps
//!    Ready ◀──────────────────▶ Waits ─────────────▶ Away
//!      │ ▲      computes                              ▲ │
//!      │ └───────── a message, computes, polls ───────┼─┘
//!      └───────────────────── sleeps ─────────────────┘
//! ```
//! A rank that a message has woken says that it sleeps until it has a processor. So between a message and its
//! next poll it counts as ready. Where the node notices a message late, it tells the scheduler what the
//! message has changed with the time of the [arrival](Rank::see).

use coswitch_policies::local::{TaskEvent, TaskId};
use coswitch_ring::{Arrival, Doing, Segment};

/// More messages between two looks count as so many.
const MESSAGES_MAX: u64 = 64;

/// A rank at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sight {
    pub(super) doing: Doing,
    /// A message has arrived since the scheduler asked for it.
    pub(super) arrival: Option<Arrival>,
    pub(super) polls: u64,
    pub(super) sent: u64,
    pub(super) received: u64,
}

impl Sight {
    /// Takes the arrival.
    pub(super) fn of(segment: &Segment, local: u32) -> Self {
        let activity = segment.activity(local);
        let arrival = activity.take_arrival();
        let doing = activity.doing();
        let counters = segment.counters(local);
        Self {
            doing,
            arrival,
            polls: counters.polls,
            sent: counters.messages_sent,
            received: counters.messages_received,
        }
    }
}

/// What the scheduler knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Ready,
    /// It may keep its processor.
    Waits,
    Away,
}

/// A rank between two looks.
#[derive(Clone, Debug)]
pub(super) struct Rank {
    task: TaskId,
    phase: Phase,
    last: Sight,
    /// That at the last look.
    before: Sight,
    /// Its polls when a message woke it; it has not polled since.
    woken: Option<u64>,
    /// A message has arrived that it has not taken, and may want.
    has_message: bool,
}

impl Rank {
    /// One that the scheduler has just heard of: it is ready.
    pub(super) fn new(task: TaskId, sight: Sight) -> Self {
        Self { task, phase: Phase::Ready, last: sight, before: sight, woken: None, has_message: false }
    }

    /// Looks at it. What a message has changed when it arrived.
    pub(super) fn see(&mut self, sight: Sight) -> Vec<TaskEvent> {
        let task = self.task;
        self.before = std::mem::replace(&mut self.last, sight);
        let Some(arrival) = sight.arrival else { return Vec::new() };
        let mut events = vec![TaskEvent::MessageArrived { task }];
        self.has_message = true;
        if sight.doing == Doing::Sleeps && !arrival.is_served {
            self.woken.get_or_insert(sight.polls);
        }
        if self.phase == Phase::Away {
            events.extend([TaskEvent::WaitOver { task }, TaskEvent::Unblocked { task }]);
            self.phase = Phase::Ready;
        }
        events
    }

    /// What has changed otherwise. `is_favoured`: it has a processor by the scheduler's decision. `may_spin`:
    /// a rank that waits may keep it.
    pub(super) fn changes(&mut self, is_favoured: bool, may_spin: bool) -> Vec<TaskEvent> {
        let Self { task, last: sight, before: last, .. } = *self;
        let mut events = Vec::new();
        let sent = sight.sent.saturating_sub(last.sent).min(MESSAGES_MAX);
        events.extend((0..sent).map(|_| TaskEvent::MessageSent { task }));
        // Most likely that very message. Not all that comes counts as received: a poll takes it as well.
        let has_polled = sight.polls != last.polls && sight.doing != Doing::Sleeps;
        let has_polled = has_polled || sight.arrival.is_some_and(|arrival| arrival.is_served);
        if self.has_message && has_polled || sight.received != last.received {
            self.has_message = false;
            events.push(TaskEvent::MessagesTaken { task });
        }
        self.woken = self.woken.filter(|polls| *polls == sight.polls);
        let doing = if self.woken.is_some() { Doing::Computes } else { sight.doing };
        self.phase = match (self.phase, doing) {
            (Phase::Away, Doing::Computes | Doing::Polls) => {
                events.extend([TaskEvent::WaitOver { task }, TaskEvent::Unblocked { task }]);
                Phase::Ready
            }
            (Phase::Waits, Doing::Computes) => {
                events.push(TaskEvent::WaitOver { task });
                Phase::Ready
            }
            (Phase::Ready, Doing::Polls) if is_favoured && may_spin => {
                events.push(TaskEvent::Waits { task });
                Phase::Waits
            }
            (Phase::Ready, Doing::Sleeps) => {
                // The second where the scheduler lets it spin.
                events.extend([TaskEvent::Waits { task }, TaskEvent::Blocked { task }]);
                Phase::Away
            }
            (Phase::Waits, Doing::Sleeps) => {
                events.push(TaskEvent::Blocked { task });
                Phase::Away
            }
            (phase, _) => phase,
        };
        events
    }

    /// It waits without a processor after all, because another rank took that at the same look. Else it would
    /// never come back for the scheduler.
    pub(super) fn on_left(&mut self) {
        if self.phase == Phase::Waits {
            self.phase = Phase::Away;
        }
    }

    /// It has had its processor for a whole slice: it does not want a message that it has left alone for so
    /// long. Else one that came as it began to compute would favour it for ever.
    pub(super) fn on_slice_over(&mut self) -> Option<TaskEvent> {
        std::mem::take(&mut self.has_message).then_some(TaskEvent::MessagesTaken { task: self.task })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const TASK: TaskId = TaskId(3);
    const SLEEPS: [TaskEvent; 2] = [TaskEvent::Waits { task: TASK }, TaskEvent::Blocked { task: TASK }];

    fn sight(doing: Doing, polls: u64) -> Sight {
        Sight { doing, polls, ..Sight::default() }
    }

    fn rank() -> Rank {
        Rank::new(TASK, Sight::default())
    }

    fn look(rank: &mut Rank, sight: Sight, is_favoured: bool, may_spin: bool) -> Vec<TaskEvent> {
        let mut events = rank.see(sight);
        events.extend(rank.changes(is_favoured, may_spin));
        events
    }

    fn arrival(is_served: bool) -> Option<Arrival> {
        Some(Arrival { ago: Duration::from_micros(300), is_served })
    }

    #[test]
    fn a_rank_that_sleeps_leaves_and_comes_back_when_it_computes() {
        let mut rank = rank();
        assert_eq!(look(&mut rank, sight(Doing::Sleeps, 1), true, true), SLEEPS);
        assert_eq!(look(&mut rank, sight(Doing::Sleeps, 1), false, true), []);
        let back = [TaskEvent::WaitOver { task: TASK }, TaskEvent::Unblocked { task: TASK }];
        assert_eq!(look(&mut rank, sight(Doing::Computes, 2), false, true), back);
    }

    #[test]
    fn a_message_wakes_it_before_it_has_a_processor() {
        let mut rank = rank();
        look(&mut rank, sight(Doing::Sleeps, 7), true, true);
        let woken = Sight { arrival: arrival(false), ..sight(Doing::Sleeps, 7) };
        let events = look(&mut rank, woken, false, true);
        assert_eq!(events.last(), Some(&TaskEvent::Unblocked { task: TASK }));
        assert_eq!(look(&mut rank, sight(Doing::Sleeps, 7), true, true), [], "it has not run yet");
        assert_eq!(
            look(&mut rank, sight(Doing::Sleeps, 8), true, true),
            SLEEPS,
            "it waits for another message"
        );
    }

    #[test]
    fn a_rank_that_has_served_a_message_and_sleeps_again_was_ready_in_between() {
        let mut rank = rank();
        look(&mut rank, sight(Doing::Sleeps, 7), true, true);
        let came = rank.see(Sight { arrival: arrival(true), ..sight(Doing::Sleeps, 9) });
        let [arrived, taken, over, ready] = [
            TaskEvent::MessageArrived { task: TASK },
            TaskEvent::MessagesTaken { task: TASK },
            TaskEvent::WaitOver { task: TASK },
            TaskEvent::Unblocked { task: TASK },
        ];
        assert_eq!(came, [arrived, over, ready], "all when it arrived");
        assert_eq!(rank.changes(true, true), [&[taken][..], &SLEEPS].concat());
    }

    #[test]
    fn only_a_favoured_rank_that_may_spin_waits_with_its_processor() {
        let polls = sight(Doing::Polls, 1);
        assert_eq!(look(&mut rank(), polls, false, true), []);
        assert_eq!(look(&mut rank(), polls, true, false), []);
        let mut rank = rank();
        assert_eq!(look(&mut rank, polls, true, true), [TaskEvent::Waits { task: TASK }]);
        assert_eq!(
            look(&mut rank, sight(Doing::Computes, 9), true, true),
            [TaskEvent::WaitOver { task: TASK }]
        );
    }

    #[test]
    fn a_rank_that_loses_its_processor_as_it_begins_to_spin_comes_back() {
        let mut rank = rank();
        look(&mut rank, sight(Doing::Polls, 1), true, true);
        rank.on_left();
        let back = [TaskEvent::WaitOver { task: TASK }, TaskEvent::Unblocked { task: TASK }];
        assert_eq!(look(&mut rank, sight(Doing::Polls, 2), false, true), back);
        rank.on_left();
        assert_eq!(look(&mut rank, sight(Doing::Computes, 3), false, true), [], "it is ready");
    }

    /// Else a rank that communicates no more would be called, or overtake others, for ever.
    #[test]
    fn a_message_that_came_and_was_taken_since_the_last_look_waits_no_more() {
        let (arrived, taken) =
            (TaskEvent::MessageArrived { task: TASK }, TaskEvent::MessagesTaken { task: TASK });
        let came = |sight| look(&mut rank(), Sight { arrival: arrival(false), ..sight }, true, true);
        assert_eq!(came(sight(Doing::Computes, 1)), [arrived, taken]);
        assert_eq!(came(sight(Doing::Computes, 0)), [arrived], "it has not polled since");
        assert_eq!(came(sight(Doing::Sleeps, 1)), [arrived], "before that it has polled and found nothing");
        let received = Sight { received: 1, ..sight(Doing::Sleeps, 1) };
        assert_eq!(came(received), [arrived, taken]);
    }

    #[test]
    fn a_message_that_a_rank_leaves_alone_for_a_whole_slice_waits_no_more() {
        let mut rank = rank();
        assert_eq!(rank.on_slice_over(), None);
        look(&mut rank, Sight { arrival: arrival(false), ..sight(Doing::Computes, 0) }, true, true);
        assert_eq!(rank.on_slice_over(), Some(TaskEvent::MessagesTaken { task: TASK }));
        assert_eq!(rank.on_slice_over(), None);
    }

    #[test]
    fn messages_are_counted() {
        let mut rank = rank();
        let sight = Sight { sent: 2, received: 1, ..Sight::default() };
        let sent = TaskEvent::MessageSent { task: TASK };
        assert_eq!(look(&mut rank, sight, true, true), [sent, sent, TaskEvent::MessagesTaken { task: TASK }]);
        let many = Sight { sent: 1_000_000, ..sight };
        assert_eq!(look(&mut rank, many, true, true).len() as u64, MESSAGES_MAX);
    }
}
