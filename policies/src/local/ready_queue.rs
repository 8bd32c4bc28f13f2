//! Ready queue of one node with the accounting of the CMC model (thesis Algorithm 3, the Local Coscheduler;
//! Algorithm 4, `insert_RQ`), for a node of any number of processors `P`. The tasks that have one come first;
//! on a node with one processor, as in the thesis, that is `T[0]`, the top.
//!
//! Invariants: a task is in the queue once; at most `P` run; the time of a task is charged once.
//!
//! Algorithm 3 charges the whole run of the top to every task in the queue, also to one that arrived in the
//! middle of it. Here each task is charged from when it reached the queue, as §2.2.1 defines the fields. With
//! several processors a task waits once, however many others run meanwhile.
//!
//! Where the algorithms leave the order open: a preempted task is first charged and begins anew, and then
//! counts as overtaken once; it is the next that runs. It may be overtaken only while its own count is below
//! `MCO`.

use std::{cmp::Reverse, time::Duration};

use super::{Model, Task, TaskId};
use crate::SimTime;

#[derive(Clone, Debug)]
pub struct ReadyQueue {
    tasks: Vec<Task>,
    processors: usize,
    /// All tasks are charged up to here: when a task last got or left a processor.
    charged: SimTime,
}

impl ReadyQueue {
    pub(super) const fn new(processors: usize) -> Self {
        Self { tasks: Vec::new(), processors, charged: SimTime(0) }
    }

    /// The ready tasks, the running ones first.
    #[must_use]
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// The tasks that have a processor.
    #[must_use]
    pub fn running(&self) -> &[Task] {
        &self.tasks[..self.tasks.iter().take_while(|task| task.runs()).count()]
    }

    /// Of the running tasks, the one that got its processor first; none while a processor is idle.
    #[must_use]
    pub fn longest_running(&self) -> Option<&Task> {
        let running = self.tasks.iter().filter(|task| task.runs());
        if running.clone().count() < self.processors {
            return None;
        }
        running.min_by_key(|task| task.running_since)
    }

    /// The task that was called first by a message and has not had more than its share; of those called at
    /// the same time, the one nearest the top.
    #[must_use]
    pub fn first_called(&self) -> Option<&Task> {
        let called = self.tasks.iter().filter(|task| task.called_at.is_some() && task.credit >= 0);
        called.min_by_key(|task| task.called_at)
    }

    pub(super) fn find(&self, id: TaskId) -> Option<&Task> {
        self.tasks.iter().find(|task| task.id == id)
    }

    pub(super) fn tasks_mut(&mut self) -> impl Iterator<Item = &mut Task> {
        self.tasks.iter_mut()
    }

    pub(super) const fn processors(&self) -> usize {
        self.processors
    }

    pub(super) fn find_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        self.tasks.iter_mut().find(|task| task.id == id)
    }

    /// Charges the time since a task last got or left a processor to the accounts of all (Algorithm 3, lines
    /// 4-12). While none runs, none is kept from running.
    fn charge(&mut self, now: SimTime) {
        let from = std::mem::replace(&mut self.charged, now);
        let running: Vec<TaskId> = self.tasks.iter().filter(|task| task.runs()).map(|task| task.id).collect();
        if running.is_empty() {
            return;
        }
        for task in &mut self.tasks {
            match task.running_since {
                Some(since) => charge_executed(task, now.since(from.max(since))),
                None => charge_waited(task, &running, now.since(from.max(task.queued_at))),
            }
        }
    }

    /// Takes the processor from a task that runs (Algorithm 3, lines 13-15).
    fn stop(&mut self, now: SimTime, place: usize, model: &impl Model) {
        self.charge(now);
        let task = &mut self.tasks[place];
        if let Some(since) = task.running_since.take() {
            task.used_of_slice += now.since(since);
        }
        task.begin_anew();
        task.is_potential &= model.is_potential(&task.frequency);
    }

    /// Charges and removes a task; none where it is not ready.
    pub(super) fn remove(&mut self, now: SimTime, id: TaskId, model: &impl Model) -> Option<Task> {
        let place = self.tasks.iter().position(|task| task.id == id)?;
        self.stop(now, place, model);
        Some(self.tasks.remove(place))
    }

    /// `insert_RQ`: enters at the bottom and passes the tasks that the model lets it overtake (Algorithm 4).
    /// Past a running one, with no processor idle, it takes the processor of the last of them.
    pub(super) fn insert(&mut self, now: SimTime, mut task: Task, model: &impl Model) {
        task.queued_at = now;
        task.used_of_slice = Duration::ZERO;
        task.frequency.update(model.past_weight());
        // Algorithm 3 clears `pco` when the frequency is 0, Algorithm 4 sets it when it is not: judging it
        // here does both.
        task.is_potential = model.is_potential(&task.frequency);
        let overtaken = self.tasks.iter().rev().take_while(|other| model.overtakes(&task, other)).count();
        let place = self.tasks.len() - overtaken;
        let running = self.running().len();
        if place < running && running == self.processors {
            self.stop(now, running - 1, model);
        }
        let waiting = self.tasks[place..].iter_mut().filter(|other| !other.runs());
        waiting.for_each(|other| other.note_overtaken_by(task.id));
        self.tasks.insert(place, task);
    }

    /// Brings a ready task to the top, past all before it. If no processor is idle it takes that of the
    /// longest running task, which is next.
    pub(super) fn bring_to_top(&mut self, now: SimTime, id: TaskId, model: &impl Model) {
        let Some(place) = self.tasks.iter().position(|task| task.id == id && !task.runs()) else { return };
        if let Some(longest) = self.longest_running().map(|task| task.id)
            && let Some(preempted) = self.tasks.iter().position(|task| task.id == longest)
        {
            self.stop(now, preempted, model);
            self.tasks[preempted..self.processors].rotate_left(1);
        }
        self.move_to(0, place);
    }

    /// Moves the task at `place` up to the place `to`, past those that wait between.
    fn move_to(&mut self, to: usize, place: usize) {
        let id = self.tasks[place].id;
        let waiting = self.tasks[to..place].iter_mut().filter(|other| !other.runs());
        waiting.for_each(|other| other.note_overtaken_by(id));
        self.tasks[to..=place].rotate_right(1);
    }

    /// Gives the processors to the tasks of the highest precedence among those that may run, of these to the
    /// ones nearest the top. Returns those that got one.
    pub(super) fn dispatch(&mut self, now: SimTime, model: &impl Model) -> Vec<TaskId> {
        let mut best: Vec<&Task> = self.tasks.iter().filter(|task| model.may_run(task)).collect();
        best.sort_by_key(|task| Reverse(model.precedence(task)));
        best.truncate(self.processors);
        let best: Vec<TaskId> = best.into_iter().map(|task| task.id).collect();
        for place in 0..self.tasks.len() {
            let task = &self.tasks[place];
            if task.runs() && !best.contains(&task.id) {
                self.stop(now, place, model);
            }
        }
        let mut got = Vec::new();
        for (to, id) in best.into_iter().enumerate() {
            let place = self.tasks.iter().position(|task| task.id == id).expect("it was just found");
            self.move_to(to, place);
            if !self.tasks[to].runs() {
                got.push(id);
                self.charge(now);
                self.tasks[to].get_processor(now);
            }
        }
        got
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

fn charge_waited(task: &mut Task, running: &[TaskId], span: Duration) {
    let is_delayed = task.overtakers.iter().any(|overtaker| running.contains(overtaker));
    for account in [&mut task.since_queued, &mut task.total] {
        account.waited += span;
        if task.is_potential {
            account.thrashed += span;
        }
        if is_delayed {
            account.delayed += span;
        }
    }
}
