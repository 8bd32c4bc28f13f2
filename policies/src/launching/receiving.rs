//! A node's side: takes fragments out of its global memory, and says how many it has written.

use super::{ARRIVED, TAKEN, WINDOW, fragments, slot};
use crate::primitives::{Memory, SharedBytes};

/// A program that comes.
#[derive(Clone, Debug)]
pub struct Receiving {
    fragments: u32,
    /// Fragments that were taken out of memory.
    arrived: u32,
    written: u32,
}

impl Receiving {
    /// Of a program of so many bytes, which was announced: from now on the node has taken nothing.
    #[must_use]
    pub fn begin(bytes: u64, memory: &mut Memory) -> Self {
        Self::clear(memory);
        memory.set(TAKEN, 0);
        Self { fragments: fragments(bytes), arrived: 0, written: 0 }
    }

    /// Nothing is left in memory of a program that was given up.
    pub fn clear(memory: &mut Memory) {
        while memory.test_event(ARRIVED) {}
        (0..WINDOW).for_each(|fragment| drop(memory.take(slot(fragment))));
    }

    /// The next fragment, if it is there.
    pub fn take(&mut self, memory: &mut Memory) -> Option<SharedBytes> {
        if self.arrived == self.fragments || !memory.test_event(ARRIVED) {
            return None;
        }
        let fragment = memory.take(slot(self.arrived))?;
        self.arrived += 1;
        Some(fragment)
    }

    /// One fragment more is written; of the last one: the whole program is as it was announced.
    pub fn on_written(&mut self, memory: &mut Memory) {
        self.written += 1;
        memory.set(TAKEN, i64::from(self.written));
    }
}
