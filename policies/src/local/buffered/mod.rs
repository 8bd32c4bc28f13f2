//! BCS, buffered coscheduling (testbed §2.3, §4.5; micro-phases as in Fernández et al. §4.5).
//!
//! A slot has two phases. In the *computation* phase tasks run and everything they send is buffered; a task
//! that must wait leaves the processor at once. In the *communication* phase of that slot, which overlaps the
//! computation of the next one, the nodes exchange what they have ([`exchange::Pending`]), plan the transfers
//! and carry them out ([`exchange::plan_phase`]); what does not fit goes on in the next slot.
//!
//! The node scheduler here decides which task computes. The daemon (here the simulator) buffers and exchanges
//! messages.

pub mod exchange;
pub mod rounds;

use std::time::Duration;

pub use exchange::{MessageTrain, Pending, PhasePlan, plan_phase};
pub use rounds::odd_even_rounds;

use super::{Model, NodeDecision, NodeView, Task, TaskEvent};
use crate::JobId;

/// The slot's application runs first; any ready task uses its idle intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffered {
    slice: Duration,
    slot: Option<JobId>,
}

impl Buffered {
    /// A node in a slot without an application.
    #[must_use]
    pub const fn new(slice: Duration) -> Self {
        Self { slice, slot: None }
    }
}

impl Model for Buffered {
    fn slice(&self, _task: &Task) -> Duration {
        self.slice
    }

    fn precedence(&self, task: &Task) -> u8 {
        u8::from(self.slot.is_some() && task.application == self.slot)
    }

    fn observe(&mut self, _at: NodeView, event: &TaskEvent, _decisions: &mut Vec<NodeDecision>) {
        if let TaskEvent::Strobe { application } = event {
            self.slot = *application;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        SimTime,
        local::{LocalScheduler, NodeScheduler, TaskId},
    };

    #[test]
    fn a_blocking_call_gives_the_slot_to_the_next_until_the_message_is_there() {
        let mut node = LocalScheduler::new(Buffered::new(Duration::from_millis(10)));
        let mut decisions = Vec::new();
        let mut tell = |node: &mut LocalScheduler<Buffered>, event| {
            node.on_event(SimTime(0), event, &mut decisions).unwrap();
            node.running().first().map(|task| task.id)
        };
        let [gang, other] = [TaskId(1), TaskId(2)];
        tell(&mut node, TaskEvent::Arrived { task: other, application: Some(JobId(2)) });
        tell(&mut node, TaskEvent::Arrived { task: gang, application: Some(JobId(1)) });
        assert_eq!(tell(&mut node, TaskEvent::Strobe { application: Some(JobId(1)) }), Some(gang));
        assert_eq!(tell(&mut node, TaskEvent::Waits { task: gang }), Some(other));
        assert_eq!(tell(&mut node, TaskEvent::Unblocked { task: gang }), Some(gang));
    }
}
