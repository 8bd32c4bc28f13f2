//! The two-dimensional buddy system of Li and Cheng, as in paper 002 §2.4: squares whose side is a power of
//! two.
//!
//! A request is rounded up to the smallest square that holds it. A larger free square is quartered down to
//! that size, and four free quarters join to their parent again. The system was made for square meshes of a
//! power of two; other meshes are first tiled with aligned squares. A request larger than the largest tile is
//! never granted. This, and the waste of up to three quarters of a square, is what M2DB ([`super::M2db`])
//! avoids. Both operations cost O(log² nodes).

use std::collections::BTreeSet;

use super::{Allocation, Allocator, Mesh, Rect, Request, claimed, ledger::Ledger};
use crate::JobId;

#[derive(Clone, Debug)]
pub struct Buddy2d {
    mesh: Mesh,
    /// Upper left corners, as (y, x), of the free squares, by the logarithm of their side.
    free_squares: Vec<BTreeSet<(u32, u32)>>,
    free: u32,
    held: Ledger,
}

impl Buddy2d {
    #[must_use]
    pub fn new(mesh: Mesh) -> Self {
        let side = mesh.width.min(mesh.height).max(1);
        let free_squares = vec![BTreeSet::new(); side.ilog2() as usize + 1];
        let mut new = Self { mesh, free_squares, free: 0, held: Ledger::default() };
        new.tile(0, 0, mesh.width.max(mesh.height).next_power_of_two());
        new
    }

    /// Frees the largest aligned squares inside both the mesh and the square at (x, y).
    fn tile(&mut self, x: u32, y: u32, side: u32) {
        if x >= self.mesh.width || y >= self.mesh.height {
            return;
        }
        if x + side <= self.mesh.width && y + side <= self.mesh.height {
            self.free_squares[side.ilog2() as usize].insert((y, x));
            self.free += side * side;
            return;
        }
        for (x, y) in quarters(x, y, side / 2) {
            self.tile(x, y, side / 2);
        }
    }

    fn take(&mut self, order: usize) -> Option<(u32, u32)> {
        let from = (order..self.free_squares.len()).find(|order| !self.free_squares[*order].is_empty())?;
        let (y, x) = self.free_squares[from].pop_first()?;
        for half in order..from {
            let others = quarters(x, y, 1 << half).into_iter().skip(1);
            self.free_squares[half].extend(others.map(|(x, y)| (y, x)));
        }
        self.free -= 1 << (2 * order);
        Some((x, y))
    }

    /// The order and the upper left corner of the free square that holds the unit at (x, y).
    fn around(&self, x: u32, y: u32) -> Option<(usize, u32, u32)> {
        let corner = |order: usize| (x & !((1 << order) - 1), y & !((1 << order) - 1));
        (0..self.free_squares.len())
            .map(|order| (order, corner(order).0, corner(order).1))
            .find(|(order, x, y)| self.free_squares[*order].contains(&(*y, *x)))
    }

    /// Takes a free unit out of its square, whose other parts stay free.
    fn take_one(&mut self, x: u32, y: u32) {
        let (order, mut left, mut top) = self.around(x, y).expect("the unit is free");
        self.free_squares[order].remove(&(top, left));
        for half in (0..order).rev() {
            let side = 1 << half;
            let own =
                (left + if x < left + side { 0 } else { side }, top + if y < top + side { 0 } else { side });
            let others = quarters(left, top, side).into_iter().filter(|part| *part != own);
            self.free_squares[half].extend(others.map(|(x, y)| (y, x)));
            (left, top) = own;
        }
        self.free -= 1;
    }

    fn give(&mut self, mut x: u32, mut y: u32, mut order: usize) {
        self.free += 1 << (2 * order);
        self.free_squares[order].insert((y, x));
        while order + 1 < self.free_squares.len() {
            let (left, top) = (x & !(1 << order), y & !(1 << order));
            let family = quarters(left, top, 1 << order);
            if !family.iter().all(|(x, y)| self.free_squares[order].contains(&(*y, *x))) {
                return;
            }
            for (x, y) in family {
                self.free_squares[order].remove(&(y, x));
            }
            (x, y, order) = (left, top, order + 1);
            self.free_squares[order].insert((y, x));
        }
    }
}

/// The upper left corners of the four squares of side `side` from (x, y) on.
const fn quarters(x: u32, y: u32, side: u32) -> [(u32, u32); 4] {
    [(x, y), (x + side, y), (x + side, y + side), (x, y + side)]
}

/// The order of the square that holds `nodes`.
const fn order_of(nodes: u32) -> usize {
    (nodes.next_power_of_two().ilog2() as usize).div_ceil(2)
}

impl Allocator for Buddy2d {
    fn allocate(&mut self, job: JobId, request: Request) -> Option<&Allocation> {
        if !self.can_ever_hold(request) {
            return None;
        }
        let order = order_of(request.nodes);
        let (x, y) = self.take(order)?;
        let square = Rect { x, y, width: 1 << order, height: 1 << order };
        Some(self.held.enter(job, request, vec![square]))
    }

    fn claim(&mut self, job: JobId, units: &[u32]) -> bool {
        let (request, blocks) = claimed(self.mesh, units);
        if !blocks.iter().all(|unit| self.around(unit.x, unit.y).is_some()) {
            return false;
        }
        blocks.iter().for_each(|unit| self.take_one(unit.x, unit.y));
        self.held.enter(job, request, blocks);
        true
    }

    fn mesh(&self) -> Mesh {
        self.mesh
    }

    fn release(&mut self, job: JobId) -> Option<Allocation> {
        let allocation = self.held.strike(job)?;
        for square in &allocation.blocks {
            self.give(square.x, square.y, square.width.ilog2() as usize);
        }
        Some(allocation)
    }

    fn allocation(&self, job: JobId) -> Option<&Allocation> {
        self.held.get(job)
    }

    fn total(&self) -> u32 {
        self.mesh.units()
    }

    fn free(&self) -> u32 {
        self.free
    }

    fn can_ever_hold(&self, request: Request) -> bool {
        let largest = 1 << (2 * (self.free_squares.len() - 1));
        request.cpus == 1 && self.mesh.units() > 0 && (1..=largest).contains(&request.nodes)
    }

    fn largest_request(&self) -> u32 {
        self.free_squares.iter().rposition(|squares| !squares.is_empty()).map_or(0, |order| 1 << (2 * order))
    }

    fn internal(&self) -> u32 {
        self.held.excess()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_gets_the_smallest_square_of_a_power_of_two_that_holds_it() {
        let mut mesh = Buddy2d::new(Mesh { width: 8, height: 8 });
        let square = |x, y, side| [Rect { x, y, width: side, height: side }];
        assert_eq!(mesh.allocate(JobId(0), Request::nodes(5)).unwrap().blocks, square(0, 0, 4));
        assert_eq!(mesh.allocate(JobId(1), Request::nodes(4)).unwrap().blocks, square(4, 0, 2));
        assert_eq!(mesh.allocate(JobId(2), Request::nodes(16)).unwrap().blocks, square(0, 4, 4));
        assert_eq!((mesh.fragmentation().internal, mesh.free()), (11, 64 - 16 - 4 - 16));
        assert_eq!(mesh.allocate(JobId(3), Request::nodes(17)), None);
        (0..3).for_each(|job| drop(mesh.release(JobId(job))));
        assert_eq!(mesh.largest_request(), 64);
    }

    #[test]
    fn a_mesh_of_another_form_is_tiled_with_squares() {
        let mesh = Buddy2d::new(Mesh { width: 7, height: 16 });
        assert_eq!((mesh.total(), mesh.free(), mesh.largest_request()), (112, 112, 16));
        assert!(!mesh.can_ever_hold(Request::nodes(17)));
    }
}
