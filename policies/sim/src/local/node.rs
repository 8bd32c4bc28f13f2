//! A node: its tasks, the activity of its processors, and its progress.
//!
//! ```text
//!            Run                     Spin
//!   ready ─────────► computing ◄──────────► spinning
//!     ▲                 │ message missing      │ in vain
//!     │                 ▼                      ▼
//!     └────────────── blocked ◄────────────────┘
//! ```

use std::{collections::BTreeMap, time::Duration};

use coswitch_policies::{
    Bytes, JobId, NodeId, SimTime,
    local::{NodeScheduler, TaskId, Usage},
};

use super::{
    NodeMemory,
    program::{Arrivals, Newcomer, Program},
    report::TaskRecord,
};

/// Names a task in the whole cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Address {
    pub(super) node: NodeId,
    pub(super) task: TaskId,
}

#[derive(Debug)]
pub(super) struct Task {
    pub(super) application: Option<JobId>,
    /// Requests it sends each time it communicates.
    pub(super) frequency: u32,
    pub(super) program: Program,
    /// Processor time until it ends, and until it communicates next.
    pub(super) work: Duration,
    pub(super) burst: Duration,
    /// Replies not yet received.
    pub(super) replies_missing: u32,
    /// Whether messages arrived since it last ran; the senders that wait for a reply are in `requests`.
    pub(super) has_messages: bool,
    pub(super) requests: Vec<Address>,
    pub(super) slice_ends: SimTime,
    memory: Bytes,
    state: TaskState,
    state_since: SimTime,
    arrived: SimTime,
    waited: Duration,
    blocked: Duration,
    /// Computing or spinning.
    processor_time: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskState {
    Ready,
    Running,
    Blocked,
}

/// The activity of a running task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    Computing,
    Spinning { until: Option<SimTime> },
}

/// A processor with a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Busy {
    pub(super) task: TaskId,
    pub(super) activity: Activity,
}

/// The next event of a running task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Finish,
    Communicate,
    SpinOver,
    QuantumEnd,
}

pub(super) struct Node {
    pub(super) scheduler: Box<dyn NodeScheduler>,
    pub(super) tasks: BTreeMap<TaskId, Task>,
    pub(super) busy: Vec<Busy>,
    pub(super) arrivals: Arrivals,
    pub(super) next_task: u32,
    memory: Option<NodeMemory>,
    used: Bytes,
    advanced_to: SimTime,
    /// Ready tasks times nanoseconds.
    pub(super) ready_area: u128,
    pub(super) spun: Duration,
}

impl Node {
    pub(super) fn new(
        scheduler: Box<dyn NodeScheduler>,
        arrivals: Arrivals,
        memory: Option<NodeMemory>,
    ) -> Self {
        Self {
            scheduler,
            tasks: BTreeMap::new(),
            busy: Vec::new(),
            arrivals,
            next_task: 0,
            memory,
            used: Bytes(0),
            advanced_to: SimTime(0),
            ready_area: 0,
            spun: Duration::ZERO,
        }
    }

    /// Adds a task that arrives now, and returns its name.
    pub(super) fn admit(
        &mut self,
        now: SimTime,
        newcomer: Newcomer,
        burst: Duration,
        frequency: u32,
    ) -> TaskId {
        let id = TaskId(self.next_task);
        self.next_task += 1;
        let Newcomer { work, application, program, memory, .. } = newcomer;
        let task = Task {
            application,
            frequency,
            program,
            work,
            burst,
            replies_missing: 0,
            has_messages: false,
            requests: Vec::new(),
            slice_ends: now,
            memory,
            state: TaskState::Ready,
            state_since: now,
            arrived: now,
            waited: Duration::ZERO,
            blocked: Duration::ZERO,
            processor_time: Duration::ZERO,
        };
        self.tasks.insert(id, task);
        self.used = self.used.saturating_add(memory);
        id
    }

    /// Removes a running task, which ended. The caller fills in its accounts.
    pub(super) fn dismiss(&mut self, now: SimTime, node: NodeId, id: TaskId) -> TaskRecord {
        self.busy.retain(|busy| busy.task != id);
        let task = self.tasks.remove(&id).expect("a task that ends is on its node");
        self.used = Bytes(self.used.0 - task.memory.0);
        TaskRecord {
            node,
            task: id,
            application: task.application,
            account: Default::default(),
            returned: now.since(task.arrived),
            waited: task.waited,
            blocked: task.blocked,
        }
    }

    /// Advances progress and sums to `now`; called before any change.
    pub(super) fn advance(&mut self, now: SimTime) {
        let span = now.since(std::mem::replace(&mut self.advanced_to, now));
        if span.is_zero() {
            return;
        }
        self.ready_area += self.scheduler.ready().len() as u128 * span.as_nanos();
        let done = self.scaled(span, self.speed());
        for Busy { task, activity } in &self.busy {
            let task = self.tasks.get_mut(task).expect("a running task is on its node");
            task.processor_time += span;
            match activity {
                Activity::Computing => {
                    task.work = task.work.saturating_sub(done);
                    task.burst = task.burst.saturating_sub(done);
                }
                Activity::Spinning { .. } => self.spun += span,
            }
        }
    }

    /// What a task has used so far. Messages have no size here, and paging only makes tasks slower.
    pub(super) fn usage(&self, id: TaskId) -> Usage {
        let Task { processor_time, memory, .. } = self.tasks[&id];
        Usage { processor_time, resident: memory, ..Usage::default() }
    }

    pub(super) fn busy_with(&mut self, task: TaskId) -> Option<&mut Busy> {
        self.busy.iter_mut().find(|busy| busy.task == task)
    }

    /// The next event of a running task if nothing else happens first; the node must be advanced to now.
    pub(super) fn next_due(&self) -> Option<(SimTime, TaskId, Due)> {
        let due = self.busy.iter().map(|busy| {
            let (at, due) = self.due_of(busy);
            (at, busy.task, due)
        });
        due.min_by_key(|(at, task, _)| (*at, *task))
    }

    fn due_of(&self, busy: &Busy) -> (SimTime, Due) {
        let task = &self.tasks[&busy.task];
        let own = match busy.activity {
            Activity::Computing if task.work <= task.burst => Some((self.time_of(task.work), Due::Finish)),
            Activity::Computing => Some((self.time_of(task.burst), Due::Communicate)),
            Activity::Spinning { until } => until.map(|until| (until, Due::SpinOver)),
        };
        let quantum = (task.slice_ends.max(self.advanced_to), Due::QuantumEnd);
        own.filter(|own| own.0 <= quantum.0).unwrap_or(quantum)
    }

    pub(super) fn state(&self, id: TaskId) -> Option<TaskState> {
        self.tasks.get(&id).map(|task| task.state)
    }

    pub(super) fn set_state(&mut self, now: SimTime, id: TaskId, state: TaskState) {
        let task = self.tasks.get_mut(&id).expect("only tasks of the node change their state");
        let span = now.since(std::mem::replace(&mut task.state_since, now));
        match std::mem::replace(&mut task.state, state) {
            TaskState::Ready => task.waited += span,
            TaskState::Blocked => task.blocked += span,
            TaskState::Running => {}
        }
    }

    fn speed(&self) -> f64 {
        self.memory.map_or(1.0, |memory| memory.speed(self.used))
    }

    fn time_of(&self, work: Duration) -> SimTime {
        let speed = self.speed();
        // Rounded up by a nanosecond, so that the work is done by then.
        let longer = if self.memory.is_some() { Duration::from_nanos(1) } else { Duration::ZERO };
        self.advanced_to.after(self.scaled(work, 1.0 / speed) + longer)
    }

    /// Exact where there is no memory model.
    fn scaled(&self, span: Duration, factor: f64) -> Duration {
        if self.memory.is_some() { span.mul_f64(factor) } else { span }
    }
}
