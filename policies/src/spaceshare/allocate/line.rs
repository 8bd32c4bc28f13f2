//! First fit and contiguous first fit over a line of nodes: the two usual baselines.
//!
//! [`FirstFit`] gives the lowest free nodes anywhere. It refuses only where too few are free, so it is the
//! upper bound of what any allocator can use. Its cost is scatter, shown by
//! [`scatter_share`](super::Fragmentation::scatter_share) and the number of blocks.
//!
//! [`Contiguous`] gives the leftmost run of neighbours that is long enough, as RMS prefers it for broadcasts
//! of its network (paper 000 §3.2.1). A job waits although enough nodes are free if they are not neighbours:
//! external fragmentation.

use super::{Allocation, Allocator, Mesh, Rect, Request, claimed, ledger::Ledger, runs::Runs};
use crate::JobId;

pub type FirstFit = LineAllocator<false>;
pub type Contiguous = LineAllocator<true>;

#[derive(Clone, Debug)]
pub struct LineAllocator<const CONTIGUOUS: bool> {
    nodes: u32,
    runs: Runs,
    held: Ledger,
}

impl<const CONTIGUOUS: bool> LineAllocator<CONTIGUOUS> {
    /// `nodes` free nodes side by side.
    #[must_use]
    pub fn new(nodes: u32) -> Self {
        Self { nodes, runs: Runs::all(nodes), held: Ledger::default() }
    }

    fn take(&mut self, first: u32, count: u32) -> Rect {
        self.runs.take(first, count);
        Rect::run(first, count)
    }
}

impl<const CONTIGUOUS: bool> Allocator for LineAllocator<CONTIGUOUS> {
    fn allocate(&mut self, job: JobId, request: Request) -> Option<&Allocation> {
        if request.cpus != 1 || request.nodes == 0 || request.nodes > self.largest_request() {
            return None;
        }
        let mut blocks = Vec::with_capacity(1);
        if CONTIGUOUS {
            let first = self.runs.leftmost(request.nodes)?;
            blocks.push(self.take(first, request.nodes));
        } else {
            let mut left = request.nodes;
            while left > 0 {
                let (first, count) = self.runs.first().expect("enough nodes are free");
                blocks.push(self.take(first, count.min(left)));
                left -= count.min(left);
            }
        }
        Some(self.held.enter(job, request, blocks))
    }

    fn claim(&mut self, job: JobId, units: &[u32]) -> bool {
        if !units.iter().all(|unit| self.runs.is_free(*unit)) {
            return false;
        }
        units.iter().for_each(|unit| self.runs.take_one(*unit));
        let (request, blocks) = claimed(self.mesh(), units);
        self.held.enter(job, request, blocks);
        true
    }

    fn mesh(&self) -> Mesh {
        Mesh::line(self.nodes)
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
        if CONTIGUOUS { self.runs.longest() } else { self.runs.free() }
    }

    fn largest_block(&self) -> u32 {
        self.runs.longest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight nodes, of which 2, 3, 6 and 7 are free.
    fn holed<const CONTIGUOUS: bool>() -> LineAllocator<CONTIGUOUS> {
        let mut nodes = LineAllocator::new(8);
        for (job, count) in [(0, 2), (1, 2), (2, 2)] {
            nodes.allocate(JobId(job), Request::nodes(count)).unwrap();
        }
        nodes.release(JobId(1)).unwrap();
        nodes
    }

    #[test]
    fn a_job_gets_the_lowest_free_nodes_however_scattered() {
        let mut nodes: FirstFit = holed();
        let got = nodes.allocate(JobId(3), Request::nodes(3)).unwrap();
        assert_eq!(got.blocks, [Rect::run(2, 2), Rect::run(6, 1)]);
        assert_eq!(nodes.allocate(JobId(4), Request::nodes(2)), None);
        assert_eq!((nodes.free(), nodes.release(JobId(1))), (1, None));
    }

    #[test]
    fn enough_free_nodes_do_not_help_where_they_do_not_lie_together() {
        let mut nodes: Contiguous = holed();
        assert_eq!(nodes.allocate(JobId(3), Request::nodes(3)), None);
        let cut = nodes.fragmentation();
        assert_eq!((cut.free, cut.largest_request), (4, 2));
        assert!((cut.external_share() - 0.5).abs() < 1e-12);
        let got = nodes.allocate(JobId(3), Request::nodes(2)).unwrap();
        assert_eq!(got.blocks, [Rect::run(2, 2)]);
    }
}
