//! Simulator of space sharing: each job gets nodes of its own and keeps them until it ends. The log of a year
//! takes a fraction of a second.
//!
//! The engine is a loop over instants. All decisions come from the same pure policies that a live batch
//! scheduler would use: a [`QueueOrder`](coswitch_policies::spaceshare::queue::QueueOrder) chooses the jobs
//! that start, an [`Allocator`](coswitch_policies::spaceshare::allocate::Allocator) their nodes.
//!
//! | file | what |
//! | --- | --- |
//! | `job` | jobs of the engine, made from records of a log |
//! | `engine` | the loop |
//! | `observer` | observers of a run: placements, fragmentation |
//! | [`layout`] | a log on a machine of several node sets, groups and queues |
//! | `rms` | the time-sharing scheduler of RMS, on the same jobs |
//! | `summary` | metrics |
//! | `months` | utilisation by calendar month |
//! | [`csv`], [`picture`] | the jobs as comma-separated values; load and placement as SVG |
//! | [`paragon`] | the Paragon of paper 002: node sets, groups and queues |

pub mod csv;
mod engine;
mod job;
pub mod layout;
mod months;
mod observer;
pub mod paragon;
pub mod picture;
mod rms;
mod summary;

pub use coswitch_policies::spaceshare::{
    choice::{AllocatorName, ChoiceError, QueueName, machine, mesh_of},
    layout::{Layout, LayoutError},
};
pub use engine::{Execution, SpaceError, run};
pub use job::{Jobs, SpaceJob};
pub use months::by_month;
pub use observer::{Blocks, MeanFragmentation, NoObserver, Observer};
pub use rms::run_rms;
pub use summary::{JobClass, Summary, classes, jain, summarise};
