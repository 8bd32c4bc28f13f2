//! Where jobs come from.
//!
//! | module | what |
//! | --- | --- |
//! | `random` | jobs for the gang engine: a spec for the scheduler and work to do; also random ones by seed |
//! | [`swf`] | the Standard Workload Format of the Parallel Workloads Archive, in and out |
//! | [`testbed`] | the workload file of the scheduler testbed (Frachtenberg and Petrini, §4.3.1) |
//! | [`lublin`] | the model of Lublin and Feitelson (1999): batch and interactive jobs over the day |
//! | [`memory`] | memory for jobs of a log that has none, drawn from a stated distribution |

pub mod lublin;
pub mod memory;
mod random;
pub mod swf;
pub mod testbed;

pub use random::{SimJob, WorkloadShape, random_workload};
