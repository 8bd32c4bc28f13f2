//! The non-dedicated cluster of Solsona's thesis: nodes with ready queues on which distributed and local tasks share the
//! processor, under any of the node schedulers of [`coswitch_policies::local`].
//!
//! [`simulate_local`] follows SCluster (thesis ch. 4) where the thesis says what it does; [`shape`] and [`program`] say
//! what it does not say and what is done here.
//!
//! | file | what |
//! | --- | --- |
//! | [`shape`] | SCluster's parameters |
//! | [`models`] | which node scheduler, with its numbers |
//! | [`program`] | arrivals; when a task communicates, by seed |
//! | [`memory`] | what it costs when the tasks of a node do not fit |
//! | `node` | one node: its tasks, its processor |
//! | `run`, `orders` | the loop over time; what a scheduler is told, and activity what it says |
//! | `messages`, `strobes` | requests and replies; slots and buffered messages |
//! | [`report`] | the metrics of the CMC model and the times, per task, node and system |
//! | [`measures`] | those by name, for tables |
//! | [`study`] | a grid of runs over parameters and seeds, on several threads |
//! | [`trend`] | the classes C, I, SI, SD, D, and their limits |
//! | [`table_4_1`] | Table 4.1: what a parameter does to the coscheduling degree |
//! | [`compare`] | all schedulers on one cluster |
//! | [`markdown`] | both as Markdown |

pub mod compare;
pub mod markdown;
pub mod measures;
pub mod memory;
mod messages;
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
pub use run::simulate_local;
pub use shape::{Crowding, Peers, Shape, ShapeError, UNIT};
pub use trend::Trend;
