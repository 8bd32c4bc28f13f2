//! What one coscheduling model adds to the common ready queue. Each hook has the behaviour of plain round robin.

use std::time::Duration;

use super::{Frequency, NodeDecision, Task, TaskEvent};
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

/// The rules of one model.
pub trait Model {
    /// For how long a task may run at most.
    fn slice(&self, task: &Task) -> Duration;

    /// Among ready tasks those of the highest precedence run; a higher one preempts a lower one at once.
    fn precedence(&self, _task: &Task) -> u8 {
        0
    }

    /// Whether a ready task may have the processor now; where nobody may, the node idles.
    fn may_run(&self, _task: &Task) -> bool {
        true
    }

    /// Whether `newcomer`, entering the ready queue from the bottom, goes past `other` (Algorithm 4).
    fn overtakes(&self, _newcomer: &Task, _other: &Task) -> bool {
        false
    }

    /// For how long the running task keeps the processor from `receiver`, which a message calls. None: messages call
    /// nobody. The scheduler takes the node's timer for it.
    fn call_is_fair_after(&self, _receiver: &Task) -> Option<Duration> {
        None
    }

    /// How `task` waits for a message.
    fn wait(&self, _task: &Task) -> WaitPolicy {
        WaitPolicy::Block
    }

    /// Weight of the past in the communication frequency, in 0..=1 (the paper's `P`).
    fn past_weight(&self) -> f64 {
        0.0
    }

    /// Whether a task that enters the ready queue has something to coschedule with (`pco`): its current frequency is not 0.
    fn is_potential(&self, frequency: &Frequency) -> bool {
        frequency.waiting > 0 || frequency.sent > 0
    }

    /// Sees each event before it takes effect. May ask for a timer or report a load.
    fn observe(&mut self, _at: NodeView, _event: &TaskEvent, _decisions: &mut Vec<NodeDecision>) {}
}

/// What a model sees of its node besides the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeView {
    pub now: SimTime,
    /// Local tasks that are ready, the running one included.
    pub local_ready: usize,
}
