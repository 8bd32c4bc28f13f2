//! Sources of jobs: log formats, workload models, and what logs lack.
//!
//! | module | what |
//! | --- | --- |
//! | [`swf`] | the Standard Workload Format of the Parallel Workloads Archive, read and written |
//! | [`testbed`] | the workload file of the scheduler testbed (Frachtenberg and Petrini, §4.3.1) |
//! | [`lublin`] | the model of Lublin and Feitelson (1999): batch and interactive jobs over the day |
//! | `months`, `skipped` | the calendar of a log; its records that are left out |
//! | [`memory`] | memory for jobs of a log without any, drawn from a stated distribution |

pub mod lublin;
pub mod memory;
mod months;
mod skipped;
pub mod swf;
pub mod testbed;

pub use months::{LogStart, Month};
pub use skipped::Skipped;
