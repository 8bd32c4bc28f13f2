//! Buddy tree over a line of nodes, as in the gang scheduler DHC and in ParPar, whose module the testbed uses
//! (paper 000 §4.3.1).
//!
//! A request is rounded up to a power of two and gets an aligned block of that size: the smallest free block
//! that suffices, the leftmost of equals, halved down to the size. A freed block joins its buddy. Rounding
//! wastes nodes inside the block (internal fragmentation), alignment wastes nodes outside it. Both operations
//! cost O(log² nodes).
//!
//! Where the number of nodes is no power of two, the tree reaches past the end, and blocks that would reach
//! past it do not exist.

use std::collections::BTreeSet;

use super::{Allocation, Allocator, Mesh, Rect, Request, claimed, ledger::Ledger};
use crate::JobId;

#[derive(Clone, Debug)]
pub struct Buddy {
    nodes: u32,
    /// First nodes of the free blocks, by the logarithm of their size.
    free_blocks: Vec<BTreeSet<u32>>,
    free: u32,
    held: Ledger,
}

impl Buddy {
    #[must_use]
    pub fn new(nodes: u32) -> Self {
        let orders = nodes.max(1).ilog2() as usize + 1;
        let mut free_blocks = vec![BTreeSet::new(); orders];
        let mut first = 0;
        for order in (0..orders).rev().filter(|order| nodes >> order & 1 == 1) {
            free_blocks[order].insert(first);
            first += 1 << order;
        }
        Self { nodes, free_blocks, free: nodes, held: Ledger::default() }
    }

    fn take(&mut self, order: usize) -> Option<u32> {
        let from = (order..self.free_blocks.len()).find(|order| !self.free_blocks[*order].is_empty())?;
        let first = self.free_blocks[from].pop_first()?;
        // The left half is divided further, the right halves stay free.
        for half in order..from {
            self.free_blocks[half].insert(first + (1 << half));
        }
        self.free -= 1 << order;
        Some(first)
    }

    /// The order and the first node of the free block that holds `node`.
    fn around(&self, node: u32) -> Option<(usize, u32)> {
        let first = |order: usize| node & !((1 << order) - 1);
        (0..self.free_blocks.len())
            .map(|order| (order, first(order)))
            .find(|(order, first)| self.free_blocks[*order].contains(first))
    }

    /// Takes a free node out of its block, whose other parts stay free.
    fn take_one(&mut self, node: u32) {
        let (order, mut first) = self.around(node).expect("the node is free");
        self.free_blocks[order].remove(&first);
        for half in (0..order).rev() {
            let right = first + (1 << half);
            self.free_blocks[half].insert(if node < right { right } else { first });
            first = if node < right { first } else { right };
        }
        self.free -= 1;
    }

    fn give(&mut self, mut first: u32, mut order: usize) {
        self.free += 1 << order;
        while order + 1 < self.free_blocks.len() && self.free_blocks[order].remove(&(first ^ (1 << order))) {
            first &= !(1 << order);
            order += 1;
        }
        self.free_blocks[order].insert(first);
    }
}

/// The order of the block that holds `nodes`.
fn order_of(nodes: u32) -> usize {
    nodes.next_power_of_two().ilog2() as usize
}

impl Allocator for Buddy {
    fn allocate(&mut self, job: JobId, request: Request) -> Option<&Allocation> {
        if !self.can_ever_hold(request) {
            return None;
        }
        let order = order_of(request.nodes);
        let first = self.take(order)?;
        Some(self.held.enter(job, request, vec![Rect::run(first, 1 << order)]))
    }

    fn claim(&mut self, job: JobId, units: &[u32]) -> bool {
        if !units.iter().all(|unit| self.around(*unit).is_some()) {
            return false;
        }
        units.iter().for_each(|unit| self.take_one(*unit));
        let (request, blocks) = claimed(self.mesh(), units);
        self.held.enter(job, request, blocks);
        true
    }

    fn mesh(&self) -> Mesh {
        Mesh::line(self.nodes)
    }

    fn release(&mut self, job: JobId) -> Option<Allocation> {
        let allocation = self.held.strike(job)?;
        allocation.blocks.iter().for_each(|block| self.give(block.x, order_of(block.width)));
        Some(allocation)
    }

    fn allocation(&self, job: JobId) -> Option<&Allocation> {
        self.held.get(job)
    }

    fn total(&self) -> u32 {
        self.nodes
    }

    fn free(&self) -> u32 {
        self.free
    }

    fn can_ever_hold(&self, request: Request) -> bool {
        let largest = 1 << (self.free_blocks.len() - 1);
        request.cpus == 1 && self.nodes > 0 && (1..=largest).contains(&request.nodes)
    }

    fn largest_request(&self) -> u32 {
        self.free_blocks.iter().rposition(|blocks| !blocks.is_empty()).map_or(0, |order| 1 << order)
    }

    fn internal(&self) -> u32 {
        self.held.excess()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(nodes: &mut Buddy, job: u32, count: u32) -> Vec<Rect> {
        nodes.allocate(JobId(job), Request::nodes(count)).map_or_else(Vec::new, |got| got.blocks.clone())
    }

    #[test]
    fn a_request_gets_an_aligned_block_of_a_power_of_two() {
        let mut nodes = Buddy::new(16);
        assert_eq!(blocks(&mut nodes, 0, 3), [Rect::run(0, 4)]);
        assert_eq!(blocks(&mut nodes, 1, 5), [Rect::run(8, 8)]);
        assert_eq!(blocks(&mut nodes, 2, 1), [Rect::run(4, 1)]);
        assert_eq!(blocks(&mut nodes, 3, 2), [Rect::run(6, 2)]);
        assert_eq!(nodes.fragmentation().internal, 1 + 3);
        nodes.release(JobId(2));
        assert_eq!(nodes.largest_request(), 2);
        nodes.release(JobId(3));
        assert_eq!(nodes.largest_request(), 4);
    }

    #[test]
    fn nodes_past_the_last_power_of_two_are_used_as_smaller_blocks() {
        let mut nodes = Buddy::new(11);
        assert!(!nodes.can_ever_hold(Request::nodes(9)));
        assert_eq!(blocks(&mut nodes, 0, 8), [Rect::run(0, 8)]);
        assert_eq!(blocks(&mut nodes, 1, 2), [Rect::run(8, 2)]);
        assert_eq!(blocks(&mut nodes, 2, 1), [Rect::run(10, 1)]);
        (0..3).for_each(|job| drop(nodes.release(JobId(job))));
        assert_eq!((nodes.largest_request(), nodes.free()), (8, 11));
    }
}
