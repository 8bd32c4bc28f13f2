//! Discrete-event simulators that drive the policies of the live system.
//!
//! [`simulate`] plays the executor of time sharing: it carries out switches against a [`CostModel`], lets jobs progress, fires
//! timers, and fails on purpose ([`Faults`]). The same arguments give the same report, to the nanosecond.
//!
//! | module | what |
//! | --- | --- |
//! | [`timeshare`] | gangs on the `Scheduler` of the master |
//! | [`spaceshare`] | queues and allocators on a log of any length |
//! | [`local`] | the schedulers of nodes, on a simulated cluster |
//! | [`workload`] | where jobs come from: logs, models, random ones by seed |
//! | `picture` | what the pictures of several worlds share |
//! | [`stats`], [`parallel`] | confidence intervals; many seeds on several threads |
//! | [`distributions`] | distributions by seed |

pub mod distributions;
pub mod local;
pub mod parallel;
mod picture;
mod seed;
pub mod spaceshare;
pub mod stats;
pub mod timeshare;
pub mod workload;

pub use seed::Seed;
pub use timeshare::{
    CostFile, CostFileError, CostModel, CostStep, Faults, Moving, Sample, SimError, SimJob, SimReport, Step,
    Transfer, WorkloadShape, random_workload, simulate, simulate_telling,
};
