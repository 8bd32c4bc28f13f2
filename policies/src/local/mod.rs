//! Local coscheduling: each node decides by itself which of its tasks has the processor.
//!
//! The models of Solsona, *Coscheduling Techniques for Non-Dedicated Cluster Computing*, chapters 2-3
//! (thesis), and of Frachtenberg and Petrini, *Scheduler testbed system design*, §2.2-2.4 (testbed). Events
//! go in, decisions come out ([`NodeScheduler`]); the simulator and a live node drive the same schedulers.
//!
//! | file | paper's name | rule |
//! | --- | --- | --- |
//! | [`linux`] | LIN; local (testbed §2.5) | round robin without preference |
//! | [`implicit`] | IMP; ICS (testbed §2.2) | a task that waits for a message spins, then blocks |
//! | [`explicit`] | EXP, DTS: static, balanced, distributed | a parallel and a local slice take turns |
//! | [`high_priority`] | HPDT | distributed tasks always first |
//! | [`predictive`] | PRE, PCA | tasks that communicate more overtake, each task at most `MCO` times |
//! | [`dynamic`] | DYN, DCA | as PRE, counting received messages only |
//! | [`demand`] | DCS (testbed §2.2) | a message calls its receiver, which runs once that is fair |
//! | [`flexible`] | FCS (testbed §2.4) | classes by measured waiting; Table 2.1 and Algorithm 1 |
//! | [`buffered`] | BCS (testbed §2.3, §4.5.2) | messages wait for the next slot and go by a schedule |
//!
//! All share one ready queue with the accounts of the CMC model ([`ready_queue`], [`account`]), so that
//! coscheduling degree, delay and thrashing mean the same for each. [`moments`] remembers what a scheduler
//! has seen and decided last.

pub mod account;
pub mod buffered;
pub mod demand;
pub mod dynamic;
pub mod event;
pub mod explicit;
pub mod flexible;
pub mod frequency;
pub mod high_priority;
pub mod implicit;
pub mod linux;
pub mod model;
pub mod moments;
pub mod predictive;
pub mod ready_queue;
pub mod scheduler;
pub mod task;
pub mod technique;
pub mod usage;

pub use account::{Account, ByKind, Degrees, Used};
pub use event::{NodeDecision, NodeError, TaskEvent};
pub use flexible::{ClassSlots, ProcessClass};
pub use frequency::Frequency;
pub use model::{Model, NodeView, WaitPolicy};
pub use moments::{Doing, Excerpt, Lane, Moments, Stretch};
pub use ready_queue::ReadyQueue;
pub use scheduler::{LocalScheduler, NodeScheduler};
pub use task::{Task, TaskId};
pub use technique::{Buffering, DtsMode, Technique, Waiting};
pub use usage::Usage;
