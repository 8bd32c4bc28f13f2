//! Pure scheduling decisions. No function here reads a clock, the environment or a random source: time and
//! seeds are arguments. The live master and the simulator link the same code.
//!
//! | module | what |
//! | --- | --- |
//! | [`timeshare`] | gangs that take turns: the Ousterhout matrix and its scheduler |
//! | [`spaceshare`] | jobs with nodes of their own: queues, allocators, node groups |
//! | [`local`] | local coscheduling: the scheduler of one node |
//! | [`units`], [`ids`] | bytes, rates and times; identifiers of jobs, nodes and slots |
//! | [`job`], [`cluster`], [`placement`] | specification of a job; the nodes; assignment of ranks to nodes |
//! | [`control_tree`] | how an order would reach many nodes |
//! | [`launching`] | how a program is sent to the nodes of a job |
//! | [`partners`] | which nodes hold the copy of a node's snapshots |
//! | [`primitives`] | XFER-AND-SIGNAL, TEST-EVENT and COMPARE-AND-WRITE on the nodes |
//! | [`strobe`] | warm gang switching: slices for jobs that all stay in memory |
//! | [`metrics`] | definitions of the metrics |

// First and `macro_use`: it defines `id!`.
#[macro_use]
pub mod ids;

pub mod cluster;
pub mod control_tree;
pub mod job;
pub mod launching;
pub mod local;
pub mod metrics;
pub mod partners;
pub mod placement;
pub mod primitives;
pub mod spaceshare;
pub mod strobe;
pub mod timeshare;
pub mod units;

pub use cluster::{Capacity, Cluster};
pub use ids::{Epoch, JobId, NodeId, SlotId, SwitchId, TimerId};
pub use job::JobSpec;
pub use partners::{CopyRule, Scatter};
pub use placement::{Block, Placement};
pub use timeshare::{
    alternate::Alternate,
    decision::{
        Decision, Incoming, Outgoing, Purpose, RejectReason, Split, Start, SwitchOrder, SwitchPlan, Turn,
        TurnChange,
    },
    event::{Adopted, Cause, Misplaced, SchedulerEvent},
    invariant::Violation,
    limits::{Limits, MemoryRule, Policy},
    matrix::{Assignment, Matrix, RejectionCause, Row},
    packing::{Landing, Move, Packing, class::Class, pairing::Communication},
    residence::Residence,
    scheduler::{
        Allowance, AutoQuantum, ConfigError, Estimate, ForeseenTurn, JobState, NodeWait, Opening, Oracle,
        Outlook, Present, Residency, Rotation, Scheduler, SchedulerConfig, ShortOfMemory, Wanted,
    },
    switch_step::SwitchStep,
    switching::{Order, SwitchAction, SwitchOutcome, Switching},
};
pub use units::{Bytes, Rate, SimTime, UnitError, parse_duration};
