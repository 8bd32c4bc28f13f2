//! FCS: flexible coscheduling with gang slots from the master and autonomy by measured class (testbed §2.4,
//! Algorithm 1, §4.6).
//!
//! A strobe names the application whose slot begins. The class of its process on this node decides how the
//! slot is used:
//!
//! | class of the slot's process | the slot |
//! | --- | --- |
//! | CS | is its own to the end: it spins where it must wait, and no message preempts it |
//! | F | is its own while it is ready; other processes use its idle intervals |
//! | DC | is open to all, like an idle interval |
//!
//! In idle intervals the node's own round robin chooses among DC processes, then F, then CS. Local tasks
//! never communicate, so they count as DC. In the order of §4.6.2 these are four priorities, which
//! [`Model::precedence`] returns.

pub mod class;
pub mod counters;

use std::{collections::BTreeMap, time::Duration};

pub use class::{ClassSlots, ProcessClass, Thresholds};
pub use counters::Counters;

use super::{Model, NodeDecision, NodeView, Task, TaskEvent, TaskId, WaitPolicy};
use crate::JobId;

/// The parameters of FCS; the paper leaves their values to be found by trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlexibleRule {
    /// Slice inside an idle interval, under the node's own round robin.
    pub slice: Duration,
    /// Strobes of its own application during which a new process is CS, then as many during which it is DC.
    pub trial_slots: u32,
    /// After this many slots of its own the counters are halved, so that they follow a process that changes.
    /// None: never.
    pub forget_after: Option<u32>,
    pub thresholds: Thresholds,
    /// The cost of a context switch; sets the competitive spin time.
    pub context_switch: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Flexible {
    rule: FlexibleRule,
    slot: Option<JobId>,
    processes: BTreeMap<TaskId, Process>,
}

#[derive(Clone, Debug, PartialEq)]
struct Process {
    application: JobId,
    slots: u32,
    class: ProcessClass,
    counters: Counters,
}

impl Flexible {
    /// A node without processes, in a slot without an application.
    #[must_use]
    pub const fn new(rule: FlexibleRule) -> Self {
        Self { rule, slot: None, processes: BTreeMap::new() }
    }

    /// The class of a process; DC for local tasks.
    #[must_use]
    pub fn class(&self, task: TaskId) -> ProcessClass {
        self.processes.get(&task).map_or(ProcessClass::DontCare, |process| process.class)
    }

    fn is_in_its_slot(&self, task: &Task) -> bool {
        self.slot.is_some() && task.application == self.slot
    }

    /// The competitive spin time: the cost of leaving and coming back. A process whose mean wait is longer
    /// than that will likely leave anyway, so it spins only for the cost of leaving.
    fn spin_time(&self, task: TaskId) -> Duration {
        let both_ways = self.rule.context_switch * 2;
        let mean = self.processes.get(&task).and_then(|process| process.counters.mean_wait());
        if mean.is_some_and(|mean| mean > both_ways) { self.rule.context_switch } else { both_ways }
    }

    fn on_strobe(&mut self, application: Option<JobId>) {
        self.slot = application;
        let Self { rule, processes, .. } = self;
        for process in processes.values_mut().filter(|process| Some(process.application) == application) {
            process.class = class_in_slot(process, rule);
            process.slots += 1;
            if rule.forget_after.is_some_and(|slots| process.slots.is_multiple_of(slots)) {
                process.counters.halve();
            }
        }
    }

    fn on_communication(&mut self, task: TaskId) {
        if let Some(Process { class, counters, .. }) = self.processes.get_mut(&task) {
            counters.count(*class);
        }
    }
}

/// First CS, then DC, for the trial slots each; then by Table 2.1.
fn class_in_slot(process: &Process, rule: &FlexibleRule) -> ProcessClass {
    if process.slots < rule.trial_slots {
        ProcessClass::Coscheduled
    } else if process.slots < 2 * rule.trial_slots {
        ProcessClass::DontCare
    } else {
        rule.thresholds.classify(&process.counters)
    }
}

impl Model for Flexible {
    fn slice(&self, _task: &Task) -> Duration {
        self.rule.slice
    }

    fn precedence(&self, task: &Task) -> u8 {
        match self.class(task.id) {
            ProcessClass::Coscheduled | ProcessClass::Frustrated if self.is_in_its_slot(task) => 3,
            ProcessClass::DontCare => 2,
            ProcessClass::Frustrated => 1,
            ProcessClass::Coscheduled => 0,
        }
    }

    fn class(&self, task: &Task) -> Option<ProcessClass> {
        Some(self.class(task.id))
    }

    fn wait(&self, task: &Task) -> WaitPolicy {
        match (self.class(task.id), self.is_in_its_slot(task)) {
            (ProcessClass::Coscheduled, true) => WaitPolicy::SpinOn,
            (ProcessClass::Frustrated, true) => WaitPolicy::Spin(self.spin_time(task.id)),
            _ => WaitPolicy::Block,
        }
    }

    fn observe(&mut self, at: NodeView, event: &TaskEvent, _decisions: &mut Vec<NodeDecision>) {
        match *event {
            TaskEvent::Arrived { task, application: Some(application) } => {
                let process = Process {
                    application,
                    slots: 0,
                    class: ProcessClass::Coscheduled,
                    counters: Counters::default(),
                };
                self.processes.insert(task, process);
            }
            TaskEvent::Finished { task } => drop(self.processes.remove(&task)),
            TaskEvent::Strobe { application } => self.on_strobe(application),
            TaskEvent::MessageSent { task } => self.on_communication(task),
            TaskEvent::MessageArrived { task } => self.on_communication(task),
            TaskEvent::Waits { task } => {
                if let Some(process) = self.processes.get_mut(&task) {
                    process.counters.begin_wait(at.now);
                }
            }
            TaskEvent::WaitOver { task } => {
                if let Some(process) = self.processes.get_mut(&task) {
                    process.counters.end_wait(at.now, process.class);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
