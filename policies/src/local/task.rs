//! A task on a node as its scheduler sees it: the CMC fields of a process control block (thesis Table 2.2).

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Account, ClassSlots, Frequency, Usage, Used};
use crate::{JobId, SimTime};

id!(
    /// A task: one process of a distributed application, or a local one. Unique on its node.
    TaskId,
    "task-"
);

/// A task that is ready or waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    pub id: TaskId,
    /// The distributed application it belongs to; none for a local task.
    pub application: Option<JobId>,
    pub frequency: Frequency,
    /// Whether it entered the ready queue with something to coschedule with (`pco`).
    pub is_potential: bool,
    /// Whether it was unblocked and has not left the processor since.
    pub is_woken: bool,
    /// When a message first called it while it did not run. None once it ran or took its messages.
    pub called_at: Option<SimTime>,
    /// When it last reached the ready queue.
    pub queued_at: SimTime,
    /// Of its slice, since it last reached the ready queue; a preempted task has the rest.
    pub used_of_slice: Duration,
    /// Processor time that it has had less than an equal share, in nanoseconds; below 0 it has had more
    /// ([`Model::credit_max`](super::Model::credit_max)).
    pub credit: i64,
    /// When it got the processor that it has.
    pub running_since: Option<SimTime>,
    /// Since it last reached the ready queue.
    pub since_queued: Account,
    /// Since it began.
    pub total: Account,
    /// As it was measured last.
    pub usage: Usage,
    /// Since it began, of slots of its own application.
    pub slots: ClassSlots,
    /// How often it was overtaken for the sake of coscheduling since it last reached the ready queue (`de`).
    pub overtaken: u32,
    /// The tasks that overtook it (`ovt`).
    pub overtakers: Vec<TaskId>,
}

impl Task {
    pub(super) fn new(id: TaskId, application: Option<JobId>) -> Self {
        Self {
            id,
            application,
            frequency: Frequency::default(),
            is_potential: false,
            is_woken: false,
            called_at: None,
            queued_at: SimTime(0),
            used_of_slice: Duration::ZERO,
            credit: 0,
            running_since: None,
            since_queued: Account::default(),
            total: Account::default(),
            usage: Usage::default(),
            slots: ClassSlots::default(),
            overtaken: 0,
            overtakers: Vec::new(),
        }
    }

    #[must_use]
    pub const fn is_distributed(&self) -> bool {
        self.application.is_some()
    }

    /// Since it began; measured last.
    #[must_use]
    pub const fn used(&self) -> Used {
        Used { account: self.total, usage: self.usage, slots: self.slots }
    }

    /// Whether it has a processor.
    #[must_use]
    pub const fn runs(&self) -> bool {
        self.running_since.is_some()
    }

    pub(super) fn get_processor(&mut self, now: SimTime) {
        self.frequency.sent = 0;
        self.called_at = None;
        self.running_since = Some(now);
    }

    /// Counts that `other` went ahead of it (Algorithm 4, lines 8-9).
    pub(super) fn note_overtaken_by(&mut self, other: TaskId) {
        self.overtaken += 1;
        if !self.overtakers.contains(&other) {
            self.overtakers.push(other);
        }
    }

    /// Resets the fields of its last stay in the ready queue (Algorithm 3, lines 13-14).
    pub(super) fn begin_anew(&mut self) {
        self.since_queued = Account::default();
        self.is_woken = false;
        self.overtaken = 0;
        self.overtakers.clear();
    }
}
