//! Pure scheduling decisions: nouns, matrix, packing, the `Scheduler`.
//!
//! Nothing here asks a clock, the environment or a random source; time and seeds are arguments. The live master
//! and the simulator link the very same code.

pub mod noun;

pub use noun::{Bytes, Epoch, JobId, NodeId, Rank, Rate, SimTime, UnitError, parse_duration};
