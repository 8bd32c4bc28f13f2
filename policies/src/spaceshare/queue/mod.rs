//! Queues: the order in which waiting jobs start.
//!
//! The simulator, or the scheduler of a live run, reports arrivals and ends to a [`QueueOrder`] and calls
//! [`QueueOrder::start`] after each. The order places the jobs that start on the [`Machine`] itself, because
//! each placement decides which job can be next. Orders never preempt: a job that started keeps its nodes
//! until it ends.
//!
//! ```text
//!   submit(job) ─▶ waiting ─ start(now, machine) ─▶ running ─ machine.release(job), on_end(job) ─▶ gone
//! ```
//!
//! | file | order | follows |
//! | --- | --- | --- |
//! | `fcfs` | first come, first served, without overtaking | paper 000 §2.6 |
//! | `priority` | queue priority with aging, blocking for large jobs | paper 002 §2.3 |
//! | `table` | the queues: priorities, node groups, limits | paper 002 §2.1-2.3 |
//! | `easy` | backfilling with a reservation for the head | Lifka 1995 |
//! | `apart` | any of these for each part of a divided machine | paper 000 §3.1 |
//! | `conservative` | backfilling with a reservation for every job | Feitelson and Weil 1998 |
//! | `line` | waiting jobs, searchable by size and limit | |
//! | `profile`, `profiles`, `steps` | free units over time, for reservations | |
//!
//! [`rms`] stands apart: it shares time as well as space, so it also suspends jobs.

mod apart;
mod conservative;
mod easy;
mod fcfs;
mod line;
mod priority;
mod profile;
mod profiles;
pub mod rms;
mod steps;
mod table;

use std::{fmt, time::Duration};

use dyn_clone::DynClone;
use serde::{Deserialize, Serialize};

pub use apart::Apart;
pub use conservative::Conservative;
pub use easy::Easy;
pub use fcfs::Fcfs;
pub use priority::{Aging, AgingConfig};
pub use table::{Priority, QueueError, QueueSpec, QueueTable};

use crate::{
    JobId, SimTime,
    spaceshare::{
        allocate::Request,
        machine::{GroupId, Machine},
    },
};

/// The index of a queue in the table of queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct QueueId(pub u16);

/// A job that waits for nodes of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedJob {
    pub job: JobId,
    pub queue: QueueId,
    pub group: GroupId,
    pub request: Request,
    pub submitted: SimTime,
    /// The longest time it may run, which backfilling relies on.
    pub limit: Duration,
}

/// Decides which jobs start. The same calls give the same answers.
///
/// Jobs must fit: a caller asks [`Machine::can_ever_hold`] before it submits, because a job that never fits
/// may block the others for ever.
pub trait QueueOrder: DynClone + fmt::Debug + Send {
    /// A job arrived. Calls are in the order of time.
    fn submit(&mut self, job: QueuedJob);

    /// A job runs already, until `end` at the latest, on nodes that it holds on `machine`. The queue of a job
    /// that is none, and only keeps nodes from being used, may be unknown.
    fn adopt(&mut self, now: SimTime, job: QueuedJob, end: SimTime, machine: &Machine);

    /// Takes back a waiting job; false where it does not wait.
    fn withdraw(&mut self, job: JobId) -> bool;

    /// A started job ended at `now`; its nodes were released.
    fn on_end(&mut self, now: SimTime, job: JobId);

    /// Places every job that starts at `now` on `machine` and appends it to `started`, in the order of
    /// starting.
    fn start(&mut self, now: SimTime, machine: &mut Machine, started: &mut Vec<QueuedJob>);

    /// The next time at which to ask again without an arrival or an end: hours change, or priorities age.
    /// `None` where time alone changes nothing.
    fn next_wake(&self, now: SimTime, machine: &Machine) -> Option<SimTime>;

    fn waiting(&self) -> usize;

    /// The time by which the waiting `job` starts at the latest, provided that jobs keep their limits; `None`
    /// where it has no reservation.
    fn promised(&self, _now: SimTime, _machine: &Machine, _job: JobId) -> Option<SimTime> {
        None
    }
}

dyn_clone::clone_trait_object!(QueueOrder);

/// A job of the first queue, submitted at time 0.
#[cfg(test)]
fn waiting_job(id: u32, nodes: u32, limit_secs: u64) -> QueuedJob {
    QueuedJob {
        job: JobId(id),
        queue: QueueId(0),
        group: GroupId(0),
        request: Request::nodes(nodes),
        submitted: SimTime(0),
        limit: Duration::from_secs(limit_secs),
    }
}
