//! Pure scheduling decisions: nouns, matrix, packing, the `Scheduler`.
//!
//! Nothing here asks a clock, the environment or a random source; time and seeds are arguments. The live master
//! and the simulator link the very same code.
//!
//! | module | what |
//! | --- | --- |
//! | [`noun`], [`job`], [`cluster`] | identifiers and units; what a job asks for; what the nodes offer |
//! | [`limits`] | the policies as limits on one matrix |
//! | [`placement`], [`packing`] | ranks to nodes; jobs to rows |
//! | [`matrix`], [`invariant`], [`alternate`] | the Ousterhout matrix; what must hold of it; who fills its gaps |
//! | [`event`], [`decision`], [`scheduler`] | what happened; what follows; how |
//! | [`allocate`], [`machine`], [`queue`] | space sharing: which nodes; node sets and hours; whose turn it is |
//! | [`metrics`] | what the numbers at the end mean |
//! | [`watch`] | what jobs hold of their nodes' memory, and when the scheduler has to hear of it |
//! | [`explain`] | the matrix as a grid and in words |

// First and `macro_use`: it defines `id!`.
#[macro_use]
pub mod noun;

pub mod allocate;
pub mod alternate;
mod bits;
pub mod cluster;
pub mod decision;
pub mod event;
pub mod explain;
mod id;
pub mod invariant;
pub mod job;
mod job_map;
pub mod limits;
mod load;
pub mod local;
pub mod machine;
pub mod matrix;
pub mod metrics;
pub mod packing;
pub mod placement;
pub mod queue;
mod rooted;
mod row;
pub mod scheduler;
pub mod watch;

pub use alternate::Alternate;
pub use cluster::Cluster;
pub use decision::{
    Decision, Incoming, Outgoing, Purpose, RejectReason, Rest, Split, Start, SwitchOrder, SwitchPlan, Turn,
    TurnChange,
};
pub use event::{Astray, Event, Left};
pub use id::{SlotId, SwitchId, TimerId};
pub use invariant::Violation;
pub use job::JobSpec;
pub use job_map::JobMap;
pub use limits::{Limits, MemoryRule, Policy};
pub use matrix::{Matrix, Misfit, Row, Seat};
pub use noun::{Bytes, Epoch, JobId, NodeId, Rate, SimTime, UnitError, parse_duration};
pub use packing::{Landing, Move, Packing, class::Class, pairing::Communication};
pub use placement::{Block, Placement};
pub use scheduler::{
    AutoQuantum, ConfigError, JobState, Needs, Observed, Oracle, Residency, Scheduler, SchedulerConfig,
    Wanted,
};
