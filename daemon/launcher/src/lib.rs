//! The launcher of an application on one node: PID 1 of its PID namespace, parent of its ranks, their PMI server.
//!
//! This library is what the daemon needs of it: [`start`] brings one to life from a [`LaunchSpec`], [`protocol`] is the
//! conversation through the application's segment afterwards, [`pmi`] the pure part of the PMI server. The program
//! `coswitch-launcher` is the rest.
//!
//! ```text
//!   daemon ──fork, exec──> coswitch-launcher (birth) ──clone: CLONE_NEWPID | CLONE_PARENT──> PID 1 ──> ranks
//!     │ <──── Reply::Born, Started ──────┘ exits                                               │
//!     └─────────────────────── parent of PID 1; messages through the segment ─────────────────┘
//! ```
//!
//! PID 1 and its ranks hold no descriptor that leads out of their tree, except regular files and `/dev/null`, so that they
//! can be dumped at any instruction and restored while the daemon lives on, or under another one.

pub mod pmi;
pub mod protocol;
mod spec;
mod start;

pub use spec::{LaunchSpec, RankSpec, Reply};
pub use start::{StartError, start};
