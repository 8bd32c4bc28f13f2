//! What happens on a node, and what its scheduler decides: the whole conversation between a node scheduler and its shell.
//!
//! ```text
//!            Arrived, Unblocked                     QuantumEnd, preempted
//!   (new) ───────────────────────► ready ◄───────────────────────────── running ───► Finished
//!                                    ▲  └──────────── Run ─────────────►  │  │
//!                                    │                        Waits: Spin │  │ Waits: no Spin, SpinOver, Blocked
//!                                    └── Unblocked ── away ◄──────────────┴──┘
//! ```

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Account, TaskId, explicit::Slices};
use crate::{JobId, SimTime};

/// Something happened on the node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum TaskEvent {
    /// A task began; it is ready.
    Arrived {
        /// Its name, not in use on this node.
        task: TaskId,
        /// The distributed application it belongs to; none for a local task.
        application: Option<JobId>,
    },
    /// The running task began to wait for a message that is not there. The scheduler says whether it spins.
    Waits {
        task: TaskId,
    },
    /// The running task spun for as long as it was allowed, in vain.
    SpinOver {
        task: TaskId,
    },
    /// The message that a task waited for came, or all of them; spinning it goes on, blocked it is unblocked next.
    WaitOver {
        task: TaskId,
    },
    /// The running task waits for something else than a message.
    Blocked {
        task: TaskId,
    },
    /// What a task waited for is there; it is ready again.
    Unblocked {
        /// A task that is neither ready nor running.
        task: TaskId,
    },
    /// A message for a task came in and waits to be received.
    MessageArrived {
        task: TaskId,
    },
    /// A task took all messages that waited for it.
    MessagesTaken {
        task: TaskId,
    },
    /// A task sent a message to another node.
    MessageSent {
        task: TaskId,
    },
    /// The running task used its slice up.
    QuantumEnd,
    Finished {
        task: TaskId,
    },
    /// The master's global context switch: the slot of `application` begins (none: a slot of nobody).
    Strobe {
        /// Whose slot it is.
        application: Option<JobId>,
    },
    /// The console of DTS set the slices; the parallel one begins now (the paper's `sync_point`).
    SlicesSet(Slices),
    /// The time of the last [`NodeDecision::SetTimer`] has come.
    TimerFired,
}

/// What the shell shall do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum NodeDecision {
    /// The processor goes to `task` at once, for at most `slice`; whoever had it is ready and waits.
    Run {
        task: TaskId,
        /// For how long at most.
        slice: Duration,
    },
    /// The running task may wait actively; after `at_most` the shell says [`TaskEvent::SpinOver`]. None: as long as its
    /// slice lasts.
    Spin {
        task: TaskId,
        /// For how long at most.
        at_most: Option<Duration>,
    },
    /// Nobody is ready.
    Idle,
    /// Say [`TaskEvent::TimerFired`] at this time; replaces an earlier timer.
    SetTimer { at: SimTime },
    /// DTS in balanced mode: the load index that the console should hear of.
    ReportLoad {
        /// In tasks.
        index: f64,
    },
    /// A task is gone; these are its final accounts.
    Left {
        task: TaskId,
        /// The application it belonged to.
        application: Option<JobId>,
        /// What became of its time.
        account: Account,
    },
}

/// An event that cannot be, after those before it. Retrying does not help: shell and scheduler disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NodeError {
    /// The task is not known here.
    #[error("hear of {0}, which this node does not have")]
    Unknown(TaskId),
    #[error("begin {0}: the node has a task of this name")]
    Twice(TaskId),
    /// Only the running task can do what was reported.
    #[error("believe what was told of {0}: it does not run")]
    NotRunning(TaskId),
    /// The task did not wait.
    #[error("wake {0}: it is ready already")]
    NotAway(TaskId),
    /// A quantum ended while nobody ran.
    #[error("end a quantum: nobody runs")]
    NobodyRuns,
}
