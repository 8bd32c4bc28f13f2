//! Ready queue of one node with the accounting of the CMC model (thesis Algorithm 3, the Local Coscheduler;
//! Algorithm 4, `insert_RQ`). `T[0]` is the top and the only task that may run.
//!
//! Invariants: a task is in the queue once; only the top runs; its time on the processor is charged once,
//! when it leaves.
//!
//! Algorithm 3 charges the whole run of the top to every task in the queue, also to one that arrived in the
//! middle of it. Here each task is charged from when it reached the queue, as §2.2.1 defines the fields.
//!
//! Where the algorithms leave the order open: a preempted top is first charged and begins anew, and then
//! counts as overtaken once. It is `T[0]` while it runs, so it can be overtaken only while its own count is
//! below `MCO`.

use std::time::Duration;

use super::{Model, Task, TaskId};
use crate::SimTime;

#[derive(Clone, Debug, Default)]
pub struct ReadyQueue {
    tasks: Vec<Task>,
    /// When the top got the processor; none while the processor is idle.
    running_since: Option<SimTime>,
}

impl ReadyQueue {
    /// The ready tasks, the top first.
    #[must_use]
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// The task that has the processor.
    #[must_use]
    pub fn running(&self) -> Option<&Task> {
        self.running_since.and(self.tasks.first())
    }

    /// When it got the processor.
    #[must_use]
    pub const fn running_since(&self) -> Option<SimTime> {
        self.running_since
    }

    /// The task that was called first by a message; of those called at the same time, the one nearest the
    /// top.
    #[must_use]
    pub fn first_called(&self) -> Option<&Task> {
        self.tasks.iter().filter(|task| task.called_at.is_some()).min_by_key(|task| task.called_at)
    }

    pub(super) fn find_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        self.tasks.iter_mut().find(|task| task.id == id)
    }

    /// Takes the processor from the top and charges its time to the accounts of all (Algorithm 3, lines
    /// 4-15).
    pub(super) fn stop(&mut self, now: SimTime, model: &impl Model) {
        let Some(since) = self.running_since.take() else { return };
        let span = now.since(since);
        let (top, others) = self.tasks.split_first_mut().expect("only a queued task has the processor");
        charge_executed(top, span);
        for other in others {
            let since_queued = now.since(other.queued_at);
            charge_waited(other, top.id, span.min(since_queued));
        }
        top.begin_anew();
        top.is_potential &= model.is_potential(&top.frequency);
    }

    /// Charges and removes the top; none where no task runs.
    pub(super) fn remove_running(&mut self, now: SimTime, model: &impl Model) -> Option<Task> {
        self.running()?;
        self.stop(now, model);
        Some(self.tasks.remove(0))
    }

    /// `insert_RQ`: enters at the bottom and passes the tasks that the model lets it overtake (Algorithm 4).
    /// Past all of them, the running task loses the processor.
    pub(super) fn insert(&mut self, now: SimTime, mut task: Task, model: &impl Model) {
        task.queued_at = now;
        task.frequency.update(model.past_weight());
        // Algorithm 3 clears `pco` when the frequency is 0, Algorithm 4 sets it when it is not: judging it
        // here does both.
        task.is_potential = model.is_potential(&task.frequency);
        let overtaken = self.tasks.iter().rev().take_while(|other| model.overtakes(&task, other)).count();
        let place = self.tasks.len() - overtaken;
        if place == 0 {
            self.stop(now, model);
        }
        for other in &mut self.tasks[place..] {
            other.note_overtaken_by(task.id);
        }
        self.tasks.insert(place, task);
    }

    /// Brings a ready task to the top, past all before it; the task that ran is next.
    pub(super) fn bring_to_top(&mut self, now: SimTime, id: TaskId, model: &impl Model) {
        let Some(place) = self.tasks.iter().position(|task| task.id == id) else { return };
        if place == 0 {
            return;
        }
        self.stop(now, model);
        let task = self.tasks.remove(place);
        for other in &mut self.tasks[..place] {
            other.note_overtaken_by(id);
        }
        self.tasks.insert(0, task);
    }

    /// The first of the highest precedence among those that may run.
    pub(super) fn best(&self, model: &impl Model) -> Option<TaskId> {
        let mut tasks = self.tasks.iter().filter(|task| model.may_run(task));
        let first = tasks.next()?;
        let best = tasks.fold((model.precedence(first), first), |best, task| {
            let precedence = model.precedence(task);
            if precedence > best.0 { (precedence, task) } else { best }
        });
        Some(best.1.id)
    }

    pub(super) fn dispatch(&mut self, now: SimTime) -> Option<&mut Task> {
        let top = self.tasks.first_mut()?;
        top.frequency.sent = 0;
        top.called_at = None;
        self.running_since = Some(now);
        Some(top)
    }
}

fn charge_executed(task: &mut Task, span: Duration) {
    for account in [&mut task.since_queued, &mut task.total] {
        account.executed += span;
        if task.is_potential {
            account.coscheduled += span;
        }
    }
}

fn charge_waited(task: &mut Task, running: TaskId, span: Duration) {
    let is_delayed = task.overtakers.contains(&running);
    for account in [&mut task.since_queued, &mut task.total] {
        if task.is_potential {
            account.thrashed += span;
        }
        if is_delayed {
            account.delayed += span;
        }
    }
}
