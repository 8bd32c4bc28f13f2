//! Control groups of a node and of each job on it.
//!
//! Freezing always uses version 2 (`cgroup.freeze`). Memory accounting uses version 2 where its controller is
//! there, else version 1: many machines mount both, and the controller is in only one of them. In every
//! hierarchy used, the path is `coswitch/<node>/<job>`; the node's group has the limit, the job's group the
//! account. The checkpointers of a node are in `coswitch-criu/<node>`: they must neither be frozen nor
//! charged to a job.

pub(crate) mod daemons;
mod files;
mod hierarchies;
mod job;
mod memory;
mod node;
mod stopper;
mod swapping;

pub use files::CgroupError;
pub use hierarchies::Hierarchies;
pub use job::JobCgroup;
pub use node::NodeCgroup;
pub(crate) use stopper::Stopper;
pub(crate) use swapping::Patience;
