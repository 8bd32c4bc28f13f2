//! The hooks by which a coscheduling model changes the common ready queue. Each hook defaults to plain round
//! robin.

use std::time::Duration;

use super::{Frequency, NodeDecision, Task, TaskEvent, flexible::ProcessClass};
use crate::SimTime;

/// How a task that lacks a message waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitPolicy {
    /// It leaves the processor at once.
    Block,
    /// It keeps the processor and looks for the message, for at most this long, then blocks.
    Spin(Duration),
    /// It keeps the processor as long as its slice lasts.
    SpinOn,
}

pub trait Model {
    /// The longest time a task may run at once.
    fn slice(&self, task: &Task) -> Duration;

    /// Among ready tasks those of the highest precedence run; a task of higher precedence preempts at once.
    fn precedence(&self, _task: &Task) -> u8 {
        0
    }

    /// Whether a ready task may have the processor now; the node idles where no task may.
    fn may_run(&self, _task: &Task) -> bool {
        true
    }

    /// Whether `newcomer`, which enters the ready queue from the bottom, goes past `other` (Algorithm 4).
    fn overtakes(&self, _newcomer: &Task, _other: &Task) -> bool {
        false
    }

    /// How long the running task keeps the processor when a message calls `receiver`. None: messages do not
    /// preempt. The scheduler uses the node's timer for it.
    fn call_is_fair_after(&self, _receiver: &Task) -> Option<Duration> {
        None
    }

    /// How much processor time a task may save up, or owe, against an equal share of the node. The call of a
    /// task that owes some does not count. None: all calls count, as in the papers.
    fn credit_max(&self) -> Option<Duration> {
        None
    }

    /// Whether a task that is away runs at once when it is woken, where that is known before.
    fn precedes_when_woken(&self, _task: &Task) -> bool {
        false
    }

    fn wait(&self, _task: &Task) -> WaitPolicy {
        WaitPolicy::Block
    }

    /// The class of a task. None: the model has no classes.
    fn class(&self, _task: &Task) -> Option<ProcessClass> {
        None
    }

    /// Weight of the past in the communication frequency, in 0..=1 (the paper's `P`).
    fn past_weight(&self) -> f64 {
        0.0
    }

    /// Whether a task that enters the ready queue has a peer to coschedule with (`pco`): its current
    /// frequency is not 0.
    fn is_potential(&self, frequency: &Frequency) -> bool {
        frequency.waiting > 0 || frequency.sent > 0
    }

    /// Sees each event before it takes effect. May request a timer or report a load.
    fn observe(&mut self, _at: NodeView, _event: &TaskEvent, _decisions: &mut Vec<NodeDecision>) {}
}

/// The state of a node that a model sees besides the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeView {
    pub now: SimTime,
    /// Local tasks that are ready, the running one included.
    pub local_ready: usize,
}
