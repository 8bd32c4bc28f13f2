//! Bound on what the launcher of one application has said and the control side has not read: the data plane
//! reads on when there is room, and meanwhile the launcher's ring is full.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use coswitch_ring::Bell;

/// Messages, of 64 KiB at most.
const UNREAD_MAX: usize = 64;

#[derive(Clone, Debug)]
pub(crate) struct Backlog {
    unread: Arc<AtomicUsize>,
    /// Of the data plane.
    bell: Arc<Bell>,
}

/// Counts until it is dropped.
#[derive(Debug)]
pub struct Unread(Backlog);

impl Backlog {
    pub(crate) fn new(bell: Arc<Bell>) -> Self {
        Self { unread: Arc::default(), bell }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.unread.load(Ordering::Acquire) < UNREAD_MAX
    }

    /// For another message.
    pub(crate) fn add(&self) -> Unread {
        self.unread.fetch_add(1, Ordering::AcqRel);
        Unread(self.clone())
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        if self.0.unread.fetch_sub(1, Ordering::AcqRel) >= UNREAD_MAX {
            self.0.bell.ring();
        }
    }
}
