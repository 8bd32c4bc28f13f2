//! What the executor tells the [`Scheduler`](crate::Scheduler): things that happened.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Bytes, JobId, JobSpec, NodeId, SwitchId, TimerId, timeshare::packing::pairing::Communication};

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

/// A job that a failed switch left elsewhere than planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misplaced {
    /// The job.
    pub job: JobId,
    /// Where it is.
    pub left: Left,
    /// There was no room to put it, which is no fault of its own: it is tried again as long as it runs.
    #[serde(default)]
    pub had_no_room: bool,
}

impl Misplaced {
    /// A job that is there for reasons of its own.
    #[must_use]
    pub const fn new(job: JobId, left: Left) -> Self {
        Self { job, left, had_no_room: false }
    }
}

/// Where a failed switch left a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Left {
    /// Never launched, and may be.
    Unlaunched,
    /// In memory and running: it could not be stopped, or its dump was aborted and it was thawed.
    Active,
    /// In memory and stopped: it could not be dumped, or was not let run.
    Suspended,
    /// Out of memory with a valid snapshot: it was not restored.
    Parked,
    /// Gone for good. The scheduler treats it as failed; no further event is needed.
    Lost,
}
