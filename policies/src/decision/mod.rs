//! What the [`Scheduler`](crate::Scheduler) decides: values, for the executor to carry out or to report.

mod show;

use serde::{Deserialize, Serialize};

use crate::{Bytes, JobId, Landing, Move, Placement, SimTime, SlotId, SwitchId, TimerId};

/// One decision. `Switch`, `SetTimer` and `Abandon` ask for an act; the others only tell. Serialises with a `kind` field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Decision {
    /// The job has its row.
    Admitted {
        /// The job.
        job: JobId,
        /// The row, the nodes, and why.
        landing: Landing,
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
    /// All jobs submitted so far have ended. Told again when that becomes true again.
    AllDone,
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

/// What to bring in and what to take out. On every node: `outgoing` first, and only when all of it is out of memory
/// everywhere, `incoming`; then the capacity of no node is exceeded at any instant. Jobs in neither list are not touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchPlan {
    /// Its number, for the answer.
    pub switch: SwitchId,
    /// The row it turns to.
    pub slot: SlotId,
    /// Jobs to freeze, flush and dump.
    pub outgoing: Vec<JobId>,
    /// Jobs to launch or restore, to be released together.
    pub incoming: Vec<Incoming>,
    /// The order of the two.
    pub order: SwitchOrder,
}

impl SwitchPlan {
    /// Whether nothing has to leave: jobs only join the running ones.
    #[must_use]
    pub const fn is_activation(&self) -> bool {
        self.outgoing.is_empty()
    }
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

/// How a job comes into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// For the first time.
    Launch,
    /// From its last snapshot.
    Restore,
}

/// The switching policy (DESIGN §4). Overlapped and prefetch come with their own planning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SwitchOrder {
    /// Stop and flush out, dump out, restore in, run in. Needs the memory of the larger set.
    #[default]
    Sequential,
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
