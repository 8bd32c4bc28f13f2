//! Time sharing: gangs take turns on the rows of an Ousterhout matrix.
//!
//! | module | what |
//! | --- | --- |
//! | [`limits`] | the policies as limits on one matrix |
//! | [`matrix`], [`invariant`], [`alternate`] | the matrix; its invariants; the backfilled jobs of a turn |
//! | [`packing`] | jobs to rows |
//! | [`residence`], [`switching`] | where a job is; the state machine of one switch |
//! | [`event`], [`decision`], [`scheduler`] | what happened; what follows; how |
//! | [`memory_monitor`] | where a job's estimated working set is wrong |
//! | [`checkpoint_interval`] | how often a job that never leaves memory is checkpointed |
//! | [`short_quantum`] | whether a given quantum is too short for what switches cost |
//! | [`explain`] | the matrix as a grid and in words |
//! | `index` | indices that keep an event cheap on large clusters; the plain code is their oracle |

pub mod alternate;
pub mod checkpoint_interval;
pub mod decision;
pub mod event;
pub mod explain;
pub(crate) mod index;
pub mod invariant;
pub mod limits;
pub mod matrix;
pub mod memory_monitor;
pub mod packing;
pub mod residence;
mod row;
pub mod scheduler;
pub mod short_quantum;
pub mod switch_step;
pub mod switching;
