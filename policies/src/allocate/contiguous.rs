//! First fit with contiguity: the leftmost run of neighbours that is long enough.
//!
//! As RMS prefers it for the broadcast of its network (paper 000 §3.2.1). A job waits though enough nodes are free where they
//! do not lie together: external fragmentation.

use super::{Allocation, Allocator, Fragmentation, Rect, Request, ledger::Ledger, runs::Runs};
use crate::JobId;

/// See the module.
#[derive(Clone, Debug)]
pub struct Contiguous {
    nodes: u32,
    runs: Runs,
    held: Ledger,
}

impl Contiguous {
    /// `nodes` free nodes side by side.
    #[must_use]
    pub fn new(nodes: u32) -> Self {
        Self { nodes, runs: Runs::all(nodes), held: Ledger::default() }
    }
}

impl Allocator for Contiguous {
    fn allocate(&mut self, job: JobId, request: Request) -> Option<&Allocation> {
        if request.cpus != 1 {
            return None;
        }
        let first = self.runs.leftmost(request.nodes)?;
        self.runs.take(first, request.nodes);
        let blocks = vec![Rect::run(first, request.nodes)];
        Some(self.held.enter(job, request, blocks))
    }

    fn release(&mut self, job: JobId) -> Option<Allocation> {
        let allocation = self.held.strike(job)?;
        allocation.blocks.iter().for_each(|block| self.runs.give(block.x, block.width));
        Some(allocation)
    }

    fn allocation(&self, job: JobId) -> Option<&Allocation> {
        self.held.get(job)
    }

    fn total(&self) -> u32 {
        self.nodes
    }

    fn free(&self) -> u32 {
        self.runs.free()
    }

    fn can_ever_hold(&self, request: Request) -> bool {
        request.cpus == 1 && (1..=self.nodes).contains(&request.nodes)
    }

    fn largest_request(&self) -> u32 {
        self.runs.longest()
    }

    fn fragmentation(&self) -> Fragmentation {
        let longest = self.runs.longest();
        Fragmentation {
            total: self.nodes,
            free: self.runs.free(),
            internal: 0,
            largest_block: longest,
            largest_request: longest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enough_free_nodes_do_not_help_where_they_do_not_lie_together() {
        let mut nodes = Contiguous::new(8);
        for (job, count) in [(0, 2), (1, 2), (2, 2)] {
            nodes.allocate(JobId(job), Request::nodes(count)).unwrap();
        }
        nodes.release(JobId(1)).unwrap();
        assert_eq!(nodes.allocate(JobId(3), Request::nodes(3)), None);
        let cut = nodes.fragmentation();
        assert_eq!((cut.free, cut.largest_request), (4, 2));
        assert!((cut.external_share() - 0.5).abs() < 1e-12);
        let got = nodes.allocate(JobId(3), Request::nodes(2)).unwrap();
        assert_eq!(got.blocks, [Rect::run(2, 2)]);
    }
}
