//! DCS: demand-based dynamic coscheduling (testbed §2.2, §4.4; Sobalvarro's algorithm as given in thesis
//! §2.3).
//!
//! A message shows that its sender runs now, so its receiver should run now, or "at the soonest time it would
//! be fair to do so". Preempting is fair when the running task has used more than `share` more processor time
//! than the receiver since each reached the ready queue: `receiver.c + share < running.c`. A message that
//! arrives earlier leaves a *call*. The call waits until preempting is fair, or until the processor is free
//! because the running task blocked, ended or used its slice up:
//!
//! ```text
//!   message, receiver does not run           fair, or processor free
//!   ────────────────────────────────► called ──────────────────────────► runs
//!                                       └─ no message left: lapsed
//! ```
//!
//! The earliest call goes first; of calls at the same time, that of the task nearest the top of the queue. No
//! later call could be fair sooner, because a waiting task has used no time since it reached the queue. The
//! call of a task that is away waits until that task is ready. A task that waits for a message spins and
//! never blocks.
//!
//! `share` limits only the running task: two tasks that write to each other can pass the processor between
//! them and leave a third waiting. The thesis names this as the drawback of DCS. On a live node
//! [`Demand::credit_max`] bounds what a task gets by calls to its equal share of the node; beyond it the task
//! waits for its turn.

use std::time::Duration;

use super::{Model, Task, WaitPolicy};

/// Sobalvarro's comparison is strict, and time counts in nanoseconds.
const STRICTLY_MORE: Duration = Duration::from_nanos(1);

/// An arriving message calls its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    pub slice: Duration,
    /// Processor time by which the running task must exceed the receiver.
    pub share: Duration,
    /// See [`Model::credit_max`].
    pub credit_max: Option<Duration>,
}

impl Model for Demand {
    fn slice(&self, _task: &Task) -> Duration {
        self.slice
    }

    fn call_is_fair_after(&self, receiver: &Task) -> Option<Duration> {
        Some(receiver.since_queued.executed + self.share + STRICTLY_MORE)
    }

    /// Leaves `share` out.
    fn precedes_when_woken(&self, task: &Task) -> bool {
        task.credit >= 0
    }

    fn credit_max(&self) -> Option<Duration> {
        self.credit_max
    }

    fn wait(&self, _task: &Task) -> WaitPolicy {
        WaitPolicy::SpinOn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        SimTime,
        local::{LocalScheduler, NodeDecision, NodeScheduler, TaskEvent, TaskId},
    };

    const MS: Duration = Duration::from_millis(1);
    const SHARE: Duration = Duration::from_millis(2);
    const RUNS: TaskId = TaskId(1);
    const NEXT: TaskId = TaskId(2);
    const LAST: TaskId = TaskId(3);

    struct Node {
        scheduler: LocalScheduler<Demand>,
        decisions: Vec<NodeDecision>,
    }

    impl Node {
        /// Three tasks; the first runs since time 0.
        fn new() -> Self {
            let model = Demand { slice: 10 * MS, share: SHARE, credit_max: None };
            let mut node = Self { scheduler: LocalScheduler::new(model), decisions: Vec::new() };
            for task in [RUNS, NEXT, LAST] {
                node.tell(Duration::ZERO, TaskEvent::Arrived { task, application: None });
            }
            node
        }

        fn tell(&mut self, at: Duration, event: TaskEvent) -> TaskId {
            self.decisions.clear();
            self.scheduler.on_event(at.into(), event, &mut self.decisions).unwrap();
            self.scheduler.running().first().expect("at least one task is ready").id
        }

        fn message(&mut self, at: Duration, task: TaskId) -> TaskId {
            self.tell(at, TaskEvent::MessageArrived { task })
        }

        /// The timer that the last event asked for.
        fn timer(&self) -> Option<Duration> {
            self.decisions.iter().find_map(|decision| match decision {
                NodeDecision::SetTimer { at } => Some(at.since(SimTime(0))),
                _ => None,
            })
        }
    }

    #[test]
    fn a_call_after_the_share_is_honoured_at_once() {
        let mut node = Node::new();
        assert_eq!(node.message(SHARE + STRICTLY_MORE, LAST), LAST);
    }

    #[test]
    fn a_call_that_is_refused_is_honoured_as_soon_as_it_is_fair() {
        let mut node = Node::new();
        assert_eq!(node.message(MS, LAST), RUNS);
        let fair = SHARE + STRICTLY_MORE;
        assert_eq!(node.decisions, [NodeDecision::SetTimer { at: fair.into() }]);
        assert_eq!(node.message(SHARE, LAST), RUNS);
        assert_eq!(node.decisions, [], "the timer is already set");
        assert_eq!(node.tell(fair, TaskEvent::TimerFired), LAST);
        assert_eq!(node.timer(), None);
        assert_eq!(
            node.tell(12 * MS, TaskEvent::QuantumEnd { task: LAST }),
            RUNS,
            "the overtaken task is next, and no task is called"
        );
    }

    #[test]
    fn a_call_goes_first_when_the_running_task_leaves_the_processor() {
        for event in [
            TaskEvent::Blocked { task: RUNS },
            TaskEvent::Finished { task: RUNS },
            TaskEvent::QuantumEnd { task: RUNS },
        ] {
            let mut node = Node::new();
            node.message(MS, LAST);
            assert_eq!(node.tell(MS, event), LAST, "{event:?}");
        }
    }

    #[test]
    fn the_earliest_call_goes_first_and_the_next_waits_for_its_share() {
        let mut node = Node::new();
        node.message(MS, LAST);
        node.message(2 * MS, NEXT);
        node.message(2 * MS, LAST);
        let fair = SHARE + STRICTLY_MORE;
        assert_eq!(node.tell(fair, TaskEvent::TimerFired), LAST);
        assert_eq!(node.timer(), Some(2 * fair));
        assert_eq!(node.tell(2 * fair, TaskEvent::TimerFired), NEXT);
    }

    #[test]
    fn of_calls_at_one_time_that_of_the_task_nearest_the_top_goes_first() {
        let mut node = Node::new();
        node.message(MS, LAST);
        node.message(MS, NEXT);
        assert_eq!(node.tell(3 * MS, TaskEvent::TimerFired), NEXT);
    }

    #[test]
    fn a_call_lapses_when_no_message_waits_any_more() {
        let mut node = Node::new();
        node.message(MS, LAST);
        node.tell(MS, TaskEvent::MessagesTaken { task: LAST });
        assert_eq!(node.tell(3 * MS, TaskEvent::TimerFired), RUNS);
        assert_eq!(node.tell(10 * MS, TaskEvent::QuantumEnd { task: RUNS }), NEXT);
    }

    #[test]
    fn a_call_lapses_when_its_process_runs() {
        let mut node = Node::new();
        node.message(MS, LAST);
        assert_eq!(node.tell(MS, TaskEvent::QuantumEnd { task: RUNS }), LAST);
        assert_eq!(
            node.tell(2 * MS, TaskEvent::QuantumEnd { task: LAST }),
            NEXT,
            "its message still waits, but it had its chance"
        );
        assert_eq!(node.tell(5 * MS, TaskEvent::TimerFired), NEXT);
    }

    #[test]
    fn a_call_lapses_when_its_process_ends() {
        let mut node = Node::new();
        node.message(MS, LAST);
        node.tell(MS, TaskEvent::QuantumEnd { task: RUNS });
        assert_eq!(node.tell(2 * MS, TaskEvent::Finished { task: LAST }), NEXT);
        node.tell(2 * MS, TaskEvent::Arrived { task: LAST, application: None });
        assert_eq!(
            node.tell(9 * MS, TaskEvent::TimerFired),
            NEXT,
            "a new task of the same name is not called"
        );
    }

    /// The receiver of a message in each millisecond, with calls within its share or without a bound; returns
    /// how long each task had the processor in a second.
    fn flooded(credit_max: Option<Duration>) -> [Duration; 3] {
        let model = Demand { slice: 10 * MS, share: MS / 2, credit_max };
        let mut node = Node { scheduler: LocalScheduler::new(model).keeping_slices(), decisions: Vec::new() };
        for task in [RUNS, NEXT, LAST] {
            node.tell(Duration::ZERO, TaskEvent::Arrived { task, application: None });
        }
        let mut had = [Duration::ZERO; 3];
        let mut slice_ends = 10 * MS;
        for now in (1..1000).map(|now| now * MS) {
            let ran = node.scheduler.running()[0].id;
            had[ran.0 as usize - 1] += MS;
            node.message(now, LAST);
            if now >= slice_ends && node.scheduler.running()[0].id == ran {
                node.tell(now, TaskEvent::QuantumEnd { task: ran });
            }
            if let Some(NodeDecision::Run { slice, .. }) =
                node.decisions.iter().find(|decision| matches!(decision, NodeDecision::Run { .. }))
            {
                slice_ends = now + *slice;
            }
        }
        had
    }

    #[test]
    fn calls_take_no_more_than_the_share_of_the_receiver() {
        let third = 333 * MS;
        let bounded = flooded(Some(20 * MS));
        assert!(bounded.iter().all(|had| had.abs_diff(third) <= 15 * MS), "{bounded:?}");
        let unbounded = flooded(None);
        assert!(unbounded[2] > 2 * third, "{unbounded:?}");
    }

    #[test]
    fn a_task_that_is_away_is_called_when_it_is_ready() {
        let mut node = Node::new();
        node.tell(MS, TaskEvent::Blocked { task: RUNS });
        assert_eq!(node.message(2 * MS, RUNS), NEXT);
        assert_eq!(node.timer(), None);
        assert_eq!(node.tell(9 * MS, TaskEvent::Unblocked { task: RUNS }), RUNS, "the other had its share");
    }
}
