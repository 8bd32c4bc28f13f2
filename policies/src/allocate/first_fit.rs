//! First fit without contiguity: the lowest free nodes, wherever they lie.
//!
//! It refuses only where too few nodes are free, so it bounds from above what any allocator can use; what it costs is
//! scatter: [`Fragmentation::scatter_share`] and the number of blocks tell.

use super::{Allocation, Allocator, Fragmentation, Rect, Request, ledger::Ledger, runs::Runs};
use crate::JobId;

/// See the module.
#[derive(Clone, Debug)]
pub struct FirstFit {
    nodes: u32,
    runs: Runs,
    held: Ledger,
}

impl FirstFit {
    /// `nodes` free nodes.
    #[must_use]
    pub fn new(nodes: u32) -> Self {
        Self { nodes, runs: Runs::all(nodes), held: Ledger::default() }
    }
}

impl Allocator for FirstFit {
    fn allocate(&mut self, job: JobId, request: Request) -> Option<&Allocation> {
        if request.cpus != 1 || request.nodes == 0 || request.nodes > self.runs.free() {
            return None;
        }
        let (mut blocks, mut left) = (Vec::with_capacity(1), request.nodes);
        while left > 0 {
            let (first, count) = self.runs.first().expect("enough nodes are free");
            let count = count.min(left);
            self.runs.take(first, count);
            blocks.push(Rect::run(first, count));
            left -= count;
        }
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
        self.runs.free()
    }

    fn fragmentation(&self) -> Fragmentation {
        let free = self.runs.free();
        Fragmentation {
            total: self.nodes,
            free,
            internal: 0,
            largest_block: self.runs.longest(),
            largest_request: free,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_gets_the_lowest_free_nodes_however_scattered() {
        let mut nodes = FirstFit::new(8);
        for (job, count) in [(0, 2), (1, 2), (2, 2)] {
            nodes.allocate(JobId(job), Request::nodes(count)).unwrap();
        }
        nodes.release(JobId(1)).unwrap();
        let got = nodes.allocate(JobId(3), Request::nodes(3)).unwrap();
        assert_eq!(got.blocks, [Rect::run(2, 2), Rect::run(6, 1)]);
        assert_eq!(nodes.allocate(JobId(4), Request::nodes(2)), None);
        assert_eq!((nodes.free(), nodes.release(JobId(1))), (1, None));
    }
}
