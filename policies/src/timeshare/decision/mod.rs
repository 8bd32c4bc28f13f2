//! What the [`Scheduler`](crate::Scheduler) decides: values, for the executor to carry out or to report.

mod show;

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{Bytes, JobId, Landing, Move, NodeId, Placement, Residence, SimTime, SlotId, SwitchId, TimerId};

/// One decision. `Switch`, `SetTimer` and `Abandon` ask for an act; the others only tell. Serialises with a `kind` field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Decision {
    /// The job has its row.
    Admitted {
        /// The job.
        job: JobId,
        /// The row, the nodes, and why.
        landing: Arc<Landing>,
    },
    /// No row may take the job now; it waits its turn in the queue and is `Admitted` later.
    Queued {
        /// The job.
        job: JobId,
        /// Jobs in front of it.
        ahead: u32,
    },
    /// The job can never run here; it is forgotten.
    Rejected {
        /// The job.
        job: JobId,
        /// Why.
        reason: RejectReason,
    },
    /// The job was moved: to a row whose turn comes sooner, because room appeared there, or in an exchange that mixes the rows better.
    Moved(Move),
    /// The set of a row no longer fitted its node: a job left it.
    Split(Split),
    /// The job alone takes all that the node offers, or more. It is let run, with nobody beside it there.
    Outgrew {
        /// The job.
        job: JobId,
        /// Where.
        node: NodeId,
        /// What it holds there.
        held: Bytes,
        /// What the node offers.
        capacity: Bytes,
    },
    /// Carry this out, then answer with `SwitchDone` or `SwitchFailed`. There is never more than one under way.
    Switch(SwitchPlan),
    /// Answer with `TimerFired` at this time.
    SetTimer {
        /// Its number; each is used once.
        timer: TimerId,
        /// When; may be now.
        at: SimTime,
    },
    /// End the job by force: it failed to be switched too often. Answer with `Failed` when nothing of it is left.
    Abandon {
        /// The job.
        job: JobId,
        /// How often in a row a switch failed because of it.
        failures: u32,
    },
    /// The turn of a row began: at least one of its jobs runs.
    SlotStarted(Turn),
    /// Who runs in the active row, or when its turn ends, is not as last told: the difference.
    /// [`Scheduler::turn`](crate::Scheduler::turn) has the whole.
    SlotChanged(TurnChange),
    /// Switching costs more than it may even with the longest slices: only so many rows take turns, the others wait for their jobs to end.
    Narrowed {
        /// Rows that take turns, the active one included.
        rows: u32,
        /// The slice that all rows would need.
        needed: Duration,
    },
    /// Memory and costs allow all rows to take turns again.
    Widened,
    /// All jobs submitted so far have ended. Told again when that becomes true again.
    AllDone,
}

/// A row that was split because a job turned out to hold more than it declared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// Who grew.
    pub job: JobId,
    /// Where,
    pub node: NodeId,
    /// to so much,
    pub held: Bytes,
    /// of this.
    pub capacity: Bytes,
    /// Whether at once, in the turn of the row: the node was under_pressure.
    pub at_once: bool,
    /// Who left the row: the one that grew, or another whose memory was enough.
    pub moved: Move,
}

/// The turn of the active row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// The row.
    pub slot: SlotId,
    /// Its jobs that run now, then those of other rows that go on on its idle nodes.
    pub jobs: Vec<JobId>,
    /// When it ends; `None` where no other row waits.
    pub ends: Option<SimTime>,
}

/// What changed in the turn of the active row since it was last told. Jobs that have ended are gone without a word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnChange {
    /// The row.
    pub slot: SlotId,
    /// Who runs there now and did not.
    pub came: Vec<JobId>,
    /// Who ran there and does no more.
    pub went: Vec<JobId>,
    /// When the turn ends; `None` where no other row waits.
    pub ends: Option<SimTime>,
}

/// Who leaves and who comes. Jobs in neither list are not touched.
///
/// On every node the capacity is kept at any instant if the executor keeps to `order`, and if with [`Purpose::Ahead`] what has to
/// leave has left before anybody comes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchPlan {
    /// Its number, for the answer.
    pub switch: SwitchId,
    /// The row that has the turn, or whose turn it begins.
    pub slot: SlotId,
    /// What it is for.
    pub purpose: Purpose,
    /// Jobs that leave.
    pub outgoing: Vec<Outgoing>,
    /// Jobs that come, to be released together.
    pub incoming: Vec<Incoming>,
    /// The order of the two.
    pub order: SwitchOrder,
}

impl SwitchPlan {
    /// Whether nobody has to stop: jobs only join the running ones.
    #[must_use]
    pub fn is_activation(&self) -> bool {
        self.outgoing.iter().all(|outgoing| !outgoing.running)
    }
}

/// What a switch is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// The row gets its turn, or a job joins it: who comes runs.
    #[default]
    Turn,
    /// Beside a turn: jobs that come are restored and stay suspended, jobs that leave were suspended.
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

/// A job that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outgoing {
    /// The job.
    pub job: JobId,
    /// Whether it runs and has to be frozen and flushed first; else it was suspended before.
    pub running: bool,
    /// Where it goes: suspended or parked.
    #[serde(rename = "rest")]
    pub to: Residence,
}

/// A job to bring in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incoming {
    /// The job.
    pub job: JobId,
    /// How.
    pub start: Start,
    /// Where; the same each time once it ran.
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

/// The switching policy (DESIGN §4; paper 003, §3.3.2.2 and Fig. 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SwitchOrder {
    /// Stop and flush out, dump out, restore in, run in. Estimate the memory of the larger set.
    #[default]
    Sequential,
    /// Stop and flush out, then dump out while in is restored, run in. Estimate the memory of both.
    Overlapped,
    /// Restore in while out still runs, stop and flush out, run in; out is dumped beside the new turn. Estimate the memory of both.
    Prefetch,
}

/// Why a job can never run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "kebab-case")]
pub enum RejectReason {
    /// It asks for no rank.
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
}
