//! Events of a node and decisions of its scheduler: all messages between a node scheduler and its shell.
//!
//! ```text
//!        Arrived, Unblocked               QuantumEnd, Preempt
//!   (new) ─────────────────► ready ◄───────────────────────────── running ───► Finished
//!                              ▲  └──────────── Run ─────────────►   │
//!                              │                                     │ Waits without Spin, SpinOver, Blocked
//!                              └── Unblocked ── away ◄───────────────┘
//! ```
//! On a live node the kernel gives an idle processor to any task, so a ready one may block or end as well.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{TaskId, Usage, Used, explicit::Slices};
use crate::{JobId, SimTime};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum TaskEvent {
    /// A task began; it is ready.
    Arrived {
        /// A name not in use on this node.
        task: TaskId,
        /// The distributed application it belongs to; none for a local task.
        application: Option<JobId>,
    },
    /// A task began to wait for a missing message. The scheduler decides whether it spins, if it runs.
    Waits {
        /// A task that is ready or running.
        task: TaskId,
    },
    /// A running task spun for the allowed time without success.
    SpinOver {
        task: TaskId,
    },
    /// The last message that a task waited for arrived. A spinning task goes on; a blocked one is unblocked
    /// next.
    WaitOver {
        task: TaskId,
    },
    /// A task waits for something other than a message, or may not run.
    Blocked {
        /// A task that is ready or running.
        task: TaskId,
    },
    /// The wait of a blocked task is over; it is ready again.
    Unblocked {
        /// A task that is neither ready nor running.
        task: TaskId,
    },
    /// A message for a task arrived and waits to be received.
    MessageArrived {
        task: TaskId,
    },
    /// A task received all messages that waited for it.
    MessagesTaken {
        task: TaskId,
    },
    /// A task sent a message to another node.
    MessageSent {
        task: TaskId,
    },
    /// What a task has used so far. It changes no decision.
    Measured {
        task: TaskId,
        usage: Usage,
    },
    /// The slice of a running task is over.
    QuantumEnd {
        task: TaskId,
    },
    /// A task ended, in whatever state.
    Finished {
        task: TaskId,
    },
    /// The master's global context switch: the slot of `application` begins (none: a slot without an
    /// application).
    Strobe {
        application: Option<JobId>,
    },
    /// The console of DTS set the slices; the parallel one begins now (the paper's `sync_point`).
    SlicesSet(Slices),
    TimerFired,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum NodeDecision {
    /// `task` gets an idle processor at once, for at most `slice`.
    Run { task: TaskId, slice: Duration },
    /// The processor is taken from `task`, which is ready.
    Preempt { task: TaskId },
    /// The running task may wait actively; after `at_most` the shell sends [`TaskEvent::SpinOver`]. None: as
    /// long as its slice lasts.
    Spin { task: TaskId, at_most: Option<Duration> },
    /// Requests [`TaskEvent::TimerFired`] at this time; replaces an earlier timer.
    SetTimer { at: SimTime },
    /// DTS in balanced mode: reports the load index to the console.
    ReportLoad {
        /// In tasks.
        index: f64,
    },
    /// A task ended; these are its final accounts, and what was measured last.
    Left { task: TaskId, application: Option<JobId>, used: Used },
}

/// An event that contradicts those before it: shell and scheduler disagree, so a retry does not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NodeError {
    #[error("report an event of {0}, which is not on this node")]
    Unknown(TaskId),
    #[error("begin {0}: the node has a task of this name already")]
    Twice(TaskId),
    #[error("report an event of {0} that only a running task can have")]
    NotRunning(TaskId),
    #[error("wake {0}: it is ready already")]
    NotAway(TaskId),
}
