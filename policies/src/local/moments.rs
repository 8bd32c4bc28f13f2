//! The last moments of a node, for a picture: which task had a processor by decision, spun, was ready or
//! waited, when messages came for it, and when slots began.
//!
//! It is told each event and what was decided after it. It is bounded: what is older is kept as the state in
//! which it left the tasks. A task that loses its processor while it spins goes on spinning when it has one
//! again, until its wait is over.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{NodeDecision, TaskEvent, TaskId};
use crate::{JobId, NodeId, SimTime};

/// See the module.
#[derive(Clone, Debug)]
pub struct Moments {
    capacity: usize,
    /// All is known from here on.
    from: SimTime,
    /// The tasks at that time.
    tasks: BTreeMap<TaskId, Present>,
    last: VecDeque<Moment>,
}

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Doing {
    /// It has a processor by decision.
    Runs,
    /// The same, and it waits for a message with it.
    Spins,
    /// Ready, without a processor.
    Ready,
    /// For a message or something else, without a processor.
    Waits,
}

/// A stretch of time of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excerpt {
    pub from: SimTime,
    pub to: SimTime,
    /// Of each task that was there, in the order of their names.
    pub lanes: Vec<Lane>,
    /// When a slot, or the common slices, began.
    pub slots: Vec<SimTime>,
}

/// What one task did in a stretch of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane {
    pub task: TaskId,
    /// The job that it belongs to, where that is known.
    pub job: Option<JobId>,
    pub is_local: bool,
    pub stretches: Vec<Stretch>,
    /// When messages came that called it.
    pub messages: Vec<SimTime>,
    /// Its processor time so far, each time that it was measured.
    pub measured: Vec<(SimTime, Duration)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    pub doing: Doing,
    pub from: SimTime,
    pub to: SimTime,
}

#[derive(Clone, Copy, Debug)]
struct Moment {
    at: SimTime,
    change: Change,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Begins(TaskId, Option<JobId>),
    Does(TaskId, Doing),
    WaitOver(TaskId),
    Message(TaskId),
    Measured(TaskId, Duration),
    Ends(TaskId),
    Slot,
}

#[derive(Clone, Copy, Debug)]
struct Present {
    application: Option<JobId>,
    doing: Doing,
    /// It has not got the message for which it spins.
    spins: bool,
}

impl Moments {
    /// Remembers so many changes.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let last = VecDeque::with_capacity(capacity);
        Self { capacity, from: SimTime(0), tasks: BTreeMap::new(), last }
    }

    /// Takes an event, and what was decided after it.
    pub fn note(&mut self, at: SimTime, event: &TaskEvent, decisions: &[NodeDecision]) {
        let of_event = match *event {
            TaskEvent::Arrived { task, application } => Some(Change::Begins(task, application)),
            TaskEvent::Waits { task } | TaskEvent::SpinOver { task } | TaskEvent::Blocked { task } => {
                Some(Change::Does(task, Doing::Waits))
            }
            TaskEvent::Unblocked { task } | TaskEvent::QuantumEnd { task } => {
                Some(Change::Does(task, Doing::Ready))
            }
            TaskEvent::WaitOver { task } => Some(Change::WaitOver(task)),
            TaskEvent::MessageArrived { task } => Some(Change::Message(task)),
            TaskEvent::Measured { task, usage } => Some(Change::Measured(task, usage.processor_time)),
            TaskEvent::Finished { task } => Some(Change::Ends(task)),
            TaskEvent::Strobe { .. } | TaskEvent::SlicesSet(_) => Some(Change::Slot),
            TaskEvent::MessagesTaken { .. } | TaskEvent::MessageSent { .. } | TaskEvent::TimerFired => None,
        };
        let of_decision = |decision: &NodeDecision| match *decision {
            NodeDecision::Run { task, .. } => Some(Change::Does(task, Doing::Runs)),
            NodeDecision::Spin { task, .. } => Some(Change::Does(task, Doing::Spins)),
            NodeDecision::Preempt { task } => Some(Change::Does(task, Doing::Ready)),
            NodeDecision::SetTimer { .. } | NodeDecision::ReportLoad { .. } | NodeDecision::Left { .. } => {
                None
            }
        };
        let changes = of_event.into_iter().chain(decisions.iter().filter_map(of_decision));
        changes.for_each(|change| self.push(Moment { at, change }));
    }

    fn push(&mut self, moment: Moment) {
        if self.last.len() >= self.capacity
            && let Some(oldest) = self.last.pop_front()
        {
            oldest.change.apply(&mut self.tasks);
            self.from = oldest.at;
        }
        self.last.push_back(moment);
    }

    /// What happened from `from` to `to`, as far as it is remembered; it ends earlier where that would be
    /// more than `most` changes.
    #[must_use]
    pub fn excerpt(&self, from: SimTime, to: SimTime, most: usize) -> Excerpt {
        let from = from.max(self.from);
        let first = self.last.partition_point(|moment| moment.at < from);
        let beyond = self.last.get(first + most).map_or(to, |moment| moment.at.min(to));
        let to = beyond.max(from);
        let mut drawing = Drawing::new(from);
        let mut tasks = self.tasks.clone();
        for (at, change) in self.last.iter().map(|moment| (moment.at, moment.change)) {
            if at >= to {
                break;
            }
            drawing.up_to(at, &tasks, change);
            change.apply(&mut tasks);
        }
        drawing.end(to, &tasks)
    }
}

impl Change {
    fn apply(self, tasks: &mut BTreeMap<TaskId, Present>) {
        let (task, doing) = match self {
            Self::Begins(task, application) => {
                tasks.insert(task, Present { application, doing: Doing::Ready, spins: false });
                return;
            }
            Self::Ends(task) => {
                tasks.remove(&task);
                return;
            }
            Self::Message(_) | Self::Measured(..) | Self::Slot => return,
            Self::WaitOver(task) => (task, None),
            Self::Does(task, doing) => (task, Some(doing)),
        };
        let Some(present) = tasks.get_mut(&task) else { return };
        (present.doing, present.spins) = match (doing, present.doing) {
            (Some(Doing::Spins), _) => (Doing::Spins, true),
            (Some(Doing::Runs), _) if present.spins => (Doing::Spins, true),
            (Some(Doing::Ready), _) => (Doing::Ready, present.spins),
            (Some(doing), _) => (doing, false),
            (None, Doing::Spins) => (Doing::Runs, false),
            (None, doing) => (doing, false),
        };
    }

    const fn task(self) -> Option<TaskId> {
        match self {
            Self::Begins(task, _)
            | Self::Does(task, _)
            | Self::WaitOver(task)
            | Self::Message(task)
            | Self::Measured(task, _)
            | Self::Ends(task) => Some(task),
            Self::Slot => None,
        }
    }
}

/// An excerpt in the making.
struct Drawing {
    excerpt: Excerpt,
    lanes: BTreeMap<TaskId, Lane>,
    /// Each task is drawn up to here; those without an entry from the beginning.
    drawn: BTreeMap<TaskId, SimTime>,
}

impl Drawing {
    fn new(from: SimTime) -> Self {
        let excerpt = Excerpt { from, to: from, ..Excerpt::default() };
        Self { excerpt, lanes: BTreeMap::new(), drawn: BTreeMap::new() }
    }

    /// Draws the task of a change up to it.
    fn up_to(&mut self, at: SimTime, tasks: &BTreeMap<TaskId, Present>, change: Change) {
        let is_within = at >= self.excerpt.from;
        let Some(task) = change.task() else {
            self.excerpt.slots.extend(is_within.then_some(at));
            return;
        };
        if let Some(present) = tasks.get(&task) {
            self.stretch(task, *present, at);
            match change {
                Change::Message(_) if is_within => self.lane(task, *present).messages.push(at),
                Change::Measured(_, time) if is_within => {
                    self.lane(task, *present).measured.push((at, time));
                }
                _ => {}
            }
        }
        self.drawn.insert(task, at.max(self.excerpt.from));
    }

    fn stretch(&mut self, task: TaskId, present: Present, to: SimTime) {
        let from = self.drawn.get(&task).copied().unwrap_or(self.excerpt.from);
        if to <= from {
            return;
        }
        let Present { doing, .. } = present;
        let lane = self.lane(task, present);
        match lane.stretches.last_mut().filter(|last| last.doing == doing && last.to == from) {
            Some(last) => last.to = to,
            None => lane.stretches.push(Stretch { doing, from, to }),
        }
    }

    fn lane(&mut self, task: TaskId, Present { application: job, .. }: Present) -> &mut Lane {
        self.lanes.entry(task).or_insert_with(|| Lane {
            task,
            job,
            is_local: job.is_none(),
            stretches: Vec::new(),
            messages: Vec::new(),
            measured: Vec::new(),
        })
    }

    fn end(mut self, to: SimTime, tasks: &BTreeMap<TaskId, Present>) -> Excerpt {
        tasks.iter().for_each(|(task, present)| self.stretch(*task, *present, to));
        Excerpt { to, lanes: self.lanes.into_values().collect(), ..self.excerpt }
    }
}

impl Excerpt {
    /// The name of the file, beside the output of a job, that has what happened on a node before its end.
    #[must_use]
    pub fn file_name(node: NodeId) -> String {
        format!("decisions-{node}.json")
    }

    /// The same by a clock that showed `span` when this one showed 0.
    #[must_use]
    pub fn later_by(mut self, span: Duration) -> Self {
        let lanes = self.lanes.iter_mut();
        let of_lanes = lanes.flat_map(|lane| {
            let stretches = lane.stretches.iter_mut();
            let stretches = stretches.flat_map(|stretch| [&mut stretch.from, &mut stretch.to]);
            let measured = lane.measured.iter_mut().map(|(at, _)| at);
            stretches.chain(&mut lane.messages).chain(measured)
        });
        let times = [&mut self.from, &mut self.to].into_iter().chain(&mut self.slots).chain(of_lanes);
        times.for_each(|time| *time = time.after(span));
        self
    }

    /// How often tasks began to do something else.
    #[must_use]
    pub fn changes(&self) -> usize {
        self.lanes.iter().map(|lane| lane.stretches.len().saturating_sub(1)).sum()
    }
}

impl Lane {
    /// The share of a processor that it was measured to have, and over how long; `None` where it was not
    /// measured twice.
    #[must_use]
    pub fn measured_share(&self) -> Option<(f64, Duration)> {
        let ((first, before), (last, after)) = (*self.measured.first()?, *self.measured.last()?);
        let span = last.since(first);
        let share = after.saturating_sub(before).as_secs_f64() / span.as_secs_f64();
        (!span.is_zero()).then_some((share, span))
    }

    /// How long it did this.
    #[must_use]
    pub fn time(&self, doing: Doing) -> Duration {
        let stretches = self.stretches.iter().filter(|stretch| stretch.doing == doing);
        stretches.map(|stretch| stretch.to.since(stretch.from)).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::local::{LocalScheduler, NodeScheduler, Usage, demand::Demand, linux::Linux};

    const A: TaskId = TaskId(1);
    const B: TaskId = TaskId(2);
    const ALL: usize = 1 << 20;

    fn run(task: TaskId) -> NodeDecision {
        NodeDecision::Run { task, slice: Duration::from_millis(1) }
    }

    fn arrived(task: TaskId) -> TaskEvent {
        TaskEvent::Arrived { task, application: (task == A).then_some(JobId(7)) }
    }

    fn measured(processor_time: u64) -> TaskEvent {
        let usage = Usage { processor_time: Duration::from_nanos(processor_time), ..Usage::default() };
        TaskEvent::Measured { task: A, usage }
    }

    /// `Runs 0-3, Spins 3-5` and so on.
    fn lane(excerpt: &Excerpt, task: TaskId) -> String {
        let lane = excerpt.lanes.iter().find(|lane| lane.task == task).unwrap();
        let one = |Stretch { doing, from, to }: &Stretch| format!("{doing:?} {}-{}", from.0, to.0);
        lane.stretches.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// A has the processor, spins, loses it to B, spins again, and goes on when its message has come.
    fn spinning(capacity: usize) -> Moments {
        let mut moments = Moments::new(capacity);
        let spin = NodeDecision::Spin { task: A, at_most: None };
        let preempt = |task| NodeDecision::Preempt { task };
        let events = [
            (0, arrived(A), vec![run(A)]),
            (1, arrived(B), vec![]),
            (3, TaskEvent::Waits { task: A }, vec![spin]),
            (5, TaskEvent::MessageArrived { task: B }, vec![preempt(A), run(B)]),
            (7, TaskEvent::QuantumEnd { task: B }, vec![preempt(B), run(A)]),
            (8, TaskEvent::Strobe { application: None }, vec![]),
            (8, measured(40), vec![]),
            (9, TaskEvent::WaitOver { task: A }, vec![]),
            (10, measured(41), vec![]),
            (11, TaskEvent::Blocked { task: A }, vec![run(B)]),
            (12, TaskEvent::Finished { task: B }, vec![]),
        ];
        events.iter().for_each(|(at, event, decisions)| moments.note(SimTime(*at), event, decisions));
        moments
    }

    #[test]
    fn a_lane_shows_what_was_decided_and_why_a_task_has_no_processor() {
        let all = spinning(ALL).excerpt(SimTime(0), SimTime(15), ALL);
        let of_a = "Runs 0-3, Spins 3-5, Ready 5-7, Spins 7-9, Runs 9-11, Waits 11-15";
        assert_eq!((lane(&all, A), all.changes()), (of_a.into(), 5 + 3));
        assert_eq!(lane(&all, B), "Ready 1-5, Runs 5-7, Ready 7-11, Runs 11-12");
        assert_eq!(all.slots, [SimTime(8)]);
        let [of_a, of_b] = &all.lanes[..] else { panic!("{all:?}") };
        assert_eq!((of_a.job, of_a.is_local, &of_a.messages[..]), (Some(JobId(7)), false, &[][..]));
        assert_eq!((of_b.job, of_b.is_local, &of_b.messages[..]), (None, true, &[SimTime(5)][..]));
        assert_eq!(of_a.time(Doing::Spins), Duration::from_nanos(4));
        assert_eq!(of_a.measured_share(), Some((0.5, Duration::from_nanos(2))));
    }

    #[test]
    fn an_excerpt_begins_amid_a_stretch_and_ends_early_where_too_much_happened() {
        let part = spinning(ALL).excerpt(SimTime(4), SimTime(10), ALL);
        assert_eq!(lane(&part, A), "Spins 4-5, Ready 5-7, Spins 7-9, Runs 9-10");
        assert_eq!(part.lanes[0].measured_share(), None, "it was measured once");
        // The event at 5 and both of its decisions.
        let short = spinning(ALL).excerpt(SimTime(4), SimTime(10), 3);
        assert_eq!((lane(&short, A), short.to), ("Spins 4-5, Ready 5-7".into(), SimTime(7)));
        let later = part.later_by(Duration::from_nanos(100));
        assert_eq!((later.from, later.slots[0]), (SimTime(104), SimTime(108)));
        assert_eq!(later.lanes[0].stretches[0].to, SimTime(105));
    }

    proptest! {
        /// What was forgotten counts by the state in which it left the tasks; and pictures agree with the
        /// scheduler about who runs.
        #[test]
        fn a_short_memory_shows_the_same_as_a_long_one(
            steps in prop::collection::vec((0..6u32, 0..8u8, 1..5u64), 1..120),
            capacity in 1..40usize,
            demand in any::<bool>(),
        ) {
            let slice = Duration::from_nanos(10);
            let share = Duration::ZERO;
            let mut scheduler: Box<dyn NodeScheduler> = match demand {
                true => Box::new(LocalScheduler::new(Demand { slice, share, credit_max: None })),
                false => Box::new(LocalScheduler::new(Linux { slice })),
            };
            let (mut long, mut short) = (Moments::new(ALL), Moments::new(capacity));
            let (mut now, mut running) = (SimTime(0), Vec::new());
            for (task, kind, after) in steps {
                now = now.after(Duration::from_nanos(after));
                let task = TaskId(task);
                let event = match kind {
                    0 => arrived(task),
                    1 => TaskEvent::Waits { task },
                    2 => TaskEvent::Blocked { task },
                    3 => TaskEvent::Unblocked { task },
                    4 => TaskEvent::MessageArrived { task },
                    5 => TaskEvent::QuantumEnd { task },
                    6 => TaskEvent::Finished { task },
                    _ => TaskEvent::WaitOver { task },
                };
                let mut decisions = Vec::new();
                if scheduler.on_event(now, event, &mut decisions).is_err() {
                    continue;
                }
                long.note(now, &event, &decisions);
                short.note(now, &event, &decisions);
                running = scheduler.running().iter().map(|task| task.id).collect();
            }
            let to = now.after(Duration::from_nanos(9));
            let from = short.from.after(Duration::from_nanos(1));
            let (whole, part) = (long.excerpt(from, to, ALL), short.excerpt(from, to, ALL));
            prop_assert_eq!(&whole, &part);
            let has_processor = |lane: &&Lane| {
                let last = lane.stretches.last().filter(|last| last.to == to);
                last.is_some_and(|last| matches!(last.doing, Doing::Runs | Doing::Spins))
            };
            let drawn: Vec<TaskId> = part.lanes.iter().filter(has_processor).map(|lane| lane.task).collect();
            running.sort_unstable();
            prop_assert_eq!(drawn, running);
        }
    }
}
