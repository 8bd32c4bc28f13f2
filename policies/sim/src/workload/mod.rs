//! Where jobs come from.
//!
//! | module | what |
//! | --- | --- |
//! | [`swf`] | the Standard Workload Format of the Parallel Workloads Archive, in and out |
//! | [`testbed`] | the workload file of the scheduler testbed (Frachtenberg and Petrini, §4.3.1) |
//! | [`lublin`] | the model of Lublin and Feitelson (1999): batch and interactive jobs over the day |
//! | `months`, `skipped` | a log's calendar; its records that are no jobs |
//! | [`memory`] | memory for jobs of a log that has none, drawn from a stated distribution |

pub mod lublin;
pub mod memory;
mod months;
mod skipped;
pub mod swf;
pub mod testbed;

pub use months::{LogStart, Month};
pub use skipped::Skipped;
