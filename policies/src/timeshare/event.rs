//! Events: what the executor tells the [`Scheduler`](crate::Scheduler).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    Bytes, JobId, JobSpec, NodeId, Placement, Residence, SwitchId, TimerId, spaceshare::queue::QueueId,
    timeshare::packing::pairing::Communication,
};

/// An event. Serialises with a `kind` field, for the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum SchedulerEvent {
    /// These jobs arrived together, in any order: they are packed together, largest first. Jobs of one
    /// instant belong into one event.
    Submitted { jobs: Vec<JobSpec> },
    /// Jobs that an earlier scheduler has placed; the first event of the one that follows it.
    Adopted {
        /// How many switches the earlier one has begun: later ones are numbered from there.
        switches: u32,
        jobs: Vec<Adopted>,
    },
    /// All ranks of the job ended well and its memory is free. May come at any time, also during a switch.
    Finished { job: JobId },
    /// The job ended badly or was ended (also after [`Decision::Abandon`](crate::Decision::Abandon)); nothing
    /// of it is left.
    Failed { job: JobId },
    /// The job's user holds it: it leaves memory and has no turns until it is released. Answered with
    /// [`Decision::Held`](crate::Decision::Held) or `NotHeld`.
    #[serde(rename = "hold")]
    Held { job: JobId },
    /// The job's user releases it: it takes turns again.
    Released { job: JobId },
    /// The priorities of jobs, living ones or those that are submitted next; a job without one has 0. See
    /// [`Scheduler::priority`](crate::Scheduler::priority).
    Prioritized { priorities: Vec<(JobId, i32)> },
    /// The measured share of its time that a job communicates. May come often, also before the job is
    /// submitted where an earlier run has measured it. Only `paired` uses it.
    Measured { job: JobId, communication: Communication },
    /// The measured memory of a job on a node, where it differs from the estimate: it is more, or was less
    /// for long (see [`memory_monitor`](crate::timeshare::memory_monitor)). Policies without a memory rule
    /// ignore it.
    #[serde(rename = "held")]
    Resident {
        job: JobId,
        node: NodeId,
        #[serde(rename = "held")]
        resident: Bytes,
    },
    /// What a job is known to hold on a node, in memory or parked. Until its first one, and under policies
    /// without a memory rule, it counts with its estimate.
    Footprint {
        job: JobId,
        node: NodeId,
        #[serde(rename = "held")]
        resident: Bytes,
        /// By how much a second it grows while it runs; `None` where it has not run for long enough to tell.
        growth: Option<Bytes>,
        /// Whether it is stopped or in its images, so that this is all it holds until it runs again.
        #[serde(default)]
        exact: bool,
    },
    /// The jobs of the node exceed their [allowance](crate::Scheduler::allowances) and the running ones were
    /// stopped; they go on when suspended jobs have left.
    RunningStopped { node: NodeId },
    /// The jobs on the node exceed its memory or are about to: sets that no longer fit are split now, not at
    /// the end of their turn.
    #[serde(rename = "pressed")]
    MemoryPressure { node: NodeId },
    /// A timer of [`Decision::SetTimer`](crate::Decision::SetTimer) fired. Stale timers are ignored, so none
    /// need be cancelled.
    TimerFired { timer: TimerId },
    /// The cost of the switch under way, before its end, so that the next plan can use it.
    SwitchTimed {
        switch: SwitchId,
        /// From the first order to restore to the arrival of the last job; `None` where none was restored, or
        /// not all.
        restore: Option<Duration>,
        /// How long no job computed because of the switch.
        exposed: Duration,
    },
    /// Every job of the plan is where the plan wanted it, or ended on the way and was reported so.
    SwitchDone { switch: SwitchId },
    /// The switch is over, but not all went as planned.
    SwitchFailed {
        switch: SwitchId,
        /// Also jobs whose order to come in was never given. Jobs not named went as planned.
        #[serde(rename = "astray")]
        misplaced: Vec<Misplaced>,
    },
    /// The node is lost. Its jobs end there; a [`SchedulerEvent::Displaced`] follows for each that was in
    /// memory, or the outcome of the switch that moves it. No job is placed on the node until it is back.
    NodeDown { node: NodeId },
    /// The node is back, with the snapshots that it had sealed.
    NodeUp { node: NodeId },
    /// A job that no switch moves has left memory on all of its nodes, because one of them was lost: it is
    /// parked, or is to be launched again.
    Displaced { job: JobId, at: Residence },
    /// The part of a parked job on a lost node is on another node from now on, which had none.
    Moved { job: JobId, from: NodeId, to: NodeId },
    /// How long jobs run yet at most, living ones or those that are submitted or adopted next. Backfilling
    /// relies on it; a job of which nothing is said may run for ever.
    Limited { left: Vec<(JobId, Duration)> },
    /// The queues of jobs that are submitted or adopted next, where that is not the first: with it goes the
    /// group of nodes that they may use.
    Grouped { queues: Vec<(JobId, QueueId)> },
    /// The node is to be empty: jobs in memory there leave by switches, where the policy has any, and no job
    /// is placed there until [`SchedulerEvent::Undrained`].
    Drained { node: NodeId },
    /// The node takes jobs again, and those that have left it come back.
    Undrained { node: NodeId },
    /// The answer to [`Decision::Checkpoint`](crate::Decision::Checkpoint): the job computes, and every node
    /// has a snapshot of it.
    Checkpointed {
        job: JobId,
        /// For how long it has not computed; zero where that is not known.
        stood_still: Duration,
    },
    /// The job computes, and has no new snapshot.
    NotCheckpointed { job: JobId },
}

/// A job that has its placement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopted {
    pub job: JobSpec,
    pub placement: Placement,
    /// Running, suspended or parked.
    pub at: Residence,
    /// Its user holds it.
    #[serde(default)]
    pub held: bool,
    #[serde(default)]
    pub priority: i32,
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

/// Why a job is not where an order wanted it. The journal writes whether room was wanting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum Cause {
    /// A step of its own failed: it counts towards giving the job up.
    #[default]
    Failed,
    /// No directory of the store had space for its image, or a node none for the job; or its ranks are
    /// ending. It is tried again.
    NoRoom,
}

impl From<bool> for Cause {
    fn from(no_room: bool) -> Self {
        if no_room { Self::NoRoom } else { Self::Failed }
    }
}

impl From<Cause> for bool {
    fn from(cause: Cause) -> Self {
        cause == Cause::NoRoom
    }
}
