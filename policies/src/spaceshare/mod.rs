//! Space sharing: each job has its nodes to itself until it ends.
//!
//! | module | what |
//! | --- | --- |
//! | [`queue`] | the order in which waiting jobs start |
//! | [`allocate`] | the nodes that a job gets |
//! | [`machine`] | node sets, node groups and their hours |
//! | [`layout`] | node sets, groups and queues as a user writes them |
//! | [`choice`] | queues and allocators by name |
//! | [`sharing`] | which of them a run uses |

pub mod allocate;
pub mod choice;
pub mod layout;
pub mod machine;
pub mod queue;
pub mod sharing;
