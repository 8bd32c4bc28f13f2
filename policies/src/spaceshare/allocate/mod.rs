//! Allocators of space sharing: they choose the nodes that a job has to itself.
//!
//! Every machine is a rectangle of units: a line of nodes is one unit high, a mesh is `width × height` nodes,
//! and SMP nodes are `nodes × CPUs`. An allocation is a list of rectangles, so a job of 100,000 nodes costs
//! no more than one of two.
//!
//! | file | allocator | follows |
//! | --- | --- | --- |
//! | `line` | the lowest free nodes; the first run of neighbours that suffices | the usual baselines |
//! | `buddy` | aligned blocks of a power of two | ParPar, DHC: paper 000 §4.3.1 |
//! | `buddy_2d` | squares of a power of two | Li and Cheng: paper 002 §2.4 |
//! | `m2db` | rectangles around an anchor block | paper 002 §2.4.1-2.4.2 |
//! | `boxes` | nodes × CPUs | RMS `BoxPacker`: paper 000 §3.2.1 |
//! | `rect`, `runs`, `ledger` | rectangles, runs of free nodes, current allocations | |
//!
//! Invariants, checked for all of them by the property tests of `tests/allocate.rs`: two jobs never hold the
//! same unit; free and held units add up to all units; when every job has left, the machine is as at the
//! beginning.

mod boxes;
mod buddy;
mod buddy_2d;
mod ledger;
mod line;
mod m2db;
mod rect;
mod runs;

use std::fmt;

use dyn_clone::DynClone;
use serde::{Deserialize, Serialize};

pub use boxes::BoxPacker;
pub use buddy::Buddy;
pub use buddy_2d::Buddy2d;
pub use line::{Contiguous, FirstFit, LineAllocator};
pub use m2db::M2db;
pub use rect::{Mesh, Rect};

use crate::JobId;

/// The nodes that a job asks for.
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

/// The nodes that a job got, as rectangles that do not overlap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    pub request: Request,
    /// In the order in which they were found.
    pub blocks: Vec<Rect>,
}

impl Allocation {
    /// Units held: never fewer than requested.
    #[must_use]
    pub fn units(&self) -> u32 {
        self.blocks.iter().map(|block| block.area()).sum()
    }

    /// Units held beyond the request: internal fragmentation.
    #[must_use]
    pub fn excess(&self) -> u32 {
        self.units() - self.request.units()
    }
}

/// Fragmentation of a machine at one moment, in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fragmentation {
    pub total: u32,
    pub free: u32,
    /// Units held beyond the requests.
    pub internal: u32,
    pub largest_block: u32,
    /// The most units that a single request could get now.
    pub largest_request: u32,
}

impl Fragmentation {
    /// The share of the held units that was not requested.
    #[must_use]
    pub fn internal_share(&self) -> f64 {
        share(self.internal, self.total - self.free)
    }

    /// The share of the free units that no single request can get: 0 for an allocator that takes any free
    /// nodes.
    #[must_use]
    pub fn external_share(&self) -> f64 {
        share(self.free - self.largest_request.min(self.free), self.free)
    }

    /// The share of the free units outside the largest free block.
    #[must_use]
    pub fn scatter_share(&self) -> f64 {
        share(self.free - self.largest_block.min(self.free), self.free)
    }
}

fn share(part: u32, whole: u32) -> f64 {
    if whole == 0 { 0.0 } else { f64::from(part) / f64::from(whole) }
}

/// Chooses nodes for jobs. The same requests in the same order give the same choices.
pub trait Allocator: DynClone + fmt::Debug + Send {
    /// Allocates `request` to `job`; `None`, without a change, where it cannot be granted now.
    ///
    /// # Panics
    /// Where the job holds an allocation already.
    fn allocate(&mut self, job: JobId, request: Request) -> Option<&Allocation>;

    /// Allocates exactly these units, by their numbers in the [mesh](Self::mesh), to `job`, which has them
    /// already or is to have no others. False, without a change, where any of them is held or unknown.
    ///
    /// # Panics
    /// Where the job holds an allocation already.
    fn claim(&mut self, job: JobId, units: &[u32]) -> bool;

    /// The extent within which units are numbered row by row.
    fn mesh(&self) -> Mesh;

    /// Releases the allocation of `job`; `None` where it has none.
    fn release(&mut self, job: JobId) -> Option<Allocation>;

    fn allocation(&self, job: JobId) -> Option<&Allocation>;

    fn total(&self) -> u32;

    fn free(&self) -> u32;

    /// Whether the empty machine grants `request`.
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

    /// The largest request (of one CPU a node) that could be granted now.
    fn largest_request(&self) -> u32;

    /// The most units that a single request could get now.
    fn largest_units(&self) -> u32 {
        self.largest_request()
    }

    fn largest_block(&self) -> u32 {
        self.largest_request()
    }

    /// Units held beyond the requests.
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

dyn_clone::clone_trait_object!(Allocator);

/// The request and the blocks of a claim: one block for each unit.
fn claimed(mesh: Mesh, units: &[u32]) -> (Request, Vec<Rect>) {
    (
        Request::nodes(u32::try_from(units.len()).unwrap_or(u32::MAX)),
        units.iter().map(|unit| mesh.unit(*unit)).collect(),
    )
}
