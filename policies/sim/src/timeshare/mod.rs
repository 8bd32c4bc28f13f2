//! Simulated time sharing: the live scheduler against a cost model.
//!
//! | file | what |
//! | --- | --- |
//! | `run` | the loop over time |
//! | `world` | where each job is and how far it got |
//! | `nodes` | what each node holds and how slowly its jobs run |
//! | `memory` | what a job holds over time, and what is done about it |
//! | `faults` | what goes wrong, by seed |
//! | `report` | the journal and what was measured |
//! | `job` | jobs with the work they have to do; random ones by seed |
//! | `cost` | how long things take, also fitted from measured runs |
//! | `months` | utilisation by calendar month |
//! | [`csv`], [`picture`] | the jobs as comma-separated values; the turns as SVG |

pub(crate) mod cost;
pub mod csv;
mod faults;
mod job;
mod memory;
mod months;
mod nodes;
pub mod picture;
mod report;
mod run;
mod world;

pub use cost::{CostFile, CostFileError, CostModel, CostStep, Moving, Sample, Transfer};
pub use faults::Faults;
pub use job::{SimJob, WorkloadShape, random_workload};
pub use memory::MemoryCurve;
pub use months::by_month;
pub use report::{SimReport, Step};
pub use run::{SimError, simulate, simulate_telling};
