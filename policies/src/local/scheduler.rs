//! Node scheduler: one ready queue for all processors of the node under one model; events in, decisions out.
//!
//! The simulator calls it; a live node scheduler would call it the same way. It has no clock: each event
//! carries its time, and times never go back.

use std::{collections::BTreeMap, num::NonZeroUsize, time::Duration};

use super::{
    Account, Model, NodeDecision, NodeError, NodeView, ProcessClass, ReadyQueue, Task, TaskEvent, TaskId,
    WaitPolicy,
};
use crate::{JobId, SimTime};

pub trait NodeScheduler {
    /// Takes an event and appends the decisions that follow.
    ///
    /// # Errors
    /// Where the event contradicts those before it; nothing is changed then.
    fn on_event(
        &mut self,
        now: SimTime,
        event: TaskEvent,
        decisions: &mut Vec<NodeDecision>,
    ) -> Result<(), NodeError>;

    /// The tasks that have a processor.
    fn running(&self) -> &[Task];

    /// The ready tasks, the running ones first.
    fn ready(&self) -> &[Task];

    /// The accounts of all tasks of the node, ended ones included: *NodeD*, and the base of *NodeCoDe* and
    /// *NodeThDe*. The time since a task last got or left a processor is not in it yet.
    fn node_account(&self) -> Account;

    /// A task of the node; its account is as that of [`node_account`](Self::node_account).
    fn task(&self, task: TaskId) -> Option<&Task>;

    /// Whether a task that is away would run at once if it were woken now.
    fn precedes_when_woken(&self, task: TaskId) -> bool;

    /// Whether a task may have a processor now, even one that is idle.
    fn may_run(&self, task: TaskId) -> bool;

    /// How a task waits for messages at present.
    fn wait(&self, task: TaskId) -> WaitPolicy;

    /// The class of a task; none where the model has no classes, or the task is unknown.
    fn class(&self, task: TaskId) -> Option<ProcessClass>;
}

/// The common scheduler under the rules of one [`Model`].
#[derive(Clone, Debug)]
pub struct LocalScheduler<M> {
    model: M,
    queue: ReadyQueue,
    away: BTreeMap<TaskId, Task>,
    left: Account,
    /// The last timer requested for a call.
    timer: Option<SimTime>,
    /// Credits are kept up to here.
    accrued: SimTime,
    keeps_slices: bool,
}

impl<M: Model> LocalScheduler<M> {
    /// An empty node of one processor under `model`.
    #[must_use]
    pub fn new(model: M) -> Self {
        Self::on(model, NonZeroUsize::MIN)
    }

    /// An empty node of so many processors.
    #[must_use]
    pub fn on(model: M, processors: NonZeroUsize) -> Self {
        Self {
            model,
            queue: ReadyQueue::new(processors.get()),
            away: BTreeMap::new(),
            left: Account::default(),
            timer: None,
            accrued: SimTime(0),
            keeps_slices: false,
        }
    }

    /// The same where a preempted task goes on with the rest of its slice. Otherwise, as in the papers, it
    /// has a whole one, and of two tasks that others preempt again and again only the first one runs.
    #[must_use]
    pub fn keeping_slices(self) -> Self {
        Self { keeps_slices: true, ..self }
    }

    #[must_use]
    pub const fn model(&self) -> &M {
        &self.model
    }

    /// Refuses an impossible event before anything is changed.
    fn check(&self, event: &TaskEvent) -> Result<(), NodeError> {
        let is_ready = |task: TaskId| self.queue.find(task).is_some();
        match *event {
            TaskEvent::Arrived { task, .. } if is_ready(task) || self.away.contains_key(&task) => {
                Err(NodeError::Twice(task))
            }
            TaskEvent::SpinOver { task } | TaskEvent::QuantumEnd { task } if !self.runs(task) => {
                Err(NodeError::NotRunning(task))
            }
            TaskEvent::Waits { task } if !is_ready(task) => Err(NodeError::NotRunning(task)),
            TaskEvent::Unblocked { task } if is_ready(task) => Err(NodeError::NotAway(task)),
            TaskEvent::Unblocked { task } if !self.away.contains_key(&task) => Err(NodeError::Unknown(task)),
            TaskEvent::Blocked { task } if self.away.contains_key(&task) => Err(NodeError::NotRunning(task)),
            TaskEvent::Blocked { task }
            | TaskEvent::Finished { task }
            | TaskEvent::MessageArrived { task }
            | TaskEvent::MessagesTaken { task }
            | TaskEvent::MessageSent { task }
            | TaskEvent::Measured { task, .. }
            | TaskEvent::WaitOver { task }
                if !is_ready(task) && !self.away.contains_key(&task) =>
            {
                Err(NodeError::Unknown(task))
            }
            _ => Ok(()),
        }
    }

    fn apply(&mut self, now: SimTime, event: TaskEvent, decisions: &mut Vec<NodeDecision>) {
        match event {
            TaskEvent::Arrived { task, application } => self.on_arrived(now, task, application),
            TaskEvent::Waits { task } => self.on_waits(now, task, decisions),
            TaskEvent::SpinOver { task } | TaskEvent::Blocked { task } => self.leave_processor(now, task),
            TaskEvent::Unblocked { task } => self.on_unblocked(now, task),
            TaskEvent::MessageArrived { task } => self.on_message(now, task),
            TaskEvent::MessagesTaken { task } => self.on_messages_taken(task),
            TaskEvent::MessageSent { task } => self.task_mut(task).frequency.sent += 1,
            TaskEvent::QuantumEnd { task } => self.on_quantum_end(now, task),
            TaskEvent::Finished { task } => self.on_finished(now, task, decisions),
            TaskEvent::Strobe { application } => self.on_strobe(application),
            TaskEvent::WaitOver { .. }
            | TaskEvent::Measured { .. }
            | TaskEvent::SlicesSet(_)
            | TaskEvent::TimerFired => {}
        }
    }

    /// Gives each task its equal share of the time that has passed, and takes what it had.
    fn accrue(&mut self, now: SimTime) {
        let span = now.since(std::mem::replace(&mut self.accrued, now)).as_nanos() as i64;
        let Some(most) = self.model.credit_max() else { return };
        let most = i64::try_from(most.as_nanos()).unwrap_or(i64::MAX);
        let (processors, count) = (self.queue.processors(), self.queue.tasks().len() + self.away.len());
        let share = span / count.max(processors) as i64 * processors as i64;
        for task in self.queue.tasks_mut().chain(self.away.values_mut()) {
            let had = if task.runs() { span } else { 0 };
            task.credit = (task.credit + share - had).clamp(-most, most);
        }
    }

    fn on_arrived(&mut self, now: SimTime, task: TaskId, application: Option<JobId>) {
        self.queue.insert(now, Task::new(task, application), &self.model);
    }

    fn on_waits(&mut self, now: SimTime, task: TaskId, decisions: &mut Vec<NodeDecision>) {
        let waiting = self.queue.find(task).expect("checked: the task is ready");
        let at_most = match self.model.wait(waiting) {
            WaitPolicy::Block => return self.leave_processor(now, task),
            _ if !waiting.runs() => return self.leave_processor(now, task),
            WaitPolicy::Spin(at_most) => Some(at_most),
            WaitPolicy::SpinOn => None,
        };
        decisions.push(NodeDecision::Spin { task, at_most });
    }

    fn runs(&self, task: TaskId) -> bool {
        self.queue.find(task).is_some_and(Task::runs)
    }

    fn take_ready(&mut self, now: SimTime, task: TaskId) -> Task {
        self.queue.remove(now, task, &self.model).expect("checked: the task is ready")
    }

    fn leave_processor(&mut self, now: SimTime, task: TaskId) {
        let left = self.take_ready(now, task);
        self.away.insert(task, left);
    }

    fn on_unblocked(&mut self, now: SimTime, task: TaskId) {
        let mut task = self.away.remove(&task).expect("checked: the task is away");
        task.is_woken = true;
        self.queue.insert(now, task, &self.model);
    }

    fn on_message(&mut self, now: SimTime, task: TaskId) {
        let runs = self.runs(task);
        let receiver = self.task_mut(task);
        receiver.frequency.waiting += 1;
        if !runs {
            receiver.called_at.get_or_insert(now);
        }
    }

    fn on_messages_taken(&mut self, task: TaskId) {
        let receiver = self.task_mut(task);
        receiver.frequency.waiting = 0;
        receiver.called_at = None;
    }

    fn on_quantum_end(&mut self, now: SimTime, task: TaskId) {
        let task = self.take_ready(now, task);
        self.queue.insert(now, task, &self.model);
    }

    fn on_finished(&mut self, now: SimTime, task: TaskId, decisions: &mut Vec<NodeDecision>) {
        let task = self.away.remove(&task).unwrap_or_else(|| self.take_ready(now, task));
        self.left += task.total;
        let (id, application, used) = (task.id, task.application, task.used());
        decisions.push(NodeDecision::Left { task: id, application, used });
    }

    /// The model has classed the tasks of the application whose slot begins.
    fn on_strobe(&mut self, application: Option<JobId>) {
        let Self { model, queue, away, .. } = self;
        let tasks = queue.tasks_mut().chain(away.values_mut());
        for task in tasks.filter(|task| task.is_distributed() && task.application == application) {
            if let Some(class) = model.class(task) {
                task.slots.count(class);
            }
        }
    }

    fn known(&self, task: TaskId) -> Option<&Task> {
        self.queue.find(task).or_else(|| self.away.get(&task))
    }

    fn task_mut(&mut self, id: TaskId) -> &mut Task {
        let Self { queue, away, .. } = self;
        queue.find_mut(id).or_else(|| away.get_mut(&id)).expect("checked: the task is known")
    }

    /// The task that was called first, and when it may have the processor of the task that runs longest; at
    /// any time where a processor is idle.
    fn next_call(&self) -> Option<(TaskId, SimTime)> {
        let called = self.queue.first_called()?;
        let kept = self.model.call_is_fair_after(called)?;
        let since = self.queue.longest_running().and_then(|task| task.running_since);
        let fair_at = since.map_or(SimTime(0), |since| since.after(kept));
        Some((called.id, fair_at))
    }

    fn honour_call(&mut self, now: SimTime) {
        if let Some((called, _)) = self.next_call().filter(|(_, fair_at)| *fair_at <= now) {
            self.queue.bring_to_top(now, called, &self.model);
        }
    }

    /// Requests a timer if a call waits for the running task to have its share. A timer that fires too early
    /// does no harm.
    fn await_call(&mut self, decisions: &mut Vec<NodeDecision>) {
        let Some((_, at)) = self.next_call() else { return };
        if self.timer.replace(at) != Some(at) {
            decisions.push(NodeDecision::SetTimer { at });
        }
    }

    /// Gives the processors to the best tasks; `ran`: those that had one before the event.
    fn run_best(&mut self, now: SimTime, ran: &[TaskId], decisions: &mut Vec<NodeDecision>) {
        self.honour_call(now);
        let started = self.queue.dispatch(now, &self.model);
        let lost = ran.iter().filter(|task| self.queue.find(**task).is_some_and(|task| !task.runs()));
        decisions.extend(lost.map(|task| NodeDecision::Preempt { task: *task }));
        for task in started.iter().filter_map(|task| self.queue.find(*task)) {
            let used = if self.keeps_slices { task.used_of_slice } else { Duration::ZERO };
            let slice = self.model.slice(task).saturating_sub(used);
            decisions.push(NodeDecision::Run { task: task.id, slice });
        }
        self.await_call(decisions);
    }
}

impl<M: Model> NodeScheduler for LocalScheduler<M> {
    fn on_event(
        &mut self,
        now: SimTime,
        event: TaskEvent,
        decisions: &mut Vec<NodeDecision>,
    ) -> Result<(), NodeError> {
        self.check(&event)?;
        if let TaskEvent::Measured { task, usage } = event {
            self.task_mut(task).usage = usage;
            return Ok(());
        }
        self.accrue(now);
        let ran: Vec<TaskId> = self.running().iter().map(|task| task.id).collect();
        let local_ready = self.queue.tasks().iter().filter(|task| !task.is_distributed()).count();
        self.model.observe(NodeView { now, local_ready }, &event, decisions);
        self.apply(now, event, decisions);
        self.run_best(now, &ran, decisions);
        Ok(())
    }

    fn running(&self) -> &[Task] {
        self.queue.running()
    }

    fn ready(&self) -> &[Task] {
        self.queue.tasks()
    }

    fn precedes_when_woken(&self, task: TaskId) -> bool {
        self.away.get(&task).is_some_and(|task| self.model.precedes_when_woken(task))
    }

    fn may_run(&self, task: TaskId) -> bool {
        self.known(task).is_none_or(|task| self.model.may_run(task))
    }

    fn wait(&self, task: TaskId) -> WaitPolicy {
        self.known(task).map_or(WaitPolicy::Block, |task| self.model.wait(task))
    }

    fn class(&self, task: TaskId) -> Option<ProcessClass> {
        self.model.class(self.known(task)?)
    }

    fn task(&self, task: TaskId) -> Option<&Task> {
        self.known(task)
    }

    fn node_account(&self) -> Account {
        let present = self.queue.tasks().iter().chain(self.away.values()).map(|task| task.total);
        present.chain([self.left]).sum()
    }
}
