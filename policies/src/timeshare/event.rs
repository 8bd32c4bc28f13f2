//! What the executor tells the [`Scheduler`](crate::Scheduler): things that happened.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    Bytes, JobId, JobSpec, NodeId, Residence, SwitchId, TimerId, timeshare::packing::pairing::Communication,
};

/// Something that happened. Serialises with a `kind` field, for the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum SchedulerEvent {
    /// These jobs arrived, together: they are packed together, largest first. Send those of one instant in one event.
    Submitted {
        /// The jobs, in any order.
        jobs: Vec<JobSpec>,
    },
    /// All ranks of the job ended well and its memory is free. May come at any time, also during a switch.
    Finished {
        /// The job.
        job: JobId,
    },
    /// The job ended badly or was ended (also after [`Decision::Abandon`](crate::Decision::Abandon)); nothing of it is left.
    Failed {
        /// The job.
        job: JobId,
    },
    /// The job was seen to spend this share of its time communicating. May come at any time and often, also before the job is
    /// submitted, where it is known from an earlier run. Only `paired` listens.
    Measured {
        /// The job.
        job: JobId,
        /// The share.
        communication: Communication,
    },
    /// The job was seen to hold so much of the node's memory, which is not what is assumed: more, or for long less (see [`memory_monitor`](crate::timeshare::memory_monitor)).
    /// `cosched` and its like, where memory is not looked at, do not listen.
    Held {
        /// The job.
        job: JobId,
        /// Where.
        node: NodeId,
        /// How much.
        held: Bytes,
    },
    /// The jobs in the node's memory are about to exceed it, or do: sets that no longer fit are to be split now, not when their turn ends.
    #[serde(rename = "pressed")]
    MemoryPressure {
        /// Which node.
        node: NodeId,
    },
    /// A timer of [`Decision::SetTimer`](crate::Decision::SetTimer) fired. Stale ones are ignored, so none need be cancelled.
    TimerFired {
        /// The timer.
        timer: TimerId,
    },
    /// What the switch under way has cost; told before it is over, so that the next ones are planned by it.
    SwitchTimed {
        /// The switch.
        switch: SwitchId,
        /// From the first order to restore to the last job being back; `None` where none was restored, or not all.
        restore: Option<Duration>,
        /// How long nobody computed because of it.
        exposed: Duration,
    },
    /// Every job of the plan is where the plan wanted it, or ended on the way and was reported so.
    SwitchDone {
        /// The switch.
        switch: SwitchId,
    },
    /// The switch is over, but not all went as planned.
    SwitchFailed {
        /// The switch.
        switch: SwitchId,
        /// The jobs that are elsewhere than planned, also those whose turn to come in never came; those not named went as
        /// planned.
        #[serde(rename = "astray")]
        misplaced: Vec<Misplaced>,
    },
}

/// A job that a switch left elsewhere than planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misplaced {
    pub job: JobId,
    #[serde(rename = "left")]
    pub at: Residence,
    #[serde(rename = "had_no_room", default)]
    pub cause: Cause,
}

impl Misplaced {
    /// A job that is there for a reason of its own.
    #[must_use]
    pub const fn new(job: JobId, at: Residence) -> Self {
        Self { job, at, cause: Cause::Failed }
    }
}

/// Why a job is not where an order wanted it. The journal writes whether the store was full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum Cause {
    /// A step of its own failed: it counts towards giving the job up.
    #[default]
    Failed,
    /// No directory of the store had space for its image: it is tried again as long as the job runs.
    StoreFull,
}

impl From<bool> for Cause {
    fn from(store_full: bool) -> Self {
        if store_full { Self::StoreFull } else { Self::Failed }
    }
}

impl From<Cause> for bool {
    fn from(cause: Cause) -> Self {
        cause == Cause::StoreFull
    }
}
