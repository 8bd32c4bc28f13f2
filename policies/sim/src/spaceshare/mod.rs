//! Space sharing: each job gets nodes of its own and keeps them to its end. The log of a year passes in a fraction of a second.
//!
//! The engine is a loop over instants; what it decides nothing about is decided by the same pure policies that a live batch
//! scheduler would use: a [`QueueOrder`](coswitch_policies::spaceshare::queue::QueueOrder) says who starts, an
//! [`Allocator`](coswitch_policies::spaceshare::allocate::Allocator) on which nodes.
//!
//! | file | what |
//! | --- | --- |
//! | `job` | jobs as the engine takes them, and how records of a log become such jobs |
//! | `engine` | the loop |
//! | `observer` | who looks on while it runs: node use over time, fragmentation |
//! | `choice` | policies by the names a user writes |
//! | `layout` | machines of several node sets, as a user writes them |
//! | `rms` | the time-sharing scheduler of RMS, on the same jobs |
//! | `summary` | what the numbers at the end mean |
//! | `months` | utilisation by calendar month |
//! | [`csv`], [`picture`] | the jobs as comma-separated values; load and placement as SVG |
//! | [`paragon`] | the Paragon of paper 002: node sets, groups and queues |

mod choice;
pub mod csv;
mod engine;
mod job;
mod layout;
mod months;
mod observer;
pub mod paragon;
pub mod picture;
mod rms;
mod summary;

pub use choice::{AllocatorName, ChoiceError, QueueName, machine, mesh_of};
pub use engine::{Execution, SpaceError, run};
pub use job::{Jobs, SpaceJob};
pub use layout::{GroupLayout, Layout, LayoutError, PrimeTime, QueueLayout, SetLayout};
pub use months::by_month;
pub use observer::{Blocks, MeanFragmentation, NoObserver, Observer};
pub use rms::run_rms;
pub use summary::{JobClass, Summary, classes, jain, summarise};
