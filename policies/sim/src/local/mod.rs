//! Simulator of the non-dedicated cluster of Solsona's thesis: on each node, distributed and local tasks
//! share the processor under one of the node schedulers of [`coswitch_policies::local`].
//!
//! [`simulate_local`] follows SCluster (thesis ch. 4); [`shape`] and [`program`] state what the thesis leaves
//! open and what is done here.
//!
//! | file | what |
//! | --- | --- |
//! | [`shape`] | SCluster's parameters |
//! | [`models`] | node schedulers by name, with their parameters |
//! | [`program`] | arrivals; when a task communicates, by seed |
//! | [`memory`] | slowdown when the tasks of a node do not fit in memory |
//! | `node` | one node: its tasks, its processor |
//! | `run`, `orders` | the loop over time; events to the schedulers and their decisions |
//! | `messages`, `strobes` | requests and replies; slots and buffered messages |
//! | [`report`] | the metrics of the CMC model and the times, per task, node and system |
//! | [`measures`] | the same metrics by name, for tables |
//! | [`study`] | a grid of runs over parameters and seeds, on several threads |
//! | [`trend`] | the classes C, I, SI, SD, D, and their limits |
//! | [`table_4_1`] | Table 4.1: the effect of each parameter on the coscheduling degree |
//! | [`compare`] | all schedulers on one cluster |
//! | [`markdown`] | table and comparison as Markdown |
//! | [`mix`] | given jobs beside each other, as `cargo xtask bench mixes` runs them on real nodes |

pub mod compare;
pub mod markdown;
pub mod measures;
pub mod memory;
mod messages;
pub mod mix;
pub mod models;
mod node;
mod orders;
pub mod program;
pub mod report;
mod run;
pub mod shape;
mod strobes;
pub mod study;
pub mod table_4_1;
pub mod trend;

pub use memory::NodeMemory;
pub use models::LocalModel;
pub use report::{LocalReport, TaskRecord, Times};
pub use run::{simulate_local, simulate_local_drawn};
pub use shape::{Crowding, Peers, Shape, ShapeError, UNIT};
pub use trend::Trend;
