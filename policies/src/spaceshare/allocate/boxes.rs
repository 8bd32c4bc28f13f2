//! Boxes of nodes × CPUs, packed as by the `BoxPacker` of RMS (paper 000 §3.2.1).
//!
//! A job gets the same number of CPUs on each of its nodes: on the leftmost range of neighbouring nodes with
//! enough free CPUs, because the network broadcasts over ranges; without such a range, on the leftmost nodes
//! with enough, in several boxes. On a node it gets the lowest free CPUs. Neighbouring nodes with the same
//! free CPUs are kept as one run, so costs grow with the number of running jobs and not of nodes.

use std::collections::BTreeMap;

use super::{Allocation, Allocator, Mesh, Rect, Request, claimed, ledger::Ledger};
use crate::JobId;

/// Neighbouring nodes with the same free CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    nodes: u32,
    /// Bit `i` for CPU `i`.
    free: u64,
}

#[derive(Clone, Debug)]
pub struct BoxPacker {
    extent: Mesh,
    /// By first node. Runs cover all nodes, and neighbouring runs differ.
    runs: BTreeMap<u32, Run>,
    free: u32,
    held: Ledger,
}

impl BoxPacker {
    /// `nodes` free nodes of `cpus` CPUs each.
    ///
    /// # Panics
    /// Where there are more than 64 CPUs in a node.
    #[must_use]
    pub fn new(nodes: u32, cpus: u32) -> Self {
        assert!(cpus <= 64, "a node has at most 64 CPUs");
        let free = if cpus == 64 { u64::MAX } else { (1 << cpus) - 1 };
        let runs = (nodes > 0).then_some((0, Run { nodes, free })).into_iter().collect();
        let extent = Mesh { width: nodes, height: cpus };
        Self { extent, runs, free: extent.units(), held: Ledger::default() }
    }

    /// Allocates exactly the blocks of `wanted` to `job`; false, without a change, where any of them is held.
    pub fn claim_boxes(&mut self, job: JobId, wanted: &Allocation) -> bool {
        if !wanted.blocks.iter().all(|part| self.is_free(part)) {
            return false;
        }
        self.flip(&wanted.blocks);
        self.free -= wanted.units();
        self.held.enter(job, wanted.request, wanted.blocks.clone());
        true
    }

    fn is_free(&self, part: &Rect) -> bool {
        let bits = bits(part.y, part.height);
        let first = self.runs.range(..=part.x).next_back().map_or(0, |(first, _)| *first);
        self.runs.range(first..part.x + part.width).all(|(_, run)| run.free & bits == bits)
    }

    /// The parts of runs, as (first node, nodes), for `request`.
    fn find(&self, request: Request) -> Option<Vec<(u32, u32)>> {
        self.find_range(request).or_else(|| self.find_scattered(request))
    }

    fn find_range(&self, request: Request) -> Option<Vec<(u32, u32)>> {
        let (mut parts, mut found) = (Vec::new(), 0);
        for (first, run) in &self.runs {
            if !run.grants(request.cpus) {
                parts.clear();
                found = 0;
                continue;
            }
            let nodes = run.nodes.min(request.nodes - found);
            parts.push((*first, nodes));
            found += nodes;
            if found == request.nodes {
                return Some(parts);
            }
        }
        None
    }

    fn find_scattered(&self, request: Request) -> Option<Vec<(u32, u32)>> {
        let (mut parts, mut left) = (Vec::new(), request.nodes);
        for (first, run) in self.runs.iter().filter(|(_, run)| run.grants(request.cpus)) {
            let nodes = run.nodes.min(left);
            parts.push((*first, nodes));
            left -= nodes;
            if left == 0 {
                return Some(parts);
            }
        }
        None
    }

    /// Takes the CPUs of `boxes`, or frees them.
    fn flip(&mut self, boxes: &[Rect]) {
        for part in boxes {
            self.split_at(part.x);
            self.split_at(part.x + part.width);
            let bits = bits(part.y, part.height);
            self.runs.range_mut(part.x..part.x + part.width).for_each(|(_, run)| run.free ^= bits);
        }
        for part in boxes {
            self.merge_equal(part.x, part.x + part.width);
        }
    }

    /// Makes a run begin at `node`.
    fn split_at(&mut self, node: u32) {
        if node >= self.extent.width || self.runs.contains_key(&node) {
            return;
        }
        let (&first, run) = self.runs.range_mut(..node).next_back().expect("runs cover all nodes");
        let rest = Run { nodes: first + run.nodes - node, free: run.free };
        run.nodes = node - first;
        self.runs.insert(node, rest);
    }

    /// Joins equal neighbours from the run before `from` to the one that begins at `to`.
    fn merge_equal(&mut self, from: u32, to: u32) {
        let mut first = self.runs.range(..=from).next_back().map(|(first, _)| *first).unwrap_or(from);
        if let Some((before, _)) = self.runs.range(..first).next_back() {
            first = *before;
        }
        while first < to {
            let Run { nodes, free } = self.runs[&first];
            match self.runs.get(&(first + nodes)).copied() {
                Some(next) if next.free == free => {
                    self.runs.remove(&(first + nodes));
                    self.runs.insert(first, Run { nodes: nodes + next.nodes, free });
                }
                Some(_) => first += nodes,
                None => return,
            }
        }
    }

    /// The number of nodes with `cpus` free CPUs: in all, and in the longest range of neighbours.
    fn nodes_with(&self, cpus: u32) -> (u32, u32) {
        let (mut all, mut longest, mut range) = (0, 0, 0);
        for run in self.runs.values() {
            if run.grants(cpus) {
                all += run.nodes;
                range += run.nodes;
                longest = longest.max(range);
            } else {
                range = 0;
            }
        }
        (all, longest)
    }
}

impl Run {
    const fn grants(self, cpus: u32) -> bool {
        self.free.count_ones() >= cpus
    }

    /// Boxes of the lowest `cpus` free CPUs on `nodes` nodes from `first` on.
    fn boxes(self, first: u32, nodes: u32, cpus: u32) -> Vec<Rect> {
        let (mut boxes, mut free, mut left) = (Vec::new(), self.free, cpus);
        while left > 0 {
            let low = free.trailing_zeros();
            let height = (free >> low).trailing_ones().min(left);
            boxes.push(Rect { x: first, y: low, width: nodes, height });
            free &= !bits(low, height);
            left -= height;
        }
        boxes
    }
}

/// The bits of CPUs `low .. low + count`.
const fn bits(low: u32, count: u32) -> u64 {
    if count == 64 { u64::MAX } else { ((1 << count) - 1) << low }
}

/// Joins boxes that lie side by side on the same CPUs.
fn joined(boxes: Vec<Rect>) -> Vec<Rect> {
    let mut joined: Vec<Rect> = Vec::with_capacity(boxes.len());
    for part in boxes {
        let beside = |other: &&mut Rect| {
            (other.y, other.height, other.x + other.width) == (part.y, part.height, part.x)
        };
        match joined.iter_mut().find(beside) {
            Some(other) => other.width += part.width,
            None => joined.push(part),
        }
    }
    joined
}

impl Allocator for BoxPacker {
    fn allocate(&mut self, job: JobId, request: Request) -> Option<&Allocation> {
        if !self.can_ever_hold(request) {
            return None;
        }
        let parts = self.find(request)?;
        let boxes =
            parts.into_iter().flat_map(|(first, nodes)| self.runs[&first].boxes(first, nodes, request.cpus));
        let boxes = joined(boxes.collect());
        self.flip(&boxes);
        self.free -= request.units();
        Some(self.held.enter(job, request, boxes))
    }

    fn claim(&mut self, job: JobId, units: &[u32]) -> bool {
        if units.iter().any(|unit| *unit >= self.extent.units()) {
            return false;
        }
        let (request, blocks) = claimed(self.extent, units);
        self.claim_boxes(job, &Allocation { request, blocks })
    }

    fn mesh(&self) -> Mesh {
        self.extent
    }

    fn release(&mut self, job: JobId) -> Option<Allocation> {
        let allocation = self.held.strike(job)?;
        self.flip(&allocation.blocks);
        self.free += allocation.units();
        Some(allocation)
    }

    fn allocation(&self, job: JobId) -> Option<&Allocation> {
        self.held.get(job)
    }

    fn total(&self) -> u32 {
        self.extent.units()
    }

    fn free(&self) -> u32 {
        self.free
    }

    fn can_ever_hold(&self, request: Request) -> bool {
        (1..=self.extent.width).contains(&request.nodes) && (1..=self.extent.height).contains(&request.cpus)
    }

    fn largest_request(&self) -> u32 {
        self.nodes_with(1).0
    }

    fn largest_units(&self) -> u32 {
        (1..=self.extent.height).map(|cpus| cpus * self.nodes_with(cpus).0).max().unwrap_or(0)
    }

    fn largest_block(&self) -> u32 {
        (1..=self.extent.height).map(|cpus| cpus * self.nodes_with(cpus).1).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(packer: &mut BoxPacker, job: u32, nodes: u32, cpus: u32) -> Vec<(u32, u32, u32, u32)> {
        let got = packer.allocate(JobId(job), Request { nodes, cpus });
        got.map_or_else(Vec::new, |got| got.blocks.iter().map(|b| (b.x, b.y, b.width, b.height)).collect())
    }

    #[test]
    fn boxes_share_nodes_by_cpus() {
        let mut packer = BoxPacker::new(8, 4);
        assert_eq!(place(&mut packer, 0, 4, 2), [(0, 0, 4, 2)]);
        assert_eq!(place(&mut packer, 1, 6, 2), [(0, 2, 4, 2), (4, 0, 2, 2)]);
        assert_eq!(place(&mut packer, 2, 3, 3), []);
        assert_eq!(place(&mut packer, 2, 2, 4), [(6, 0, 2, 4)]);
        assert_eq!(packer.free(), 4);
    }

    #[test]
    fn without_a_range_of_neighbours_several_boxes_are_given() {
        let mut packer = BoxPacker::new(6, 2);
        (0..3).for_each(|job| drop(place(&mut packer, job, 2, 2)));
        packer.release(JobId(0));
        packer.release(JobId(2));
        assert_eq!(place(&mut packer, 3, 3, 1), [(0, 0, 2, 1), (4, 0, 1, 1)]);
        // Of the five free CPUs, four are one CPU on each node, and two are a whole node.
        let cut = packer.fragmentation();
        assert_eq!((cut.free, cut.largest_block, cut.largest_request), (5, 2, 4));
        packer.release(JobId(1));
        packer.release(JobId(3));
        assert_eq!(packer.runs.len(), 1);
    }
}
