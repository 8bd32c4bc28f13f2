//! Discrete-event simulator that drives the same Scheduler as the master.
//!
//! [`simulate`] plays the executor: it carries switches out against a [`CostModel`], lets jobs progress, fires timers, and
//! may fail on purpose ([`Faults`]). The same arguments give the same report, to the nanosecond.
//!
//! | file | what |
//! | --- | --- |
//! | `workload` | jobs with the work they have to do, also random ones by seed |
//! | `cost` | how long things take |
//! | `faults` | what goes wrong, by seed |
//! | `world` | where every job is and how far it got; who uses which memory |
//! | `run` | the loop over time |
//! | `report` | the journal and what was measured |

mod cost;
pub mod draw;
mod faults;
pub mod local;
pub mod picture;
mod report;
mod run;
mod seed;
pub mod space;
pub mod stats;
pub mod study;
pub mod table;
pub mod workload;
mod world;

pub use cost::{CostFile, CostFileError, CostModel, CostStep, Moving, Sample, Transfer};
pub use faults::Faults;
pub use report::{SimReport, Step};
pub use run::{SimError, simulate};
pub use seed::Seed;
pub use workload::{SimJob, WorkloadShape, random_workload};
