//! Queues: which of the waiting jobs start now.
//!
//! The simulator (or a live batch scheduler) tells a [`QueueOrder`] who came and who ended, and after each asks [`QueueOrder::start`] who
//! begins; the order places those on the [`Machine`] itself, because who comes next depends on what is left. Orders never
//! preempt: a job that started keeps its nodes until its end.
//!
//! ```text
//!   submit(job) ─▶ waiting ─ start(now, machine) ─▶ running ─ machine.release(job), on_end(job) ─▶ gone
//! ```
//!
//! | file | order | follows |
//! | --- | --- | --- |
//! | `fcfs` | first come, first served, nobody overtakes | paper 000 §2.6 |
//! | `priority` | queue priority with aging, blocking for large jobs | paper 002 §2.3 |
//! | `table` | the queues: priorities, node groups, limits | paper 002 §2.1-2.3 |
//! | `easy` | backfilling with a reservation for the head | Lifka 1995 |
//! | `conservative` | backfilling with a reservation for everybody | Feitelson and Weil 1998 |
//!
//! [`rms`] is apart: it shares time as well as space, and so suspends.

mod conservative;
mod easy;
mod fcfs;
mod line;
mod priority;
mod profile;
mod profiles;
pub mod rms;
mod table;

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

pub use conservative::Conservative;
pub use easy::Easy;
pub use fcfs::Fcfs;
pub use priority::{Aging, AgingConfig};
pub use table::{Priority, QueueError, QueueSpec, QueueTable};

use crate::{
    JobId, SimTime,
    spaceshare::allocate::Request,
    spaceshare::machine::{GroupId, Machine},
};

/// A queue a job is submitted to, by its place in a table of queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct QueueId(pub u16);

/// A job that waits for nodes of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedJob {
    pub job: JobId,
    /// Where it was submitted to.
    pub queue: QueueId,
    /// The node group of that queue.
    pub group: GroupId,
    /// What it wants to have.
    pub request: Request,
    pub submitted: SimTime,
    /// How long it may run at most, or is believed to: backfilling relies on it.
    pub limit: Duration,
}

/// Decides who starts. Same calls, same answers.
///
/// Jobs must fit: a caller asks [`Machine::can_ever_hold`] before it submits, for a job that never fits may block the others for ever.
pub trait QueueOrder: fmt::Debug + Send {
    /// A job came. Calls are in the order of time.
    fn submit(&mut self, job: QueuedJob);

    /// A waiting job is taken back; false where it does not wait.
    fn withdraw(&mut self, job: JobId) -> bool;

    /// A job that was started is over at `now`; its nodes were released.
    fn on_end(&mut self, now: SimTime, job: JobId);

    /// Places on `machine` every job that starts at `now` and adds it to `started`, in the order of starting.
    fn start(&mut self, now: SimTime, machine: &mut Machine, started: &mut Vec<QueuedJob>);

    /// When to ask again even if nobody comes or ends: hours change, or priorities age. `None` where time alone changes nothing.
    fn next_wake(&self, now: SimTime, machine: &Machine) -> Option<SimTime>;

    fn waiting(&self) -> usize;
}
