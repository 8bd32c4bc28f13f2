//! The journal of a run: its events, one JSON object a line, appended as they happen.
//!
//! The journal is the truth about a run: the report is a fold over it and the live view follows the same
//! events. Readers skip fields that they do not know.

mod event;
mod file;
pub mod record;

pub use coswitch_policies::SwitchStep;
pub use event::{Event, JobMemory, JobOutcome, MachineUse, RankMeasured, RunEvent, RunOutcome};
pub use file::{FILE_NAME, JournalError, archive, each, missing_archive, read, salvage};

/// The version of the journal's format, in its first line.
///
/// Since version 2 it has timers, and each input of the scheduler is at the instant at which the scheduler
/// got it. Since version 3 it has the resident memory of jobs, and `paired` goes by their classes of
/// communication. Since version 4 it has the pauses of master and daemons. Since version 5 each line has a
/// checksum. Since version 6 users hold and release jobs, and next turns are foreseen. Since version 7 a
/// master may take over. Since version 8 nodes may be lost and come back. Since version 9 a sample of memory
/// stands for several looks. Since version 10 a run may be parked, and go on. Since version 11
/// jobs have priorities. Since version 12 jobs may have nodes of their own, by a queue. Since version 13
/// daemons may be replaced. Since version 14 nodes may be drained. Since version 15 running jobs are
/// checkpointed. Since version 16 snapshots are copied to other nodes. Since version 17 parts move there.
/// Since version 18 jobs survive the daemons of their nodes. Since version 19 a cluster may be divided, and
/// jobs wait in queues of groups. Since version 20 the journal of a cluster that stays is compacted.
/// Since version 21 jobs in memory take slices. Since version 22 it has what accounts need: users and dates.
/// Since version 23 it has the node scheduler with its parameters, the slices that its console sets, and
/// what it counts; partitions have priorities and users. Since version 24 it counts slots by class as well.
pub const VERSION: u32 = 24;
