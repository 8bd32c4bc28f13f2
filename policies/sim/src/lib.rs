//! Discrete-event simulator that drives the same Scheduler as the master.
//!
//! [`simulate`] plays the executor: it carries switches out against a [`CostModel`], lets jobs progress, fires timers, and
//! may fail on purpose ([`Faults`]). The same arguments give the same report, to the nanosecond.
//!
//! | file | what |
//! | --- | --- |
//! | [`workload`] | where jobs come from: logs, models, random ones by seed |
//! | [`space`] | space sharing: queues and allocators on a log of any length |
//! | [`local`] | the schedulers of a node, on a simulated cluster |
//! | [`picture`], [`table`] | runs as SVG and as comma-separated values |
//! | [`stats`], [`study`] | confidence intervals; many seeds on several threads |
//! | [`draw`] | distributions by seed |
//! | `cost` | how long things take, also fitted from measured runs |
//! | `faults` | what goes wrong, by seed |
//! | `world` | where every job is and how far it got; who uses which memory |
//! | `nodes` | what each node holds and how slowly its jobs run, kept as it changes |
//! | `run` | the loop over time |
//! | `report` | the journal and what was measured |

mod cost;
pub mod draw;
mod faults;
pub mod local;
mod nodes;
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
pub use run::{SimError, simulate, simulate_telling};
pub use seed::Seed;
pub use workload::{SimJob, WorkloadShape, random_workload};
