//! Allocators: which nodes a job gets to itself (space sharing).
//!
//! Every machine is a rectangle of units: a line of nodes is one unit high, a mesh is `width × height` nodes, and SMP nodes
//! are `nodes × CPUs`. An allocation is a list of rectangles, so a job of 100,000 nodes costs no more than one of two.
//!
//! | file | allocator | follows |
//! | --- | --- | --- |
//! | `line` | the lowest free nodes, wherever they lie; the first run of neighbours that is long enough | the usual baselines |
//! | `buddy` | aligned blocks of a power of two | ParPar, DHC: paper 000 §4.3.1 |
//! | `buddy_2d` | squares of a power of two | Li and Cheng: paper 002 §2.4 |
//! | `m2db` | rectangles around an anchor block | paper 002 §2.4.1-2.4.2 |
//! | `boxes` | nodes × CPUs | RMS `BoxPacker`: paper 000 §3.2.1 |
//!
//! Invariants, which the property tests of `tests/allocate.rs` check for all of them: two jobs never hold the same unit; free and
//! held units are all units; when every job has left, the machine is as it was in the beginning.

mod boxes;
mod buddy;
mod buddy_2d;
mod ledger;
mod line;
mod m2db;
mod rect;
mod runs;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use boxes::BoxPacker;
pub use buddy::Buddy;
pub use buddy_2d::Buddy2d;
pub use line::{Contiguous, FirstFit, LineAllocator};
pub use m2db::M2db;
pub use rect::{Mesh, Rect};

use crate::JobId;

/// What a job wants to have to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Request {
    pub nodes: u32,
    /// CPUs on each of them; 1 where nodes are not divided.
    pub cpus: u32,
}

impl Request {
    /// `nodes` undivided nodes.
    #[must_use]
    pub const fn nodes(nodes: u32) -> Self {
        Self { nodes, cpus: 1 }
    }

    #[must_use]
    pub const fn units(self) -> u32 {
        self.nodes.saturating_mul(self.cpus)
    }
}

/// What a job got: rectangles that do not overlap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// What it had asked for.
    pub request: Request,
    /// What it holds, in the order in which it was found.
    pub blocks: Vec<Rect>,
}

impl Allocation {
    /// Units held: never fewer than asked for.
    #[must_use]
    pub fn units(&self) -> u32 {
        self.blocks.iter().map(|block| block.area()).sum()
    }

    /// Units held that nobody asked for: internal fragmentation.
    #[must_use]
    pub fn excess(&self) -> u32 {
        self.units() - self.request.units()
    }
}

/// How badly a machine is cut up, in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fragmentation {
    pub total: u32,
    /// Units nobody holds.
    pub free: u32,
    /// Units held that nobody asked for.
    pub internal: u32,
    pub largest_block: u32,
    /// The most units that a single request would be granted now.
    pub largest_request: u32,
}

impl Fragmentation {
    /// The share of the held units that nobody asked for.
    #[must_use]
    pub fn internal_share(&self) -> f64 {
        share(self.internal, self.total - self.free)
    }

    /// The share of the free units that no single request can have: 0 for an allocator that takes any free nodes.
    #[must_use]
    pub fn external_share(&self) -> f64 {
        share(self.free - self.largest_request.min(self.free), self.free)
    }

    /// The share of the free units outside the largest free block: how scattered they lie, granted or not.
    #[must_use]
    pub fn scatter_share(&self) -> f64 {
        share(self.free - self.largest_block.min(self.free), self.free)
    }
}

fn share(part: u32, whole: u32) -> f64 {
    if whole == 0 { 0.0 } else { f64::from(part) / f64::from(whole) }
}

/// Chooses nodes for jobs. Same requests in the same order, same choice.
pub trait Allocator: fmt::Debug + Send {
    /// Gives `job` what it requests; `None` where that is not to be had now, and nothing changes.
    ///
    /// # Panics
    /// Where the job holds something already.
    fn allocate(&mut self, job: JobId, request: Request) -> Option<&Allocation>;

    /// Takes back what `job` holds; `None` where it holds nothing.
    fn release(&mut self, job: JobId) -> Option<Allocation>;

    fn allocation(&self, job: JobId) -> Option<&Allocation>;

    fn total(&self) -> u32;

    /// Units nobody holds.
    fn free(&self) -> u32;

    /// Whether the empty machine grants `request`: otherwise it never will be.
    fn can_ever_hold(&self, request: Request) -> bool;

    /// The largest request (of one CPU a node) that the empty machine grants.
    fn largest_ever(&self) -> u32 {
        let (mut granted, mut refused) = (0, self.total().saturating_add(1));
        while granted + 1 < refused {
            let middle = granted + (refused - granted) / 2;
            if self.can_ever_hold(Request::nodes(middle)) { granted = middle } else { refused = middle }
        }
        granted
    }

    /// The largest request (of one CPU a node) that would be granted now.
    fn largest_request(&self) -> u32;

    /// The most units that a single request would be granted now.
    fn largest_units(&self) -> u32 {
        self.largest_request()
    }

    fn largest_block(&self) -> u32 {
        self.largest_request()
    }

    /// Units held that nobody asked for.
    fn internal(&self) -> u32 {
        0
    }

    fn fragmentation(&self) -> Fragmentation {
        Fragmentation {
            total: self.total(),
            free: self.free(),
            internal: self.internal(),
            largest_block: self.largest_block(),
            largest_request: self.largest_units(),
        }
    }
}
