//! The atomics of rings, slabs and bells: those of the standard library. Built with `--cfg loom` they are
//! those of loom, for which [`crate::models`] explores every order in which threads may see them.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
