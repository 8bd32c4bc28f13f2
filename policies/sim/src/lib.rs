//! Discrete-event simulators that drive the policies of the live system.
//!
//! [`simulate`] replaces the executor of time sharing: it carries out switches against a [`CostModel`],
//! advances jobs, fires timers, and injects faults ([`Faults`]). The same arguments give the same report, to
//! the nanosecond.
//!
//! | module | what |
//! | --- | --- |
//! | [`timeshare`] | gangs on the `Scheduler` of the master |
//! | [`spaceshare`] | queues and allocators on a log of any length |
//! | [`local`] | node schedulers on a simulated cluster |
//! | [`workload`] | sources of jobs: logs, models |
//! | `picture` | shared parts of the pictures |
//! | [`stats`], [`parallel`] | confidence intervals; many runs on several threads |
//! | [`distributions`] | random distributions by seed |

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
    CostFile, CostFileError, CostModel, CostStep, Faults, MemoryCurve, Moving, Sample, SimError, SimJob,
    SimReport, Step, Transfer, WorkloadShape, random_workload, simulate, simulate_telling,
};
