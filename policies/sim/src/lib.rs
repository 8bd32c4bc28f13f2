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
//! | `cost` | how long things take, also fitted from measured runs |
//! | [`picture`], [`table`] | runs as SVG and as comma-separated values |
//! | [`stats`], [`study`] | confidence intervals; many seeds on several threads |
//! | [`draw`] | distributions by seed |

mod cost;
pub mod draw;
pub mod local;
pub mod picture;
mod seed;
pub mod spaceshare;
pub mod stats;
pub mod study;
pub mod table;
pub mod timeshare;
pub mod workload;

pub use cost::{CostFile, CostFileError, CostModel, CostStep, Moving, Sample, Transfer};
pub use seed::Seed;
pub use timeshare::{Faults, SimError, SimReport, Step, simulate, simulate_telling};
pub use workload::{SimJob, WorkloadShape, random_workload};
