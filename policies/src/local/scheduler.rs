//! Node scheduler: one ready queue under one model; events in, decisions out.
//!
//! The simulator calls it; a live node scheduler would call it the same way. It has no clock: each event
//! carries its time, and times never go back.

use std::collections::BTreeMap;

use super::{
    Account, Model, NodeDecision, NodeError, NodeView, ReadyQueue, Task, TaskEvent, TaskId, WaitPolicy,
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

    /// The task that has the processor.
    fn running(&self) -> Option<TaskId>;

    /// The ready tasks, the running one first.
    fn ready(&self) -> &[Task];

    /// The accounts of all tasks of the node, ended ones included: *NodeD*, and the base of *NodeCoDe* and
    /// *NodeThDe*. The present run of the running task is not in it yet.
    fn node_account(&self) -> Account;
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
}

impl<M: Model> LocalScheduler<M> {
    /// An empty node under `model`.
    #[must_use]
    pub fn new(model: M) -> Self {
        Self {
            model,
            queue: ReadyQueue::default(),
            away: BTreeMap::new(),
            left: Account::default(),
            timer: None,
        }
    }

    #[must_use]
    pub const fn model(&self) -> &M {
        &self.model
    }

    /// Refuses an impossible event before anything is changed.
    fn check(&self, event: &TaskEvent) -> Result<(), NodeError> {
        let is_ready = |task: TaskId| self.queue.tasks().iter().any(|other| other.id == task);
        match *event {
            TaskEvent::Arrived { task, .. } if is_ready(task) || self.away.contains_key(&task) => {
                Err(NodeError::Twice(task))
            }
            TaskEvent::Waits { task }
            | TaskEvent::SpinOver { task }
            | TaskEvent::Blocked { task }
            | TaskEvent::Finished { task }
                if self.running() != Some(task) =>
            {
                Err(NodeError::NotRunning(task))
            }
            TaskEvent::Unblocked { task } if is_ready(task) => Err(NodeError::NotAway(task)),
            TaskEvent::Unblocked { task } if !self.away.contains_key(&task) => Err(NodeError::Unknown(task)),
            TaskEvent::MessageArrived { task }
            | TaskEvent::MessagesTaken { task }
            | TaskEvent::MessageSent { task }
            | TaskEvent::WaitOver { task }
                if !is_ready(task) && !self.away.contains_key(&task) =>
            {
                Err(NodeError::Unknown(task))
            }
            TaskEvent::QuantumEnd if self.running().is_none() => Err(NodeError::NobodyRuns),
            _ => Ok(()),
        }
    }

    fn apply(&mut self, now: SimTime, event: TaskEvent, decisions: &mut Vec<NodeDecision>) {
        match event {
            TaskEvent::Arrived { task, application } => self.on_arrived(now, task, application),
            TaskEvent::Waits { task } => self.on_waits(now, task, decisions),
            TaskEvent::SpinOver { .. } | TaskEvent::Blocked { .. } => self.leave_processor(now),
            TaskEvent::Unblocked { task } => self.on_unblocked(now, task),
            TaskEvent::MessageArrived { task } => self.on_message(now, task),
            TaskEvent::MessagesTaken { task } => self.on_messages_taken(task),
            TaskEvent::MessageSent { task } => self.task_mut(task).frequency.sent += 1,
            TaskEvent::QuantumEnd => self.on_quantum_end(now),
            TaskEvent::Finished { .. } => self.on_finished(now, decisions),
            TaskEvent::WaitOver { .. }
            | TaskEvent::Strobe { .. }
            | TaskEvent::SlicesSet(_)
            | TaskEvent::TimerFired => {}
        }
    }

    fn on_arrived(&mut self, now: SimTime, task: TaskId, application: Option<JobId>) {
        self.queue.insert(now, Task::new(task, application), &self.model);
    }

    fn on_waits(&mut self, now: SimTime, task: TaskId, decisions: &mut Vec<NodeDecision>) {
        let waiting = self.queue.running().expect("checked: the task runs");
        let at_most = match self.model.wait(waiting) {
            WaitPolicy::Block => return self.leave_processor(now),
            WaitPolicy::Spin(at_most) => Some(at_most),
            WaitPolicy::SpinOn => None,
        };
        decisions.push(NodeDecision::Spin { task, at_most });
    }

    fn leave_processor(&mut self, now: SimTime) {
        let task = self
            .queue
            .remove_running(now, &self.model)
            .expect("checked: only the running task leaves the processor");
        self.away.insert(task.id, task);
    }

    fn on_unblocked(&mut self, now: SimTime, task: TaskId) {
        let mut task = self.away.remove(&task).expect("checked: the task is away");
        task.is_woken = true;
        self.queue.insert(now, task, &self.model);
    }

    fn on_message(&mut self, now: SimTime, task: TaskId) {
        let runs = self.running() == Some(task);
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

    fn on_quantum_end(&mut self, now: SimTime) {
        let task = self.queue.remove_running(now, &self.model).expect("checked: a task runs");
        self.queue.insert(now, task, &self.model);
    }

    fn on_finished(&mut self, now: SimTime, decisions: &mut Vec<NodeDecision>) {
        let task = self.queue.remove_running(now, &self.model).expect("checked: the task runs");
        self.left += task.total;
        let Task { id, application, total, .. } = task;
        decisions.push(NodeDecision::Left { task: id, application, account: total });
    }

    fn task_mut(&mut self, id: TaskId) -> &mut Task {
        let Self { queue, away, .. } = self;
        queue.find_mut(id).or_else(|| away.get_mut(&id)).expect("checked: the task is known")
    }

    /// The task that was called first, and when it may have the processor; at any time where the processor is
    /// idle.
    fn next_call(&self) -> Option<(TaskId, SimTime)> {
        let called = self.queue.first_called()?;
        let kept = self.model.call_is_fair_after(called)?;
        let fair_at = self.queue.running_since().map_or(SimTime(0), |since| since.after(kept));
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

    /// Makes the best task the top and gives it the processor, unless it has it already.
    fn run_best(&mut self, now: SimTime, ran: Option<TaskId>, decisions: &mut Vec<NodeDecision>) {
        self.honour_call(now);
        let Some(best) = self.queue.best(&self.model) else {
            self.queue.stop(now, &self.model);
            if ran.is_some() {
                decisions.push(NodeDecision::Idle);
            }
            return;
        };
        self.queue.bring_to_top(now, best, &self.model);
        if self.queue.running().is_none() {
            let task = self.queue.dispatch(now).expect("the best task is the top");
            decisions.push(NodeDecision::Run { task: task.id, slice: self.model.slice(task) });
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
        let ran = self.running();
        let local_ready = self.queue.tasks().iter().filter(|task| !task.is_distributed()).count();
        self.model.observe(NodeView { now, local_ready }, &event, decisions);
        self.apply(now, event, decisions);
        self.run_best(now, ran, decisions);
        Ok(())
    }

    fn running(&self) -> Option<TaskId> {
        self.queue.running().map(|task| task.id)
    }

    fn ready(&self) -> &[Task] {
        self.queue.tasks()
    }

    fn node_account(&self) -> Account {
        let present = self.queue.tasks().iter().chain(self.away.values()).map(|task| task.total);
        present.chain([self.left]).sum()
    }
}
