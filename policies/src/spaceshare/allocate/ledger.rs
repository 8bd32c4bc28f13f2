//! Ledger of allocations: which job holds which blocks, in the same way for all allocators.

use std::collections::BTreeMap;

use super::{Allocation, Rect, Request};
use crate::JobId;

/// The current allocations, and their excess units.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    held: BTreeMap<JobId, Allocation>,
    excess: u32,
}

impl Ledger {
    pub(super) fn enter(&mut self, job: JobId, request: Request, blocks: Vec<Rect>) -> &Allocation {
        let allocation = Allocation { request, blocks };
        self.excess += allocation.excess();
        let before = self.held.insert(job, allocation);
        assert!(before.is_none(), "{job} holds nothing yet");
        &self.held[&job]
    }

    pub(super) fn strike(&mut self, job: JobId) -> Option<Allocation> {
        let allocation = self.held.remove(&job)?;
        self.excess -= allocation.excess();
        Some(allocation)
    }

    pub(super) fn get(&self, job: JobId) -> Option<&Allocation> {
        self.held.get(&job)
    }

    pub(super) const fn excess(&self) -> u32 {
        self.excess
    }
}
