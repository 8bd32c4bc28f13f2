//! Decisions of the [`Scheduler`](crate::Scheduler): values that the executor carries out or reports.

mod show;

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{Bytes, JobId, Landing, Move, NodeId, Placement, Residence, SimTime, SlotId, SwitchId, TimerId};

/// A decision. `Switch`, `SetTimer`, `Abandon` and `Checkpoint` ask for an act; the others inform.
/// Serialises with a `kind` field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Decision {
    /// The job has a row.
    Admitted {
        job: JobId,
        /// The row, the nodes, and why.
        landing: Arc<Landing>,
    },
    /// No row takes the job now; it waits in the queue and is `Admitted` later.
    Queued {
        job: JobId,
        /// Jobs in front of it.
        ahead: u32,
    },
    /// The job can never run here; it is forgotten.
    Rejected { job: JobId, reason: RejectReason },
    /// The job moved to a row whose turn comes sooner, because capacity was freed there, or in an exchange
    /// that mixes rows better.
    Moved(Move),
    /// The set of a row no longer fitted its node: a job left it.
    Split(Split),
    /// The job alone takes all that the node offers, or more. It runs there without other jobs.
    Outgrew {
        job: JobId,
        node: NodeId,
        #[serde(rename = "held")]
        resident: Bytes,
        capacity: Bytes,
    },
    /// Carry this out, then answer with `SwitchDone` or `SwitchFailed`. There is never more than one under
    /// way.
    Switch(SwitchPlan),
    /// Answer with `TimerFired` at this time, which may be now.
    SetTimer {
        /// Each number is used once.
        timer: TimerId,
        at: SimTime,
    },
    /// End the job by force: too many switches failed because of it. Answer with `Failed` when nothing of it
    /// is left.
    Abandon {
        job: JobId,
        /// Consecutive failures.
        failures: u32,
    },
    /// Write a snapshot of the job, which runs and computes on; answer with `Checkpointed` or
    /// `NotCheckpointed`. A switch may be decided before that: its orders wait for the snapshot.
    Checkpoint { job: JobId },
    /// The job is held: nothing of it is in memory.
    #[serde(rename = "hold")]
    Held { job: JobId },
    /// The job could not leave memory, and is held no more.
    NotHeld { job: JobId },
    /// The turn of a row began: at least one of its jobs runs.
    SlotStarted(Turn),
    /// The running jobs of the active row, or the end of its turn, changed since the last decision.
    /// [`Scheduler::turn`](crate::Scheduler::turn) has the whole turn.
    SlotChanged(TurnChange),
    /// Switching costs more than its share even with the longest slices: only some rows take turns, the
    /// others wait until jobs end.
    Narrowed {
        /// Rows that take turns, the active one included.
        rows: u32,
        /// The slice that all rows would need.
        needed: Duration,
    },
    /// Memory and costs allow all rows to take turns again.
    Widened,
    /// All jobs submitted so far have ended. Decided again whenever that becomes true again.
    AllDone,
}

/// The split of a row because a job holds more than was estimated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// The job that grew.
    pub job: JobId,
    pub node: NodeId,
    /// Its memory on the node.
    #[serde(rename = "held")]
    pub resident: Bytes,
    /// The memory that the node offers.
    pub capacity: Bytes,
    /// In the turn of the row, because the node was under memory pressure.
    pub at_once: bool,
    /// The job that left the row: the one that grew, or another whose memory was enough.
    pub moved: Move,
}

/// The turn of the active row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    pub slot: SlotId,
    /// The running jobs of the row, then the backfilled jobs of other rows.
    pub jobs: Vec<JobId>,
    /// `None` where no other row waits.
    pub ends: Option<SimTime>,
}

/// Changes in the turn of the active row since the last decision. Jobs that ended are not named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnChange {
    pub slot: SlotId,
    /// Jobs that run now and did not.
    pub came: Vec<JobId>,
    /// Jobs that ran and no longer do.
    pub went: Vec<JobId>,
    /// The end of the turn; `None` where no other row waits.
    pub ends: Option<SimTime>,
}

/// A plan to change the running set: jobs that leave and jobs that come. Other jobs are not touched.
///
/// No node exceeds its capacity at any instant if the executor keeps to `order` and, with [`Purpose::Ahead`],
/// lets jobs leave before others come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchPlan {
    /// Its number, for the answer.
    pub switch: SwitchId,
    /// The row with the turn, or whose turn begins.
    pub slot: SlotId,
    pub purpose: Purpose,
    pub outgoing: Vec<Outgoing>,
    /// Jobs that come, to be released together.
    pub incoming: Vec<Incoming>,
    pub order: SwitchOrder,
}

impl SwitchPlan {
    /// Whether the job leaves or comes.
    #[must_use]
    pub fn names(&self, job: JobId) -> bool {
        let mut named = self.outgoing.iter().map(|o| o.job).chain(self.incoming.iter().map(|i| i.job));
        named.any(|named| named == job)
    }

    /// Whether no job has to stop: jobs only join the running ones.
    #[must_use]
    pub fn is_activation(&self) -> bool {
        self.outgoing.iter().all(|outgoing| !outgoing.running)
    }
}

/// The purpose of a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// The row gets its turn, or a job joins it: incoming jobs run.
    #[default]
    Turn,
    /// Beside a turn: incoming jobs are restored and stay suspended; outgoing jobs were suspended.
    Ahead,
}

impl Purpose {
    /// Where incoming jobs are when the switch is over.
    #[must_use]
    pub const fn incoming_to(self) -> Residence {
        match self {
            Self::Turn => Residence::Running,
            Self::Ahead => Residence::Suspended,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outgoing {
    pub job: JobId,
    /// It runs and has to be frozen and flushed first; otherwise it was suspended before.
    pub running: bool,
    /// Where it goes: suspended or parked.
    #[serde(rename = "rest")]
    pub to: Residence,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incoming {
    pub job: JobId,
    pub start: Start,
    /// The same each time once the job has run.
    pub placement: Placement,
}

/// How a job comes to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// For the first time.
    Launch,
    /// From its last snapshot.
    Restore,
    /// From memory, where it was suspended.
    Resume,
}

impl Start {
    /// Where a job is that comes this way.
    #[must_use]
    pub const fn origin(self) -> Residence {
        match self {
            Self::Launch => Residence::Unlaunched,
            Self::Restore => Residence::Parked,
            Self::Resume => Residence::Suspended,
        }
    }
}

/// The order of the steps of a switch (paper 003, §3.3.2.2 and Fig. 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SwitchOrder {
    /// Stop and flush out, dump out, restore in, run in. Needs the memory of the larger set.
    #[default]
    Sequential,
    /// Stop and flush out, then dump out while in is restored, run in. Needs the memory of both sets.
    Overlapped,
    /// Restore in while out still runs, stop and flush out, run in; out is dumped beside the new turn. Needs
    /// the memory of both sets.
    Prefetch,
}

/// Why a job can never run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "kebab-case")]
pub enum RejectReason {
    NoRanks,
    /// A job of that number was submitted before.
    DuplicateId,
    /// Its working set exceeds the empty cluster.
    TooLarge {
        /// Ranks on the fullest node when spread evenly.
        ranks: u32,
        /// What they need there.
        needs: Bytes,
        /// What the largest node has.
        has: Bytes,
    },
    /// The allocator gives no job so many nodes.
    TooWide {
        nodes: u32,
        most: u32,
    },
}
