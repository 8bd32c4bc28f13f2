//! The journal of a run and everything that is folded from its events: the report, its page, the comparison
//! of runs and the live view.
//!
//! Everything here is pure except [`journal::read`]: the same journal gives the same bytes. Times come from
//! `coswitch_policies::metrics`, which defines every number; moved bytes and memory are summed up here.

mod accounts;
mod causes;
pub mod compare;
mod coscheduling;
pub mod csv;
pub mod decisions;
mod fold;
mod forecasts;
mod gain;
mod history;
pub mod journal;
mod known;
pub mod live;
mod lives;
mod memory;
pub mod page;
mod paging;
mod pairs;
mod pauses;
mod recent;
mod report;
mod slices;
mod snapshots;
mod summary;
pub mod table;
pub mod trace;
pub mod words;

pub use accounts::{AccountState, JobAccount, NodeUse};
pub use coscheduling::{JobTasks, NodeTasks, Tasks};
pub use fold::{Folder, fold};
pub use forecasts::Forecasts;
pub use known::{ENDED_KEPT, JobKnown, Known};
pub use paging::Paging;
pub use recent::{News, Recent, RecentSwitch};
pub use report::{JobCommunication, JobReport, JobTimes, NodeMemory, Report, SetReport, StepTotal};

/// The definition of every number of a report, as `coswitch metrics` prints it.
pub const METRICS: &str = include_str!("metrics.txt");
